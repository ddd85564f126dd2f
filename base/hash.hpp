#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kvreplay {

/// SHA-256, fed in pieces; the content hash of files, configs and stage outputs.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  /// 64 lower-case hex digits. Ends the hash.
  [[nodiscard]] std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

[[nodiscard]] std::string sha256_text(std::string_view text);
/// Reads the file in pieces. Throws UserError when it cannot be read.
[[nodiscard]] std::string sha256_file(const std::string& file);

}  // namespace kvreplay
