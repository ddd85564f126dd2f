#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/free_memory.hpp"
#include "policies/decide/log/stream.hpp"

namespace kvreplay {

/// Slots for entries in their stored form, which all layers share: what one layer gives back, the
/// next one takes, so that memory holds no more than what is in use at once. A slot stays where it
/// is. For several threads.
class EntrySlots {
 public:
  using Slot = std::int32_t;
  /// What a stream takes at once, so that few calls wait for each other.
  static constexpr std::ptrdiff_t kAtOnce = 8;

  EntrySlots(std::int64_t slot_bytes, std::int64_t max_slots)
      : slot_bytes_(static_cast<std::size_t>(slot_bytes)),
        chunks_(static_cast<std::size_t>(max_slots) / kChunkSlots + 1) {}

  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] std::byte* at(Slot slot) const {
    const auto number = static_cast<std::size_t>(slot);
    return chunks_[number / kChunkSlots].get() + number % kChunkSlots * slot_bytes_;
  }
  /// Appends kAtOnce free slots at most, and one at least.
  void take(std::vector<Slot>& to) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      chunks_[used_chunks_] = std::make_unique<std::byte[]>(kChunkSlots * slot_bytes_);
      const auto first = static_cast<Slot>(used_chunks_++ * kChunkSlots);
      for (std::size_t i = kChunkSlots; i > 0; --i) {
        free_.push_back(first + static_cast<Slot>(i) - 1);
      }
    }
    const auto begin = free_.end() - std::min<std::ptrdiff_t>(kAtOnce, std::ssize(free_));
    to.insert(to.end(), begin, free_.end());
    free_.erase(begin, free_.end());
  }
  /// Takes all of them, and leaves none.
  void give_back(std::vector<Slot>& slots) {
    const std::lock_guard lock(mutex_);
    free_.insert(free_.end(), slots.begin(), slots.end());
    free_memory(slots);
  }
  /// The peak: what is given back is used again.
  [[nodiscard]] std::int64_t peak_bytes() const {
    return static_cast<std::int64_t>(used_chunks_ * kChunkSlots * slot_bytes_);
  }

 private:
  static constexpr std::size_t kChunkSlots = 64;

  std::mutex mutex_;
  std::size_t slot_bytes_;
  // Of a fixed number, so that at() needs no lock.
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::size_t used_chunks_ = 0;
  std::vector<Slot> free_;
};

/// The slots of all layers, by their size.
class EntryMemory {
 public:
  /// `streams`: of all layers.
  EntryMemory(std::int64_t streams, std::int64_t max_tokens)
      : max_slots_(streams * (max_tokens + EntrySlots::kAtOnce)) {}

  [[nodiscard]] EntrySlots& of_size(std::int64_t slot_bytes) {
    return sizes_.try_emplace(slot_bytes, slot_bytes, max_slots_).first->second;
  }
  [[nodiscard]] std::int64_t peak_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [size, slots] : sizes_) bytes += slots.peak_bytes();
    return bytes;
  }

 private:
  std::int64_t max_slots_;
  std::map<std::int64_t, EntrySlots> sizes_;
};

/// The entries of one stream that are in memory, each in its stored form in a slot of its own,
/// which another thread may fill while entries come and go.
class HeldEntries {
 public:
  /// `entry_bytes`: by format.
  HeldEntries(EntryMemory& memory, const std::vector<std::int64_t>& entry_bytes,
              std::int64_t max_tokens)
      : place_of_(static_cast<std::size_t>(max_tokens), kNone), free_(entry_bytes.size()) {
    for (const std::int64_t bytes : entry_bytes) slots_.push_back(&memory.of_size(bytes));
  }

  [[nodiscard]] bool has(Token token) const { return place_of_[index(token)] != kNone; }
  /// A token's slot, which it gets where it has none of this format.
  [[nodiscard]] std::span<std::byte> add(Token token, std::int32_t format) {
    std::int32_t& place = place_of_[index(token)];
    if (place == kNone) {
      tokens_.push_back(token);
    } else if (format_of(place) != format) {
      drop(place);
    }
    if (place == kNone) {
      std::vector<EntrySlots::Slot>& free = free_[index(format)];
      if (free.empty()) slots_[index(format)]->take(free);
      place = free.back() * formats() + format;
      free.pop_back();
    }
    return at(place);
  }
  /// Only of a token that is held.
  [[nodiscard]] std::span<const std::byte> get(Token token) const {
    return at(place_of_[index(token)]);
  }
  /// Drops those that keep(token) is false of, and gives back what is free.
  template <typename Keep>
  void sweep(Keep&& keep) {
    std::erase_if(tokens_, [&](Token token) {
      if (keep(token)) return false;
      drop(place_of_[index(token)]);
      return true;
    });
    for (std::size_t format = 0; format < free_.size(); ++format) {
      slots_[format]->give_back(free_[format]);
    }
  }

 private:
  static constexpr std::int32_t kNone = -1;
  [[nodiscard]] static std::size_t index(std::int32_t number) {
    return static_cast<std::size_t>(number);
  }
  [[nodiscard]] std::int32_t formats() const { return static_cast<std::int32_t>(slots_.size()); }
  [[nodiscard]] std::int32_t format_of(std::int32_t place) const { return place % formats(); }
  [[nodiscard]] std::span<std::byte> at(std::int32_t place) const {
    const EntrySlots& slots = *slots_[index(format_of(place))];
    return {slots.at(place / formats()), slots.slot_bytes()};
  }
  void drop(std::int32_t& place) {
    free_[index(format_of(place))].push_back(place / formats());
    place = kNone;
  }

  std::vector<EntrySlots*> slots_;                   // by format
  std::vector<std::int32_t> place_of_;               // by token: slot * formats + format
  std::vector<std::vector<EntrySlots::Slot>> free_;  // by format
  std::vector<Token> tokens_;
};

}  // namespace kvreplay
