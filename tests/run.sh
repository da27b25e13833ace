#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test with ctest.
#
#   bash tests/run.sh               every test
#   bash tests/run.sh --sanitize    first the same tests built with AddressSanitizer and UndefinedBehaviorSanitizer (takes as long again, twice)
#   BUILD=DIR bash tests/run.sh     another build folder (default: build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
sanitize=no
for argument in "$@"; do
  case $argument in
    --sanitize) sanitize=yes ;;
    *) echo "tests/run.sh: unknown option '$argument' (there is --sanitize)" >&2; exit 2 ;;
  esac
done
bash scripts/setup.sh
build=${BUILD:-build}
jobs=$(nproc)
if [ $sanitize = yes ]; then
  cmake -S . -B "$build-sanitize" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGRAVEN_SANITIZE=ON -DGRAVEN_BUILD_SAMPLES=OFF
  cmake --build "$build-sanitize" -j "$jobs"
  ctest --test-dir "$build-sanitize" --output-on-failure -j "$jobs" -L sanitize
fi
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build "$build" -j "$jobs"
ctest --test-dir "$build" --output-on-failure -j "$jobs"
