#include "base/output_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/file_size_limit.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string read(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(OutputFileTest, AppearsWithCommit) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.txt");
  OutputFile output(path);
  std::ofstream(output.temporary_path()) << "text";
  EXPECT_FALSE(std::filesystem::exists(path));
  output.commit();
  EXPECT_EQ(read(path), "text");
  EXPECT_FALSE(std::filesystem::exists(output.temporary_path()));
}

TEST(OutputFileTest, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  {
    const OutputFile output(folder.file("out.txt"));
    std::ofstream(output.temporary_path()) << "text";
    EXPECT_FALSE(folder.is_empty());
  }
  EXPECT_TRUE(folder.is_empty());
}

TEST(OutputFileTest, AClaimRefusesAnotherWriterUntilItEnds) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.txt");
  {
    OutputFile first(path);
    first.claim();
    OutputFile second(path);
    EXPECT_THAT(user_error_of([&] { second.claim(); }),
                AllOf(HasSubstr("out.txt"), HasSubstr("another kvreplay writes it")));
    OutputFile other(folder.file("other.txt"));
    other.claim();
  }
  EXPECT_TRUE(folder.is_empty());
  // A file that was left without its writer refuses nobody.
  OutputFile left(path);
  std::ofstream(left.temporary_path()) << "left";
  OutputFile next(path);
  next.claim();
  std::ofstream(next.temporary_path()) << "text";
  next.commit();
  EXPECT_EQ(read(path), "text");
}

TEST(OutputFileTest, TheFormerFileStaysUntilCommit) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.txt");
  write_text_file(path, "old");
  {
    const OutputFile output(path);
    std::ofstream(output.temporary_path()) << "new";
  }
  EXPECT_EQ(read(path), "old");
  write_text_file(path, "new");
  EXPECT_EQ(read(path), "new");
}

TEST(OutputFileTest, TwoWritersOfOneFileDoNotMeet) {
  const TemporaryFolder folder;
  const OutputFile first(folder.file("out.txt"));
  const OutputFile second(folder.file("out.txt"));
  EXPECT_NE(first.temporary_path(), second.temporary_path());
}

TEST(OutputFileTest, MakesTheFolder) {
  const TemporaryFolder folder;
  write_text_file(folder.file("a/b/out.txt"), "text");
  EXPECT_EQ(read(folder.file("a/b/out.txt")), "text");
}

TEST(OutputFileTest, AFileInThePlaceOfAFolder) {
  const TemporaryFolder folder;
  write_text_file(folder.file("file"), "");
  EXPECT_THAT(user_error_of([&] { write_text_file(folder.file("file/out.txt"), "text"); }),
              HasSubstr(folder.file("file")));
}

TEST(OutputFileTest, AFolderInThePlaceOfTheFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("out.txt"));
  EXPECT_THAT(user_error_of([&] { write_text_file(folder.file("out.txt"), "text"); }),
              AllOf(HasSubstr(folder.file("out.txt")), HasSubstr("cannot be written")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(OutputFileTest, FullDiskLeavesNothing) {
  const TemporaryFolder folder;
  const std::string error = user_error_of([&] {
    const FileSizeLimit limit(1000);
    write_text_file(folder.file("out.txt"), std::string(100000, 'x'));
  });
  EXPECT_THAT(error, AllOf(HasSubstr("out.txt"), HasSubstr("cannot be written")));
  EXPECT_TRUE(folder.is_empty());
}

}  // namespace
}  // namespace kvreplay
