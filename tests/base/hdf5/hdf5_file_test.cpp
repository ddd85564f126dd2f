#include "base/hdf5/hdf5_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Hdf5FileTest : public testing::Test {
 protected:
  [[nodiscard]] Hdf5File create() const { return Hdf5File::create(path_, path_); }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("data.h5");
};

template <typename T>
class Hdf5VectorTest : public Hdf5FileTest {};

using ElementTypes = testing::Types<std::uint8_t, std::uint16_t, std::int32_t, std::uint32_t,
                                    std::int64_t, std::uint64_t, float, double>;
TYPED_TEST_SUITE(Hdf5VectorTest, ElementTypes);

TYPED_TEST(Hdf5VectorTest, RoundTrip) {
  const std::vector<TypeParam> values = {TypeParam{0}, std::numeric_limits<TypeParam>::lowest(),
                                         std::numeric_limits<TypeParam>::max(), TypeParam{42}};
  {
    Hdf5File file = this->create();
    file.write_vector("/group/values", values);
    file.write_vector("/empty", std::vector<TypeParam>{});
    file.close();
  }
  const Hdf5File file = Hdf5File::open(this->path_);
  EXPECT_EQ(file.read_vector<TypeParam>("/group/values"), values);
  EXPECT_TRUE(file.read_vector<TypeParam>("/empty").empty());
  const Hdf5Dataset dataset = file.dataset("/group/values");
  EXPECT_EQ(dataset.type, hdf5_type<TypeParam>());
  EXPECT_THAT(dataset.shape, ElementsAre(4));
  EXPECT_TRUE(dataset.contiguous);
  EXPECT_TRUE(dataset.offset.has_value());
  EXPECT_EQ(dataset.stored_bytes, static_cast<std::int64_t>(4 * sizeof(TypeParam)));
}

TEST_F(Hdf5FileTest, EveryHalfKeepsItsBits) {
  std::vector<Half> values;
  for (unsigned bits = 0; bits < 65536; ++bits)
    values.push_back({static_cast<std::uint16_t>(bits)});
  Hdf5File writing = create();
  writing.write_vector("/half", values);
  writing.close();
  const Hdf5File file = Hdf5File::open(path_);
  EXPECT_EQ(file.dataset("/half").type, Hdf5Type::kHalf);
  EXPECT_EQ(file.read_vector<Half>("/half"), values);
}

TEST_F(Hdf5FileTest, AttributesRoundTrip) {
  Hdf5File writing = create();
  writing.create_group("/a/b");
  writing.write_text_attribute("/", "text", "größer than ASCII");
  writing.write_text_attribute("/", "empty", "");
  const std::string long_text(200000, 'x');
  writing.write_text_attribute("/a", "long", long_text);
  writing.write_integer_attribute("/a/b", "integer", -5);
  writing.write_real_attribute("/a/b", "real", 0.1);
  writing.write_integers_attribute("/a/b", "integers", std::array<std::int64_t, 3>{3, 1, 2});
  writing.write_reals_attribute("/a/b", "reals", std::array{0.0, 0.1});
  writing.close();

  const Hdf5File file = Hdf5File::open(path_);
  EXPECT_EQ(file.text_attribute("/", "text"), "größer than ASCII");
  EXPECT_EQ(file.text_attribute("/", "empty"), "");
  EXPECT_EQ(file.text_attribute("/a", "long"), long_text);
  EXPECT_EQ(file.integer_attribute("/a/b", "integer"), -5);
  EXPECT_EQ(file.real_attribute("/a/b", "real"), 0.1);
  EXPECT_EQ(file.real_attribute("/a/b", "integer"), -5.0);
  EXPECT_THAT(file.integers_attribute("/a/b", "integers"), ElementsAre(3, 1, 2));
  EXPECT_THAT(file.reals_attribute("/a/b", "reals"), ElementsAre(0.0, 0.1));
  EXPECT_THAT(file.reals_attribute("/a/b", "integers"), ElementsAre(3.0, 1.0, 2.0));
  EXPECT_TRUE(file.has_attribute("/a/b", "real"));
  EXPECT_FALSE(file.has_attribute("/a/b", "text"));
  EXPECT_TRUE(file.exists("/a/b"));
  EXPECT_FALSE(file.exists("/a/c"));
  EXPECT_FALSE(file.exists("/nowhere/at/all"));
  EXPECT_THAT(file.names("/a"), ElementsAre("b"));
}

TEST_F(Hdf5FileTest, BoxesOfChunkedAndContiguousSets) {
  const std::array<std::int64_t, 3> shape = {2, 5, 3};
  std::vector<std::int32_t> values(30);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  for (const Hdf5Layout& layout :
       {Hdf5Layout{}, Hdf5Layout{{1, 2, 3}, 0}, Hdf5Layout{{2, 3, 2}, 4}}) {
    Hdf5File writing = create();
    writing.create_dataset("/box", Hdf5Type::kInt32, shape, layout);
    // Written a row at a time, last head first.
    for (std::int64_t row = 9; row >= 0; --row) {
      writing.write_box<std::int32_t>(
          "/box", std::array{row / 5, row % 5, std::int64_t{0}},
          std::array<std::int64_t, 3>{1, 1, 3},
          std::span(std::as_const(values)).subspan(static_cast<std::size_t>(3 * row), 3));
    }
    writing.close();
    const Hdf5File file = Hdf5File::open(path_);
    EXPECT_EQ(file.read_vector<std::int32_t>("/box"), values);
    EXPECT_EQ(file.dataset("/box").contiguous, layout.chunk.empty());
    EXPECT_EQ(file.dataset("/box").offset.has_value(), layout.chunk.empty());
    std::vector<std::int32_t> box(4);
    file.read_box<std::int32_t>("/box", std::array<std::int64_t, 3>{0, 3, 1},
                                std::array<std::int64_t, 3>{2, 1, 2}, box);
    EXPECT_THAT(box, ElementsAre(10, 11, 25, 26));
  }
}

TEST_F(Hdf5FileTest, ErrorsNameFileAndPath) {
  {
    Hdf5File writing = create();
    writing.write_vector("/group/floats", std::vector<float>{1, 2});
    writing.write_text_attribute("/group", "text", "abc");
    writing.write_integers_attribute("/group", "pair", std::array<std::int64_t, 2>{1, 2});
    writing.close();
  }
  const Hdf5File file = Hdf5File::open(path_);
  const auto expect = [&](const auto& work, const std::string& path, const std::string& what) {
    EXPECT_THAT(user_error_of(work), AllOf(HasSubstr(path_), HasSubstr(path), HasSubstr(what)));
  };
  expect([&] { (void)file.read_vector<float>("/group/absent"); }, "/group/absent", "missing");
  expect([&] { (void)file.read_vector<float>("/group"); }, "/group", "is a group");
  expect([&] { (void)file.read_vector<Half>("/group/floats"); }, "/group/floats", "16-bit float");
  expect([&] { (void)file.names("/group/floats"); }, "/group/floats", "is a data set");
  expect([&] { (void)file.integer_attribute("/group", "text"); }, "/group", "'text' holds text");
  expect([&] { (void)file.integer_attribute("/group", "pair"); }, "/group", "2 values");
  expect([&] { (void)file.text_attribute("/group", "absent"); }, "/group", "'absent' is missing");
  expect([&] { (void)file.has_attribute("/absent", "a"); }, "/absent", "missing");
  std::vector<float> values(2);
  expect(
      [&] {
        file.read_box<float>("/group/floats", std::array<std::int64_t, 1>{1},
                             std::array<std::int64_t, 1>{2}, values);
      },
      "/group/floats", "smaller than the requested range");
  expect(
      [&] {
        file.read_box<float>("/group/floats", std::array<std::int64_t, 2>{0, 0},
                             std::array<std::int64_t, 2>{1, 2}, values);
      },
      "/group/floats", "1 dimensions");
}

TEST_F(Hdf5FileTest, OpeningWhatIsNoFile) {
  EXPECT_THAT(user_error_of([&] { (void)Hdf5File::open(folder_.file("absent.h5")); }),
              AllOf(HasSubstr("absent.h5"), HasSubstr("No such file")));
  EXPECT_THAT(user_error_of([&] { (void)Hdf5File::open(folder_.path().string()); }),
              AllOf(HasSubstr(folder_.path().string()), HasSubstr("not a regular file")));
  const std::string absent = folder_.file("no/such/folder/a.h5");
  EXPECT_THAT(user_error_of([&] { (void)Hdf5File::create(absent, "shown"); }),
              AllOf(HasSubstr("shown"), HasSubstr("cannot be created")));
}

TEST_F(Hdf5FileTest, DamagedAttributesAreAnErrorAndNoCrash) {
  Hdf5File writing = create();
  writing.create_group("/group/inner");
  for (const char* name : {"first_name", "second_name", "third_name"}) {
    writing.write_integer_attribute("/group/inner", name, 3);
    writing.write_text_attribute("/group/inner", std::string(name) + "_text", "a text");
  }
  writing.close();
  std::ifstream stream(path_, std::ios::binary);
  const std::string sound(std::istreambuf_iterator<char>(stream), {});
  // Before an attribute's name: version, reserved, and the sizes of name, type and shape.
  constexpr std::size_t kHeaderBytes = 8;
  int refused = 0;
  for (const char* name : {"first_name", "second_name_text", "third_name"}) {
    const std::size_t end = sound.find(name);
    ASSERT_NE(end, std::string::npos);
    for (std::size_t at = end - kHeaderBytes; at < end + 56; at += 2) {
      for (const char value : {'\x7f', '\xff'}) {
        std::string damaged = sound;
        damaged[at] = value;
        std::ofstream(path_, std::ios::binary) << damaged;
        try {
          const Hdf5File file = Hdf5File::open(path_);
          for (const std::string& path : file.paths()) (void)file.attribute_names(path);
          (void)file.content_sha256([](const std::string&) { return false; });
        } catch (const UserError& error) {
          ++refused;
          EXPECT_THAT(error.what(), HasSubstr(path_));
        }
      }
    }
  }
  EXPECT_GT(refused, 3);

  std::string damaged = sound;
  damaged[sound.find("second_name") - kHeaderBytes] = '\xee';  // no such version: HDF5 1.10 crashes
  std::ofstream(path_, std::ios::binary) << damaged;
  EXPECT_THAT(user_error_of([&] {
                const Hdf5File file = Hdf5File::open(path_);
                (void)file.attribute_names("/group/inner");
              }),
              AllOf(HasSubstr(path_), HasSubstr("/group/inner")));
}

TEST_F(Hdf5FileTest, FullDiskIsReportedAtTheLatestByClose) {
  Hdf5File writing = create();
  const std::string error = user_error_of([&] {
    const FileSizeLimit limit(4096);
    writing.write_vector("/values", std::vector<double>(10000, 1.0));
    writing.close();
  });
  EXPECT_THAT(error, AllOf(HasSubstr(path_), HasSubstr("cannot be written")));
}

TEST_F(Hdf5FileTest, ManyThreadsReadOneFile) {
  Hdf5File writing = create();
  for (int i = 0; i < 8; ++i) {
    writing.write_vector("/values/" + std::to_string(i), std::vector<std::int32_t>(1000, i));
  }
  writing.close();
  const Hdf5File file = Hdf5File::open(path_);
  std::array<bool, 8> right{};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        bool all = true;
        for (int round = 0; round < 20; ++round) {
          all = all && file.read_vector<std::int32_t>("/values/" + std::to_string(i)) ==
                           std::vector<std::int32_t>(1000, i);
        }
        right[static_cast<std::size_t>(i)] = all;
      });
    }
  }
  EXPECT_THAT(right, testing::Each(true));
}

}  // namespace
}  // namespace kvreplay
