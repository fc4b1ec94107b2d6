// Which kernels this processor can run, and which of them to use.

#include <cstdlib>
#include <stdexcept>

#include "kernels/kernels.h"

#ifdef OUTPACE_X86_64
#include <cpuid.h>
#endif
#ifdef OUTPACE_AARCH64
#ifdef __linux__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#else
#include <sys/sysctl.h>
#endif
#endif

namespace outpace {

#ifdef OUTPACE_X86_64
namespace {

// F16C and AVX-VNNI are asked of cpuid itself, since gcc before 13 does not know their names.
bool cpuid_bit(unsigned leaf, unsigned subleaf, char name, int bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d) == 0) return false;
  return ((name == 'a' ? a : c) >> bit & 1u) != 0;
}

// The compiler's own check reads cpuid and XCR0: the operating system must save the registers, too.
bool has_avx2() {
  __builtin_cpu_init();
  return cpuid_bit(1, 0, 'c', 29) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool has_avxvnni() { return has_avx2() && cpuid_bit(7, 1, 'a', 4); }

bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace
#endif

#ifdef OUTPACE_AARCH64
namespace {

#ifdef __linux__
bool has_dotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool has_i8mm() { return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#else
bool has_feature(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool has_dotprod() { return has_feature("hw.optional.arm.FEAT_DotProd"); }
bool has_i8mm() { return has_dotprod() && has_feature("hw.optional.arm.FEAT_I8MM"); }
#endif

}  // namespace
#endif

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> available;
#ifdef OUTPACE_X86_64
  if (has_avx512vnni()) available.push_back(&avx512vnni_kernels());
  if (has_avxvnni()) available.push_back(&avxvnni_kernels());
  if (has_avx2()) available.push_back(&avx2_kernels());
#endif
#ifdef OUTPACE_AARCH64
  if (has_i8mm()) available.push_back(&neoni8mm_kernels());
  if (has_dotprod()) available.push_back(&neon_kernels());
#endif
  available.push_back(&portable_kernels());
  return available;
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> features;
#ifdef OUTPACE_X86_64
  __builtin_cpu_init();
#define OUTPACE_FEATURE(name) \
  if (__builtin_cpu_supports(name)) features.emplace_back(name)
  OUTPACE_FEATURE("sse4.2");
  OUTPACE_FEATURE("avx");
  OUTPACE_FEATURE("avx2");
  OUTPACE_FEATURE("fma");
  OUTPACE_FEATURE("avx512f");
  OUTPACE_FEATURE("avx512bw");
  OUTPACE_FEATURE("avx512dq");
  OUTPACE_FEATURE("avx512vl");
  OUTPACE_FEATURE("avx512vnni");
  OUTPACE_FEATURE("avx512bf16");
#undef OUTPACE_FEATURE
  if (has_avxvnni()) features.emplace_back("avxvnni");
#endif
#ifdef OUTPACE_AARCH64
  if (has_dotprod()) features.emplace_back("dotprod");
  if (has_i8mm()) features.emplace_back("i8mm");
#endif
  return features;
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
