#include "policies/decide/precision/support/channel_groups.hpp"

#include "policies/kernels/quantise.hpp"

namespace kvreplay {

Parameter group_channels_parameter() {
  return integer_parameter("group_channels", "channels", 32, {1, 4096},
                           "channels that share a scale and a minimum; divides the head dimension");
}

std::int64_t group_channels(const Arguments& arguments, const StreamShape& shape) {
  const std::int64_t group = arguments.integer("group_channels");
  if (shape.head_dim % group != 0) {
    throw UserError(arguments.place("group_channels"), std::to_string(group),
                    "a divisor of the head dimension " + std::to_string(shape.head_dim));
  }
  return group;
}

EntryFormat channel_group_format(int bits, std::int64_t group) {
  return {"int" + std::to_string(bits), bits + kGroupOverheadBits / static_cast<double>(group), 0};
}

void round_trip_channel_groups(Half* row, std::int64_t dim, std::int64_t group, int bits) {
  for (std::int64_t channel = 0; channel < dim; channel += group) {
    kernels::int_round_trip(row + channel, group, 1, bits, row + channel);
  }
}

}  // namespace kvreplay
