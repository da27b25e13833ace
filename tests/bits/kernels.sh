#!/usr/bin/env bash
# Compiles the kernels' tests in several ways and compares the bits of everything that they compute (record_bits
# in tests/kernels/support.h).
#
#   bash tests/bits/kernels.sh g++:native clang++:v3 aarch64-linux-gnu-g++:base     these; two minutes each
#   WORK=DIR: where they are built (default: build/kernel_bits)
#
# Needs the sources of GoogleTest in /usr/src/googletest (Debian: googletest).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ $# -ge 2 ] || { echo "usage: tests/bits/kernels.sh COMPILER:LEVEL COMPILER:LEVEL..." >&2; exit 2; }
work=${WORK:-build/kernel_bits}
googletest=/usr/src/googletest/googletest
# The flags that emitted projects compile kernels with.
flags_of() {
  local name=kKernelFlags
  $1 --version | grep -q clang || name=kKernelFlagsOfGnu
  tr '\n' ' ' <codegen/kernel_flags.h | sed -E "s/.*$name = *\"([^\"]*)\".*/\1/"
}

first= failed=0
for combination in "$@"; do
  compiler=${combination%:*} level=${combination#*:}
  folder=$work/${combination//[^A-Za-z0-9+-]/_}
  mkdir -p "$folder"
  flags=(-std=c++20 -w -I. -I$googletest/include $(flags_of $compiler)) run=() link=()
  case $level in
    native) flags+=(-march=native) ;;
    v[234]) flags+=(-march=x86-64-$level) ;;
    base) ;;
    *) echo "$combination: the level is native, v3, v4 or base" >&2; exit 2 ;;
  esac
  case $compiler in aarch64-*) run=(qemu-aarch64) link=(-static) ;; esac
  $compiler -std=c++20 -w -I$googletest -I$googletest/include -c $googletest/src/gtest-all.cc -o "$folder/gtest-all.o"
  $compiler -std=c++20 -w -I$googletest -I$googletest/include -c $googletest/src/gtest_main.cc -o "$folder/gtest_main.o"
  for test in tests/kernels/*_test.cpp; do echo "$test"; done |
    xargs -P "$(nproc)" -I{} sh -c '"$@" -c {} -o "$0/$(basename {}).o"' "$folder" $compiler "${flags[@]}"
  $compiler "${link[@]}" "$folder"/*.o -lpthread -o "$folder/test" 2>/dev/null
  GRAVEN_KERNEL_BITS=$folder/bits "${run[@]}" "$folder/test" --gtest_brief=1 >"$folder/log" ||
    { cat "$folder/log"; exit 1; }
  if [ -z "$first" ]; then
    first=$folder
    echo "$combination: $(wc -l <"$folder/bits") results"
  elif cmp -s "$first/bits" "$folder/bits"; then
    echo "$combination: the same"
  else
    failed=1
    echo "$combination: differs in"
    diff "$first/bits" "$folder/bits" | sed -n 's/^> [0-9a-f]* /  /p' | head -20
  fi
done
exit $failed
