#include "sim/replay/marks.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

namespace kvreplay {
namespace {

struct Mark {
  std::string_view name;
  std::string_view means;
};

constexpr std::array<Mark, 7> kMarks{{
    {"gc_wraps",
     "writes reach beyond gc_capacity_bytes and wrap round: garbage collection works on another "
     "workload; give the device at least the plan's space"},
    {"exceeds_dram",
     "weights and key-value management take more DRAM than the platform has (dram_share above 1)"},
    {"prefill_exceeds_dram",
     "weights and what the prefill holds at its peak (prefill_dram_bytes) take more DRAM than the "
     "platform has, though decoding does not"},
    {"out_of_range",
     "keys or values lie outside the fine range of a format without scale (FP8: 256 and above, in "
     "steps of 32, 448 at most)"},
    {"coarse_channels",
     "the format's step is wider than the spread of some channel of the keys or values: what is "
     "stored of it is no closer than its mean; precision.keys=less_mean or normalised helps keys"},
    {"over_budget",
     "budget_covers is all, and more tokens than the budget are attended to: sinks, recent and "
     "buffered tokens alone exceed it"},
    {"stores_all_bits",
     "the precision part changed nothing: every entry is stored at 16 bits per element"},
}};

/// The budget that covers everything attended to; 0 where there is none.
double whole_budget(const SystemSpec& system, double tokens) {
  const auto& arguments = system.decide.selection.arguments().all();
  const auto text = arguments.find("budget_covers");
  if (text == arguments.end() || std::get<std::string>(text->second.value) != "all") return 0;
  const auto groups = arguments.find("groups");
  if (groups != arguments.end() && std::get<std::int64_t>(groups->second.value) > 0) return 0;
  const std::int64_t budget = system.decide.selection.arguments().integer("budget_tokens");
  if (budget > 0) return static_cast<double>(budget);
  return system.decide.selection.arguments().real("budget_share") * tokens;
}

}  // namespace

std::string marks_of(const SystemSpec& system, const CellResult& row, double tokens,
                     std::span<const LayerMeans> layers) {
  const auto any = [&](std::int64_t LayerMeans::*count) {
    return std::any_of(layers.begin(), layers.end(),
                       [&](const LayerMeans& layer) { return layer.*count > 0; });
  };
  std::vector<std::string_view> found;
  const DramUse& dram = row.timing.dram;
  if (row.timing.wrapped_write_bytes > 0) found.push_back("gc_wraps");
  if (dram.kv_bytes() + dram.weights_bytes > row.platform_dram_bytes) {
    found.push_back("exceeds_dram");
  } else if (row.timing.prefill.dram_bytes + dram.weights_bytes > row.platform_dram_bytes) {
    found.push_back("prefill_exceeds_dram");
  }
  if (any(&LayerMeans::out_of_range)) found.push_back("out_of_range");
  if (any(&LayerMeans::coarse_channels)) found.push_back("coarse_channels");
  const double budget = whole_budget(system, tokens);
  if (budget > 0 && row.quality.attended_tokens > budget) found.push_back("over_budget");
  // low_rank_keys changes which vectors are stored, not their bits.
  const std::string& precision = system.decide.precision.name();
  if (precision != "fp16" && precision != "low_rank_keys" && row.timing.stored_bits == 16) {
    found.push_back("stores_all_bits");
  }
  std::string text;
  for (const std::string_view name : found) {
    text += (text.empty() ? "" : " ");
    text += name;
  }
  return text;
}

std::vector<std::string> mark_lines(std::span<const CellResult> cells) {
  std::map<std::string, std::set<std::string>> systems;
  for (const CellResult& cell : cells) {
    std::istringstream marks(cell.marks);
    for (std::string mark; marks >> mark;) systems[mark].insert(cell.system);
  }
  std::vector<std::string> lines;
  for (const Mark& mark : kMarks) {
    const auto found = systems.find(std::string(mark.name));
    if (found == systems.end()) continue;
    const std::vector<std::string> names(found->second.begin(), found->second.end());
    lines.push_back(std::string(mark.name) + " (" + join(names) + "): " + std::string(mark.means));
  }
  return lines;
}

}  // namespace kvreplay
