#include "sim/replay/folder_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/hash.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLimit = 1 << 20;

std::string key_of(int number) {
  return sha256_text(std::to_string(number));
}

void set_age(const std::string& file, int seconds) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}

class FolderStoreTest : public testing::Test {
 protected:
  [[nodiscard]] FolderStore open(std::int64_t limit = kLimit) const {
    return FolderStore(folder_.file("cache"), limit);
  }
  TemporaryFolder folder_;
};

TEST_F(FolderStoreTest, GivesBackWhatWasPut) {
  FolderStore store = open();
  EXPECT_EQ(store.read("plan", key_of(1)), std::nullopt);
  EXPECT_FALSE(fs::exists(store.folder())) << "reading makes no folder";
  store.put("plan", key_of(1), std::string("a\0b\n", 4));
  store.put("plan", key_of(2), "");
  store.put_file("log", key_of(1), [](const std::string& path) { std::ofstream(path) << "text"; });
  FolderStore other = open();
  EXPECT_EQ(other.read("plan", key_of(1)), std::string("a\0b\n", 4));
  EXPECT_EQ(other.read("plan", key_of(2)), "");
  EXPECT_EQ(other.read("log", key_of(1)), "text");
  EXPECT_EQ(other.read("log", key_of(2)), std::nullopt);
  EXPECT_EQ(store.problem(), "");
  EXPECT_EQ(store.use_by_kind().at("plan").entries, 2);
}

TEST_F(FolderStoreTest, FindsOutDamage) {
  FolderStore store = open();
  const std::string output(300, 'x');
  store.put("plan", key_of(1), output);
  const std::string file = *store.find("plan", key_of(1));
  const auto bytes = fs::file_size(file);
  for (std::uintmax_t at = 0; at < bytes; at += 7) {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(static_cast<std::streamoff>(at));
    const char before = static_cast<char>(stream.get());
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(before ^ 4));
    stream.close();
    EXPECT_EQ(store.read("plan", key_of(1)), std::nullopt) << at;
    stream.open(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(before);
  }
  EXPECT_EQ(store.read("plan", key_of(1)), output);
  for (std::uintmax_t size = bytes; size-- > 0;) {
    fs::resize_file(file, size);
    EXPECT_EQ(store.find("plan", key_of(1)), std::nullopt) << size;
  }
  store.put("plan", key_of(1), output);
  EXPECT_EQ(store.read("plan", key_of(1)), output) << "it is replaced";
}

TEST_F(FolderStoreTest, FindsOutAnEntryOfAnotherKey) {
  FolderStore store = open();
  store.put("plan", key_of(1), "one");
  store.put("plan", key_of(2), "two");
  fs::copy_file(*store.find("plan", key_of(1)), *store.find("plan", key_of(2)),
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(store.read("plan", key_of(2)), std::nullopt);
}

TEST_F(FolderStoreTest, AFailedWriterLeavesNothing) {
  FolderStore store = open();
  store.put_file("plan", key_of(1), [](const std::string& path) {
    std::ofstream(path) << "half";
    throw UserError({path, ""}, "cannot be written", "");
  });
  EXPECT_THAT(store.problem(), testing::HasSubstr("cannot be written"));
  EXPECT_EQ(store.read("plan", key_of(1)), std::nullopt);
  for (const auto& entry : fs::recursive_directory_iterator(store.folder())) {
    EXPECT_TRUE(entry.is_directory()) << entry.path();
  }
}

TEST_F(FolderStoreTest, AFolderThatCannotBeMadeIsNoFailure) {
  std::ofstream(folder_.file("file")) << "mine";
  FolderStore store(folder_.file("file") + "/below", kLimit);
  store.put("plan", key_of(1), "one");
  EXPECT_THAT(store.problem(), testing::HasSubstr("cannot be written"));
  EXPECT_THAT(user_error_of([&] { FolderStore(folder_.file("file"), kLimit); }),
              testing::HasSubstr("is no folder"));
}

TEST_F(FolderStoreTest, WhatWasUsedLongestAgoLeavesFirst) {
  FolderStore store = open();
  for (int number = 0; number < 4; ++number) {
    store.put("plan", key_of(number), std::string(1000, 'x'));
    set_age(*store.find("plan", key_of(number)), 100 - number);
  }
  EXPECT_TRUE(store.read("plan", key_of(0)));  // a use
  const FolderStore::Use removed = store.prune(2500);
  EXPECT_EQ(removed.entries, 2);
  EXPECT_GT(removed.bytes, 2000);
  EXPECT_TRUE(store.find("plan", key_of(0)));
  EXPECT_FALSE(store.find("plan", key_of(1)));
  EXPECT_FALSE(store.find("plan", key_of(2)));
  EXPECT_TRUE(store.find("plan", key_of(3)));
  EXPECT_EQ(store.prune(0).entries, 2);
}

TEST_F(FolderStoreTest, KeepsToItsLimit) {
  FolderStore store = open(10'000);
  for (int number = 0; number < 40; ++number) {
    store.put("plan", key_of(number), std::string(1000, 'x'));
    ASSERT_LE(store.use_by_kind()["plan"].bytes, 10'000) << number;
    ASSERT_TRUE(store.find("plan", key_of(number))) << number;
  }
  EXPECT_GE(store.use_by_kind()["plan"].entries, 6);
}

TEST_F(FolderStoreTest, PruningTouchesNothingOfOthers) {
  FolderStore store = open();
  store.put("plan", key_of(1), "one");
  const std::vector<std::string> foreign{"notes.txt", "plan/notes.txt", key_of(5),
                                         "plan/" + key_of(5), "plan/zz/" + key_of(5)};
  for (const std::string& name : foreign) {
    const fs::path path = fs::path(store.folder()) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "mine";
  }
  const std::string abandoned = store.folder() + "/temporary-abcdef";
  const std::string fresh = store.folder() + "/temporary-fresh1";
  std::ofstream(abandoned) << "half";
  std::ofstream(fresh) << "half";
  set_age(abandoned, 7200);
  EXPECT_EQ(store.prune(0).entries, 1);
  for (const std::string& name : foreign) EXPECT_TRUE(fs::exists(store.folder() + "/" + name));
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(fresh)) << "a writer may be at it";
}

TEST_F(FolderStoreTest, ALockKeepsOthersOut) {
  const FolderStore store = open();
  const std::vector<std::string> both{key_of(1), key_of(2)};
  const std::vector<std::string> second{key_of(2)};
  const std::vector<std::string> third{key_of(3)};
  std::atomic<bool> released{false};
  std::atomic<bool> entered_early{false};
  std::jthread other;
  {
    const auto lock = store.lock(both);
    const auto another = store.lock(third);  // of another key: at once
    other = std::jthread([&] {
      const auto waiting = store.lock(second);
      if (!released) entered_early = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    released = true;
  }
  other.join();
  EXPECT_FALSE(entered_early);
}

TEST_F(FolderStoreTest, ManyThreadsOneFolder) {
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      FolderStore store = open(20'000);  // small, so that they evict under each other
      for (int i = 0; i < 100; ++i) {
        const int number = (i * 7 + thread) % 30;
        const std::string output(static_cast<std::size_t>(500 + number), 'x');
        store.put("plan", key_of(number), output);
        const auto found = store.read("plan", key_of(number));
        if (found) {
          EXPECT_EQ(*found, output);
        }
      }
      EXPECT_EQ(store.problem(), "");
    });
  }
}

TEST(FolderStoreFolder, FollowsTheEnvironment) {
  const auto get = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string before = get("XDG_CACHE_HOME");
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(FolderStore::default_folder(), "/somewhere/kvreplay");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(FolderStore::default_folder(), get("HOME") + "/.cache/kvreplay");
  if (before.empty()) {
    ::unsetenv("XDG_CACHE_HOME");
  } else {
    ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
  }
}

}  // namespace
}  // namespace kvreplay
