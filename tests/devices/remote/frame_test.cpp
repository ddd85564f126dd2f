// Frames that arrive in any pieces, and bytes that are not frames.

#include "devices/remote/frame.hpp"

#include <gmock/gmock.h>

#include <stdexcept>
#include <vector>

#include "base/random.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> decoded(FrameDecoder& decoder) {
  std::vector<std::string> payloads;
  while (auto payload = decoder.next()) payloads.push_back(std::move(*payload));
  return payloads;
}

TEST(Frame, ComesBackFromPiecesOfEverySize) {
  const std::vector<std::string> payloads{"", "{}", std::string(1000, 'x'),
                                          std::string("\0KVR1", 5)};
  std::string stream;
  for (const std::string& payload : payloads) stream += encode_frame(payload);
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameDecoder decoder;
    std::vector<std::string> found;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      decoder.feed(std::string_view(stream).substr(at, piece));
      for (std::string& payload : decoded(decoder)) found.push_back(std::move(payload));
    }
    ASSERT_EQ(found, payloads) << "pieces of " << piece;
    EXPECT_FALSE(decoder.unfinished());
  }
}

TEST(Frame, AnUnfinishedOneIsNotGivenBack) {
  const std::string frame = encode_frame("payload");
  for (std::size_t bytes = 1; bytes < frame.size(); ++bytes) {
    FrameDecoder decoder;
    decoder.feed(std::string_view(frame).substr(0, bytes));
    EXPECT_FALSE(decoder.next());
    EXPECT_TRUE(decoder.unfinished());
  }
}

TEST(Frame, TheLargestIsTakenAndALargerOneRefusedByItsHeader) {
  const std::string of_max_size(kMaxFrameBytes, 'x');
  FrameDecoder decoder;
  decoder.feed(encode_frame(of_max_size));
  EXPECT_EQ(decoder.next(), of_max_size);
  EXPECT_THROW((void)encode_frame(of_max_size + "x"), std::logic_error);

  std::string header = encode_frame("").substr(0, 4) + std::string(4, '\xff');
  FrameDecoder refusing;
  refusing.feed(header);
  EXPECT_THAT(user_error_of([&] { (void)refusing.next(); }),
              AllOf(HasSubstr("4294967295 bytes"), HasSubstr("8388608")));
}

TEST(Frame, WordsOfALoginShellAreShownAtTheFirstByte) {
  FrameDecoder decoder;
  decoder.feed("W");
  EXPECT_THAT(user_error_of([&] { (void)decoder.next(); }), HasSubstr("'W'"));
  FrameDecoder longer;
  longer.feed("Welcome\x1b[0m to the board!\n");
  EXPECT_THAT(user_error_of([&] { (void)longer.next(); }),
              AllOf(HasSubstr("Welcome?[0m to"), HasSubstr("login shell")));
}

TEST(Frame, NoBytesBreakTheDecoder) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = encode_frame(std::string(random.below(100), 'p'));
    bytes += encode_frame("{}");
    for (std::uint64_t changes = random.below(4); changes > 0; --changes) {
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    }
    bytes.resize(random.below(bytes.size() + 1));
    FrameDecoder decoder;
    std::size_t taken = 0;
    try {
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t piece = 1 + random.below(20);
        decoder.feed(std::string_view(bytes).substr(at, piece));
        at += piece;
        for (const std::string& payload : decoded(decoder)) taken += 8 + payload.size();
      }
      EXPECT_LE(taken, bytes.size());
      EXPECT_EQ(decoder.unfinished(), taken < bytes.size());
    } catch (const UserError&) {
      SUCCEED() << "refused";
    }
  }
}

}  // namespace
}  // namespace kvreplay
