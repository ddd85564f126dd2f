#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvreplay {

/// Measured performance of a device in a closed loop of requests.
struct MeasuredPoint {
  std::uint64_t bytes = 0;        ///< per request
  std::uint32_t depth = 0;        ///< outstanding requests
  std::uint64_t range_bytes = 0;  ///< range over which the requests were spread; 0: unknown
  double iops = 0;
  double mean_us = 0;          ///< from submission to completion
  double write_share = 0;      ///< share of the requests: 0 reads, 1 writes, else a mix
  std::uint64_t requests = 0;  ///< number of requests measured; given for points with writes
  double read_us = 0;          ///< mean of the reads; 0: not reported separately
  double write_us = 0;         ///< mean of the writes; 0: not reported separately
  double scatter = 0;          ///< (greatest - least) / iops of the rounds; 0: not known
  double path_us = 0;          ///< part of mean_us that the way to the device takes
  bool sequential = false;     ///< in sequence, not at random places; of writes alone
  double median_us = 0;        ///< as mean_us; 0: not reported

  /// Whether most requests pass at once and few wait long, as where a bucket of tokens limits a
  /// rate. The median then has the device's own time.
  [[nodiscard]] bool shows_bucket() const {
    constexpr double kTimes = 2;  // a device by itself has a mean of 1.0 to 1.2 medians
    return median_us > 0 && mean_us > kTimes * median_us;
  }
};

/// Which writes of a probe count: those at random places, or those in sequence.
enum class WritePlaces { kRandom, kSequential };

/// The points of a measurement that a model can be compared with.
struct MeasuredPoints {
  std::string source;                 ///< "kvreplay probe of /data/x", "fio-3.33"
  std::string place;                  ///< place of the points in the file: "/points", "/jobs"
  std::vector<MeasuredPoint> points;  ///< by write share, then bytes, then depth
  std::vector<std::string> notes;     ///< what was left out, and why
  std::uint64_t block_bytes = 0;      ///< alignment of requests; 0: unknown
  std::optional<double> mixing = {};  ///< of a probe's burst (Burst::mixing)
};

/// Reads the JSON of `kvreplay device probe` or of fio (--output-format=json); only random requests
/// count, and of a probe, if so asked, writes in sequence in place of random ones. A point whose
/// rate, latency and depth contradict each other is left out. Throws UserError when the file is
/// neither, when it holds no usable point or more points than can be fitted in reasonable time, or
/// when a number is impossible.
[[nodiscard]] MeasuredPoints load_measured_points(const std::string& file,
                                                  WritePlaces writes = WritePlaces::kRandom);
[[nodiscard]] MeasuredPoints parse_measured_points(const std::string& text, const std::string& file,
                                                   WritePlaces writes = WritePlaces::kRandom);

/// Sets how much of each point's latency the way to the device takes: the latency at depth 1, for
/// the same size and share of writes, in `blank`, which was measured by the same way on a device
/// that takes no time. Throws UserError naming `blank_file` where that latency is missing or
/// exceeds a point's whole latency.
void tell_path(MeasuredPoints& measured, const MeasuredPoints& blank,
               const std::string& blank_file);

}  // namespace kvreplay
