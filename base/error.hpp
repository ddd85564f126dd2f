#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvreplay {

/// The place of a user's mistake: the file, and the JSON pointer or HDF5 path within it. Either may
/// be empty (a command-line argument has no file).
struct SourceLocation {
  std::string file;
  std::string within;

  /// The place of a member below this one: `within` + "/" + `name`.
  [[nodiscard]] SourceLocation at(std::string_view name) const;
};

/// A mistake in the user's input (trace, config, device, argument), never one of ours. what() is
/// one line that names the place, what was found and what is allowed; the program prints it and
/// exits with code 2. Our own mistakes are assertions or std::logic_error.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  UserError(const SourceLocation& place, std::string_view found, std::string_view allowed);
};

/// The UserError for a name that is not among `names`; suggests the nearest one.
[[nodiscard]] UserError unknown_name(const SourceLocation& place, std::string_view kind,
                                     std::string_view name, std::span<const std::string> names);

/// The member of `names` that is nearest to `name`: one or two letters away, or else the shortest
/// that has all its words, as spelt or by meaning (budget: budget_tokens, memory_bytes:
/// dram_kv_bytes), or else the one with the smallest edit distance, or else one that differs only
/// in the unit (page_kib, page_bytes); empty when none is near.
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> names);

/// "a, b, c"
[[nodiscard]] std::string join(std::span<const std::string> names,
                               std::string_view separator = ", ");

}  // namespace kvreplay
