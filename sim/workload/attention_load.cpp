#include "sim/workload/attention_load.hpp"

#include <algorithm>

#include "devices/real/io_engine.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {

AttentionLoad::AttentionLoad(const TraceReader& trace)
    : layer_(trace.load_layer(0)),
      scale_(static_cast<float>(trace.info().softmax_scale)),
      tokens_(static_cast<std::size_t>(std::min<std::int64_t>(layer_.keys.tokens, 256))),
      query_(static_cast<std::size_t>(layer_.keys.dim)),
      weights_(tokens_.size()),
      output_(query_.size()) {
  kernels::to_float(layer_.queries.row(0, 0), query_.data(), layer_.queries.dim);
}

void AttentionLoad::operator()(std::int64_t duration_ns) {
  const std::int64_t until = monotonic_ns() + duration_ns;
  while (monotonic_ns() < until) {
    // Every call uses other tokens and the next head, so that the memory is really read.
    head_ = (head_ + 1) % layer_.keys.heads;
    for (std::int32_t& token : tokens_) {
      token = static_cast<std::int32_t>((first_ += 37) % layer_.keys.tokens);
    }
    kernels::attend(query_.data(), layer_.keys.head(head_), layer_.values.head(head_), tokens_,
                    layer_.keys.dim, scale_, weights_.data(), output_.data());
  }
}

}  // namespace kvreplay
