#include "devices/remote/frame.hpp"

#include <cstdint>
#include <stdexcept>

#include "base/error.hpp"

namespace kvreplay {
namespace {

constexpr std::string_view kMagic = "KVR1";
constexpr std::size_t kHeaderBytes = kMagic.size() + 4;

/// The first bytes, fit to be shown.
std::string shown(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 40)) text += c >= ' ' && c <= '~' ? c : '?';
  return text;
}

}  // namespace

std::string encode_frame(std::string_view payload) {
  if (payload.size() > kMaxFrameBytes) throw std::logic_error("a frame is too large");
  std::string frame(kMagic);
  for (int shift = 0; shift < 32; shift += 8) {
    frame += static_cast<char>(payload.size() >> shift & 0xff);
  }
  return frame.append(payload);
}

std::optional<std::string> FrameDecoder::next() {
  const std::string_view rest = std::string_view(bytes_).substr(taken_);
  // Checked from the first byte: a peer with another protocol may never send a fourth byte.
  if (rest.substr(0, kMagic.size()) != kMagic.substr(0, rest.size())) {
    throw UserError({}, "no frame of kvreplay's agent, but '" + shown(rest) + "'",
                    "an agent alone on the other side (does the login shell print something?)");
  }
  if (rest.size() < kHeaderBytes) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    length |= std::size_t{static_cast<unsigned char>(rest[kMagic.size() + i])} << (8 * i);
  }
  if (length > kMaxFrameBytes) {
    throw UserError({}, "a frame of " + std::to_string(length) + " bytes",
                    "up to " + std::to_string(kMaxFrameBytes));
  }
  if (rest.size() < kHeaderBytes + length) return std::nullopt;
  std::string payload(rest.substr(kHeaderBytes, length));
  taken_ += kHeaderBytes + length;
  if (taken_ == bytes_.size() || taken_ > kMaxFrameBytes) {
    bytes_.erase(0, taken_);
    taken_ = 0;
  }
  return payload;
}

}  // namespace kvreplay
