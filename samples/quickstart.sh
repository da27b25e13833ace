#!/usr/bin/env bash
# The whole line, in a few minutes on two cores: a LeNet written in C++ becomes two standalone projects; one trains it
# on Fashion-MNIST, the other classifies pictures with what was learned.
#
#   bash samples/quickstart.sh [FOLDER]        everything is made below FOLDER (default: build/quickstart)
#   EPOCHS=10 bash samples/quickstart.sh       trains longer (default: 5)
#   DATA=FOLDER bash samples/quickstart.sh     other data in Fashion-MNIST's files (default: where Debian's package has
#                                              them)
#
# It fails when five epochs or more do not reach an accuracy of 0.85 on the test pictures.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$root/build/quickstart}
epochs=${EPOCHS:-5}
data=${DATA:-/usr/share/datasets/fashion-mnist}
jobs=$(nproc)
step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

step "1. Set-up"
bash "$root/scripts/setup.sh"
if [ ! -d "$data" ]; then
  echo "quickstart: Fashion-MNIST is not at $data (Debian's package dataset-fashion-mnist)" >&2
  exit 1
fi

step "2. Build the library and the sample"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cmake -S "$root" -B "$root/build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$folder/configure.log" 2>&1 ||
  { cat "$folder/configure.log"; exit 1; }
cmake --build "$root/build" -j "$jobs" --target 03_lenet graven_command

step "3. Trace the LeNet of samples/03_lenet.cpp, print its graph, emit two projects"
rm -rf "$folder/lenet_train" "$folder/lenet" "$folder/checkpoints"
"$root/build/samples/03_lenet" --out "$folder"

step "4. Build them: a C++ compiler and CMake, nothing else"
for project in lenet_train lenet; do
  cmake -S "$folder/$project" -B "$folder/$project/build" -DCMAKE_BUILD_TYPE=Release >"$folder/$project.log"
  cmake --build "$folder/$project/build" -j "$jobs" >>"$folder/$project.log" 2>&1 ||
    { tail -n 40 "$folder/$project.log"; exit 1; }
  (cd "$folder/$project" && ./build/selftest)
done

step "5. Train on Fashion-MNIST ($epochs epochs)"
"$folder/lenet_train/build/lenet_train" --data "$data" --test-data "$data" --epochs "$epochs" \
  --out "$folder/checkpoints" --log "$folder/training.jsonl"

step "6. Classify the test pictures with the inference program"
"$folder/lenet/build/lenet" --weights "$folder/checkpoints/best/weights.safetensors" \
  --data "$data/t10k-images-idx3-ubyte.gz" --labels "$data/t10k-labels-idx1-ubyte.gz" --topk 3 |
  tee "$folder/inference.txt"
"$folder/lenet/build/lenet" --weights "$folder/checkpoints/best/weights.safetensors" --bench 1

accuracy=$(awk '$1 == "accuracy" { print $2 }' "$folder/inference.txt")
if ! awk -v accuracy="${accuracy:-0}" -v epochs="$epochs" \
  'BEGIN { exit !(accuracy >= 0.85 || (accuracy > 0 && epochs < 5)) }'; then
  echo "quickstart: FAILED: accuracy ${accuracy:-unknown} after $epochs epochs, expected 0.85 at least" >&2
  exit 1
fi

step "7. Worth reading"
cat <<TEXT
  $root/samples/03_lenet.cpp          what was written
  $folder/lenet_train/model.cpp       what it became: one training step, top to bottom
  $folder/lenet_train/memory_plan.h   where every byte lives, and for how long
  $folder/lenet_train/configs.h       every shape, once
  $folder/lenet/model.h               the interface of the inference library, in C++ and C
  $folder/lenet/README.md             its inputs and outputs, its work and memory, its files
TEXT
