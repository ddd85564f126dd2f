#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvreplay {

/// What a device did in a closed loop of random reads.
struct MeasuredPoint {
  std::uint64_t bytes = 0;        ///< a request
  std::uint32_t depth = 0;        ///< outstanding requests
  std::uint64_t range_bytes = 0;  ///< that the requests were spread over; 0: not told
  double iops = 0;
  double mean_us = 0;  ///< from submission to completion; 0: not told, or not to be believed
};

/// The points of a measurement that a model can be fitted to.
struct MeasuredPoints {
  std::string source;                 ///< "kvreplay probe of /data/x", "fio-3.33"
  std::vector<MeasuredPoint> points;  ///< by bytes, then depth
  std::vector<std::string> notes;     ///< what was left out, and why
  std::uint64_t block_bytes = 0;      ///< that requests align with; 0: not told
};

/// Reads the JSON of `kvreplay device probe` or of fio (--output-format=json), random reads alone.
/// UserError when it is neither, or holds no such point.
[[nodiscard]] MeasuredPoints load_measured_points(const std::string& file);
[[nodiscard]] MeasuredPoints parse_measured_points(const std::string& text,
                                                   const std::string& file);

}  // namespace kvreplay
