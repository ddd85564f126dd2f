#pragma once

#include "policies/kernels/integer_products.hpp"
#include "policies/kernels/table.hpp"

namespace kvreplay::kernels {

/// The kernels in use: those of the best instruction set, until use_isa() selects others.
[[nodiscard]] const KernelTable& table();
/// Those of AVX-512 need VNNI; without it they are AVX2's.
[[nodiscard]] const IntegerKernels& integer_table();

}  // namespace kvreplay::kernels
