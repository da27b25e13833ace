// Where the CUDA toolkit is present: nvcc compiles every kernel and the benchmarks of tests/gpu, for one architecture,
// and NVRTC every kernel's device part for all that are supported, warnings as errors. Neither needs a GPU. Where it is
// not, the tests say so and are skipped.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "nvrtc_library.h"

namespace {

using cuda_on_cpu::Nvrtc;

const std::string kSource = GRAVEN_SOURCE_DIR;

/// nvcc of CUDACXX, the PATH or /usr/local/cuda; "" without one.
std::string find_nvcc() {
  std::vector<std::string> candidates;
  if (const char* named = std::getenv("CUDACXX"); named != nullptr) candidates.emplace_back(named);
  const char* path = std::getenv("PATH");
  const std::string folders = path != nullptr ? path : "";
  for (std::size_t begin = 0; begin < folders.size();) {
    std::size_t end = folders.find(':', begin);
    if (end == std::string::npos) end = folders.size();
    candidates.push_back(folders.substr(begin, end - begin) + "/nvcc");
    begin = end + 1;
  }
  candidates.emplace_back("/usr/local/cuda/bin/nvcc");
  for (const std::string& candidate : candidates)
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  return "";
}

/// Runs a program; what it printed, and whether it succeeded.
std::pair<bool, std::string> run(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += "'" + word + "' ";
  FILE* pipe = popen((line + "2>&1").c_str(), "r");
  if (pipe == nullptr) return {false, "cannot start " + command[0]};
  std::string output;
  std::array<char, 4096> buffer;
  while (std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), n);
  return {pclose(pipe) == 0, output};
}

struct Program {
  const char* name;
  const char* file;
  std::vector<std::string> architectures;
};

class CudaCompilePrograms : public testing::TestWithParam<Program> {};

TEST_P(CudaCompilePrograms, NvccTakesIt) {
  const std::string nvcc = find_nvcc();
  if (nvcc.empty()) GTEST_SKIP() << "no CUDA toolkit: no nvcc in CUDACXX, the PATH or /usr/local/cuda";
  const auto [probed, unused] = run({nvcc, "--version"});
  if (!probed) GTEST_SKIP() << nvcc << " does not run";
  const std::string object = (std::filesystem::path(testing::TempDir()) /
                              (std::string(GetParam().name) + "_" + std::to_string(getpid()) + ".o"))
                                 .string();
  std::vector<std::string> command = {nvcc,
                                      "-std=c++20",
                                      "-Werror",
                                      "all-warnings",
                                      "-Xcompiler",
                                      "-Wall,-Wextra,-Werror",
                                      "-I" + kSource,
                                      "-c",
                                      "-o",
                                      object,
                                      kSource + "/" + GetParam().file};
  for (const std::string& each : GetParam().architectures)
    command.push_back("-gencode=arch=compute_" + each + ",code=sm_" + each);
  const auto [compiled, output] = run(command);
  std::error_code error;
  std::filesystem::remove(object, error);
  if (!compiled && output.find("cublasLt.h: No such file") != std::string::npos)
    GTEST_SKIP() << "the toolkit lacks cuBLASLt:\n" << output;
  EXPECT_TRUE(compiled) << output;
  EXPECT_EQ(output, "");
}

// The text is the same for each architecture, and a second one takes as long again: the benchmarks, whose device parts
// are those of every_kernel.cu, have another.
INSTANTIATE_TEST_SUITE_P(Nvcc, CudaCompilePrograms,
                         testing::Values(Program{"every_kernel", "tests/cuda_on_cpu/every_kernel.cu", {"80"}},
                                         Program{"kernels", "tests/gpu/kernels.cu", {"90"}},
                                         Program{"convolutions", "tests/gpu/convolutions.cu", {"90"}}),
                         [](const testing::TestParamInfo<Program>& info) { return std::string(info.param.name); });

const char* const kFunctors = R"(
namespace graven::kernels {
struct relu {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) { return x < T(0) ? T(0) : x; }
};
struct add {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static T apply(T x, T y) { return x + y; }
};
struct gelu {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) { return T(0.5) * x * (T(1) + math::erf(x * T(0.70710678118654752))); }
};
}
)";

struct Case {
  const char* header;
  std::vector<std::string> kernels;  // in graven::kernels
};

const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"elementwise",
       {"elementwise_kernel<relu, float, float>", "elementwise_kernel<add, double, std::int64_t, double>",
        "elementwise_kernel<gelu, double, double>", "broadcast_vector_kernel<add, std::int64_t, bool, std::int64_t>",
        "broadcast_kernel<add, float, float, float>", "broadcast_kernel<add, bool, bool, bool>", "fill_kernel<float>",
        "fill_kernel<std::int64_t>"}},
      {"strided_copy",
       {"strided_copy_kernel<4, std::int32_t, std::uint32_t>", "strided_copy_kernel<1, std::int64_t, uint4>",
        "strided_tiles_kernel<false, std::int32_t, std::uint8_t>", "strided_tiles_kernel<true, std::int64_t, double>",
        "strided_add_kernel<4, std::int32_t, float>", "strided_add_kernel<2, std::int32_t, double>",
        "strided_add_sums_kernel<std::int64_t, float>", "strided_add_in_order_kernel<double>"}},
      {"clip_factor",
       {"clip_terms_kernel<sum_of, clip_power, float>", "clip_terms_kernel<maximum_of, clip_magnitude, double>",
        "clip_factor_kernel<sum_of, float>", "clip_join_kernel<sum_of>", "clip_join_kernel<maximum_of>",
        "gradient_norm_kernel<sum_of, float>"}},
      {"accumulate", {"accumulate_kernel<float>", "accumulate_kernel<double>"}},
      {"accumulate_shard", {"accumulate_kernel<float>"}},
      {"all_reduce", {}},
      {"reduce_scatter", {}},
      {"all_gather", {}},
      {"gather_shards", {}},
      {"convert_layout",
       {"convert_layout_kernel<4, std::int32_t, uint4>", "convert_layout_kernel<1, std::int64_t, std::uint8_t>",
        "add_rows_kernel<4, std::int32_t, float>", "add_rows_kernel<4, std::int32_t, half>",
        "add_rows_kernel<1, std::int64_t, double>"}},
      {"index_on_rank", {"index_on_rank_kernel<std::int32_t>", "index_on_rank_kernel<std::int64_t>"}},
      {"predictions",
       {"best_of_rank_kernel<float>", "best_of_rank_kernel<double>", "best_of_team_kernel<std::int64_t>"}},
      {"nccl", {}},
      {"loss_scale",
       {"find_others_kernel<float>", "find_others_kernel<double>", "finite_step_kernel<int>",
        "finite_step_kernel<double>", "join_others_kernel<double>", "update_loss_scale_kernel<float>"}},
      {"concat", {"concat_kernel<4, std::int32_t, std::uint32_t>", "concat_kernel<1, std::int64_t, uint4>"}},
      {"pad", {"pad_kernel<4, std::int32_t, std::uint32_t>", "pad_kernel<1, std::int64_t, uint4>"}},
      {"pad_border",
       {"pad_kernel<1, std::int32_t, uint4>", "pad_border_backward_kernel<4, std::int32_t, float>",
        "pad_border_backward_kernel<1, std::int64_t, double>"}},
      {"resample",
       {"resample_kernel<1, 4, 4, std::int32_t, float>", "resample_kernel<0, 1, 1, std::int64_t, double>",
        "resample_kernel<4, 1, 4, std::int32_t, float>", "resample_backward_kernel<4, std::int32_t, float>",
        "resample_backward_kernel<1, std::int64_t, double>"}},
      {"index",
       {"gather_kernel<4, std::int32_t, float>", "gather_kernel<1, std::int64_t, std::int64_t>",
        "gather_kernel<1, std::int32_t, bool>", "scatter_kernel<true, std::int32_t, float>",
        "scatter_kernel<false, std::int64_t, std::int64_t>",
        "scatter_sorted_kernel<true, std::uint64_t, std::int32_t, float>",
        "scatter_sorted_kernel<false, wide_sort_entry, std::int64_t, double>",
        "sort_tiles_kernel<std::uint64_t, scatter_places<std::uint64_t, std::int32_t>, sort_runs<std::uint64_t>>",
        "sort_tiles_kernel<wide_sort_entry, index_rows<wide_sort_entry>, sort_runs<wide_sort_entry>>",
        "index_select_kernel<4, std::int32_t, uint4>", "index_add_kernel<4, 4, std::uint64_t, std::int32_t, float>",
        "index_add_kernel<1, 4, wide_sort_entry, std::int64_t, double>",
        "index_add_few_kernel<std::uint64_t, std::int32_t, float>", "one_hot_kernel<4, std::int32_t, std::int64_t>"}},
      {"random",
       {"random_uniform_kernel<float>", "random_normal_kernel<float>", "random_normal_kernel<double>",
        "dropout_kernel<float>"}},
      {"causal_mask", {"causal_mask_kernel<4, std::int32_t, float>"}},
      {"scan",
       {"scan_kernel<false, std::int32_t, float>", "scan_kernel<true, std::int64_t, std::int64_t>",
        "cumsum_pieces_kernel<true, float>", "cumsum_pieces_kernel<false, std::int32_t>",
        "cumprod_backward_kernel<float>"}},
      {"sort",
       {"sort_tiles_kernel<std::uint64_t, sort_source<std::uint64_t, std::int32_t, float>, "
        "sort_sink<std::uint64_t, std::int32_t, float>>",
        "sort_tiles_kernel<wide_sort_entry, sort_source<wide_sort_entry, std::int64_t, std::int64_t>, "
        "sort_runs<wide_sort_entry>>",
        "sort_merge_kernel<std::uint64_t, sort_sink<std::uint64_t, std::int32_t, float>>",
        "sort_merge_kernel<wide_sort_entry, sort_runs<wide_sort_entry>>", "sort_backward_kernel<std::int32_t, float>"}},
      {"arange", {"arange_kernel<float>", "arange_kernel<std::int64_t>"}},
      {"size", {"size_kernel<float>", "size_kernel<std::int64_t>"}},
      {"reduce",
       {"reduce_rows_kernel<sum_of, 4, true, float>", "reduce_rows_kernel<maximum_of, 2, false, double>",
        "reduce_rows_kernel<minimum_of, 1, true, std::int64_t>", "reduce_columns_kernel<product_of, 4, float>",
        "reduce_columns_kernel<sum_of, 1, std::int64_t>", "add_pieces_kernel<float>",
        "reduce_columns_kernel<sum_of, 4, float, float, bfloat16>",
        "reduce_rows_kernel<sum_of, 4, true, float, half, half>", "argument_kernel<true, float>",
        "argument_kernel<false, std::int64_t>", "argument_rows_kernel<true, float>",
        "argument_rows_kernel<false, std::int64_t>"}},
      {"softmax",
       {"softmax_kernel<true, 8, 2, float>", "softmax_kernel<false, kBlock, 8, double>",
        "softmax_backward_kernel<true, 32, 2, float>", "softmax_backward_kernel<false, 32, 8, float>",
        "softmax_long_kernel<true, double>", "softmax_backward_long_kernel<false, float>",
        "softmax_columns_kernel<true, float>", "softmax_backward_columns_kernel<false, double>"}},
      {"call_faults", {"check_index_kernel<std::int64_t>"}},
      {"limits", {"multiply_add_kernel<float>"}},
      {"binary_cross_entropy",
       {"binary_cross_entropy_kernel<4, std::int32_t, float>", "binary_cross_entropy_kernel<1, std::int64_t, double>"}},
      {"cross_entropy",
       {"cross_entropy_kernel<8, 2, float>", "cross_entropy_kernel<kBlock, 8, double>",
        "cross_entropy_long_kernel<float>", "cross_entropy_weights_kernel<float>", "cross_entropy_total_kernel<double>",
        "cross_entropy_backward_kernel<std::int32_t, float>", "cross_entropy_backward_kernel<std::int64_t, double>"}},
      {"sync_batch_norm",
       {"sync_moments_kernel<float>", "sync_statistics_kernel<float>", "sync_own_sums_kernel<double>",
        "sync_means_kernel<float>"}},
      {"batch_norm",
       {"batch_norm_moments_kernel<4, float>", "batch_norm_plane_moments_kernel<float>",
        "batch_norm_statistics_kernel<float>", "batch_norm_apply_kernel<2, double>",
        "batch_norm_apply_planes_kernel<4, float>", "batch_norm_columns_kernel<4, float>",
        "batch_norm_gradient_sums_kernel<4, float>", "batch_norm_plane_gradient_sums_kernel<float>",
        "batch_norm_backward_kernel<4, float>", "batch_norm_backward_planes_kernel<2, double>",
        "batch_norm_backward_columns_kernel<4, float>"}},
      {"layer_norm",
       {"layer_norm_kernel<true, 32, 4, true, float>", "layer_norm_kernel<false, kBlock, 2, false, double>",
        "layer_norm_backward_kernel<true, kBlock, 4, true, float>",
        "layer_norm_backward_kernel<false, 32, 1, true, float>", "layer_norm_gradient_sums_kernel<true, 4, float>"}},
      {"recurrent",
       {"recurrent_kernel<1, float>", "recurrent_kernel<3, double>", "recurrent_kernel<4, float>",
        "recurrent_projection_kernel<float>", "recurrent_state_gradient_kernel<float>",
        "recurrent_backward_kernel<1, float>", "recurrent_backward_kernel<3, float>",
        "recurrent_backward_kernel<4, double>", "recurrent_copy_kernel<float>"}},
      {"group_norm",
       {"group_norm_kernel<4, true, float>", "group_norm_moments_kernel<4, false, float>",
        "group_norm_apply_kernel<4, float>", "group_norm_gradient_sums_kernel<32, double>",
        "group_norm_gradient_sums_kernel<kBlock, float>", "group_norm_parameters_kernel<float>",
        "group_norm_backward_kernel<4, float>"}},
      {"fold_batch_norm",
       {"fold_batch_norm_kernel<4, std::int32_t, float>", "fold_batch_norm_kernel<1, std::int64_t, double>"}},
      {"pool2d",
       {"max_pool2d_kernel<4, 9, std::int32_t, float>", "max_pool2d_kernel<1, 4, std::int64_t, double>",
        "max_pool2d_backward_kernel<4, std::int32_t, float>", "avg_pool2d_kernel<2, 4, std::int32_t, double>",
        "avg_pool2d_block_kernel<std::int32_t, float>", "avg_pool2d_warp_kernel<std::int64_t, float>",
        "avg_pool2d_backward_kernel<1, std::int32_t, double>"}},
      {"update",
       {"update_kernel<test::momentum_rule, float, test::momentum_config, 0>",
        "update_kernel<test::plain_rule, double, test::momentum_config>",
        "measure_kernel<test::norms_rule, float, test::momentum_config, 0, 1>",
        "update_with_norms_kernel<test::norms_rule, double, test::momentum_config, 0, 1>",
        "update_with_norms_kernel<over_ranks<test::norms_rule>, float, test::momentum_config, 0, 1>",
        "join_norms_kernel<2, tensor_list<float, 4>>"}},
      {"adafactor",
       {"adafactor_rows_kernel<float>", "adafactor_columns_kernel<double>", "adafactor_means_kernel<float>",
        "adafactor_changes_kernel<float>", "adafactor_apply_kernel<double>"}},
      {"attention",
       {"attention_kernel<32, false, float>", "attention_kernel<64, true, half>",
        "attention_kernel<128, true, bfloat16>", "attention_backward_queries_kernel<64, true, float>",
        "attention_backward_queries_kernel<128, false, half>", "attention_backward_keys_kernel<32, true, bfloat16>",
        "attention_backward_keys_kernel<128, false, float>"}},
      {"epilogue", {"epilogue_kernel<relu, float>", "epilogue_kernel<add, float>"}},
      {"conv2d", {}},
      {"conv2d_columns",
       {"conv2d_columns_kernel<true, 4, float>", "conv2d_columns_kernel<true, 1, float>",
        "conv2d_columns_kernel<false, 1, bfloat16>", "conv2d_gather_kernel<relu, 4, bfloat16>",
        "conv2d_gather_kernel<add, 1, float>", "conv2d_rearrange_kernel<false, float>",
        "conv2d_rearrange_kernel<true, float, bfloat16>"}},
      {"conv2d_depthwise",
       {"conv2d_depthwise_3x3_kernel<relu, 4, 4, 1, true>", "conv2d_depthwise_3x3_kernel<add, 1, 1, 2, false>",
        "conv2d_depthwise_kernel<relu, 4>", "conv2d_depthwise_gather_kernel<add, 1>",
        "conv2d_depthwise_weight_kernel<4, 9>", "conv2d_depthwise_weight_lines_kernel<4, 1>",
        "conv2d_depthwise_weight_lines_kernel<1, 2>", "conv2d_depthwise_weight_kernel<1, 1>",
        "conv2d_depthwise_join_kernel<float>"}},
      {"linear", {}},
      {"matmul", {}},
  };
  return list;
}

TEST(CudaCompile, NvrtcTakesEveryKernel) {
  const Nvrtc nvrtc;
  if (!nvrtc) GTEST_SKIP() << Nvrtc::missing;
  for (const Case& c : cases())
    for (const char* architecture : {"sm_90", "sm_80"}) {
      if (std::string(architecture) != "sm_90" && std::getenv("GRAVEN_ALL_TESTS") == nullptr) continue;
      const std::string source =
          "#include \"kernels/cuda/" + std::string(c.header) +
          ".cuh\"\n#include \"kernels/cuda/scalar_math.cuh\"\n#include \"tests/kernels/rules.h\"\n" + kFunctors +
          "using namespace graven::kernels;\n";
      EXPECT_EQ(nvrtc.compile(source, c.kernels, architecture), "") << c.header << ".cuh for " << architecture;
    }
}

TEST(CudaCompile, NvrtcReportsErrorsAtTheirLine) {
  const Nvrtc nvrtc;
  if (!nvrtc) GTEST_SKIP() << Nvrtc::missing;
  const std::string log = nvrtc.compile("#line 7 \"model.cu\"\n__global__ void kernel() { nothing(); }\n", {}, "sm_80");
  EXPECT_NE(log.find("model.cu(7): error"), std::string::npos) << log;
}

TEST(CudaCompile, EveryHeaderIsCompiled) {
  std::vector<std::string> missing;
  for (const auto& entry : std::filesystem::directory_iterator(kSource + "/kernels/cuda")) {
    if (entry.path().extension() != ".cuh") continue;
    const std::string name = entry.path().stem().string();
    bool found = false;
    for (const Case& c : cases()) found = found || name == c.header;
    // Headers of parts, compiled with the kernels that use them.
    for (const char* part :
         {"block",      "collectives", "columns",     "context",        "conv2d_cudnn", "conv2d_shape",
          "cublas_lt",  "cudnn",       "device",      "event_clock",    "fastest",      "items",
          "key_sort",   "moments",     "nvtx_ranges", "recorded_calls", "rows",         "scalar_math",
          "stage_slot", "steps_ahead", "stream",      "tensor_list",    "vector"})
      found = found || name == part;
    if (!found) missing.push_back(name);
  }
  EXPECT_TRUE(missing.empty()) << missing[0] << ".cuh is in no case of this test";
}

}  // namespace
