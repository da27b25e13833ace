#!/usr/bin/env bash
# Installs what Graven needs and this machine lacks. The list is scripts/packages.txt.
#
#   bash scripts/setup.sh           installs missing packages (Debian 12 or later, Ubuntu 22.04 or later; as root or
#                                   with sudo)
#   bash scripts/setup.sh --check   installs nothing; says what is missing; exits with 1 when something required is
#
# A second run finds everything in place, downloads nothing and takes well under a second. On other systems it prints
# what to install.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=$here/packages.txt

say() { printf 'setup: %s\n' "$*"; }

# Whether the file that shows a package's presence is there: bin:NAME, include:PATH or file:PATTERN.
present() {
  case $1 in
    bin:*) command -v "${1#bin:}" >/dev/null 2>&1 ;;
    include:*) [ -e "/usr/include/${1#include:}" ] || [ -e "/usr/local/include/${1#include:}" ] ;;
    file:*) compgen -G "${1#file:}" >/dev/null ;;
  esac
}

missing_required=() missing_optional=()
look() {
  missing_required=() missing_optional=()
  local package need witness purpose
  while read -r package need witness purpose; do
    case $package in '' | '#'*) continue ;; esac
    present "$witness" && continue
    if [ "$need" = required ]; then missing_required+=("$package"); else missing_optional+=("$package"); fi
  done <"$list"
}

look
if [ ${#missing_required[@]} -eq 0 ] && [ ${#missing_optional[@]} -eq 0 ]; then
  say "everything is in place"
  exit 0
fi
if [ "${1:-}" = --check ]; then
  say "missing: ${missing_required[*]:-nothing} (required), ${missing_optional[*]:-nothing} (optional)"
  [ ${#missing_required[@]} -eq 0 ]
  exit
fi

system=unknown
if [ -r /etc/os-release ]; then system=$(. /etc/os-release && echo "${ID:-unknown} ${ID_LIKE:-}"); fi
if ! command -v apt-get >/dev/null 2>&1; then
  say "this is not Debian or Ubuntu (${system% }). Please install these, by whatever names your system gives them:"
  grep -v '^#' "$list" | while read -r package need _ purpose; do
    [ -z "$package" ] || printf '  %-22s %-9s %s\n' "$package" "$need" "$purpose"
  done
  [ ${#missing_required[@]} -eq 0 ]
  exit
fi

policy() { LC_ALL=C apt-cache policy "$@" 2>/dev/null; }
# Some releases lack some of the optional packages, or files of theirs. Where the lists say so there is nothing to
# install, and no reason to fetch them anew. Whether there are lists apt's own entry tells: without them it knows what
# is installed, and no archive that has it.
if [ ${#missing_required[@]} -eq 0 ]; then
  known=$(policy "${missing_optional[@]}" apt || true)
  to_be_had=$(awk '/^[^ ]/ { name = $1 }
                   /Installed:/ { installed = $2 }
                   /Candidate:/ && $2 != "(none)" && $2 != installed && name != "apt:" { print name }' <<<"$known")
  if [ -z "$to_be_had" ] && grep -q ' Packages$' <<<"$known"; then
    say "everything is in place, without ${missing_optional[*]} (optional): not in this system's packages"
    exit 0
  fi
fi

missing=("${missing_required[@]}" "${missing_optional[@]}")
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null 2>&1; then
    as_root=(sudo)
  else
    say "not root, and there is no sudo. As root: apt-get install ${missing[*]}"
    [ ${#missing_required[@]} -eq 0 ]
    exit
  fi
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -qq "$@"; }

# The address of the mirror that this machine's own sources name for its release.
mirror() {
  local codename
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  { awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^(https?|file|cdrom):/) { print $i, $(i + 1); break } }' \
      /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null
    awk '/^URIs:/ { uri = $2 } /^Suites:/ { print uri, $2 }' /etc/apt/sources.list.d/*.sources 2>/dev/null; } |
    awk -v suite="$codename" '$2 == suite { print $1; exit }'
}

# inja is in Debian from the release after 13 and in Ubuntu from 26.04. The package is one set of headers without a
# compiled part, so the newer suite's copy serves here; the machine's own sources stay as they are.
install_inja_from_newer_suite() {
  local address directory suite suites components
  case $system in
    ubuntu*) suites=(devel resolute) components='main universe' ;;
    *debian*) suites=(forky testing) components=main ;;
    *) return 1 ;;
  esac
  address=$(mirror)
  [ -n "$address" ] || return 1
  directory=$(mktemp -d)
  chmod 755 "$directory"
  for suite in "${suites[@]}"; do
    mkdir -p "$directory/lists/partial"
    echo "deb $address $suite $components" >"$directory/sources.list"
    # A mirror may lag behind that suite's validity date; the signature is checked all the same.
    local options=(-o Acquire::Check-Valid-Until=false -o Dir::Etc::sourcelist="$directory/sources.list"
      -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$directory/lists"
      -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    if apt "${options[@]}" update >"$directory/log" 2>&1 &&
      (cd "$directory" && apt "${options[@]}" download inja-dev >>log 2>&1); then
      "${as_root[@]}" dpkg -i "$directory"/inja-dev_*.deb >>"$directory/log" 2>&1 && rm -rf "$directory" && return 0
    fi
  done
  sed 's/^/setup:   /' "$directory/log" | tail -n 5
  rm -rf "$directory"
  return 1
}

say "installing ${missing[*]}"
updated=no
installable() { [ -n "$(policy "$1" | awk '/Candidate:/ && $2 != "(none)" { print $2 }')" ]; }
update_once() {
  [ $updated = yes ] && return 0
  updated=yes
  apt update || say "apt-get update failed; trying with the package lists at hand"
}
# Installs those of the packages that are to be had.
install() {
  [ $# -gt 0 ] || return 0
  update_once
  local available=() package
  for package; do
    if installable "$package"; then available+=("$package"); else say "this system's packages have no $package"; fi
  done
  [ ${#available[@]} -eq 0 ] || apt install --no-install-recommends "${available[@]}" >/dev/null
}
required=() inja=present
for package in "${missing_required[@]}"; do
  if [ "$package" = inja-dev ]; then inja=missing; else required+=("$package"); fi
done
install "${required[@]}"
install "${missing_optional[@]}" || for package in "${missing_optional[@]}"; do
  install "$package" || say "$package could not be installed"
done
if [ $inja = missing ]; then
  update_once
  if installable inja-dev; then
    apt install --no-install-recommends inja-dev >/dev/null
  elif ! install_inja_from_newer_suite; then
    say "no package of inja was found; the build fetches its source with CMake instead (needs git and the network)"
  fi
fi

look
left=()
for package in "${missing_required[@]}"; do [ "$package" = inja-dev ] || left+=("$package"); done
if [ ${#left[@]} -gt 0 ]; then
  say "still missing: ${left[*]}"
  exit 1
fi
if [ ${#missing_optional[@]} -gt 0 ]; then say "done, without ${missing_optional[*]} (optional)"; else say "done"; fi
