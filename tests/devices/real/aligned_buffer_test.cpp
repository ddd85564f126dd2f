// Memory for direct I/O.

#include "devices/real/aligned_buffer.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvreplay {
namespace {

constexpr std::size_t kPage = 4096;

/// Which page of the machine each page of the memory is; empty where the system does not tell.
std::vector<std::uint64_t> places_of(std::span<const std::byte> memory) {
  const int file = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::vector<std::uint64_t> places(memory.size() / kPage);
  const auto bytes = static_cast<ssize_t>(places.size() * sizeof places[0]);
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data()) / kPage;
  const ssize_t got = ::pread(file, places.data(), static_cast<std::size_t>(bytes),
                              static_cast<off_t>(first * sizeof places[0]));
  ::close(file);
  if (got != bytes) return {};
  for (std::uint64_t& place : places) place &= (std::uint64_t{1} << 55) - 1;
  if (std::count(places.begin(), places.end(), 0U) > 0) return {};  // only root is told
  return places;
}

TEST(AlignedBuffer, IsZeroedAndAligned) {
  for (const Pages pages : {Pages::kOrdinary, Pages::kHuge, Pages::kScattered}) {
    const AlignedBuffer buffer(5 * kPage + 512, 8192, pages);
    const auto bytes = buffer.bytes();
    EXPECT_EQ(bytes.size(), 5 * kPage + 512);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 8192, 0u);
    EXPECT_TRUE(
        std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{}; }));
  }
}

TEST(AlignedBuffer, NeighboursAmongScatteredPagesLieApart) {
  if (::sysconf(_SC_PAGESIZE) != kPage) GTEST_SKIP() << "pages of another size";
  const AlignedBuffer buffer(1024 * kPage, kPage, Pages::kScattered);
  const std::vector<std::uint64_t> places = places_of(buffer.bytes());
  if (places.empty()) GTEST_SKIP() << "the system does not tell where pages are";
  std::size_t joined = 0;
  for (std::size_t i = 1; i < places.size(); ++i) joined += places[i] == places[i - 1] + 1 ? 1 : 0;
  EXPECT_LT(joined, places.size() / 20);
}

}  // namespace
}  // namespace kvreplay
