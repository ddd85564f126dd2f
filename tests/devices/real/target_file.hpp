#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "devices/real/block_target.hpp"
#include "devices/real/io_engine.hpp"
#include "tests/support/temporary_folder.hpp"

namespace kvreplay::test {

/// The bytes of a file in which every 8-byte word holds its own place.
inline std::vector<std::byte> known_bytes(std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> content(bytes);
  for (std::uint64_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = (offset + i) * 0x9e3779b97f4a7c15u + 1;
    std::memcpy(content.data() + i, &word, std::min<std::uint64_t>(8, bytes - i));
  }
  return content;
}

inline void write_file(const std::string& path, const std::vector<std::byte>& content) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
}

inline std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  std::vector<std::byte> content(text.size());
  std::memcpy(content.data(), text.data(), text.size());
  return content;
}

/// A file of known bytes in a folder of its own. Skips the test where the folder's file system has
/// no direct I/O.
class TargetFile : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 8 << 20;

  void SetUp() override {
    write_file(path_, known_bytes(0, kBytes));
    try {
      block_ = BlockTarget::open(path_).alignment().offset_bytes;
    } catch (const UserError& error) {
      GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR): " << error.what();
    }
  }

  /// The engines that the system permits; at least one.
  static std::vector<std::string> engines(const BlockTarget& target) {
    std::vector<std::string> names;
    for (const std::string& name : engine_preference()) {
      try {
        names.push_back(choose_engine(target, name).name);
      } catch (const UserError& error) {
        std::printf("not tested: %s\n", error.what());
      }
    }
    EXPECT_FALSE(names.empty());
    return names;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("target");
  std::uint32_t block_ = 0;  ///< unit of offsets and sizes
};

}  // namespace kvreplay::test
