#include "base/error.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace kvreplay {
namespace {

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
