#!/usr/bin/env bash
# scripts/setup.sh on systems that are not there: PATH holds the tools it needs and stubs of apt-get, apt-cache, sudo
# and id, which write down how they were called; the list of packages is the test's own. What it does on a real, bare
# system tests/setup/bare_chroot.sh tries.
#
#   bash tests/setup/run.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "tests/setup: FAILED: $*" >&2; cat "$work/out" "$work/calls" >&2; exit 1; }

# begin LIST: a new system, where nothing of the list (lines of package, need, file) is installed and there is no way to
# install anything.
begin() {
  rm -rf "$work/scripts" "$work/bin" "$work/installed" "$work/known"
  mkdir -p "$work/scripts" "$work/bin" "$work/installed"
  cp "$root/scripts/setup.sh" "$work/scripts/"
  : >"$work/known"
  local tool
  for tool in bash dirname env awk grep sed cat mktemp rm mkdir chmod tail touch; do
    ln -s "$(command -v "$tool")" "$work/bin/$tool"
  done
  stub id 'echo "${STUB_USER:-0}"'
  while read -r package need; do
    [ -z "$package" ] ||
      echo "$package $need file:$work/installed/$package what it is for" >>"$work/scripts/packages.txt"
  done <<<"$1"
}
stub() {
  printf '#!%s\necho "%s $*" >>%q\n%s\n' "$(command -v bash)" "$1" "$work/calls" "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
# with_apt PACKAGE...: apt-get can install these, once its lists are there.
with_apt() {
  printf '%s\n' "$@" >"$work/offered"
  stub apt-get "case \"\$*\" in
  *update*) [ -z \"\${STUB_OFFLINE:-}\" ] && cat $work/offered >$work/known ;;
  *install*)
    for word; do
      case \$word in -* | install) continue ;; esac
      grep -qx \"\$word\" $work/known || exit 100
      [ \"\$word\" = \"\${STUB_BROKEN:-}\" ] && exit 100
      touch $work/installed/\$word
    done ;;
esac"
  stub apt-cache "shift
for word; do
  if [ \$word = apt ]; then
    printf 'apt:\n  Installed: 2.0\n  Candidate: 2.1\n  Version table:\n *** 2.0 100\n'
    printf '        100 /var/lib/dpkg/status\n'
    [ ! -s $work/known ] || echo '        500 http://example.org stable/main amd64 Packages'
  elif [ -e $work/installed/\$word ]; then
    printf '%s:\n  Installed: 1.0\n  Candidate: 1.0\n' \"\$word\"
  elif grep -qx \"\$word\" $work/known; then
    printf '%s:\n  Installed: (none)\n  Candidate: 1.0\n' \"\$word\"
  fi
done"
}
# setup STATUS [VARIABLE=VALUE...] [-- ARGUMENT...]: runs it and expects this status. What it says is in out, what it
# called in calls.
setup() {
  local status=$1 found=0
  shift
  local variables=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do variables+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  : >"$work/calls"
  env -i PATH="$work/bin" HOME="$work" "${variables[@]}" bash "$work/scripts/setup.sh" "$@" >"$work/out" 2>&1 ||
    found=$?
  [ $found -eq "$status" ] || fail "expected status $status, found $found"
}
says() { grep -qF -- "$1" "$work/out" || fail "expected it to say: $1"; }
called() { grep -qE -- "$1" "$work/calls" || fail "expected a call: $1"; }
not_called() { ! grep -qE -- "$1" "$work/calls" || fail "expected no call: $1"; }

list=$'compiler required\npictures optional\nrare optional'

# Everything is to be had: installed at once, and a second run does nothing at all.
begin "$list"
with_apt compiler pictures rare
setup 1 -- --check
says "missing: compiler (required), pictures rare (optional)"
not_called 'apt'
setup 0
says "setup: done"
called '^apt-get .*install .*compiler'
setup 0
says "everything is in place"
not_called '.'

# An optional package that the release does not have: the others are installed, and a second run is free.
begin "$list"
with_apt compiler pictures
setup 0
says "this system's packages have no rare"
says "done, without rare (optional)"
[ -e "$work/installed/pictures" ] || fail "pictures is to be had"
setup 0
says "everything is in place, without rare (optional)"
not_called '^apt-get'
setup 0 -- --check
# Fresh lists, in which it is now, are seen.
echo rare >>"$work/known"
echo rare >>"$work/offered"
setup 0
[ -e "$work/installed/rare" ] || fail "rare is to be had now"

# An optional package that cannot be installed keeps no other one away.
begin "$list"
with_apt compiler pictures rare
setup 0 STUB_BROKEN=rare
says "rare could not be installed"
says "done, without rare (optional)"
[ -e "$work/installed/compiler" ] && [ -e "$work/installed/pictures" ] || fail "the others are to be had"

# A required package that the release does not have.
begin "$list"
with_apt pictures rare
setup 1
says "still missing: compiler"

# No network, and no lists: says so, and fails for what is required alone.
begin "$list"
with_apt compiler pictures rare
setup 1 STUB_OFFLINE=1
says "still missing: compiler"
touch "$work/installed/compiler"
setup 0 STUB_OFFLINE=1
says "done, without pictures rare (optional)"

# Not root: with sudo, by sudo; without it, what to type.
begin "$list"
with_apt compiler pictures rare
setup 1 STUB_USER=1000
says "As root: apt-get install compiler pictures rare"
not_called '^apt-get'
stub sudo 'exec "$@"'
setup 0 STUB_USER=1000
called '^sudo env DEBIAN_FRONTEND=noninteractive apt-get .*install'
begin "$list"
with_apt compiler pictures rare
touch "$work/installed/compiler"
setup 0 STUB_USER=1000
says "As root: apt-get install pictures rare"

# No apt-get: the list with what each is for; a failure only while something required is missing.
begin "$list"
setup 1
says "this is not Debian or Ubuntu"
grep -qE '^  compiler +required +what it is for$' "$work/out" || fail "the list"
grep -qE '^  rare +optional +what it is for$' "$work/out" || fail "the list"
touch "$work/installed/compiler"
setup 0
says "this is not Debian or Ubuntu"
echo "tests/setup: OK"
