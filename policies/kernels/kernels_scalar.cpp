#include "policies/kernels/algorithms.hpp"
#include "policies/kernels/lanes_scalar.hpp"

namespace kvreplay::kernels {

constinit const KernelTable kScalarKernels = Algorithms<LanesScalar>::table();

}  // namespace kvreplay::kernels
