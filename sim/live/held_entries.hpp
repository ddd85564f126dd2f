#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policies/decide/log/stream.hpp"

namespace kvreplay {

/// The entries of one stream that are in memory, each in its stored form in a slot of its own. A
/// slot stays where it is, so that another thread may fill it while entries come and go.
class HeldEntries {
 public:
  /// `slot_bytes`: of the largest entry.
  HeldEntries(std::int64_t slot_bytes, std::int64_t max_tokens)
      : slot_bytes_(static_cast<std::size_t>(slot_bytes)),
        slot_of_(static_cast<std::size_t>(max_tokens), kNone) {}

  [[nodiscard]] bool has(Token token) const { return slot_of_[index(token)] != kNone; }
  /// A token's slot, which it gets where it has none.
  [[nodiscard]] std::span<std::byte> add(Token token) {
    std::int32_t& slot = slot_of_[index(token)];
    if (slot == kNone) {
      if (free_.empty()) {
        const auto first = static_cast<std::int32_t>(chunks_.size() * kChunkSlots);
        chunks_.push_back(std::make_unique<std::byte[]>(kChunkSlots * slot_bytes_));
        for (std::size_t i = kChunkSlots; i > 0; --i) {
          free_.push_back(first + static_cast<std::int32_t>(i) - 1);
        }
      }
      slot = free_.back();
      free_.pop_back();
      tokens_.push_back(token);
    }
    return {at(slot), slot_bytes_};
  }
  /// Only of a token that is held.
  [[nodiscard]] std::span<const std::byte> get(Token token) const {
    return {at(slot_of_[index(token)]), slot_bytes_};
  }
  /// Drops those that keep(token) is false of.
  template <typename Keep>
  void sweep(Keep&& keep) {
    std::erase_if(tokens_, [&](Token token) {
      if (keep(token)) return false;
      free_.push_back(slot_of_[index(token)]);
      slot_of_[index(token)] = kNone;
      return true;
    });
  }
  /// The peak: slots are used again, never given back.
  [[nodiscard]] std::int64_t peak_bytes() const {
    return std::ssize(chunks_) * static_cast<std::int64_t>(kChunkSlots * slot_bytes_);
  }

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::size_t kChunkSlots = 16;
  [[nodiscard]] std::byte* at(std::int32_t slot) const {
    const auto number = static_cast<std::size_t>(slot);
    return chunks_[number / kChunkSlots].get() + number % kChunkSlots * slot_bytes_;
  }
  [[nodiscard]] static std::size_t index(Token token) { return static_cast<std::size_t>(token); }

  std::size_t slot_bytes_;
  std::vector<std::int32_t> slot_of_;  // by token
  std::vector<std::int32_t> free_;
  std::vector<Token> tokens_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
};

}  // namespace kvreplay
