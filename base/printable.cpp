#include "base/printable.hpp"

namespace kvreplay {

std::string printable(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  for (const char character : text) {
    const auto code = static_cast<unsigned char>(character);
    if (code >= ' ' && code != 0x7f) {
      shown += character;
    } else if (character == '\n' || character == '\t') {
      shown += character == '\n' ? "\\n" : "\\t";
    } else {
      shown.append("\\x").append({kDigits[code >> 4], kDigits[code & 15]});
    }
  }
  return shown;
}

}  // namespace kvreplay
