#include "traces/trace_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "tests/support/file_size_limit.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr SyntheticShape kSmall{.layers = 1, .head_dim = 8, .prompt = 8, .decode = 4};

class TraceWriterTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_.file("a.kvtrace.h5");
};

std::vector<Half> counted(std::int64_t count, int from) {
  std::vector<Half> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(to_half(static_cast<float>(from + static_cast<int>(i % 100)) / 8));
  }
  return values;
}

void write_tokens(TraceWriter& writer, std::int64_t tokens) {
  const auto count = static_cast<std::size_t>(tokens);
  writer.write_tokens(std::vector<std::int32_t>(count, 3), std::vector<float>(count, 1.0F),
                      std::vector<float>(count, 0.5F), std::vector<float>(count, -2.0F));
}

TEST_F(TraceWriterTest, RoundTripInPieces) {
  TraceInfo info = synthetic_info(kSmall);
  info.text_sha256 = std::string(64, 'a');
  info.sliding_window = {100};
  {
    TraceWriter writer(path_, info, {6, false});
    // Heads interleaved, rows in uneven pieces.
    for (std::int64_t head : {1, 0}) {
      const std::vector<Half> rows = counted(12 * 8, static_cast<int>(head));
      const std::span all(rows);
      writer.append(0, LayerTensor::kKey, head, all.first(8));
      writer.append(0, LayerTensor::kValue, head, all);
      writer.append(0, LayerTensor::kKey, head, all.subspan(8, 10 * 8));
      writer.append(0, LayerTensor::kKey, head, all.last(8));
    }
    for (std::int64_t head = 0; head < 6; ++head) {
      writer.append(0, LayerTensor::kQuery, head, counted(6 * 8, 50 + static_cast<int>(head)));
    }
    write_tokens(writer, 12);
    writer.write_adapter(0, "joint_lowrank", {{16, 2}, std::vector<float>(32, 0.5F), "", 0});
    writer.write_adapter(0, "head_pca",
                         {{2, 8, 8}, std::vector<float>(128, 0.25F), std::string(64, 'b'), 77});
    writer.finish();
  }
  const TraceReader trace(path_);
  trace.verify();
  EXPECT_EQ(trace.info().model, "synthetic");
  EXPECT_EQ(trace.info().text_sha256, info.text_sha256);
  EXPECT_EQ(trace.info().text_mode, "teacher_forced");
  EXPECT_EQ(trace.info().sliding_window, info.sliding_window);
  EXPECT_EQ(trace.info().softmax_scale, info.softmax_scale);
  EXPECT_EQ(trace.info().created_utc, info.created_utc);
  EXPECT_FALSE(trace.has_queries_ahead(0));
  const TraceLayer layer = trace.load_layer(0);
  EXPECT_EQ(layer.query_start, 6);
  for (std::int64_t head = 0; head < 2; ++head) {
    const std::vector<Half> expected = counted(12 * 8, static_cast<int>(head));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), layer.keys.head(head)));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), layer.values.head(head)));
  }
  const std::vector<Half> last = counted(6 * 8, 55);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), layer.queries.head(5)));
  const Adapter adapter = trace.load_adapter(0, "head_pca").value();
  EXPECT_EQ(adapter.text_sha256, std::string(64, 'b'));
  EXPECT_EQ(adapter.text_tokens, 77);
  EXPECT_EQ(adapter.values, std::vector<float>(128, 0.25F));
  EXPECT_EQ(trace.token_statistic("log_probability"), std::vector<float>(12, -2.0F));
}

TEST_F(TraceWriterTest, SameCallsSameBytes) {
  const std::string other = folder_.file("b.kvtrace.h5");
  write_synthetic_trace(path_, kSmall);
  write_synthetic_trace(other, kSmall);
  EXPECT_EQ(sha256_file(path_), sha256_file(other));
  SyntheticShape reseeded = kSmall;
  reseeded.seed = 2;
  write_synthetic_trace(other, reseeded);
  EXPECT_NE(sha256_file(path_), sha256_file(other));
}

TEST_F(TraceWriterTest, NothingAppearsWithoutFinish) {
  {
    TraceWriter writer(path_, synthetic_info(kSmall), {0, false});
    write_tokens(writer, 12);
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_TRUE(folder_.is_empty());
}

TEST_F(TraceWriterTest, FinishWantsEveryRow) {
  {
    TraceWriter writer(path_, synthetic_info(kSmall), {8, false});
    for (std::int64_t head = 0; head < 2; ++head) {
      writer.append(0, LayerTensor::kKey, head, counted(12 * 8, 0));
      writer.append(0, LayerTensor::kValue, head, counted(12 * 8, 0));
    }
    for (std::int64_t head = 0; head < 6; ++head) {
      writer.append(0, LayerTensor::kQuery, head, counted((head == 3 ? 3 : 4) * 8, 0));
    }
    EXPECT_THROW(writer.finish(), std::logic_error);  // no token data
    write_tokens(writer, 12);
    EXPECT_THROW(writer.finish(), std::logic_error);  // head 3 lacks a row
  }
  EXPECT_TRUE(folder_.is_empty());
}

TEST_F(TraceWriterTest, MisuseIsABugOfTheCaller) {
  const TraceInfo info = synthetic_info(kSmall);
  TraceWriter writer(path_, info, {8, false});
  const std::vector<Half> row(8);
  EXPECT_THROW(writer.append(1, LayerTensor::kKey, 0, row), std::logic_error);
  EXPECT_THROW(writer.append(0, LayerTensor::kKey, 2, row), std::logic_error);
  EXPECT_THROW(writer.append(0, LayerTensor::kQueryAhead, 0, row), std::logic_error);
  EXPECT_THROW(writer.append(0, LayerTensor::kKey, 0, std::span(row).first(7)), std::logic_error);
  EXPECT_THROW(writer.append(0, LayerTensor::kQuery, 0, counted(5 * 8, 0)), std::logic_error);
  EXPECT_THROW(write_tokens(writer, 11), std::logic_error);
  EXPECT_THROW(TraceWriter(path_, info, {9, false}), std::logic_error);
  TraceInfo brain = info;
  brain.dtype = "f32";
  EXPECT_THROW(TraceWriter(path_, brain, {8, false}), std::logic_error);
  brain.dtype = "bf16";
  TraceWriter of_brains(path_, brain, {8, false});
  EXPECT_THROW(of_brains.append(0, LayerTensor::kKey, 0, row), std::logic_error);
}

TEST_F(TraceWriterTest, FullDiskLeavesNothingBehind) {
  // From a limit that the first attributes exceed to one that only the last values do.
  write_synthetic_trace(path_);
  const auto whole = std::filesystem::file_size(path_);
  std::filesystem::remove(path_);
  for (const std::uintmax_t size : {std::uintmax_t{1024}, whole / 2, whole - 1}) {
    const std::string error = user_error_of([&] {
      const FileSizeLimit limit(size);
      write_synthetic_trace(path_);
    });
    EXPECT_THAT(error, AllOf(HasSubstr(path_), HasSubstr("free space"),
                             testing::Not(HasSubstr("partial"))));
    EXPECT_TRUE(folder_.is_empty());
  }
  EXPECT_NO_THROW(write_synthetic_trace(path_));
}

TEST_F(TraceWriterTest, AFolderThatCannotBeMade) {
  const std::string file = folder_.file("file");
  write_synthetic_trace(file, kSmall);
  EXPECT_THAT(user_error_of([&] { write_synthetic_trace(file + "/below.h5", kSmall); }),
              HasSubstr(file));
}

}  // namespace
}  // namespace kvreplay
