#if defined(__x86_64__)
#include "policies/kernels/algorithms.hpp"
#include "policies/kernels/lanes_avx512.hpp"

namespace kvreplay::kernels {

constinit const KernelTable kAvx512Kernels = Algorithms<LanesAvx512>::table();

}  // namespace kvreplay::kernels
#endif
