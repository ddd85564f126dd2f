// What may be opened, and what is refused with which message.

#include "devices/real/block_target.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/devices/real/target_file.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class BlockTargetTest : public test::TargetFile {};

TEST_F(BlockTargetTest, KnowsSizeAndAlignmentAndProvesDirectIo) {
  const BlockTarget target = BlockTarget::open(path_);
  EXPECT_EQ(target.size_bytes(), kBytes);
  EXPECT_GE(target.alignment().offset_bytes, 512u);
  EXPECT_EQ(kBytes % target.alignment().offset_bytes, 0u);
  EXPECT_THAT(target.alignment().source, AnyOf("statx", "file-system block"));
  EXPECT_THAT(target.direct_io_proof(), AnyOf("/proc/thread-self/io", "mincore"));
  EXPECT_FALSE(target.writable());
  EXPECT_FALSE(target.is_block_device());
}

TEST_F(BlockTargetTest, ARestOfABlockIsOutOfReach) {
  ASSERT_EQ(::truncate(path_.c_str(), kBytes - 100), 0);
  const BlockTarget target = BlockTarget::open(path_);
  EXPECT_EQ(target.size_bytes(), kBytes - target.alignment().offset_bytes);
}

TEST_F(BlockTargetTest, RefusesWhatIsNotATarget) {
  const auto error_of = [](const std::string& path) {
    return user_error_of([&] { (void)BlockTarget::open(path); });
  };
  EXPECT_THAT(error_of(folder_.file("nothing")),
              AllOf(HasSubstr("nothing"), HasSubstr("no such file")));
  // The message for a folder depends on whether its file system knows O_DIRECT at all.
  EXPECT_THAT(error_of(folder_.path().string()),
              AnyOf(HasSubstr("is neither a file nor a block device"), HasSubstr("direct I/O")));
  EXPECT_THAT(error_of("/dev/null"), HasSubstr("is not a regular file"));

  ASSERT_EQ(::truncate(path_.c_str(), 100), 0);
  EXPECT_THAT(error_of(path_), HasSubstr("is smaller than one block"));
}

TEST_F(BlockTargetTest, RefusesWhatTheUserMayNotWrite) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everything";
  ASSERT_EQ(::chmod(path_.c_str(), 0400), 0);
  EXPECT_THAT(user_error_of([&] { (void)BlockTarget::open_destructive(path_); }),
              HasSubstr("cannot be opened for writing (Permission denied)"));
}

TEST_F(BlockTargetTest, RefusesTheReadThroughThePageCacheOfTmpfs) {
  const std::string path = "/dev/shm/kvreplay-test-" + std::to_string(::getpid());
  test::write_file(path, test::known_bytes(0, 1 << 16));
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no /dev/shm";
  EXPECT_THAT(user_error_of([&] { (void)BlockTarget::open(path); }),
              AnyOf(HasSubstr("no direct I/O"), HasSubstr("reads through the page cache")));
  std::filesystem::remove(path);
}

TEST_F(BlockTargetTest, CommandsMustFit) {
  const BlockTarget target = BlockTarget::open(path_);
  const auto error_of = [&](const IoCommand& command) {
    return user_error_of([&] { target.check(command); });
  };
  EXPECT_NO_THROW(target.check({kBytes - block_, block_, false}));
  EXPECT_THAT(error_of({0, 100, false}), HasSubstr("a read of 100 bytes at offset 0 is not align"));
  EXPECT_THAT(error_of({1, block_, false}), HasSubstr("is not aligned; allowed: multiples of"));
  EXPECT_THAT(error_of({0, 0, false}), HasSubstr("is not aligned"));
  EXPECT_THAT(error_of({kBytes, block_, false}), HasSubstr("passes its end"));
  EXPECT_THAT(error_of({kBytes - block_, 2 * block_, false}), HasSubstr("passes its end"));
  EXPECT_THAT(error_of({~0ull / block_ * block_, block_, false}), HasSubstr("passes its end"));
  EXPECT_THAT(error_of({0, block_, true}), HasSubstr("--allow-destructive"));
  EXPECT_NO_THROW(BlockTarget::open_destructive(path_).check({0, block_, true}));
}

TEST_F(BlockTargetTest, ACreatedFileIsFullOfBytesAndHasNoNameToBeLeftBehind) {
  const std::string path = folder_.file("created");
  std::uint64_t told = 0;
  const BlockTarget target = BlockTarget::create(path, 3 << 20, [&](std::uint64_t done) {
    EXPECT_FALSE(std::filesystem::exists(path));
    told = done;
  });
  EXPECT_EQ(told, 2u << 20);
  EXPECT_TRUE(target.writable());
  EXPECT_EQ(target.size_bytes(), 3u << 20);
  EXPECT_FALSE(std::filesystem::exists(path));
  struct stat status {};
  ASSERT_EQ(::stat(target.descriptor_path().c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 3 << 20) << "a file with holes measures nothing";
}

TEST_F(BlockTargetTest, CreatingNeverTouchesWhatIsThere) {
  EXPECT_THAT(user_error_of([&] { (void)BlockTarget::create(path_, 1 << 20); }),
              HasSubstr("exists already"));
  EXPECT_EQ(test::read_file(path_), test::known_bytes(0, kBytes));
}

TEST_F(BlockTargetTest, AFullDiskLeavesNothingBehind) {
  const std::string path = folder_.file("created");
  const FileSizeLimit limit(1 << 20);
  EXPECT_THAT(user_error_of([&] { (void)BlockTarget::create(path, 3 << 20); }),
              AllOf(HasSubstr("cannot be filled: 1048576 of 3145728 bytes written"),
                    HasSubstr("enough free space")));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace kvreplay
