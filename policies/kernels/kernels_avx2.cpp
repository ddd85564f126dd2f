#if defined(__x86_64__)
#include "policies/kernels/algorithms.hpp"
#include "policies/kernels/lanes_avx2.hpp"

namespace kvreplay::kernels {

constinit const KernelTable kAvx2Kernels = Algorithms<LanesAvx2>::table();

}  // namespace kvreplay::kernels
#endif
