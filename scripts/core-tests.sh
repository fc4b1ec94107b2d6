#!/usr/bin/env bash
# Builds the C++ core with warnings as errors and runs its tests plain and under the sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-.venv/bin}")
export PATH="$bin:$PATH"

run() {  # name, sanitizers, tests' arguments
  cmake -S . -B "build/core-$1" -G Ninja -DOUTPACE_TESTS=ON -DOUTPACE_MODULE=OFF -DOUTPACE_WERROR=ON \
    -DOUTPACE_SANITIZE="$2" -DCMAKE_BUILD_TYPE="${3:-Release}" >/dev/null
  cmake --build "build/core-$1"
  echo "core tests ($1)"
  "build/core-$1/outpace_tests" "${@:4}"
}

run plain "" Release
run address "address,undefined" RelWithDebInfo
run thread "thread" RelWithDebInfo threads model
