#pragma once

#include "policies/kernels/table.hpp"

namespace kvreplay::kernels {

/// The kernels in use: those of the best instruction set, until use_isa() selects others.
[[nodiscard]] const KernelTable& table();

}  // namespace kvreplay::kernels
