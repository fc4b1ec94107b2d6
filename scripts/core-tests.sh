#!/usr/bin/env bash
# Builds the C++ core with warnings as errors and runs its tests plain and under the sanitizers, and for aarch64 under
# an emulator where a cross compiler and one are installed (Debian: g++-aarch64-linux-gnu qemu-user).
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-.venv/bin}")
export PATH="$bin:$PATH"

run() {  # name, sanitizers, tests' arguments
  cmake -S . -B "build/core-$1" -G Ninja -DOUTPACE_TESTS=ON -DOUTPACE_FUZZ=ON -DOUTPACE_MODULE=OFF \
    -DOUTPACE_WERROR=ON -DOUTPACE_SANITIZE="$2" -DCMAKE_BUILD_TYPE="${3:-Release}" >/dev/null
  cmake --build "build/core-$1"
  echo "core tests ($1)"
  "build/core-$1/outpace_tests" "${@:4}"
}

run plain "" Release
run address "address,undefined" RelWithDebInfo
run thread "thread" RelWithDebInfo threads model

echo "damaged weights (address, undefined)"
ASAN_OPTIONS=quarantine_size_mb=16 build/core-address/outpace_fuzz 20000 1 csrc/fuzz/corpus/*

# A function that the linker merges with one of the same name must not come from a file compiled for newer processors.
weak=$(nm -A $(find build/core-plain -path "*/kernels/*/*.o" -not -path "*portable*") | grep -E " [WV] " | grep -v "DW.ref" || true)
[ -z "$weak" ] || { echo "kernels define symbols that the linker may merge:"; echo "$weak"; exit 1; }

if command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null; then
  cmake -S . -B build/core-aarch64 -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DOUTPACE_TESTS=ON -DOUTPACE_MODULE=OFF -DOUTPACE_WERROR=ON >/dev/null
  cmake --build build/core-aarch64
  echo "core tests (aarch64, emulated)"  # without those of threads: the emulator cannot fork a process that has some
  QEMU_LD_PREFIX=/usr/aarch64-linux-gnu qemu-aarch64 build/core-aarch64/outpace_tests matrix vector attention sampler kernels model
else
  echo "core tests (aarch64): skipped, no aarch64-linux-gnu-g++ or no qemu-aarch64"
fi
