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
  // Padding takes a block of its own; many blocks at once.
  EXPECT_EQ(sha256_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_text(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(HashTest, PiecesOfAnySize) {
  const std::string text(1000, 'a');
  for (std::size_t piece = 1; piece < 130; ++piece) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      hash.update(std::string_view(text).substr(at, piece));
    }
    EXPECT_EQ(hash.hex(), sha256_text(text)) << piece;
  }
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
