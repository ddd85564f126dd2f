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
/// What the processor and the operating system support, asked of them: __builtin_cpu_supports()
/// lacks f16c in clang 14, and its data in runtimes other than those of gcc and clang.
struct Features {
  bool avx2 = false;  ///< with FMA and F16C
  bool avx512 = false;
  bool vnni = false;

  Features() {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    constexpr unsigned kNeeded = bit_FMA | bit_F16C | bit_AVX | bit_OSXSAVE;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kNeeded) != kNeeded) return;
    unsigned saved = 0;  // which registers the operating system keeps: XCR0
    unsigned high = 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    constexpr unsigned kYmm = 0x06;
    constexpr unsigned kZmm = 0xe6;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return;
    avx2 = (saved & kYmm) == kYmm && (ebx & bit_AVX2) != 0;
    constexpr unsigned k512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    avx512 = avx2 && (saved & kZmm) == kZmm && (ebx & k512) == k512;
    vnni = avx512 && (ecx & bit_AVX512VNNI) != 0;
  }
};

const Features& features() {
  static const Features found;
  return found;
}
#endif

Isa detect_isa() {
#if defined(__x86_64__)
  if (features().avx2) return features().avx512 ? Isa::kAvx512 : Isa::kAvx2;
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
  if (isa == Isa::kAvx512 && features().vnni) return kVnniIntegerKernels;
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
