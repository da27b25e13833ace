#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test with ctest.
#
#   bash tests/run.sh               what every change passes: all tests but those of SLOW, below; those of what works on
#                                   pointers and on foreign bytes, the kernels, the run time and its readers, under
#                                   AddressSanitizer and UndefinedBehaviorSanitizer, too, and half a minute of fuzzing
#                                   (where there is a clang++ with libFuzzer). What the rest works on is the standard
#                                   library's, which checks indices (CMakeLists.txt)
#   bash tests/run.sh --all         the slow ones, too, those within other tests that look for GRAVEN_ALL_TESTS (all
#                                   cases of CUDA's operators, layouts, zero, networks compared bit for bit, all of
#                                   projects/faults under the sanitizers), AVX-512's kernels on processors without, and
#                                   several ranks with each MPI that is installed: half an hour more
#   bash tests/run.sh --sanitize    as --all, with every test under these two sanitizers, and the tests of threads under
#                                   ThreadSanitizer: three quarters of an hour more
#   BUILD=DIR bash tests/run.sh     another build folder (default: build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Each is the second or third of its kind, on another processor, by another road or of another size, and takes half a
# minute or more.
SLOW=(
  attack/Versions.ComeAndGoInOneProcess                  # as emit/Versions.AsSharedLibrariesLiveInOneProcess
  cuda_jit/CudaJitOperators                              # the cases of cuda_projects/CudaOperators, just in time
  cuda_on_cpu/Nvcc/CudaCompilePrograms.NvccTakesIt       # as CudaCompile.NvrtcTakesEveryKernel
  cuda_projects/CudaProjects.CMakeBuildsThemWithNvcc     # as CudaCompile.NvrtcTakesEveryKernel
  cuda_projects/CudaProjects.FaultsInTheTextAreNoticed   # as emit/SelfTests and cuda_on_cpu/PlantedFaults
  cuda_projects/CudaProjects.Gpt2Trains                  # all four, as cuda_jit/All/CudaNetworks by another road
  cuda_projects/CudaProjects.LeNetInfers                 # as LeNetTrains
  cuda_projects/CudaProjects.MobileNetV2Trains           # as cuda_jit/All/CudaNetworks, and LeNetTrains
  cuda_projects/CudaProjects.NvccCompilesThem
  cuda_projects/CudaProjects.PolynomialFit               # as MyLinear and LeNetTrains
  cuda_projects/CudaProjects.PolynomialFitUpdatesInBackward
  emit/Blocks.WhereTooMuchIsLeftAreWrittenOut            # as AreFunctionsThatComputeWhatWasRecorded
  emit/Evaluation.TheLossOfTheLastSamplesIsTheirsHoweverLabelsGetToIt  # as ...WithIgnoredLabelsAndClassWeights
  emit/Project.EveryCompilerTakesIt                      # clang++ compiles most of emit/, g++ the samples
  emit/Processors/CrossCompiled.*/riscv64                # as aarch64
  emit/Versions.NumbersNeedNoFlagOfTheCompiler           # as bits/networks
  emit/Versions.CompiledByHandLiveInOneProcess           # as AsSharedLibraries
  emit/Versions.TrainingsWithinLibrariesOfAHostLiveInOneProcess
  emit/Versions.WithinLibrariesOfAHostLiveInOneProcess
  samples/04_mobilenet_v2                                # as 03_lenet
  samples/05_resnet18
  samples/06_style_transfer
  samples/07_gpt2                                        # as emit/ and cuda_jit/ have it
  samples/09_gpt2_at_scale                               # as projects/zero, projects/pipeline, emit/MixedPrecision
)
sanitize=no
all=no
for argument in "$@"; do
  case $argument in
    --all) all=yes ;;
    --sanitize) sanitize=yes all=yes ;;
    *) echo "tests/run.sh: unknown option '$argument' (there are --all and --sanitize)" >&2; exit 2 ;;
  esac
done
if [ $all = yes ]; then
  export GRAVEN_ALL_TESTS=1
  slow=()
else
  slow=(-E "^($(IFS='|'; echo "${SLOW[*]}"))")
fi
bash scripts/setup.sh
# A change is tested by what it compiles itself: a cache that has seen another checkout in this place may hold a
# precompiled header that no longer fits.
if [ -n "${CI:-}" ]; then export CCACHE_RECACHE=1; fi
build=${BUILD:-build}
jobs=$(nproc)

# Whether clang++ brings libFuzzer; its packages come apart in some releases.
has_fuzzer() {
  command -v clang++ >/dev/null &&
    echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
      clang++ -x c++ -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null
}

compiler=()
fuzzers=()
if has_fuzzer; then
  compiler=(-DCMAKE_CXX_COMPILER=clang++)
  fuzzers=(reader_fuzzers)
else
  echo "tests/run.sh: SKIPPED: the fuzzers, for want of a clang++ with libFuzzer"
fi
cmake -S . -B "$build-sanitize" -G Ninja -DGRAVEN_SANITIZE=address "${compiler[@]}"
if [ $sanitize = yes ]; then
  cmake --build "$build-sanitize" -j "$jobs"
  ctest --test-dir "$build-sanitize" --output-on-failure -j "$jobs" -L sanitize
  cmake -S . -B "$build-thread" -G Ninja -DGRAVEN_SANITIZE=thread
  cmake --build "$build-thread" -j "$jobs" --target test_threads
  ctest --test-dir "$build-thread" --output-on-failure -L threads
else
  cmake --build "$build-sanitize" -j "$jobs" --target test_runtime test_kernels_baseline \
    test_fuzz_readers "${fuzzers[@]}"
  ctest --test-dir "$build-sanitize" --output-on-failure -j "$jobs" -R '^(runtime|kernels|fuzz)/'
fi
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DGRAVEN_ALL_TESTS=$all"
cmake --build "$build" -j "$jobs"
# One more than there are processors: tests of ranks that hang, or of compilers that are slow, wait.
ctest --test-dir "$build" --output-on-failure -j "$((jobs + 1))" "${slow[@]}"
