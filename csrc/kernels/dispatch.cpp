// Which kernels this processor can run, and which of them to use.

#include <cstdlib>
#include <stdexcept>

#include "kernels/kernels.h"

#ifdef OUTPACE_X86_64
#include <cpuid.h>
#endif

namespace outpace {

#ifdef OUTPACE_X86_64
// The compiler's own check reads cpuid and XCR0: the operating system must save the 512-bit registers, too. F16C is
// asked of cpuid itself, since gcc before 13 does not know its name here; every AVX-512 processor has it.
static bool has_avx512vnni() {
  __builtin_cpu_init();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
}
#endif

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> available;
#ifdef OUTPACE_X86_64
  if (has_avx512vnni()) available.push_back(&avx512vnni_kernels());
#endif
  available.push_back(&portable_kernels());
  return available;
}

const Kernels& choose_kernels(const std::string& name) {
  const std::vector<const Kernels*> available = available_kernels();
  const char* forced = std::getenv("OUTPACE_KERNEL");
  const std::string wanted = !name.empty() ? name : forced != nullptr ? forced : "";
  if (wanted.empty()) return *available.front();
  std::string names;
  for (const Kernels* kernels : available) {
    if (wanted == kernels->name) return *kernels;
    names += (names.empty() ? "" : ", ") + std::string(kernels->name);
  }
  throw std::invalid_argument("kernel must be one that this processor runs (" + names + "), got " + wanted);
}

}  // namespace outpace
