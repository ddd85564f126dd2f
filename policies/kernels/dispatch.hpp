#pragma once

#include "policies/kernels/table.hpp"

namespace kvreplay::kernels {

/// The kernels in use: the best instruction set's, until use_isa() says otherwise.
[[nodiscard]] const KernelTable& table();

}  // namespace kvreplay::kernels
