#pragma once

#include <cstdint>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// Computes with the attention kernel on a layer of the trace until the time is over. It stands for
/// the load on memory and processor while requests are in progress.
class AttentionLoad {
 public:
  explicit AttentionLoad(const TraceReader& trace);
  void operator()(std::int64_t duration_ns);

 private:
  TraceLayer layer_;
  float scale_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> query_;
  std::vector<float> weights_;
  std::vector<float> output_;
  std::int64_t head_ = 0;
  std::int64_t first_ = 0;
};

}  // namespace kvreplay
