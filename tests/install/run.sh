#!/usr/bin/env bash
# Installs the build into a temporary prefix, builds a small consumer from the installed tree alone, runs it, and uses the installed command
# on what the consumer saved.
#
#   bash tests/install/run.sh BUILD_DIR
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
cp -r "$here/consumer" "$work/consumer"
cmake -S "$work/consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"
cd "$work"
HOME=$work GRAVEN_CACHE=$work/cache "$work/build/consumer" "$work/saved"
"$work/prefix/bin/graven" check "$work/saved"
"$work/prefix/bin/graven" emit "$work/saved" -o "$work/project"
"$work/prefix/bin/graven" emit "$work/saved" -o "$work/project" --check
"$work/prefix/bin/graven" build "$work/project"
if grep -rIlF "$work" "$work/project" --include='*.h' --include='*.cpp' --include='*.json' --include='*.md' --include=CMakeLists.txt; then
  echo "tests/install: FAILED: the emitted project names a path of this machine" >&2
  exit 1
fi
echo "tests/install: OK"
