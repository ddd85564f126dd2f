#include "policies/place/layout/layout.hpp"

namespace kvreplay {

Parameter merge_reads_parameter() {
  return flag_parameter("merge_reads", true,
                        "ranges that a step reads become one read where they touch; false: each "
                        "group is read by itself, as an engine does that asks for one after the "
                        "other");
}

}  // namespace kvreplay
