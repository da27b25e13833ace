#!/usr/bin/env bash
# Trains five small networks 20 steps, compiled in several ways, and compares the hashes of all losses, weights and
# optimizers' states.
#
#   bash tests/bits/compare.sh           two compilers of this machine, at its own level and at v3: what ctest runs, of
#                                        two of the networks where GRAVEN_ALL_TESTS is not set
#   bash tests/bits/compare.sh --all     every compiler (g++ 11 to 14, clang++ 14 to 19, for aarch64 under qemu) and
#                                        level found here: half an hour
#   bash tests/bits/compare.sh g++-12:v3 clang++-19:native     these
#   BUILD=DIR: the build folder that has bits_networks (default: build). WORK=DIR: where the projects are built
#   (default: BUILD/bits). CXX: the first compiler (default: c++)
#
# A level that a compiler does not know is named and left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${BUILD:-build}
work=${WORK:-$build/bits}
here=$PWD/tests/bits
own=${CXX:-c++}
cross=aarch64-linux-gnu-g++

x86=no
[ "$(uname -m)" = x86_64 ] && x86=yes
# Whether this processor has all of these.
has() {
  local flag
  for flag in "$@"; do grep -qw "$flag" /proc/cpuinfo || return 1; done
}
version() { "$1" --version | head -1; }

combinations=()
case ${1:-} in
  --all)
    for compiler in g++{,-11,-12,-13,-14} clang++{,-14,-15,-16,-17,-18,-19}; do
      command -v $compiler >/dev/null || continue
      if [ $x86 = yes ] && has avx2 fma; then combinations+=($compiler:v3); fi
      if [ $x86 = yes ] && has avx512f avx512bw avx512cd avx512dq avx512vl; then combinations+=($compiler:v4); fi
      combinations+=($compiler:native)
    done
    if command -v $cross >/dev/null && command -v qemu-aarch64 >/dev/null; then combinations+=($cross:base); fi
    ;;
  "")
    other=$own
    for compiler in g++ clang++ clang++-{19,18,17,16,15,14}; do
      if command -v $compiler >/dev/null && [ "$(version $compiler)" != "$(version "$own")" ]; then other=$compiler; fi
    done
    combinations=("$own:native")
    if [ $x86 = yes ] && has avx2 fma; then
      combinations+=("$other:v3")
    elif [ "$other" != "$own" ]; then
      combinations+=("$other:native")
    fi
    if [ $x86 = yes ] && ! has fma; then combinations=("$own:native"); fi
    ;;
  *) combinations=("$@") ;;
esac

networks=(mlp lenet residual transformer sequences)
if [ $# = 0 ] && [ -z "${GRAVEN_ALL_TESTS:-}" ]; then networks=(residual transformer); fi
rm -rf "$work/networks"
mkdir -p "$work"
"$build/tests/bits/bits_networks" "$work/networks"

expected= first= failed=0 compared=0
for combination in "${combinations[@]}"; do
  compiler=${combination%:*} level=${combination#*:}
  folder=$work/${combination//[^A-Za-z0-9+-]/_}
  options=() run=()
  if [ "$compiler" = $cross ]; then
    options=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_EXE_LINKER_FLAGS=-static)
    run=(qemu-aarch64)
  fi
  if ! { cmake -S "$here/train" -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
           -DNETWORKS="$(realpath "$work/networks")" -DGRAVEN_LEVELS="$level" \
           -DNAMES="$(IFS=';'; echo "${networks[*]}")" "${options[@]}" &&
         cmake --build "$folder" -j "$(nproc)"; } >"$folder.log" 2>&1; then
    if grep -qE "unrecognized command|bad value|unknown target CPU" "$folder.log"; then
      echo "$combination: left out: $compiler does not know this level"
      continue
    fi
    tail -30 "$folder.log"
    echo "$combination: does not compile: $folder.log"
    exit 1
  fi
  found=
  for network in "${networks[@]}"; do
    found+=$("${run[@]}" "$folder/train_$network" "$work/networks/$network/weights.safetensors")$'\n'
  done
  if [ -z "$expected" ]; then
    expected=$found
    first=$combination
    printf '%s:\n%s' "$combination" "$found"
  elif [ "$found" = "$expected" ]; then
    compared=$((compared + 1))
    echo "$combination: the same"
  else
    failed=$((failed + 1))
    echo "$combination: differs from $first:"
    diff <(printf %s "$expected") <(printf %s "$found") || true
  fi
done
if [ $failed != 0 ]; then
  echo "$failed of ${#combinations[@]} combinations differ"
  exit 1
fi
if [ $compared = 0 ]; then
  echo "SKIPPED: nothing to compare: one compiler, and one level with a fused multiply-add or none"
  exit 77
fi
echo "$((compared + 1)) combinations of compiler and level: the same bits"
