#include "base/result_folder.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/files.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

namespace fs = std::filesystem;

TEST(ResultFolder, AppearsWhole) {
  const TemporaryFolder temporary;
  const std::string path = temporary.file("results/one");
  {
    ResultFolder folder = ResultFolder::at(path);
    folder.write_all({{"a.csv", "a\n"}, {"b.json", "{}"}});
    folder.write({"c.txt", "c"});
    EXPECT_FALSE(fs::exists(path));
    EXPECT_EQ(folder.commit(), path);
  }
  EXPECT_EQ(read_text_file(path + "/a.csv", "text"), "a\n");
  EXPECT_EQ(read_text_file(path + "/c.txt", "text"), "c");
  EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), 3);
}

TEST(ResultFolder, OrNotAtAll) {
  const TemporaryFolder temporary;
  {
    const ResultFolder folder = ResultFolder::at(temporary.file("one/"));
    folder.write({"a.csv", "a\n"});
  }
  EXPECT_TRUE(temporary.is_empty());
}

TEST(ResultFolder, TouchesNothingThatIsThere) {
  const TemporaryFolder temporary;
  const std::string path = temporary.file("taken");
  fs::create_directory(path);
  {
    const ResultClaim claim(path);  // empty
    EXPECT_THAT(user_error_of([&] { const ResultClaim second(path + "/"); }),
                testing::HasSubstr("taken/: another kvreplay writes it"));
    const ResultClaim other(path + "-too");
    ResultFolder::at(path).commit();
  }
  const ResultClaim again(path);
  EXPECT_THAT(user_error_of([] { const ResultClaim none("/proc/none"); }),
              testing::HasSubstr("cannot be made"));
  std::ofstream(path + "/mine") << "mine";
  EXPECT_THAT(user_error_of([&] { const ResultClaim claim(path); }),
              testing::HasSubstr("is there already"));
  EXPECT_THAT(user_error_of([&] { static_cast<void>(ResultFolder::at(path)); }),
              testing::HasSubstr("a new or empty folder"));
  for (const char* name : {"taken-2", "taken-3"}) {
    ResultFolder folder = ResultFolder::numbered(path);
    folder.write({"theirs", "theirs"});
    EXPECT_EQ(folder.commit(), temporary.file(name));
  }
}

}  // namespace
}  // namespace kvreplay
