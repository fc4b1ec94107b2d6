#!/usr/bin/env bash
# Builds the source distribution, a wheel from it without any network, and tests the wheel in a clean environment.
#
#     scripts/release.sh BIN [MODEL]     BIN: of an environment with the extra `test`; MODEL: a file or a name
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${1:-.venv/bin}")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export PATH="$bin:$PATH"

python -c "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])" "$out" >/dev/null
PIP_NO_INDEX=1 python -m pip wheel -q --no-build-isolation --no-deps --wheel-dir "$out" "$out"/outpace-*.tar.gz
ls -sh "$out"

python -m venv "$out/clean"
"$out/clean/bin/python" -m pip install -q "$out"/outpace-*.whl  # its dependencies come from the index
cp scripts/smoke.py "$out"
cd "$out"
env -u PYTHONPATH clean/bin/python smoke.py "${@:2}"
env -u PYTHONPATH clean/bin/outpace doctor
