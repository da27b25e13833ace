#!/usr/bin/env bash
# Installs the build into a temporary prefix, builds a small consumer from the installed tree alone, runs it, and uses
# the installed command on what the consumer saved.
#
#   bash tests/install/run.sh BUILD_DIR
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
cp -r "$here/consumer" "$work/consumer"
cmake -S "$work/consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"

fail() {
  echo "tests/install: FAILED: $1" >&2
  exit 1
}
for file in LICENSE ARCHITECTURE.md docs/emitted_project.md; do
  cmp -s "$here/../../$file" "$work/prefix/share/doc/graven/$file" || fail "share/doc/graven/$file is not installed"
done
# What the pages link to is there, and a page differs from its source in links to headers alone.
pages=0 links=0
while IFS= read -r page; do
  pages=$((pages + 1))
  source=$here/../../${page#"$work/prefix/share/doc/graven/"}
  if diff "$source" "$page" | grep '^<' | grep -v 'frontend/include/graven'; then fail "$page is not the source's"; fi
  while IFS= read -r link; do
    links=$((links + 1))
    [ -e "$(dirname "$page")/${link%%#*}" ] || fail "$page: the link $link leads nowhere"
  done < <(grep -o ']([^)]*)' "$page" | sed 's/^](//; s/)$//' | grep -v '^[a-z]*:\|^#')
done < <(find "$work/prefix/share/doc/graven" -name '*.md' -not -path '*/samples/*')
[ "$pages" -ge 9 ] && [ "$links" -ge 25 ] || fail "only $links links on $pages pages"
grep -qF "include/graven-0.1.0/graven" "$work/prefix/share/doc/graven/README.md" ||
  fail "no page says where the headers are"
[ -f "$work/prefix/include/graven-0.1.0/graven/graven.h" ] || fail "the headers are elsewhere than the pages say"

# Without what the library is linked with, one message says what that is.
mkdir "$work/other_fmt"
echo 'set(fmt_FOUND TRUE)' >"$work/other_fmt/fmt-config.cmake"
printf 'set(PACKAGE_VERSION 1.2.3)\n' >"$work/other_fmt/fmt-config-version.cmake"
lacking() {
  local sentence=$1
  shift
  if cmake -S "$work/consumer" -B "$work/build_without" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" "$@" \
    >"$work/without.log" 2>&1; then
    fail "the consumer is configured with $*"
  fi
  # In lines of one length, as CMake prints it.
  tr -s ' \n' '  ' <"$work/without.log" >"$work/without.txt"
  grep -qF "libfmt-dev and nlohmann-json3-dev), with which it was built: $sentence" "$work/without.txt" || {
    cat "$work/without.log"
    fail "no message of what $* lacks"
  }
  [ "$(grep -c 'CMake Error' "$work/without.log")" = 1 ] || fail "several errors with $*"
  rm -r "$work/build_without"
}
lacking "fmt is not found." -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON
lacking "nlohmann_json is not found." -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
lacking "fmt is of version 1.2.3." -Dfmt_DIR="$work/other_fmt"

cd "$work"
HOME=$work GRAVEN_CACHE=$work/cache "$work/build/consumer" "$work/saved"
"$work/prefix/bin/graven" check "$work/saved"
"$work/prefix/bin/graven" emit "$work/saved" -o "$work/project"
"$work/prefix/bin/graven" emit "$work/saved" -o "$work/project" --check
"$work/prefix/bin/graven" build "$work/project"
if grep -rIlF "$work" "$work/project" --include='*.h' --include='*.cpp' --include='*.json' --include='*.md' \
  --include=CMakeLists.txt; then
  echo "tests/install: FAILED: the emitted project names a path of this machine" >&2
  exit 1
fi
echo "tests/install: OK"
