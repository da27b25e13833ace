#!/usr/bin/env bash
# The quickstart's verdict: samples/quickstart.sh in a tree where cmake, the sample and the emitted programs are stubs,
# and the inference program says an accuracy of the test's choice. The real line takes minutes; tests/samples runs its
# parts.
#
#   bash tests/setup/quickstart.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
program() {
  mkdir -p "$(dirname "$1")"
  printf '#!/usr/bin/env bash\n%s\n' "$2" >"$1"
  chmod +x "$1"
}
mkdir -p "$work/samples" "$work/data"
cp "$root/samples/quickstart.sh" "$work/samples/"
program "$work/scripts/setup.sh" true
program "$work/bin/cmake" true
for project in lenet_train lenet; do program "$work/stubs/$project/build/selftest" true; done
program "$work/stubs/lenet_train/build/lenet_train" 'echo "epoch 5/5  loss 0.3  accuracy 0.9999"'
program "$work/stubs/lenet/build/lenet" 'case "$*" in *--labels*) printf "picture 0: 9 (0.8861)\n%s" "$VERDICT" ;; esac'
program "$work/build/samples/03_lenet" "cp -r $work/stubs/* \"\$2\""

# expect STATUS EPOCHS LINE: how it ends when this is the line of the inference program.
expect() {
  local found=0
  DATA=$work/data EPOCHS=$2 VERDICT=$3 PATH=$work/bin:$PATH bash "$work/samples/quickstart.sh" >"$work/out" 2>&1 ||
    found=$?
  [ $found -eq "$1" ] && return
  echo "tests/setup: FAILED: expected status $1, found $found, for $2 epochs and '$3'" >&2
  cat "$work/out" >&2
  exit 1
}
expect 0 5 "accuracy 0.8861 (8861 of 10000)"
expect 0 5 "accuracy 0.8500 (8500 of 10000)"
expect 1 5 "accuracy 0.8499 (8499 of 10000)"
grep -qF "quickstart: FAILED: accuracy 0.8499 after 5 epochs, expected 0.85 at least" "$work/out"
expect 1 10 "accuracy 0.1000 (1000 of 10000)"
expect 0 1 "accuracy 0.8214 (8214 of 10000)"
expect 1 5 ""
expect 1 1 ""
echo "tests/setup: OK (quickstart)"
