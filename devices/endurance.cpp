#include "devices/endurance.hpp"

namespace kvreplay {

std::vector<Parameter> endurance_parameters() {
  return {
      integer_parameter("capacity_bytes", "bytes", 0, {0, 1e15}, "size of the device; 0: unknown"),
      integer_parameter("rated_write_bytes", "bytes", 0, {0, 1e18},
                        "bytes that may be written in its life (TBW); 0: by rated_cycles"),
      integer_parameter("rated_cycles", "cycles", 0, {0, 1e6},
                        "times that its capacity may be written in its life (P/E cycles); 0: "
                        "unknown"),
  };
}

Endurance endurance_of(const DeviceSpec& device) {
  const Arguments& arguments = device.device.arguments();
  if (!arguments.all().contains("rated_cycles")) return {};
  Endurance endurance;
  endurance.capacity_bytes = arguments.integer("capacity_bytes");
  endurance.rated_bytes = static_cast<double>(arguments.integer("rated_write_bytes"));
  if (endurance.rated_bytes == 0) {
    endurance.rated_bytes = static_cast<double>(arguments.integer("rated_cycles")) *
                            static_cast<double>(endurance.capacity_bytes);
  }
  endurance.erase_block_bytes = arguments.integer("gc_block_stripes");
  for (const char* factor : {"page_bytes", "planes", "program_pages"}) {
    endurance.erase_block_bytes *= arguments.integer(factor);
  }
  return endurance;
}

}  // namespace kvreplay
