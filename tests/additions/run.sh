#!/usr/bin/env bash
# Adds an elementwise operator, an operator with kernels, an optimizer and a pass to a copy of the tree, as
# ARCHITECTURE.md tells, and says how many places each touches.
#
#   bash tests/additions/run.sh             builds the copy and runs the tests of what was added: a few minutes
#   bash tests/additions/run.sh --compile   looks at the sources that it touches with the compiler alone: CXX, or c++
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
case ${1:-} in
  "" | --compile) ;;
  *) echo "tests/additions/run.sh: unknown option '$1' (there is --compile)" >&2; exit 2 ;;
esac
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
folders=(.clang-format CMakeLists.txt LICENSE README.md ARCHITECTURE.md cmake codegen docs frontend ir kernels
         runtime_min samples scripts templates tests)
for folder in "${folders[@]}"; do cp -r "$root/$folder" "$tree/"; done
for addition in elementwise kernel optimizer pass; do python3 "$here/add.py" "$here/$addition" "$tree"; done
cd "$tree"

if [ "${1:-}" = --compile ]; then
  mapfile -t sources < <(cd "$here" && find elementwise kernel optimizer pass -path '*/*/*.cpp' -printf '%P\n' |
    grep /)
  for source in "${sources[@]}" codegen/lowering/reductions.cpp codegen/targets/cuda/kernels.cpp \
    ir/passes/pipeline.cpp "$here/optimizer/signum.cpp"; do
    ${CXX:-c++} -std=c++20 -DFMT_SHARED -fsyntax-only -Wall -Wextra -Werror -I. -Ifrontend/include "$source"
  done
  echo "tests/additions: OK"
  exit 0
fi

cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build --target graven_command test_ops test_passes test_house test_cuda_projects
build/graven ops --markdown >docs/operators.md
build/test_ops --gtest_filter='*quareplus*:*row_range*:*ignum*:Entries.*:Lowering.*:Table.*'
build/test_passes --gtest_filter='*drop_signs_below_abs*'
build/test_house
build/tests/cuda_on_cpu/test_cuda_projects --gtest_filter='CudaOperators.*'
"${CXX:-c++}" -std=c++20 -DFMT_SHARED -I. -Ifrontend/include "$here/optimizer/signum.cpp" build/libgraven.a -lfmt \
  -lpthread -ldl -o signum
./signum
echo "tests/additions: OK"
