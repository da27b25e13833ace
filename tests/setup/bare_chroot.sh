#!/usr/bin/env bash
# Tries the set-up on a bare system: makes one with debootstrap in a temporary folder, copies the committed tree into it
# and runs the set-up there twice; the second run must find everything in place. Needs root and debootstrap; takes a few
# minutes and 2 GB, so ctest does not run it.
#
#   bash tests/setup/bare_chroot.sh [SUITE]          the set-up (default suite: this machine's own)
#   bash tests/setup/bare_chroot.sh SUITE COMMAND    also runs COMMAND in the tree: 'bash tests/run.sh',
#                                                    'bash samples/quickstart.sh'
#   MIRROR=URL COMPONENTS=main,universe bash tests/setup/bare_chroot.sh jammy ...
#                                                    another system's suites, here Ubuntu's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
suite=${1:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
command=${2:-}
[ "$(id -u)" -eq 0 ] || { echo "bare_chroot.sh: needs root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "bare_chroot.sh: needs the package debootstrap" >&2; exit 2; }
mirror=${MIRROR:-}
[ -n "$mirror" ] || mirror=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/*.sources 2>/dev/null || true)
[ -n "$mirror" ] || mirror=$(awk '$1 == "deb" { print $2; exit }' /etc/apt/sources.list)

root=$(mktemp -d)
chmod 755 "$root"  # apt fetches as a user of its own
finish() {
  umount "$root/proc" "$root/dev/pts" "$root/dev" 2>/dev/null || true
  rm -rf --one-file-system "$root"
}
trap finish EXIT
echo "== debootstrap $suite"
# debootstrap has a variable of this name, too, and means something else by it.
env -u COMPONENTS debootstrap --variant=minbase --components="${COMPONENTS:-main}" "$suite" "$root" "$mirror" \
  >"$root.log" 2>&1 || { tail -n 20 "$root.log"; exit 1; }
rm -f "$root.log"
# The machine's own way to its mirror: names, proxies, certificates.
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/etc/apt/apt.conf.d" "$root/etc/ssl"
cp /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
cp -rL /etc/ssl/certs "$root/etc/ssl/" 2>/dev/null || true
mount --bind /dev "$root/dev"
[ ! -d /dev/pts ] || mount --bind /dev/pts "$root/dev/pts"  # terminals, which a folder of files has not
mount -t proc proc "$root/proc"
mkdir -p "$root/graven"
git archive HEAD | tar -x -C "$root/graven"

inside() {
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 chroot "$root" bash -c "cd /graven && $1"
}
echo "== first set-up"
inside 'bash scripts/setup.sh'
echo "== second set-up"
second=$(inside 'bash scripts/setup.sh')
echo "$second"
case $second in
  *"everything is in place"* | *optional*) ;;
  *) echo "bare_chroot.sh: FAILED: the second set-up did not find everything in place" >&2; exit 1 ;;
esac
if [ -n "$command" ]; then
  echo "== $command"
  inside "$command"
fi
echo "bare_chroot.sh: OK ($suite)"
