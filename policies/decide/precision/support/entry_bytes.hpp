#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "policies/decide/log/stream.hpp"

namespace kvreplay {

/// Writes an entry's vectors one after the other.
class EntryWriter {
 public:
  explicit EntryWriter(std::span<std::byte> to) : to_(to) {}

  void put(const void* from, std::size_t bytes) {
    std::memcpy(to_.data(), from, bytes);
    to_ = to_.subspan(bytes);
  }
  void put_row(const Half* row, std::int64_t dim) {
    put(row, static_cast<std::size_t>(dim) * sizeof(Half));
  }

 private:
  std::span<std::byte> to_;
};

/// Reads them in the same order.
class EntryReader {
 public:
  explicit EntryReader(std::span<const std::byte> from) : from_(from) {}

  void take(void* to, std::size_t bytes) {
    std::memcpy(to, from_.data(), bytes);
    from_ = from_.subspan(bytes);
  }
  void take_row(Half* row, std::int64_t dim) {
    take(row, static_cast<std::size_t>(dim) * sizeof(Half));
  }

 private:
  std::span<const std::byte> from_;
};

}  // namespace kvreplay
