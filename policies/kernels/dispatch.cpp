#include "policies/kernels/dispatch.hpp"

#include <array>
#include <stdexcept>
#include <string>

#include "policies/kernels/kernels.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kvreplay::kernels {
namespace {

#if defined(__x86_64__)
/// clang 14's __builtin_cpu_supports() does not know this name.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

Isa detect_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? Isa::kAvx512 : Isa::kAvx2;
  }
#endif
  return Isa::kScalar;
}

const KernelTable& table_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kAvx512Kernels;
  if (isa == Isa::kAvx2) return kAvx2Kernels;
#endif
  (void)isa;
  return kScalarKernels;
}

const IntegerKernels& integer_table_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512vnni")) return kVnniIntegerKernels;
  if (isa >= Isa::kAvx2) return kAvx2IntegerKernels;
#endif
  (void)isa;
  return kScalarIntegerKernels;
}

struct InUse {
  explicit InUse(Isa of) : isa(of), table(&table_of(of)), integers(&integer_table_of(of)) {}
  Isa isa;
  const KernelTable* table;
  const IntegerKernels* integers;
};

InUse& in_use() {
  static InUse in_use(best_isa());
  return in_use;
}

}  // namespace

const KernelTable& table() {
  return *in_use().table;
}

const IntegerKernels& integer_table() {
  return *in_use().integers;
}

Isa best_isa() {
  static const Isa best = detect_isa();
  return best;
}

Isa current_isa() {
  return in_use().isa;
}

std::span<const Isa> available_isas() {
  static constexpr std::array kAll{Isa::kScalar, Isa::kAvx2, Isa::kAvx512};
  return std::span(kAll).first(static_cast<std::size_t>(best_isa()) + 1);
}

void use_isa(Isa isa) {
  if (isa > best_isa()) {
    throw std::invalid_argument("this machine has no " + std::string(isa_name(isa)));
  }
  in_use() = InUse(isa);
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  throw std::logic_error("no such instruction set");
}

}  // namespace kvreplay::kernels
