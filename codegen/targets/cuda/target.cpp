#include "codegen/targets/cuda/target.h"

#include "codegen/plan/plan.h"
#include "codegen/targets/cuda/kernels.h"
#include "ir/ops.h"
#include "kernels/config/attention.h"

namespace graven::codegen {

namespace {

constexpr ir::DType kEpilogues[] = {ir::DType::f32, ir::DType::f16, ir::DType::bf16};
constexpr ir::DType kImages[] = {ir::DType::f32, ir::DType::f64, ir::DType::f16, ir::DType::bf16,   ir::DType::i8,
                                 ir::DType::u8,  ir::DType::i32, ir::DType::i64, ir::DType::boolean};

/// As on the processor, but for what ranks send each other.
constexpr const ir::OpDef* kHalf[] = {&ir::kLinear,
                                      &ir::kLinearBackwardInput,
                                      &ir::kLinearBackwardWeight,
                                      &ir::kMatmul,
                                      &ir::kAttention,
                                      &ir::kAttentionBackward,
                                      &ir::kConv2d,
                                      &ir::kConv2dBackwardInput,
                                      &ir::kConv2dBackwardWeight,
                                      &ir::kCat,
                                      &ir::kCopy,
                                      &ir::kDetach,
                                      &ir::kExpand,
                                      &ir::kFlip,
                                      &ir::kPad,
                                      &ir::kPermute,
                                      &ir::kReshape,
                                      &ir::kSlice,
                                      &ir::kDropout};

Target make_cuda_target() {
  Target target{.passes = {.name = "cuda",
                           .epilogues = kEpilogues,
                           .channels_last = kImages,
                           .half = kHalf,
                           .takes_half = takes_half_on_cuda,
                           .orders_weights = true,
                           .attention_size = kernels::kMostAttentionSize,
                           .lower = lower_for_cuda,
                           .arena_bytes = planned_arena_bytes},
                .title = "CUDA",
                .alignment = 256,  // what the libraries' widest loads and cudaMalloc agree on
                .style = {}};
  target.choices = cuda_choices;
  target.device = {ir::Device::Kind::cuda, 0};
  TargetStyle& style = target.style;
  style.calls = {.first_argument = "context",
                 .kernel_folder = "cuda",
                 .kernel_extension = ".cuh",
                 .copy = "copy_on_device(context, {to}, {from}, {bytes});",
                 .copy_header = "",
                 .numbers_from_hyper = true};
  style.model_extension = ".cu";
  style.execution_type = "CudaContext";
  style.execution_name = "context";
  style.program_headers = {"kernels/cpu/dtype.h", "kernels/cuda/context.cuh", "kernels/cuda/limits.cuh"};
  style.scalar_math = "kernels/cuda/scalar_math.cuh";
  style.device_type = "CudaDevice";
  style.api_headers = {"kernels/cuda/device.cuh", "kernels/cuda/nvtx_ranges.cuh"};
  style.words = {"copy_on_device", "machine_limits", "measure_limits", "read_ticks"};
  style.training_headers = {"kernels/cuda/steps_ahead.cuh"};
  style.rank_headers = {"kernels/cuda/nccl.cuh", "runtime/rank_sockets.h", "runtime/ranks.h"};
  style.team_headers = style.rank_headers;
  style.stage_headers = {"kernels/cuda/nccl.cuh", "kernels/cuda/stage_slot.cuh", "runtime/rank_sockets.h",
                         "runtime/ranks.h", "runtime/stage_arena.h"};
  style.predictions_header = "kernels/cuda/reduce.cuh";
  style.team_predictions_header = "kernels/cuda/predictions.cuh";
  style.libraries = {
      {"CUDA::cudart", {}},
      {"CUDA::cublasLt", {"kernels/cuda/linear.cuh", "kernels/cuda/matmul.cuh", "kernels/cuda/conv2d.cuh"}}};
  style.needs =
      "the CUDA toolkit (12 or later) with cuBLAS,\na C++20 compiler that nvcc takes, CMake 3.24 and POSIX threads";
  style.on_device = true;
  style.relu_trait = "is_relu";
  style.templates = "codegen/targets/cuda/templates/";
  style.kernels_just_in_time = true;
  return target;
}

}  // namespace

const Target& cuda_target() {
  static const Target target = make_cuda_target();
  return target;
}

}  // namespace graven::codegen
