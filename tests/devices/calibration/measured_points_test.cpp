// Measurements as fio and the probe write them, and their traps.

#include "devices/calibration/measured_points.hpp"

#include <gmock/gmock.h>

#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A job of fio 3.33's JSON, as far as it is read.
std::string fio_job(const std::string& options, double iops, double lat_us,
                    const std::string& error = "0") {
  return R"({"jobname": "j", "error": )" + error + R"(, "job options": {)" + options +
         R"(}, "read": {"iops": )" + std::to_string(iops) + R"(, "bw": 1, "clat_ns": {"mean": 1},
         "lat_ns": {"mean": )" +
         std::to_string(lat_us * 1000) + "}}}";
}

MeasuredPoints fio(const std::string& jobs) {
  return parse_measured_points(
      "fio: a note first\n"
      R"({"fio version": "fio-3.33", )"
      R"("global options": {"direct": "1"}, "jobs": [)" +
          jobs + "]}",
      "fio.json");
}

const std::string kRead = R"("rw": "randread", "ioengine": "io_uring", )";

TEST(MeasuredPoints, OfFioAreRateAndLatencyFromSubmission) {
  const MeasuredPoints found =
      fio(fio_job(kRead + R"("bs": "24k", "iodepth": "8", "size": "2G")", 40'000, 200) + "," +
          fio_job(kRead + R"("bs": "4096")", 10'000, 100));  // iodepth 1 is fio's default
  EXPECT_EQ(found.source, "fio-3.33");
  EXPECT_TRUE(found.notes.empty());
  ASSERT_EQ(found.points.size(), 2u);  // sorted by size
  EXPECT_EQ(found.points[0].bytes, 4096u);
  EXPECT_EQ(found.points[0].depth, 1u);
  EXPECT_EQ(found.points[1].bytes, 24u << 10);
  EXPECT_EQ(found.points[1].depth, 8u);
  EXPECT_EQ(found.points[1].range_bytes, 2ull << 30);
  EXPECT_DOUBLE_EQ(found.points[1].iops, 40'000);
  EXPECT_DOUBLE_EQ(found.points[1].mean_us, 200);  // lat_ns, not clat_ns
}

TEST(MeasuredPoints, OfFioThatCannotBeMeantAreLeftOutWithAWord) {
  const std::string good = fio_job(kRead + R"("bs": "4k")", 10'000, 100);
  const auto notes_of = [&](const std::string& job, std::size_t points) {
    const MeasuredPoints found = fio(good + "," + job);
    EXPECT_EQ(found.points.size(), points);
    return found.notes;
  };
  EXPECT_THAT(notes_of(fio_job(R"("rw": "randwrite", "bs": "4k")", 1, 1), 1),
              ElementsAre(HasSubstr("not random reads")));
  EXPECT_THAT(notes_of(fio_job(kRead + R"("bs": "4k-8k")", 1, 1), 1),
              ElementsAre(HasSubstr("of one size")));
  EXPECT_THAT(notes_of(fio_job(kRead + R"("bs": "4k")", 1, 1, "5"), 1),
              ElementsAre(HasSubstr("ended with an error")));
  EXPECT_THAT(notes_of(fio_job(kRead + R"("bs": "4k", "numjobs": "4")", 10'000, 100), 1),
              ElementsAre(HasSubstr("group_reporting")));
  EXPECT_THAT(notes_of(fio_job(kRead + R"("bs": "4k", "direct": "0")", 10'000, 100), 2),
              ElementsAre(HasSubstr("page cache")));
}

TEST(MeasuredPoints, DepthIsWhatIsReallyOutstanding) {
  const MeasuredPoints found =
      fio(fio_job(R"("rw": "randread", "bs": "4k", "ioengine": "psync", "iodepth": "32")", 10'000,
                  100) +
          "," +
          fio_job(R"("rw": "randread", "bs": "8k", "ioengine": "psync", "numjobs": "4",
                     "group_reporting": "1")",
                  10'000, 400));
  ASSERT_EQ(found.points.size(), 2u);
  EXPECT_EQ(found.points[0].depth, 1u);
  EXPECT_EQ(found.points[1].depth, 4u);
}

TEST(MeasuredPoints, ALatencyAgainstLittlesLawIsNotBelieved) {
  // As fio shows it with a submission thread (SQPOLL) on two processors: 1.66 s at depth 32.
  const MeasuredPoints found =
      fio(fio_job(kRead + R"("bs": "4k", "iodepth": "32")", 66'000, 1.66e6));
  EXPECT_DOUBLE_EQ(found.points.at(0).mean_us, 0);
  EXPECT_DOUBLE_EQ(found.points.at(0).iops, 66'000);
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("its latency does not fit its rate")));
}

std::string probe_of(const std::string& points) {
  return R"({"format": "kvreplay probe 1", "target": {"path": "/x", "size_bytes": 1048576},
             "points": [)" +
         points + "]}";
}

TEST(MeasuredPoints, OfAProbeAreItsRandomReads) {
  const MeasuredPoints found = parse_measured_points(
      probe_of(R"({"pattern": "random", "write_share": 0.0, "bytes": 4096, "depth": 2,
                   "iops": 20000.0, "mean_us": 100.0},
                  {"pattern": "random", "write_share": 0.3, "bytes": 4096, "depth": 2,
                   "iops": 20000.0, "mean_us": 100.0},
                  {"pattern": "sequential", "write_share": 0, "bytes": 4096, "depth": 2,
                   "iops": 20000.0, "mean_us": 100.0})"),
      "probe.json");
  ASSERT_EQ(found.points.size(), 1u);
  EXPECT_EQ(found.points[0].range_bytes, 1u << 20);
  EXPECT_EQ(found.source, "kvreplay probe of /x");
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("2 points with writes or in sequence")));
}

TEST(MeasuredPoints, MistakesAreNamedWithTheirPlace) {
  const auto error_of = [](const std::string& text) {
    return user_error_of([&] { (void)parse_measured_points(text, "m.json"); });
  };
  EXPECT_THAT(error_of("fio: failed\n"), AllOf(HasSubstr("m.json"), HasSubstr("not valid JSON")));
  EXPECT_THAT(error_of("{}"), HasSubstr("is no measurement"));
  EXPECT_THAT(error_of(probe_of("")), HasSubstr("has no point of random reads"));
  EXPECT_THAT(error_of(probe_of(R"({"pattern": "random", "write_share": 0, "bytes": 0,
                                    "depth": 1, "iops": 1, "mean_us": 1})")),
              HasSubstr("m.json: /points/0/bytes: found 0"));
  EXPECT_THAT(error_of(probe_of(R"({"pattern": "random", "write_share": 0, "bytes": 512,
                                    "depth": 1, "iops": -1, "mean_us": 1})")),
              HasSubstr("/points/0/iops: found -1; allowed: 0 to 1e+09"));
  EXPECT_THAT(user_error_of([] { (void)load_measured_points("/no/such/file.json"); }),
              HasSubstr("/no/such/file.json: cannot be opened"));
}

}  // namespace
}  // namespace kvreplay
