#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "base/result_folder.hpp"
#include "policies/decide/decide.hpp"
#include "sim/models/model_file.hpp"
#include "sim/models/model_text.hpp"

namespace kvreplay {

// Runs a model with each system inside its attention. The model either follows a text or is asked
// for a sentence planted in it.

/// What to evaluate. Members are named like the options of `kvreplay evaluate`, and errors name
/// those options.
struct EvaluationRequest {
  std::vector<std::string> systems{};  ///< names in `configs`, or files
  std::vector<std::int64_t>
      budgets{};  ///< token budgets, for systems that have one; empty = their own
  std::vector<std::int64_t> bits{};  ///< for systems whose budget is in bits; empty = their own
  std::vector<std::string> sets{};   ///< SYSTEM.PART.PARAMETER=VALUE,VALUE
  ConfigFolder configs = ConfigFolder::standard();
  std::int64_t prompt = 2048;  ///< tokens, under full attention
  std::int64_t steps = 256;    ///< under each system
  std::string
      adapter_trace{};  ///< a trace of another text, for low-rank and PCA matrices; "" = none
  std::uint64_t seed = 1;
  int threads = 1;
  bool needle = false;  ///< plant a sentence instead of following the text
  std::vector<std::int64_t> lengths{1024, 2048};      ///< tokens of the haystacks
  std::vector<double> depths{0, 0.25, 0.5, 0.75, 1};  ///< of the needle: 0 first, 1 last
};

/// One system at one point of its budget's axis.
struct EvaluationCell {
  NamedDecideSpec decide;
  std::string system;
  std::string budget;  ///< "" where the system has no budget
  std::string unit;    ///< "tokens", "bits", the parameter of `sets`, or ""
};

/// Every system at every value of its budget's axis. A UserError names what cannot be set.
[[nodiscard]] std::vector<EvaluationCell> make_cells(const EvaluationRequest& request);
[[nodiscard]] std::vector<NamedDecideSpec> specs_of(std::span<const EvaluationCell> cells);

struct EvaluationResult {
  std::vector<ResultFile> files;  ///< including table.txt
  std::string table;              ///< for people
};

/// Follows the text; gives closed_loop.csv, steps.csv, layers.csv, ranks.csv and table.txt.
/// `folder` holds a temporary trace. Throws UserError where the text is too short.
[[nodiscard]] EvaluationResult evaluate_text(const EvaluationRequest& request, const Model& model,
                                             const ModelText& text,
                                             std::span<const EvaluationCell> cells,
                                             const std::string& folder);

/// Token ids of a piece of text.
using Tokenise = std::function<std::vector<std::int32_t>(const std::string& text)>;

/// Plants needles in the text; gives needle.csv and table.txt. `folder` holds a temporary trace.
/// Throws UserError where the text is shorter than a haystack.
[[nodiscard]] EvaluationResult evaluate_needles(const EvaluationRequest& request,
                                                const Model& model, const ModelText& text,
                                                std::span<const EvaluationCell> cells,
                                                const std::string& folder,
                                                const Tokenise& tokenise);

/// manifest.json: how the result was made.
[[nodiscard]] std::string evaluation_manifest(const EvaluationRequest& request, const Model& model,
                                              const ModelText& text,
                                              std::span<const EvaluationCell> cells);

}  // namespace kvreplay
