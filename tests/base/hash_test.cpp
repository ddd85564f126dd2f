#include "base/hash.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

// The examples of FIPS 180-4's test vectors.
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(HashTest, KnownDigests) {
  EXPECT_EQ(sha256_text(""), kEmpty);
  EXPECT_EQ(sha256_text("abc"), kAbc);
}

TEST(HashTest, PiecesMakeTheWhole) {
  Sha256 hash;
  hash.update("a");
  hash.update("");
  hash.update("bc");
  EXPECT_EQ(hash.hex(), kAbc);
}

TEST(HashTest, FilesInPieces) {
  const TemporaryFolder folder;
  // Around the 1 MiB that is read at once.
  for (const std::size_t size : {0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1}) {
    std::string text(size, 'x');
    if (size > 0) text.back() = 'y';
    std::ofstream(folder.file("a"), std::ios::binary) << text;
    EXPECT_EQ(sha256_file(folder.file("a")), sha256_text(text)) << size;
  }
}

TEST(HashTest, UnreadableFiles) {
  const TemporaryFolder folder;
  EXPECT_THAT(user_error_of([&] { (void)sha256_file(folder.file("absent")); }),
              testing::HasSubstr("absent"));
  EXPECT_THAT(user_error_of([&] { (void)sha256_file(folder.path().string()); }),
              testing::HasSubstr(folder.path().string()));
}

}  // namespace
}  // namespace kvreplay
