#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace kvreplay {

/// A parameter's value. Its alternative gives the parameter's type.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// One declaration of a parameter. It serves validation, `kvreplay list` and `explain`, the
/// documentation and the error messages.
struct Parameter {
  std::string name;  ///< ends with the unit, if there is one: group_tokens, read_us
  std::string unit;  ///< "" for a pure number, a name or a flag
  std::optional<Value> default_value;  ///< none: the parameter is required
  Value type;                          ///< only the alternative matters
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;  ///< for text: the names allowed; empty = any text
  std::string help;                  ///< one line
};

struct Range {
  double minimum;
  double maximum;
};

/// std::nullopt as the default makes the parameter required.
[[nodiscard]] Parameter integer_parameter(std::string name, std::string unit,
                                          std::optional<std::int64_t> default_value, Range range,
                                          std::string help);
[[nodiscard]] Parameter real_parameter(std::string name, std::string unit,
                                       std::optional<double> default_value, Range range,
                                       std::string help);
[[nodiscard]] Parameter choice_parameter(std::string name, std::vector<std::string> choices,
                                         std::optional<std::string> default_value,
                                         std::string help);
[[nodiscard]] Parameter text_parameter(std::string name, std::optional<std::string> default_value,
                                       std::string help);
[[nodiscard]] Parameter flag_parameter(std::string name, std::optional<bool> default_value,
                                       std::string help);

/// "integer", "real", "text" or "flag".
[[nodiscard]] std::string type_name(const Value& value);
/// The shortest text that reads back as the same value.
[[nodiscard]] std::string to_text(const Value& value);
/// "integer from 1 to 65536 tokens", "one of a, b", "true or false": for help and errors.
[[nodiscard]] std::string allowed_text(const Parameter& parameter);

/// One parameter's value and its origin.
struct Argument {
  Value value;
  std::string source;       ///< the config's "source" beside the value; "" when none is given
  bool is_default = false;  ///< the declaration's default was taken
};

/// The values of a part's parameters: complete (defaults filled in), typed and within range. An
/// undeclared name, or the wrong type, is a std::logic_error.
class Arguments {
 public:
  [[nodiscard]] bool flag(std::string_view name) const;
  [[nodiscard]] std::int64_t integer(std::string_view name) const;
  [[nodiscard]] double real(std::string_view name) const;
  [[nodiscard]] const std::string& text(std::string_view name) const;

  /// The place of the value, for an error that only the part can find.
  [[nodiscard]] SourceLocation place(std::string_view name) const;
  [[nodiscard]] const std::map<std::string, Argument, std::less<>>& all() const { return values_; }

  /// Every parameter at its default; throws a UserError at `place` when one is required.
  [[nodiscard]] static Arguments defaults(std::span<const Parameter> parameters,
                                          SourceLocation place);
  /// Checks type and range, and stores the value: a real also accepts an integer, bytes also accept
  /// "64KiB".
  void set(const Parameter& parameter, Argument argument);
  void set_place(SourceLocation place) { place_ = std::move(place); }
  /// A value that stands in another file than the others: that of a config's base.
  void set_file(const std::string& name, std::string file) { files_[name] = std::move(file); }

 private:
  [[nodiscard]] const Argument& find(std::string_view name) const;

  SourceLocation place_;
  std::map<std::string, std::string, std::less<>> files_;  ///< of set_file()
  std::map<std::string, Argument, std::less<>> values_;
};

}  // namespace kvreplay
