#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <vector>

namespace kvreplay {
namespace {

constexpr std::array<std::string_view, 8> kNameUnits{"_tokens", "_bytes", "_groups", "_ms",
                                                     "_us",     "_bits",  "_mb_s",   "_steps"};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, substituted});
    }
  }
  return row.back();
}

/// A name without its last word, which is its unit if it has one: "page" of "page_bytes".
std::string_view without_unit(std::string_view name) {
  return name.substr(0, name.rfind('_'));
}

/// The words of "stream.sink_tokens": what is between '.', '/', '_' and '-'.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '.' || c == '/' || c == '_' || c == '-' || c == ' ') {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// Words that mean the same in names of parameters and metrics.
bool mean_the_same(const std::string& a, const std::string& b) {
  static const std::vector<std::vector<std::string_view>> kSame{
      {"memory", "dram", "ram", "mem"},
      {"size", "bytes", "capacity", "length"},
      {"time", "latency", "ms", "us", "duration", "delay"},
      {"speed", "throughput", "rate", "bandwidth"},
      {"power", "energy", "w", "mj", "j"},
      {"bits", "precision", "quantisation", "quantization", "dtype"},
      {"accuracy", "quality", "error"},
      {"evict", "eviction", "retention"},
      {"page", "group", "block", "chunk", "cluster"},
      {"topk", "top", "selection"}};
  if (a == b) return true;
  const std::size_t shared = std::min(a.size(), b.size());
  if (shared >= 4 && a.substr(0, shared) == b.substr(0, shared)) return true;
  return std::any_of(kSame.begin(), kSame.end(), [&](const auto& words) {
    const auto has = [&](const std::string& word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    return has(a) && has(b);
  });
}

bool spelt_the_same(const std::string& a, const std::string& b) {
  return a == b;
}

/// One letter apart, or two of a long word.
bool spelt_alike(const std::string& a, const std::string& b) {
  return edit_distance(a, b) <= std::min<std::size_t>(2, a.size() / 4);
}

/// How two words are compared.
using SameWord = bool (*)(const std::string&, const std::string&);

/// Whether every word of `name` is among those of `candidate`.
bool has_all_words(const std::vector<std::string>& name, const std::vector<std::string>& candidate,
                   SameWord same) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](const std::string& word) {
    return std::any_of(candidate.begin(), candidate.end(),
                       [&](const std::string& other) { return same(word, other); });
  });
}

/// Whether a name says of what it is a number: "budget_tokens".
bool has_unit(std::string_view name) {
  return std::any_of(kNameUnits.begin(), kNameUnits.end(),
                     [&](std::string_view unit) { return name.ends_with(unit); });
}

/// Of the candidates that have all words of the name: one that begins with it, then one with a
/// unit, then the shortest.
std::string nearest_by_words(std::string_view name, std::span<const std::string> names,
                             SameWord same) {
  const std::vector<std::string> words = words_of(name);
  std::string best;
  const auto rank = [&](const std::string& candidate) {
    return std::tuple(!candidate.starts_with(name), !has_unit(candidate), candidate.size());
  };
  for (const std::string& candidate : names) {
    if (!best.empty() && rank(candidate) >= rank(best)) continue;
    if (has_all_words(words, words_of(candidate), same)) best = candidate;
  }
  return best;
}

std::string one_line(const SourceLocation& place, std::string_view found,
                     std::string_view allowed) {
  std::string line;
  for (const std::string& part : {place.file, place.within}) {
    if (!part.empty()) line += part + ": ";
  }
  line += found;
  if (!allowed.empty()) line.append("; allowed: ").append(allowed);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return line;
}

/// The number of leading characters that both share.
std::size_t common_beginning(std::string_view a, std::string_view b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return static_cast<std::size_t>(end - a.begin());
}

}  // namespace

SourceLocation SourceLocation::at(std::string_view name) const {
  return {file, within + "/" + std::string(name)};
}

UserError::UserError(const SourceLocation& place, std::string_view found, std::string_view allowed)
    : std::runtime_error(one_line(place, found, allowed)) {}

UserError unknown_name(const SourceLocation& place, std::string_view kind, std::string_view name,
                       std::span<const std::string> names) {
  std::string found = "unknown " + std::string(kind) + " '" + std::string(name) + "'";
  const std::string near = nearest_name(name, names);
  if (!near.empty()) found += " (did you mean '" + near + "'?)";
  return {place, found, names.empty() ? "none here" : join(names)};
}

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(3, name.size() / 2) + 1;
  std::size_t best_beginning = 0;
  for (const std::string& candidate : names) {
    const std::size_t distance = edit_distance(name, candidate);
    const std::size_t beginning = common_beginning(name, candidate);
    if (distance < best_distance ||
        (distance == best_distance && beginning > best_beginning && !best.empty())) {
      best_distance = distance;
      best_beginning = beginning;
      best = candidate;
    }
  }
  // A slip of one or two letters is one, whatever it means; beyond that, words tell more, and those
  // that are spelt alike (budgt, of budget_tokens) before those that mean the same.
  if (!best.empty() && best_distance <= std::min<std::size_t>(2, name.size() / 3)) return best;
  for (const SameWord same : {&spelt_the_same, &spelt_alike, &mean_the_same}) {
    std::string by_words = nearest_by_words(name, names, same);
    if (!by_words.empty()) return by_words;
  }
  if (!best.empty()) return best;
  for (const std::string& candidate : names) {
    if (without_unit(candidate) == without_unit(name)) return candidate;
  }
  return "";
}

std::string join(std::span<const std::string> names, std::string_view separator) {
  std::string joined;
  for (const std::string& name : names) {
    if (!joined.empty()) joined += separator;
    joined += name;
  }
  return joined;
}

}  // namespace kvreplay
