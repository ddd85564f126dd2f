// Measurements in the forms of fio and the probe, and their pitfalls.

#include "devices/calibration/measured_points.hpp"

#include <gmock/gmock.h>

#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One direction of a job in fio 3.33's JSON, with the members that are read.
std::string fio_direction(double iops, double lat_us, std::uint64_t requests = 0) {
  return R"({"iops": )" + std::to_string(iops) + R"(, "bw": 1, "total_ios": )" +
         std::to_string(requests) + R"(, "clat_ns": {"mean": 1}, "lat_ns": {"mean": )" +
         std::to_string(lat_us * 1000) + "}}";
}

std::string fio_job(const std::string& options, double iops, double lat_us,
                    const std::string& error = "0") {
  return R"({"jobname": "j", "error": )" + error + R"(, "job options": {)" + options +
         R"(}, "read": )" + fio_direction(iops, lat_us) + "}";
}

std::string fio_job(const std::string& options, const std::string& read, const std::string& write) {
  return R"({"jobname": "j", "error": 0, "job options": {)" + options + R"(}, "read": )" + read +
         R"(, "write": )" + write + "}";
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
  EXPECT_THAT(notes_of(fio_job(R"("rw": "write", "bs": "4k")", 1, 1), 1),
              ElementsAre(HasSubstr("not random requests")));
  EXPECT_THAT(notes_of(fio_job(R"("rw": "randrw", "rwmixread": "70x", "bs": "4k")", 1, 1), 1),
              ElementsAre(HasSubstr("not random requests")));
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

TEST(MeasuredPoints, OfFioAreWritesAndMixesToo) {
  const std::string none = fio_direction(0, 0);
  const MeasuredPoints found = fio(
      fio_job(R"("rw": "randrw", "rwmixread": "75", "iodepth": "4", "ioengine": "io_uring")",
              fio_direction(30'000, 80, 60'000), fio_direction(10'000, 160, 20'000)) +
      "," + fio_job(R"("rw": "randwrite", "bs": "8k")", none, fio_direction(5'000, 200, 10'000)) +
      "," +
      fio_job(R"("rw": "randrw", "rwmixwrite": "100", "bs": "16k")", none,
              fio_direction(4'000, 250, 8'000)) +
      "," +
      fio_job(R"("rw": "randrw", "bs": "2k")", fio_direction(5'000, 100, 7),
              fio_direction(5'000, 100, 8)));
  EXPECT_TRUE(found.notes.empty());
  ASSERT_EQ(found.points.size(), 4u);  // by write share
  const MeasuredPoint& mix = found.points[0];
  EXPECT_DOUBLE_EQ(mix.write_share, 0.25);
  EXPECT_EQ(mix.requests, 80'000u);
  EXPECT_DOUBLE_EQ(mix.iops, 40'000);
  EXPECT_DOUBLE_EQ(mix.mean_us, 100);
  EXPECT_DOUBLE_EQ(mix.read_us, 80);
  EXPECT_DOUBLE_EQ(mix.write_us, 160);
  EXPECT_DOUBLE_EQ(found.points[1].write_share, 0.5);  // fio's default
  for (const std::size_t i : {2u, 3u}) EXPECT_EQ(found.points[i].write_share, 1);
  EXPECT_EQ(found.points[2].bytes, 8u << 10);
  EXPECT_EQ(found.points[2].requests, 10'000u);
  EXPECT_DOUBLE_EQ(found.points[2].mean_us, 200);
}

TEST(MeasuredPoints, ThoseAgainstLittlesLawAreLeftOutWhole) {
  const std::string good = fio_job(kRead + R"("bs": "4k")", 10'000, 100);
  // As fio shows it with a submission thread (SQPOLL) on two processors: 1.66 s at depth 32; and
  // with a limit on the rate, which leaves fewer than 32 outstanding.
  for (const auto& [iops, us] : {std::pair{66'000.0, 1.66e6}, {1000.0, 100.0}}) {
    const MeasuredPoints found =
        fio(good + "," + fio_job(kRead + R"("bs": "8k", "iodepth": "32")", iops, us));
    ASSERT_EQ(found.points.size(), 1u);
    EXPECT_EQ(found.points[0].bytes, 4096u);
    EXPECT_THAT(found.notes, ElementsAre(AllOf(HasSubstr("reads of 8192 bytes at depth 32"),
                                               HasSubstr("left out"), HasSubstr("outstanding"))));
  }
  // A factor of 1.5 is allowed, because means of a short run scatter.
  for (const double us : {67.0, 149.0}) {
    EXPECT_EQ(fio(fio_job(kRead + R"("bs": "4k")", 10'000, us)).points.size(), 1u) << us;
  }
  for (const double us : {66.0, 151.0}) {
    EXPECT_EQ(fio(good + "," + fio_job(kRead + R"("bs": "8k")", 10'000, us)).points.size(), 1u);
  }
}

std::string probe_of(const std::string& points) {
  return R"({"format": "kvreplay probe 1", "target": {"path": "/x", "size_bytes": 1048576},
             "points": [)" +
         points + "]}";
}

TEST(MeasuredPoints, OfAProbeAreItsRandomRequests) {
  const std::string read = R"({"pattern": "random", "write_share": 0.0, "bytes": 4096, "depth": 2,
                               "iops": 20000.0, "mean_us": 100.0, "p50_us": 40.0})";
  const std::string mix = R"({"pattern": "random", "write_share": 0.3, "bytes": 4096, "depth": 2,
                              "iops": 20000.0, "requests": 9000, "mean_us": 100.0,
                              "reads": {"mean_us": 90}, "writes": {"mean_us": 123}})";
  const std::string write = R"({"pattern": "random", "write_share": 1, "bytes": 4096, "depth": 2,
                                "iops": 10000.0, "requests": 5000, "mean_us": 200.0})";
  const std::string other = R"({"pattern": "sequential", "write_share": 0, "bytes": 4096,
                                "depth": 2, "iops": 20000.0, "mean_us": 100.0})";
  // In any order.
  for (const std::string& points : {read + "," + mix + "," + write + "," + other,
                                    other + "," + write + "," + read + "," + mix}) {
    const MeasuredPoints found = parse_measured_points(probe_of(points), "probe.json");
    EXPECT_EQ(found.source, "kvreplay probe of /x");
    EXPECT_THAT(found.notes, ElementsAre(HasSubstr("1 points in sequence")));
    ASSERT_EQ(found.points.size(), 3u);
    EXPECT_EQ(found.points[0].write_share, 0);
    EXPECT_EQ(found.points[0].range_bytes, 1u << 20);
    EXPECT_DOUBLE_EQ(found.points[0].median_us, 40);
    EXPECT_TRUE(found.points[0].shows_bucket());
    EXPECT_FALSE(found.points[1].shows_bucket()) << "no median";
    EXPECT_DOUBLE_EQ(found.points[1].write_share, 0.3);
    EXPECT_EQ(found.points[1].requests, 9000u);
    EXPECT_DOUBLE_EQ(found.points[1].read_us, 90);
    EXPECT_DOUBLE_EQ(found.points[1].write_us, 123);
    EXPECT_EQ(found.points[2].write_share, 1);
    EXPECT_DOUBLE_EQ(found.points[2].mean_us, 200);
  }
}

TEST(MeasuredPoints, WritesInSequenceCountIfAsked) {
  const auto point = [](const char* pattern, const char* write_share, int us) {
    return R"({"pattern": ")" + std::string(pattern) + R"(", "write_share": )" + write_share +
           R"(, "bytes": 4096, "depth": 1, "requests": 100, "iops": )" +
           std::to_string(1'000'000 / us) + R"(, "mean_us": )" + std::to_string(us) + "}";
  };
  const std::string all = probe_of(
      point("random", "0", 10) + "," + point("random", "0.3", 20) + "," + point("random", "1", 40) +
      "," + point("sequential", "0", 50) + "," + point("sequential", "1", 80));
  const MeasuredPoints found = parse_measured_points(all, "m.json", WritePlaces::kSequential);
  ASSERT_EQ(found.points.size(), 3u);
  EXPECT_DOUBLE_EQ(found.points[0].mean_us, 10);
  EXPECT_DOUBLE_EQ(found.points[1].mean_us, 20);
  EXPECT_DOUBLE_EQ(found.points[2].mean_us, 80);
  EXPECT_FALSE(found.points[0].sequential || found.points[1].sequential);
  EXPECT_TRUE(found.points[2].sequential);
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("1 points in sequence"),
                                       HasSubstr("1 points of random writes")));
  EXPECT_THAT(user_error_of([] {
                (void)parse_measured_points(R"({"fio version": "fio-3.33", "jobs": []})", "f.json",
                                            WritePlaces::kSequential);
              }),
              AllOf(HasSubstr("f.json"), HasSubstr("--pattern random,sequential")));
}

TEST(MeasuredPoints, ABurstTellsTheOrderOfService) {
  const auto burst = [](const std::string& members) {
    return probe_of(R"({"pattern": "random", "write_share": 0, "bytes": 4096, "depth": 2,
                        "iops": 20000.0, "mean_us": 100.0)" +
                    members + "}");
  };
  EXPECT_FALSE(parse_measured_points(burst(""), "m.json").mixing);
  EXPECT_FALSE(parse_measured_points(burst(R"(, "burst": {"all_ms": 1})"), "m.json").mixing);
  EXPECT_EQ(parse_measured_points(burst(R"(, "burst": {"mixing": -0.02})"), "m.json").mixing,
            -0.02);
  EXPECT_THAT(user_error_of([&] {
                (void)parse_measured_points(burst(R"(, "burst": {"mixing": 15})"), "m.json");
              }),
              HasSubstr("m.json: /points/0/burst/mixing: found 15; allowed: -10 to 10"));
}

TEST(MeasuredPoints, ABlankTellsThePath) {
  const auto measurement = [](const std::string& bytes, double iops, double us) {
    return parse_measured_points(
        probe_of(R"({"pattern": "random", "write_share": 0, "bytes": )" + bytes +
                 R"(, "depth": 1, "iops": )" + std::to_string(iops) + R"(, "mean_us": )" +
                 std::to_string(us) + "}"),
        "m.json");
  };
  MeasuredPoints measured = measurement("4096", 5000, 200);
  tell_path(measured, measurement("4096", 16000, 60), "blank.json");
  EXPECT_DOUBLE_EQ(measured.points[0].path_us, 60);
  EXPECT_DOUBLE_EQ(measured.points[0].mean_us, 200);
  EXPECT_THAT(
      user_error_of([&] { tell_path(measured, measurement("8192", 16000, 60), "blank.json"); }),
      AllOf(HasSubstr("blank.json: no requests of 4096 bytes, 0 % writes at depth 1")));
  EXPECT_THAT(
      user_error_of([&] { tell_path(measured, measurement("4096", 4000, 250), "blank.json"); }),
      HasSubstr("take 250 us, on the device 200 us; allowed: a device that takes no time"));
}

TEST(MeasuredPoints, NumbersOfFioDoNotWrap) {
  const auto error_of = [](const std::string& options) {
    return user_error_of([&] { (void)fio(fio_job(kRead + options, 10'000, 100)); });
  };
  const std::string job = "fio.json: /jobs/0/job options";
  for (const std::string depth : {"1025", "4294967297", "18446744073709551617", "17179869184g"}) {
    EXPECT_EQ(error_of(R"("iodepth": ")" + depth + "\""),
              job + "/iodepth: found " + depth + "; allowed: at most 1024");
  }
  for (const std::string bytes : {"65m", "67108865", "17179869184g", "18014398509481985k"}) {
    EXPECT_EQ(error_of(R"("bs": ")" + bytes + "\""),
              job + "/bs: found " + bytes + "; allowed: at most 67108864");
  }
  EXPECT_EQ(error_of(R"("size": "17179869184g")"),
            job + "/size: found 17179869184g; allowed: at most 1000000000000000");
  EXPECT_EQ(error_of(R"("numjobs": "5", "iodepth": "256", "group_reporting": "1")"),
            job +
                "/numjobs: found 5 jobs of iodepth 256; allowed: at most 1024 outstanding "
                "requests");
  EXPECT_THAT(user_error_of([] {
                (void)parse_measured_points(
                    R"({"fio version": "x", "global options": {"iodepth": "1025"}, "jobs": [)" +
                        fio_job(R"("rw": "randread")", 1, 1) + "]}",
                    "f");
              }),
              HasSubstr("f: /global options/iodepth: found 1025"));
  const MeasuredPoint max =
      fio(fio_job(kRead + R"("bs": "64M", "numjobs": "4", "iodepth": "256", "size": "1t",
                             "group_reporting": "1")",
                  1000, 1'024'000))
          .points.at(0);
  EXPECT_EQ(max.bytes, 64u << 20);
  EXPECT_EQ(max.depth, 1024u);
  EXPECT_EQ(max.range_bytes, 1ull << 40);
  // Points that are left out may have any values.
  const MeasuredPoints left_out = fio(fio_job(kRead + R"("bs": "4k")", 10'000, 100) + "," +
                                      fio_job(R"("rw": "write", "bs": "1g")", 1, 1));
  EXPECT_EQ(left_out.points.size(), 1u);
}

TEST(MeasuredPoints, AreNoMoreThanCanBeFitted) {
  const auto of = [](std::size_t count) {
    const std::string point = R"({"pattern": "random", "write_share": 0, "bytes": 4096, "depth": 1,
                                  "iops": 10000, "mean_us": 100})";
    std::string points = point;
    for (std::size_t i = 1; i < count; ++i) points += "," + point;
    return parse_measured_points(probe_of(points), "m.json");
  };
  EXPECT_EQ(of(2000).points.size(), 2000u);
  EXPECT_EQ(user_error_of([&] { (void)of(2001); }),
            "m.json: /points: found 2001 points of random requests; allowed: at most 2000");
}

TEST(MeasuredPoints, MistakesAreNamedWithTheirPlace) {
  const auto error_of = [](const std::string& text) {
    return user_error_of([&] { (void)parse_measured_points(text, "m.json"); });
  };
  EXPECT_THAT(error_of("fio: failed\n"), AllOf(HasSubstr("m.json"), HasSubstr("not valid JSON")));
  EXPECT_THAT(error_of("{}"), HasSubstr("is no measurement"));
  EXPECT_THAT(error_of(probe_of("")), HasSubstr("has no point of random requests"));
  EXPECT_THAT(error_of(probe_of(R"({"pattern": "random", "write_share": 0, "bytes": 0,
                                    "depth": 1, "iops": 1, "mean_us": 1})")),
              HasSubstr("m.json: /points/0/bytes: found 0"));
  EXPECT_THAT(error_of(probe_of(R"({"pattern": "random", "write_share": 0, "bytes": 512,
                                    "depth": 1, "iops": -1, "mean_us": 1})")),
              HasSubstr("/points/0/iops: found -1; allowed: 0 to 1e+09"));
  const auto error_of_write = [&](const std::string& members) {
    return error_of(
        probe_of(R"({"pattern": "random", "bytes": 512, "depth": 1, )" + members + "}"));
  };
  EXPECT_THAT(error_of_write(R"("write_share": 1, "iops": 0, "requests": 9, "mean_us": 1)"),
              HasSubstr("/points/0/iops: found 0; allowed: above 0, at most 1e+09"));
  EXPECT_THAT(error_of_write(R"("write_share": 1, "iops": 1, "requests": 9, "mean_us": 0)"),
              HasSubstr("/points/0/mean_us: found 0; allowed: above 0"));
  EXPECT_THAT(error_of_write(R"("write_share": 1.5, "iops": 1, "requests": 9, "mean_us": 1)"),
              HasSubstr("/points/0/write_share: found 1.5; allowed: 0 to 1"));
  EXPECT_THAT(error_of_write(R"("write_share": 1, "iops": 1, "mean_us": 1)"),
              HasSubstr("required member 'requests' is missing"));
  EXPECT_THAT(error_of_write(R"("write_share": 1, "iops": NaN, "requests": 9, "mean_us": 1)"),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_write(R"("write_share": 1, "iops": null, "requests": 9, "mean_us": 1)"),
              HasSubstr("/points/0/iops"));
  const auto error_of_point = [&](const std::string& bytes, const std::string& depth) {
    return error_of(probe_of(R"({"pattern": "random", "write_share": 0, "iops": 1, "mean_us": 1,
                                 "bytes": )" +
                             bytes + R"(, "depth": )" + depth + "}"));
  };
  EXPECT_THAT(error_of_point("67108865", "1"), HasSubstr("m.json: /points/0/bytes: found 6710886"));
  EXPECT_THAT(error_of_point("4096", "1025"),
              HasSubstr("/points/0/depth: found 1025; allowed: a whole number from 1 to 1024"));
  EXPECT_EQ(error_of(R"({"format": "kvreplay probe 1", "points": null,
                         "target": {"path": "/x", "size_bytes": 4096}})"),
            "m.json: /points: found null; allowed: an array");
  EXPECT_EQ(error_of(R"({"fio version": "fio-3.33", "jobs": {}})"),
            "m.json: /jobs: found object; allowed: an array");
  for (const char* bytes : {"1000", "4097"}) {
    EXPECT_EQ(error_of(std::string(R"({"format": "kvreplay probe 1", "points": [], "target":
                         {"path": "/x", "size_bytes": 1, "offset_alignment_bytes": )") +
                       bytes + "}}"),
              std::string("m.json: /target/offset_alignment_bytes: found ") + bytes +
                  "; allowed: a power of two");
  }
  EXPECT_THAT(user_error_of([] { (void)load_measured_points("/no/such/file.json"); }),
              HasSubstr("/no/such/file.json: cannot be opened"));
}

}  // namespace
}  // namespace kvreplay
