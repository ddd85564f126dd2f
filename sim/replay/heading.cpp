#include "sim/replay/heading.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "base/split_text.hpp"

namespace kvreplay {
namespace {

using Words = std::map<std::string_view, std::string_view>;

std::vector<std::string> words_of_name(std::string_view name) {
  return split_text(name.substr(name.rfind('.') + 1), '_');
}

/// The unit that stands last, or before "per", taken out of the words; "" where there is none.
std::string_view take_unit(std::vector<std::string>& words) {
  static const Words kUnits = {{"bits", "bits"},  {"groups", "groups"}, {"kib", "KiB"},
                               {"mb_s", "MB/s"},  {"mib", "MiB"},       {"mj", "mJ"},
                               {"ms", "ms"},      {"nats", "nats"},     {"nj", "nJ"},
                               {"percent", "%"},  {"s", "s"},           {"steps", "steps"},
                               {"us", "\u00b5s"}, {"tokens", "tokens"}};
  const auto end = std::find(words.begin(), words.end(), "per");
  for (std::ptrdiff_t count = 2; count > 0; --count) {  // "mb_s" before "s"
    if (end - words.begin() <= count) continue;
    const std::string key = count == 2 ? *(end - 2) + '_' + *(end - 1) : *(end - 1);
    const auto unit = kUnits.find(key);
    if (unit == kUnits.end()) continue;
    words.erase(end - count, end);
    return unit->second;
  }
  return {};
}

}  // namespace

bool counts_bytes(std::string_view name) {
  const std::vector<std::string> words = words_of_name(name);
  return std::find(words.begin(), words.end(), "bytes") != words.end();
}

std::string heading(std::string_view name) {
  // Figures have the same words (tools/python/kvreplay/plot_metrics.py).
  static const Words kOwn = {{"compute_ms", "Computation (ms)"},
                             {"dram_kv_bytes", "DRAM of KV management"},
                             {"energy_mj_per_token", "Energy per token (mJ)"},
                             {"kl_nats", "KL to full attention (nats)"},
                             {"latency_ms", "Time per token (ms)"},
                             {"read_bytes_per_step", "Read per step"},
                             {"recall", "Recall of the top tokens"},
                             {"tokens_per_s", "Tokens/s"}};
  static const Words kSpelt = {{"dram", "DRAM"}, {"io", "I/O"}, {"kv", "KV"}, {"nand", "NAND"}};
  if (const auto own = kOwn.find(name); own != kOwn.end()) return std::string(own->second);
  std::vector<std::string> words = words_of_name(name);
  std::string_view unit;
  if (!counts_bytes(name)) {
    unit = take_unit(words);
  } else if (words.size() > 1) {
    std::erase(words, "bytes");
  }
  std::string text;
  for (const std::string& word : words) {
    const auto spelt = kSpelt.find(word);
    text += (text.empty() ? "" : " ") + std::string(spelt == kSpelt.end() ? word : spelt->second);
  }
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return unit.empty() ? text : text + " (" + std::string(unit) + ')';
}

}  // namespace kvreplay
