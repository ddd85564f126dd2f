#include "sim/tuning/goal.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/parameters.hpp"
#include "base/size.hpp"

namespace kvreplay {

double metric(const CellResult& cell, std::string_view column) {
  for (const Column<CellResult>& one : result_columns()) {
    if (one.name != column) continue;
    const CellValue value = one.value(cell);
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      return static_cast<double>(*integer);
    }
    return std::get<double>(value);
  }
  throw std::logic_error("no column " + std::string(column));
}

double recorded_quality(const CellResult& cell, std::string_view quality) {
  return quality == "attention_mass" ? cell.quality.attention_mass : cell.quality.output_error;
}

void take_recorded_quality(ResultTable& table, std::size_t row, const CellResult& cell) {
  for (const std::string& quality : Goal::qualities()) {
    const auto column = std::find_if(table.columns.begin(), table.columns.end(),
                                     [&](const auto& head) { return head.name == quality; });
    table.rows[row][static_cast<std::size_t>(column - table.columns.begin())] =
        recorded_quality(cell, quality);
  }
}

std::string stretched_text(const CellResult& cell) {
  if (cell.stretched_from_tokens == 0) return "";
  return "quality is that of the recording's " + std::to_string(cell.stretched_from_tokens) +
         " tokens, of which a budget is a larger share: at the whole context expect larger errors";
}

const std::vector<std::string>& Goal::qualities() {
  static const std::vector<std::string> kQualities{"output_error", "attention_mass"};
  return kQualities;
}

Objectives Goal::objectives(const CellResult& cell) const {
  const double fidelity = recorded_quality(cell, quality);
  return {quality == "attention_mass" ? 1 - fidelity : fidelity, metric(cell, "latency_ms"),
          metric(cell, "dram_kv_bytes")};
}

const std::vector<std::string>& Goal::objective_names() {
  static const std::vector<std::string> kNames{"quality", "latency", "dram"};
  return kNames;
}

std::array<bool, kObjectives> Goal::minimised() const {
  std::array<bool, kObjectives> minimised{};
  minimised[kQuality] = !min_attention_mass && !max_output_error;
  minimised[kLatency] = !max_latency_ms;
  minimised[kDram] = !max_dram_bytes;
  for (std::size_t i = 0; i < kObjectives; ++i) {
    minimised[i] |= std::find(also.begin(), also.end(), objective_names()[i]) != also.end();
  }
  const bool any = std::any_of(minimised.begin(), minimised.end(), [](bool one) { return one; });
  if (!any) minimised.fill(true);
  return minimised;
}

std::string Goal::minimised_text() const {
  const std::array<bool, kObjectives> wanted = minimised();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kObjectives; ++i) {
    if (wanted[i])
      names.push_back(i == kQuality ? "lost " + objective_names()[i] : objective_names()[i]);
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + names[i];
  }
  return text;
}

Score Goal::score(const CellResult& cell) const {
  Score score;
  const Objectives reached = objectives(cell);
  const std::array<bool, kObjectives> wanted = minimised();
  for (std::size_t i = 0; i < kObjectives; ++i) {
    if (wanted[i]) score.objectives[i] = reached[i];
  }
  const auto at_most = [&](double value, double limit) {
    score.violation += std::max(0.0, value / limit - 1);
  };
  if (max_dram_bytes) at_most(reached[kDram], static_cast<double>(*max_dram_bytes));
  if (max_latency_ms) at_most(reached[kLatency], *max_latency_ms);
  at_most(cell.quality.output_error, max_output_error.value_or(1));
  if (min_attention_mass) {
    // In terms of the attention lost, like the objective.
    const double lost = 1 - cell.quality.attention_mass;
    const double limit = 1 - *min_attention_mass;
    if (lost > limit) score.violation += std::max(lost - limit, 1e-9);
  }
  return score;
}

Objectives Goal::reference(const std::vector<Objectives>& points) const {
  Objectives reference{};
  for (const Objectives& point : points) {
    for (std::size_t i = 0; i < kObjectives; ++i) reference[i] = std::max(reference[i], point[i]);
  }
  if (quality == "output_error" && max_output_error) reference[0] = *max_output_error;
  if (quality == "attention_mass" && min_attention_mass) reference[0] = 1 - *min_attention_mass;
  if (max_latency_ms) reference[1] = *max_latency_ms;
  if (max_dram_bytes) reference[2] = static_cast<double>(*max_dram_bytes);
  return reference;
}

std::string Goal::quality_text(double lost) const {
  return quality == "attention_mass" ? "attention mass " + fixed_text(1 - lost, 4)
                                     : "output error " + fixed_text(lost, 4);
}

std::string Goal::text(const Objectives& objectives) const {
  return fixed_text(objectives[kLatency], 2) + " ms per token, " +
         quality_text(objectives[kQuality]) + ", " + fixed_text(objectives[kDram] / 1048576, 1) +
         " MiB";
}

std::string Goal::limits_text() const {
  std::vector<std::string> texts;
  if (max_dram_bytes) texts.push_back("dram_kv_bytes at most " + size_text(*max_dram_bytes));
  if (max_latency_ms) texts.push_back("latency_ms at most " + to_text(*max_latency_ms));
  if (min_attention_mass) {
    texts.push_back("attention_mass at least " + to_text(*min_attention_mass));
  }
  if (max_output_error) texts.push_back("output_error at most " + to_text(*max_output_error));
  return texts.empty() ? "none" : join(texts);
}

}  // namespace kvreplay
