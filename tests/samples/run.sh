#!/usr/bin/env bash
# Runs a sample as its tutorial says, and what it emits.
#
#   bash tests/samples/run.sh SAMPLE BUILD_DIR
#
# SAMPLE: my_linear, polynomial_fit, lenet, mobilenet_v2, resnet18, style_transfer, gpt2, gan or gpt2_at_scale.
set -euo pipefail
sample=$1
build=$(cd "$2" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GRAVEN_CACHE=$work/cache
export CXXFLAGS=-Werror  # what is emitted is compiled without warnings
export CMAKE_CXX_COMPILER_LAUNCHER=$here/../compile_once.sh EMITTED_OBJECTS=$build/emitted_objects
cd "$work"
fail() { echo "tests/samples: FAILED: $*" >&2; exit 1; }
expect() { grep -qE -- "$1" "$2" || { cat "$2"; fail "$2 has no line like '$1'"; }; }

case $sample in
  my_linear)
    "$build/samples/01_my_linear" --save saved >out
    cat out
    # The eager line and the graph's line show the same numbers.
    [ "$(grep -cE "^(eager|graph) " out)" -ge 2 ] || fail "expected the eager and the graph's result"
    [ "$(grep -E "^(eager|graph) " out | sed "s/^[a-z]*  *//; s/, grad_fn=.*>)/)/" | sort -u | wc -l)" -eq 1 ] ||
      fail "eager and graph differ"
    "$build/graven" check saved
    ;;
  polynomial_fit)
    "$build/samples/02_polynomial_fit" --save saved >out
    cat out
    # The documentation's coefficients, from either mode.
    expect 'Result: y = -?0\.0[0-9]+ \+ 0\.8[0-9]+ x \+ -?0\.0[0-9]+ x\^2 \+ -0\.09[0-9]* x\^3' out
    "$build/graven" check saved
    ;;
  lenet)
    "$build/samples/03_lenet" --out "$work" >out
    expect '\(GRAPH:LeNetTrain_0:LeNetTrain\): \(' out
    python3 "$here/make_images.py" data
    for project in lenet_train lenet; do
      cmake -S "$project" -B "$project/build" -DCMAKE_BUILD_TYPE=Release >"$project.log" ||
        { cat "$project.log"; fail "configuring $project"; }
      cmake --build "$project/build" -j 2 >>"$project.log" 2>&1 || { cat "$project.log"; fail "building $project"; }
      (cd "$project" && ./build/selftest) || fail "the self-test of $project"
    done
    train() { lenet_train/build/lenet_train --data data --test-data data "$@"; }
    train --epochs 2 --out straight --threads 2 >straight.log
    cat straight.log
    # The same with another number of threads, stopped after one epoch, and resumed: the same bytes.
    train --epochs 1 --out resumed --threads 1 >first.log
    train --epochs 2 --out resumed --threads 2 --resume >second.log
    cmp straight/latest/weights.safetensors resumed/latest/weights.safetensors ||
      fail "a resumed run differs from a straight one"
    accuracy=$(grep -oE 'accuracy +[0-9.]+' straight.log | tail -n 1 | grep -oE '[0-9.]+')
    awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.9) }' ||
      fail "accuracy $accuracy on bands that a network can tell apart"
    lenet/build/lenet --weights straight/best/weights.safetensors \
      --data data/t10k-images-idx3-ubyte.gz --labels data/t10k-labels-idx1-ubyte.gz --topk 1 >infer.log
    expect "accuracy" infer.log
    "$build/graven" check lenet
    "$build/graven" emit lenet_train --check
    "$build/graven" emit lenet --check
    "$build/graven" show lenet_train -f memory -o memory.svg
    # For CUDA by the sample itself, and from what it saved: the same, but for what the sample says of the data and the
    # epochs.
    "$build/samples/03_lenet" --out on_cuda --target cuda >/dev/null
    "$build/graven" emit saved/lenet_train -o lenet_cuda --name lenet_train --target cuda -q
    for file in CMakeLists.txt configs.h params.h weights.safetensors; do
      cmp "on_cuda/lenet_train/$file" "lenet_cuda/$file" || fail "$file is another one from the saved graph"
    done
    cmp on_cuda/lenet_train/memory_plan.h lenet_cuda/memory_plan.h || fail "another memory plan from the saved graph"
    cmp <(tail -n +2 on_cuda/lenet_train/model.cu) <(tail -n +2 lenet_cuda/model.cu) ||
      fail "model.cu is another one from the saved graph"
    ! "$build/samples/03_lenet" --target tpu 2>errors || fail "an unknown target"
    expect "usage: 03_lenet" errors
    ;;
  mobilenet_v2)
    train() { "$build/samples/04_mobilenet_v2" --batches 2 "$@"; }
    train --eager --out eager >eager.log
    expect "made-up stripes in the same format" eager.log
    train --epochs 2 --out straight >straight.log
    cat straight.log
    expect "^loss: +[0-9.]+ +\\[ +0/ *2560\\]$" straight.log
    # A resumed run ends with the same bytes, running statistics and dropout included.
    train --epochs 1 --out resumed >first.log
    train --epochs 2 --out resumed --resume >second.log
    cmp straight/mobilenet_v2.safetensors resumed/mobilenet_v2.safetensors ||
      fail "a resumed run differs from a straight one"
    [ "$(grep ^accuracy straight.log)" = "$(grep ^accuracy second.log)" ] || fail "the accuracies differ"
    ;;
  resnet18)
    "$build/samples/05_resnet18" --out "$work"
    python3 "$here/make_images.py" data
    cmake -S resnet18_train -B resnet18_train/build -DCMAKE_BUILD_TYPE=Release >build.log ||
      { cat build.log; fail "configuring resnet18_train"; }
    cmake --build resnet18_train/build -j 2 >>build.log 2>&1 || { cat build.log; fail "building resnet18_train"; }
    (cd resnet18_train && build/selftest) || fail "the self-test of resnet18_train"
    # At the sample's own rate, made for whole epochs of Fashion-MNIST, so few steps leave the result to chance.
    resnet18_train/build/resnet18_train --data data --epochs 3 --lr 0.01 --out run >train.log
    cat train.log
    accuracy=$(grep -oE 'accuracy +[0-9.]+' train.log | tail -n 1 | grep -oE '[0-9.]+')
    awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.9) }' ||
      fail "accuracy $accuracy on bands that a network can tell apart"
    "$build/graven" check resnet18
    ;;
  style_transfer)
    "$build/samples/06_style_transfer" --out . --size 64 --channels 8 >out
    expect "the network is random" out
    # From here on, nothing but the folder.
    "$build/graven" check saved
    "$build/graven" emit saved -o project --name stylize
    cmake -S project -B project/build -DCMAKE_BUILD_TYPE=Release >build.log || { cat build.log; fail "configuring"; }
    cmake --build project/build -j 2 >>build.log 2>&1 || { cat build.log; fail "building"; }
    (cd project && build/selftest) || fail "the self-test"
    stylize=project/build/stylize
    "$stylize" --data picture.ppm --output stylized.ppm
    "$stylize" --data picture.ppm --output stylized.png
    python3 "$here/read_png.py" stylized.png stylized.ppm || fail "an independent reader disagrees"
    # A photograph, in and out.
    python3 -B "$here/crop_picture.py" "$here/../../samples/pictures/launch_pad.png" 64 64 photograph.ppm
    "$stylize" --data photograph.ppm --output photograph.png
    ! cmp -s photograph.png stylized.png || fail "two pictures became one"
    # Pictures of other sizes, by the same program: what comes out has multiples of 4 pixels.
    for size in "53 38" "16 64" "64 17"; do
      read -r width height <<<"$size"
      python3 -B "$here/crop_picture.py" "$here/../../samples/pictures/launch_pad.png" "$width" "$height" other.ppm
      "$stylize" --data other.ppm --output other_stylized.ppm
      expected="$(((width + 3) / 4 * 4)) $(((height + 3) / 4 * 4))"
      [ "$(sed -n 2p other_stylized.ppm)" = "$expected" ] || fail "a picture of $size is not $expected"
    done
    python3 -B "$here/crop_picture.py" "$here/../../samples/pictures/launch_pad.png" 65 20 other.ppm
    ! "$stylize" --data other.ppm --output other_stylized.ppm 2>errors || fail "a picture that is too wide"
    expect "or smaller in dimension 1 \(16 or more\) and 2 \(16 or more\) of a sample" errors
    # A PNG picture is read as well as written: the same numbers from the same picture.
    "$stylize" --data stylized.png --output twice.ppm
    "$stylize" --data stylized.ppm --output again.ppm
    cmp twice.ppm again.ppm || fail "a picture differs by its format"
    ! "$stylize" --data picture.ppm --output stylized.pgm 2>errors || fail "a grey picture of three channels"
    expect "one picture of \[1,height,width\] for a pgm file" errors
    # Weights that PyTorch wrote, with what its file has besides.
    "$build/samples/06_style_transfer" --out torch --size 64 --channels 4 \
      --weights "$here/../fixtures/models/style_transfer.safetensors" >out
    "$build/graven" check torch/saved
    ;;
  gan)
    "$build/samples/08_gan" --out . >out
    cat out
    expect "^epoch 40 +d_loss [0-9.]+ +g_loss [0-9.]+$" out
    radius=$(grep -oE 'mean [0-9.]+' out | grep -oE '[0-9.]+')
    awk -v r="$radius" 'BEGIN { exit !(r > 0.6 && r < 1.4) }' || fail "points at $radius from the middle of a circle"
    cmake -S gan_train -B gan_train/build -DCMAKE_BUILD_TYPE=Release >build.log ||
      { cat build.log; fail "configuring gan_train"; }
    cmake --build gan_train/build -j 2 >>build.log 2>&1 || { cat build.log; fail "building"; }
    (cd gan_train && build/selftest) || fail "the self-test"
    gan_train/build/gan_train --data circle.safetensors --epochs 2 --log gan.log --out run >train.log
    expect '"results":\{"d_loss":[0-9.e-]+,"g_loss":[0-9.e-]+\}' gan.log
    ;;
  gpt2)
    "$build/samples/07_gpt2" --out "$work" >out
    cmake -S gpt2_train -B gpt2_train/build -DCMAKE_BUILD_TYPE=Release >train.log ||
      { cat train.log; fail "configuring gpt2_train"; }
    cmake -S "$here/../../samples/07_generate" -B generate -DGPT2_PROJECT="$work/gpt2" -DGRAVEN_LEVELS=native \
      -DCMAKE_BUILD_TYPE=Release >generate.log || { cat generate.log; fail "configuring generate"; }
    cmake --build gpt2_train/build -j 2 --target gpt2_train >>train.log 2>&1 ||
      { cat train.log; fail "building gpt2_train"; }
    cmake --build generate -j 2 --target generate >>generate.log 2>&1 || { cat generate.log; fail "building generate"; }
    # A text of one line of 61 bytes, so that windows of 64 begin at each of them: what follows a byte is nearly certain
    # once it is learnt.
    for _ in $(seq 400); do printf 'the graver carves the plate, and the plate prints the pages.\n'; done >corpus.txt
    gpt2_train/build/gpt2_train --data corpus.txt --epochs 4 --out run >training.log
    cat training.log
    losses=$(grep -oE 'loss [0-9.]+' training.log | grep -oE '[0-9.]+')
    awk -v first="$(head -n 1 <<<"$losses")" -v last="$(tail -n 1 <<<"$losses")" \
      'BEGIN { exit !(last < 0.5 && last < first / 2) }' ||
      fail "the loss does not fall as it should: $(echo $losses)"
    write() { generate/generate --weights run/latest/weights.safetensors --prompt "the graver " --length 120 "$@"; }
    write --temperature 0 >likeliest
    cat likeliest
    expect '^the graver carves the plate, and the plate prints the pages\.$' likeliest
    write --temperature 1.5 --seed 1 >one
    write --temperature 1.5 --seed 1 >again
    write --temperature 1.5 --seed 2 >two
    cmp one again || fail "the same seed writes another text"
    if cmp -s one two; then fail "another seed writes the same text"; fi
    ;;
  gpt2_at_scale)
    "$build/samples/09_gpt2_at_scale" --out "$work" >out
    cat out
    expect 'whose activations take [0-9]+ bytes' out
    for _ in $(seq 200); do printf 'the graver carves the plate, and the plate prints the pages.\n'; done >corpus.txt
    build_project() {  # NAME, options of CMake
      cmake -S "$1" -B "$1/build" -DGRAVEN_LEVELS=native -DCMAKE_BUILD_TYPE=Release "${@:2}" >"$1.log" &&
        cmake --build "$1/build" -j 2 --target "$1" >>"$1.log" 2>&1 || { cat "$1.log"; fail "building $1"; }
    }
    falls() {  # FILE, of a run's lines
      cat "$1"
      losses=$(grep -oE 'loss [0-9.]+' "$1" | grep -oE '[0-9.]+')
      awk -v first="$(head -n 1 <<<"$losses")" -v last="$(tail -n 1 <<<"$losses")" \
        'BEGIN { exit !(last < first / 2) }' ||
        fail "the loss does not fall as it should: $(echo $losses)"
    }
    build_project gpt2_bf16
    gpt2_bf16/build/gpt2_bf16 --data corpus.txt --epochs 8 --out run_bf16 >bf16.log
    falls bf16.log
    [ -e /usr/bin/mpicxx.openmpi ] || { echo "tests/samples: SKIPPED: ranks, for want of Open MPI"; exit 0; }
    build_project gpt2_ranks -DGRAVEN_MPI=ON -DMPI_CXX_COMPILER=/usr/bin/mpicxx.openmpi
    # Tests run as root in containers, on fewer processors than ranks.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun.openmpi --oversubscribe -n 4 gpt2_ranks/build/gpt2_ranks --data corpus.txt --epochs 8 --threads 1 \
      --out run_ranks >ranks.log
    falls ranks.log
    mpirun.openmpi --oversubscribe -n 2 gpt2_ranks/build/gpt2_ranks --data corpus.txt --epochs 9 --threads 1 \
      --out run_ranks --resume >resumed.log
    cat resumed.log
    expect '^resumed from run_ranks/step-' resumed.log
    build_project gpt2_stages -DGRAVEN_MPI=ON -DMPI_CXX_COMPILER=/usr/bin/mpicxx.openmpi
    # A stage for each of two processes, and both in one: the same bits.
    mpirun.openmpi --oversubscribe -n 2 gpt2_stages/build/gpt2_stages --data corpus.txt --epochs 2 --threads 1 \
      --out run_stages >stages.log
    gpt2_stages/build/gpt2_stages --data corpus.txt --epochs 2 --out run_alone >alone.log
    cat stages.log
    cmp run_stages/latest/weights.safetensors run_alone/latest/weights.safetensors ||
      fail "two stages compute other bits"
    ;;
  *) fail "unknown sample '$sample'" ;;
esac
echo "tests/samples: OK ($sample)"
