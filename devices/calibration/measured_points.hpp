#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvreplay {

/// What a device did in a closed loop of random requests.
struct MeasuredPoint {
  std::uint64_t bytes = 0;        ///< a request
  std::uint32_t depth = 0;        ///< outstanding requests
  std::uint64_t range_bytes = 0;  ///< that the requests were spread over; 0: not told
  double iops = 0;
  double mean_us = 0;          ///< from submission to completion
  double write_share = 0;      ///< of the requests: 0 reads, 1 writes, else a mix
  std::uint64_t requests = 0;  ///< that were measured; told of points with writes
  double read_us = 0;          ///< mean of the reads; 0: not told apart
  double write_us = 0;         ///< mean of the writes; 0: not told apart
  double path_us = 0;          ///< of mean_us, what the way to the device takes
};

/// The points of a measurement that a model can be compared with.
struct MeasuredPoints {
  std::string source;                 ///< "kvreplay probe of /data/x", "fio-3.33"
  std::string place;                  ///< of the points in the file: "/points", "/jobs"
  std::vector<MeasuredPoint> points;  ///< by write share, then bytes, then depth
  std::vector<std::string> notes;     ///< what was left out, and why
  std::uint64_t block_bytes = 0;      ///< that requests align with; 0: not told
  std::optional<double> mixing = {};  ///< of a probe's burst (Burst::mixing)
};

/// Reads the JSON of `kvreplay device probe` or of fio (--output-format=json), random requests
/// alone. A point whose rate, latency and depth contradict each other is left out. UserError when
/// it is neither, holds no point that can be used, more than can be fitted in a sensible time, or a
/// number that none can be.
[[nodiscard]] MeasuredPoints load_measured_points(const std::string& file);
[[nodiscard]] MeasuredPoints parse_measured_points(const std::string& text,
                                                   const std::string& file);

/// Tells the points what the way to the device takes: the latency at depth 1, of as many bytes and
/// the same share of writes, in `blank`, which was measured by the same way on a device that takes
/// no time. UserError, of `blank_file`, where it has none, or more than a point's whole latency.
void tell_path(MeasuredPoints& measured, const MeasuredPoints& blank,
               const std::string& blank_file);

}  // namespace kvreplay
