#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/decide.hpp"
#include "tools/kvreplay/model_text.hpp"
#include "tools/kvreplay/result_folder.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

// What the two kinds of `kvreplay evaluate`, a followed text and needles, have in common.

struct EvaluateOptions {
  std::string model;
  TextOptions text;
  std::vector<std::string> systems;
  std::vector<std::int64_t> budgets;
  std::vector<std::int64_t> bits;
  std::vector<std::string> sets;  ///< SYSTEM.PART.PARAMETER=VALUE,VALUE
  std::string adapter_trace;
  std::string out;
  std::int64_t prompt = 2048;
  std::int64_t steps = 256;
  std::uint64_t seed = 1;
  int threads = 0;
  bool needle = false;
  std::vector<std::int64_t> lengths{1024, 2048};
  std::vector<double> depths{0, 0.25, 0.5, 0.75, 1};
};

/// One system at one point of its budget's axis.
struct EvaluationCell {
  NamedDecideSpec decide;
  std::string system;
  std::string budget;  ///< "" where the system has none to set
  std::string unit;    ///< "tokens", "bits", the parameter of --set, or ""
};

/// Every system at every value of its budget's axis; a UserError names what cannot be.
[[nodiscard]] std::vector<EvaluationCell> make_cells(const EvaluateOptions& options);
[[nodiscard]] std::vector<NamedDecideSpec> specs_of(std::span<const EvaluationCell> cells);

/// The text as a trace of its first tokens, with the matrices of the adapter trace where one is
/// given: what both loops take their adapters from. It is removed at the end.
class OwnTrace {
 public:
  OwnTrace(const EvaluateOptions& options, const Model& model, const ModelText& text,
           std::int64_t prompt_tokens, std::int64_t steps, const ResultFolder& folder);
  ~OwnTrace();
  OwnTrace(const OwnTrace&) = delete;
  OwnTrace& operator=(const OwnTrace&) = delete;

  [[nodiscard]] const TraceReader& trace() const { return *trace_; }
  /// Says which option is missing where a system asks for a matrix and there is no adapter trace.
  [[nodiscard]] const AdapterSource& adapters() const { return *adapters_; }

 private:
  std::string file_;
  std::unique_ptr<TraceReader> trace_;
  std::shared_ptr<const AdapterSource> adapters_;
};

/// A column of a table with a row for each index.
struct Column {
  std::string name;
  std::function<std::string(std::size_t)> value;
  int decimals = 0;  ///< in the table; numbers only. -1: as they are
  bool numeric = true;
};

[[nodiscard]] std::string csv(std::span<const Column> columns, std::size_t rows);
/// For people: numbers rounded, columns aligned.
[[nodiscard]] std::string table(std::span<const Column> columns, std::size_t rows);
/// system, budget and budget_unit. The cells outlive the columns.
[[nodiscard]] std::vector<Column> cell_columns(std::span<const EvaluationCell> cells);
/// The shortest text that reads back as the same number; "" for none.
[[nodiscard]] std::string number(double value);

/// Writes a file of the results.
void write(const ResultFolder& folder, const std::string& name, const std::string& text);

/// Writes needle.csv and table.txt, and prints the table.
void evaluate_needles(const EvaluateOptions& options, const Model& model, const ModelText& text,
                      std::span<const EvaluationCell> cells, const ResultFolder& folder);

}  // namespace kvreplay
