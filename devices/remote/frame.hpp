// By hand: a library for messages would have to be in the agent too, one small static program.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kvreplay {

/// The greatest payload of a frame in bytes.
constexpr std::size_t kMaxFrameBytes = std::size_t{8} << 20;

/// A frame between kvreplay and its agent: "KVR1", the payload's length as a 32-bit little-endian
/// number, the payload. std::logic_error beyond kMaxFrameBytes.
[[nodiscard]] std::string encode_frame(std::string_view payload);

/// Takes bytes in the pieces in which they arrive and returns whole payloads.
class FrameDecoder {
 public:
  void feed(std::string_view bytes) { bytes_.append(bytes); }
  /// The next payload; nothing while it is incomplete. Throws UserError when the bytes are not a
  /// frame: then no later frame can be found.
  [[nodiscard]] std::optional<std::string> next();
  /// Whether part of a frame has arrived.
  [[nodiscard]] bool unfinished() const { return taken_ < bytes_.size(); }

 private:
  std::string bytes_;
  std::size_t taken_ = 0;  ///< of bytes_, already returned
};

}  // namespace kvreplay
