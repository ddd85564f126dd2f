#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {

/// Reads text as lines of words; every error names the file and the line.
class LineReader {
 public:
  LineReader(std::istream& stream, std::string file) : stream_(stream), file_(std::move(file)) {}

  /// Advances to the next line; false at the end.
  bool next() {
    ++number_;
    line_.clear();
    const bool found = static_cast<bool>(std::getline(stream_, line_));
    at_end_ = !found;
    rest_ = line_;
    return found;
  }
  [[nodiscard]] const std::string& line() const { return line_; }
  [[nodiscard]] std::int64_t number() const { return number_; }

  /// The next word of the line, "" after the last. Spaces separate words.
  std::string_view word() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
    const std::size_t end = std::min(rest_.find_first_of(" \t\r"), rest_.size());
    const std::string_view taken = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return taken;
  }
  template <typename Number>
  Number number(Number min, Number max, std::string_view allowed) {
    const std::string_view text = word();
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
      throw wrong(allowed);
    }
    return value;
  }
  /// Whether the next word begins with the letter.
  [[nodiscard]] bool rest_begins_with(char letter) const {
    const std::size_t begin = rest_.find_first_not_of(" \t\r");
    return begin != std::string_view::npos && rest_[begin] == letter;
  }
  /// Throws UserError when the line has another word.
  void end_of_line(std::string_view allowed) {
    if (!word().empty()) throw wrong(allowed);
  }

  /// An error about the line as a whole.
  [[nodiscard]] UserError wrong(std::string_view allowed) const {
    return {place(), at_end_ ? "the file ends" : "found `" + line_.substr(0, 80) + "`", allowed};
  }
  [[nodiscard]] SourceLocation place() const { return {file_, "line " + std::to_string(number_)}; }

 private:
  std::istream& stream_;
  std::string file_;
  std::int64_t number_ = 0;
  bool at_end_ = false;
  std::string line_;
  std::string_view rest_;  ///< of the line, not yet taken
};

}  // namespace kvreplay
