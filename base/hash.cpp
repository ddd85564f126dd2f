#include "base/hash.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"

namespace kvreplay {

std::string sha256_text(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

std::string sha256_file(const std::string& file) {
  check_regular_file(file);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw UserError({file, ""}, "cannot be opened for reading", "a readable file");
  Sha256 hash;
  std::vector<char> piece(1 << 20);
  errno = 0;
  while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())) ||
         stream.gcount() > 0) {
    hash.update({reinterpret_cast<const std::byte*>(piece.data()),
                 static_cast<std::size_t>(stream.gcount())});
  }
  if (stream.bad()) {
    throw UserError({file, ""},
                    "cannot be read (" + std::string(std::strerror(errno != 0 ? errno : EIO)) + ")",
                    "a readable file");
  }
  return hash.hex();
}

}  // namespace kvreplay
