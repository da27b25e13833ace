// Faults that are planted into the kernels, one at a time: the emulated device tells of each.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/read_text.h"

namespace {

namespace fs = std::filesystem;

const fs::path kKernels = fs::path(GRAVEN_SOURCE_DIR) / "kernels/cuda";

/// What a shell's command prints.
std::string output_of(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "cannot run " + command;
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), n);
  pclose(pipe);
  return output;
}

// ---- barriers -------------------------------------------------------------------------------------------------------

/// A test of this program that a file's barriers matter in, and the kernel whose blocks must take several items for
/// that, or "".
struct Use {
  const char* test;
  const char* folded = "";
};
const std::map<std::string, std::vector<Use>> kUses = {
    {"adafactor.cuh", {{"CudaUpdate.Adafactor"}}},
    {"attention.cuh",
     {{"CudaAttention.AnySize", "attention_kernel"},
      {"CudaAttention.AnySize", "attention_backward_queries_kernel"},
      {"CudaAttention.AnySize", "attention_backward_keys_kernel"}}},
    {"batch_norm.cuh", {{"CudaBatchNorm.TrainsInPieces"}}},
    {"block.cuh", {{"CudaClipFactor.EveryNorm"}, {"CudaUpdate.RunsARuleWithNorms"}}},
    {"columns.cuh", {{"CudaReduce.BlocksThatTakeSeveralItems"}}},
    {"conv2d_columns.cuh", {{"CudaConv2d.ForwardAndGradients", "conv2d_rearrange_kernel"}}},
    {"conv2d_depthwise.cuh", {{"CudaConv2d.ForwardAndGradients"}}},
    {"index.cuh", {{"CudaIndex.RowsSelectedAndAdded"}}},
    {"key_sort.cuh", {{"CudaSort.TilesAndMerges"}}},
    {"moments.cuh", {{"CudaGroupNorm.EveryGrouping", "group_norm"}}},
    {"pool2d.cuh", {{"CudaPool2d.VectorsAndLargeWindows", "avg_pool2d_block_kernel"}}},
    {"reduce.cuh", {{"CudaReduce.BlocksThatTakeSeveralItems"}, {"CudaReduce.EveryReduction"}}},
    {"rows.cuh", {{"CudaCrossEntropy.EveryReduction"}, {"CudaCrossEntropy.EveryWayToShareARow"}}},
    {"scan.cuh", {{"CudaScan.LinesAndPieces"}}},
    {"softmax.cuh", {{"CudaSoftmax.ForwardAndBackward", "softmax_backward_columns_kernel"}}},
    {"strided_copy.cuh", {{"CudaStridedCopy.VectorsAndTiles", "strided_tiles_kernel"}}},
    {"update.cuh", {{"CudaUpdate.RunsARule"}}},
};

/// Each barrier is needed, and its want is told as a race: it is left out, and a test of its kernel fails.
TEST(PlantedFaults, EveryBarrierThatIsLeftOut) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kKernels))
    if (entry.path().extension() == ".cuh") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  int barriers = 0;
  for (const fs::path& file : files) {
    std::ifstream text(file);
    std::string line;
    for (int number = 1; std::getline(text, line); ++number) {
      line = line.substr(0, line.find("//"));
      if (line.find("__syncthreads()") == std::string::npos && line.find("__syncwarp()") == std::string::npos) continue;
      ++barriers;
      const std::string place = file.filename().string() + ":" + std::to_string(number);
      const auto uses = kUses.find(file.filename().string());
      ASSERT_NE(uses, kUses.end()) << place << ": a barrier in a file of which this test knows no use";
      std::string outputs;
      bool is_told = false;
      for (const Use& use : uses->second) {
        std::string command = "CUDA_ON_CPU_LEAVE_OUT=" + place;
        if (*use.folded != 0) command += " CUDA_ON_CPU_FOLD=" + std::string(use.folded) + ":1";
        const std::string output = output_of(command + " '" + program + "' --gtest_filter=" + use.test);
        is_told = output.find("a race on ") != std::string::npos && output.find("[  FAILED  ]") != std::string::npos;
        if (is_told) break;
        outputs += output;
      }
      EXPECT_TRUE(is_told) << "nobody notices the want of the barrier at " << place << "\n" << outputs;
    }
  }
  EXPECT_GT(barriers, 20) << "of the kernels in " << kKernels;
}

// ---- text -----------------------------------------------------------------------------------------------------------

/// A text that stands once in a file of kernels/cuda, a statement (up to its ';') or an expression, and what is put in
/// its place.
struct Fault {
  std::string file, found, replacement;
  std::string use;     // of planted/main.cpp
  std::string report;  // of the device, or of the use, whose result is another
};

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::vector<Fault> faults() {
  const std::string write = "if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;",
                    shuffle = "__shfl_xor_sync(0xffffffffu, value, lanes)",
                    join = "for (int warp = 1; warp < kBlock / 32; ++warp) value = Op::join(value, partial[warp]);",
                    copy = "GRAVEN_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, context.stream()));",
                    product =
                        "GRAVEN_CUBLAS(cublasLtMatmul(handle_, plan.product, &one, b, plan.b, a, plan.a, &times, c, "
                        "plan.c, c, plan.c,\n"
                        "                                 &plan.algorithm, workspace, plan.workspace_bytes, "
                        "context.stream()));",
                    layout =
                        "GRAVEN_CUBLAS(cublasLtMatrixLayoutCreate(result.place(), type, "
                        "static_cast<std::uint64_t>(columns),\n"
                        "                                             static_cast<std::uint64_t>(rows), leading != 0 ? "
                        "leading : columns));",
                    send =
                        "GRAVEN_NCCL(nccl.send(from + r * bytes, count, Nccl::bytes, r, group_.communicator(), "
                        "stream));",
                    receive =
                        "GRAVEN_NCCL(nccl.receive(to + r * bytes, count, Nccl::bytes, r, group_.communicator(), "
                        "stream));",
                    layout_of_c = "layout(types.result, s.m, s.n, s.c_leading, s.batch, s.c_stride)";
  return {
      // Warps and barriers.
      {"block.cuh", shuffle, with(shuffle, "0xffffffffu", "0x0000ffffu"), "clip_factor", "leaves out its own lane"},
      {"block.cuh", shuffle, "(threadIdx.x % 2 == 0 ? " + shuffle + " : value)", "clip_factor",
       "wait for each other for ever"},
      {"block.cuh", shuffle, with(shuffle, "lanes", "lanes / 2"), "clip_factor", "a factor is "},
      {"block.cuh", join, join + " if (threadIdx.x >= 96) return value;", "clip_factor", "divergent barrier"},
      // What is read and written, and by whom.
      {"block.cuh", write, with(write, "/ 32", "/ 64"), "clip_factor", "a race on shared memory 'partial'"},
      {"block.cuh", write, with(write, "% 32", "% 64"), "clip_factor", "a factor is NaN"},
      {"block.cuh", write, "partial[threadIdx.x / 32] = value;", "clip_factor", "a race on shared memory 'partial'"},
      {"softmax.cuh", "sum += partial[t][threadIdx.x % kSoftmaxColumns]",
       "sum += partial[t][(threadIdx.x + 1) % kSoftmaxColumns]", "softmax of columns", "a softmax is "},
      {"elementwise.cuh", "y[at] = value;", "y[at + 1] = value;", "fill",
       "past the end of an allocation of 8200 bytes"},
      {"elementwise.cuh", "store_vector(y + i, values.at);", "store_vector(y + i + N, values.at);", "fill",
       "a race on "},
      {"context.cuh", "static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x",
       "static_cast<std::int64_t>(threadIdx.x)", "fill", "blocks of a launch have no order"},
      {"softmax.cuh", "aligned_for_vectors<kVectorWidth<T>>(y, x)", "true", "softmax of rows that lie anywhere",
       "misaligned address"},
      // Launches, streams, copies, events.
      {"context.cuh", "dim3(static_cast<unsigned>(threads))", "dim3(static_cast<unsigned>(8 * threads))", "fill",
       "cudaErrorInvalidConfiguration"},
      {"context.cuh", "config.stream = context.stream();", "config.stream = nullptr;", "fill",
       "work on the default stream"},
      {"context.cuh", copy, with(copy, "bytes", "bytes + 4"), "copy", "20 bytes of device memory expected"},
      {"context.cuh", copy, with(copy, "DeviceToDevice", "DeviceToHost"), "copy",
       "the destination is said to be the host's"},
      {"context.cuh", copy, with(copy, "context.stream()", "nullptr"), "copy", "work on the default stream"},
      {"device.cuh", "GRAVEN_CUDA(cudaMallocHost(&data_, bytes));", "data_ = std::malloc(bytes);", "recorded copy",
       "a copy of pageable memory while this thread records a graph"},
      {"event_clock.cuh", "context_->synchronize();", ";", "clock", "cudaErrorNotReady"},
      {"fastest.cuh", "GRAVEN_CUDA(cudaEventSynchronize(end.event));", ";", "measured product", "cudaErrorNotReady"},
      // What the library for products is given.
      {"cublas_lt.cuh", product, with(product, "workspace_bytes", "workspace_bytes / 2"), "product",
       "a workspace of 2048 bytes for an algorithm that takes 4096"},
      {"cublas_lt.cuh", "context.rehearses() ? kWorkspaceBytes : plan.workspace_bytes", "plan.workspace_bytes / 2",
       "product", "cublasLtMatmul, workspace: 4096 bytes of device memory expected"},
      {"cublas_lt.cuh", product, with(product, " workspace,", " static_cast<char*>(workspace) + 16,"), "product",
       "cublasLtMatmul, workspace: 4096 bytes of device memory expected"},
      {"cublas_lt.cuh", product, with(product, "c, plan.c, c,", "c, plan.c, c + 1,"), "product",
       "cublasLtMatmul, D: 60 bytes of device memory expected"},
      {"cublas_lt.cuh", product, with(product, "context.stream()", "nullptr"), "product", "work on the default stream"},
      {"cublas_lt.cuh", product, with(product, "&one", "b"), "product", "alpha and beta are read by the host"},
      {"cublas_lt.cuh", product, with(product, "a, plan.a, &times, c", "c, plan.a, &times, c"), "product",
       "cublasLtMatmul: D lies upon B"},
      {"cublas_lt.cuh", layout, with(layout, "leading : columns", "leading : columns - 1"), "product",
       "a leading dimension of 3 for columns of 4"},
      {"cublas_lt.cuh", "s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N", "s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N",
       "product", "op(A) of 4x5 times op(B) of 4x3"},
      {"cublas_lt.cuh", layout_of_c, with(layout_of_c, "s.c_stride", "s.c_stride - 1"), "product of a batch",
       "the results of a batch lie upon each other"},
      {"cublas_lt.cuh", "while (addresses % alignment != 0) alignment /= 2;", ";",
       "product of matrices that lie anywhere", "chosen for an alignment of 256 bytes, and B lies elsewhere"},
      {"cublas_lt.cuh", "std::exchange(other.made_, nullptr)", "other.made_", "product", "is used that was destroyed"},
      {"cublas_lt.cuh", "set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);",
       "set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(&context));",
       "product with a bias", "cublasLtMatmul, bias: 20 bytes of device memory expected"},
      // What the library for convolutions is given.
      {"cudnn.cuh", "std::vector<std::int64_t>{c * h * w, 1, w * c, c}",
       "std::vector<std::int64_t>{c * h * w, h * w, w, 1}", "convolution", "a convolution is "},
      {"cudnn.cuh", "std::vector<std::int64_t>{c * h * w, 1, w * c, c}",
       "std::vector<std::int64_t>{c * h * w, 1, w * c, c + 1}", "convolution", "bytes of device memory expected"},
      {"cudnn.cuh", "tensor(weights, convolution, {s.out_channels, in, s.kernel_height, s.kernel_width})",
       "tensor(weights, convolution, {in, s.out_channels, s.kernel_height, s.kernel_width})", "convolution",
       "channels do not divide the image's"},
      {"cudnn.cuh", "std::vector{s.padding_height, s.padding_width}",
       "std::vector{s.padding_height, s.padding_width + 1}", "convolution", "y has another height or width"},
      {"cudnn.cuh", "std::vector{workspace}", "std::vector{static_cast<void*>(static_cast<char*>(workspace) + 512)}",
       "convolution", "cudnnBackendExecute, workspace: 4096 bytes of device memory expected"},
      {"cudnn.cuh", "std::vector{o.image, o.weights, o.output}",
       "std::vector{o.image, static_cast<const void*>(&o), o.output}", "convolution",
       "tensor 2: 720 bytes of device memory expected"},
      {"cudnn.cuh", "pointers.push_back(o.bias);", "pointers.push_back(o.output);", "convolution",
       "the result lies upon another operand"},
      {"cudnn.cuh", "ids.push_back(CudnnGraph::bias);", "ids.push_back(CudnnGraph::between);", "convolution",
       "tensor 4 is not among the arguments"},
      {"cudnn.cuh", "library_->set_stream(handle_, context.stream())", "library_->set_stream(handle_, nullptr)",
       "convolution", "work on the default stream"},
      {"cudnn.cuh", "note == CudnnLibrary::differs_each_time", "false", "convolution", "a convolution is "},
      {"cudnn.cuh", "bytes > kMostWorkspaceBytes", "false", "convolution", "CUDA: out of memory"},
      {"cudnn.cuh", "std::exchange(other.made_, nullptr)", "other.made_", "convolution", "is used that was destroyed"},
      {"conv2d_cudnn.cuh", "operands % static_cast<std::uintptr_t>(alignment) != 0", "false",
       "convolution of an image that lies anywhere", "lies elsewhere than at a multiple of 16"},
      {"conv2d_cudnn.cuh", "of_weights + plan->workspace_bytes()", "of_weights", "convolution",
       "cudnnBackendExecute, workspace: 4096 bytes of device memory expected"},
      // What ranks send each other.
      {"nccl.cuh", send, with(send, "from + r * bytes", "from + rank() * bytes"), "layouts of two ranks", "a sum is "},
      {"nccl.cuh", send, ";", "layouts of two ranks", "receives what this one sends not"},
      {"nccl.cuh", send, with(send, "stream", "nullptr"), "layouts of two ranks", "a group on two streams"},
      {"nccl.cuh", receive, with(receive, "Nccl::bytes, r,", "Nccl::bytes, rank(),"), "layouts of two ranks",
       "receives not what this one sends"},
      {"nccl.cuh", receive, with(receive, "count", "count / 2"), "layouts of two ranks", "by ncclRecv of 64 of type 1"},
      {"nccl.cuh", "copy_on_device(group_.context(), to + rank() * bytes, from + rank() * bytes, count);", ";",
       "layouts of two ranks", "a sum is NaN"},
      {"nccl.cuh", "beside_->done.order(stream(), group_.context().stream());", ";", "means of two ranks",
       "a mean is "},
      {"nccl.cuh", "to.ready.order(context_.stream(), to.stream.get());", ";", "stages of two ranks", "a value is "},
      {"nccl.cuh", "from.ready.order(context_.stream(), from.stream.get());", ";", "stages of two ranks",
       "a value is "},
      {"nccl.cuh", "from->arrived.order(from->stream.get(), context_.stream());", ";", "stages of two ranks",
       "a value is "},
      {"nccl.cuh", "GRAVEN_CUDA(cudaStreamWaitEvent(context_.stream(), to->done.at(slot)->get(), 0));", ";",
       "stages of two ranks", "a value is "},
      {"convert_layout.cuh", "among * ranks + rank + row", "among * ranks + rank", "layouts of two ranks", "a sum is "},
  };
}

/// Each stands in the text of one program as what is done where its number is asked for: it is compiled once.
TEST(PlantedFaults, EveryFaultInTheText) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "tests/cuda_on_cpu/planted";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy(fs::path(GRAVEN_SOURCE_DIR) / "kernels", folder / "kernels", fs::copy_options::recursive);
  const std::vector<Fault> all = faults();
  std::map<std::pair<std::string, std::string>, std::string> choices;  // of a text: "planted_fault == 3 ? ... : "
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    choices[{all[i].file, all[i].found}] +=
        all[i].found.ends_with(';') ? "if (planted_fault == " + number + ") {" + all[i].replacement + "} else "
                                    : "planted_fault == " + number + " ? (" + all[i].replacement + ") : ";
  }
  std::map<std::string, std::string> texts;
  for (const auto& [place, choice] : choices) {
    const auto& [file, found] = place;
    if (texts.count(file) == 0) texts[file] = graven::read_text(kKernels / file);
    std::string& text = texts[file];
    const std::size_t at = text.find(found);
    ASSERT_NE(at, std::string::npos) << file << " has no\n" << found;
    ASSERT_EQ(text.find(found, at + 1), std::string::npos) << file << " has more than one\n" << found;
    text.replace(at, found.size(),
                 found.ends_with(';') ? "{" + choice + "{" + found + "}}" : "(" + choice + "(" + found + "))");
  }
  for (const auto& [file, text] : texts) std::ofstream(folder / "kernels/cuda" / file) << text;
  std::ofstream(folder / "planted_fault.h") << "extern int planted_fault;\n";
  const fs::path source = fs::path(GRAVEN_SOURCE_DIR) / "tests/cuda_on_cpu";
  const std::string program = (folder / "planted").string();
  const std::string compiled = output_of(GRAVEN_CXX " -std=c++20 -w -O0 -g1 -fsanitize=thread -include '" +
                                         (folder / "planted_fault.h").string() + "' -I'" + folder.string() + "' -I'" +
                                         (source / "include").string() + "' -c -o '" + program + ".o' '" +
                                         (source / "planted/main.cpp").string() + "' && " GRAVEN_CXX " -rdynamic -o '" +
                                         program + "' '" + program + ".o' '" GRAVEN_EMULATOR "' -lpthread -ldl");
  ASSERT_EQ(compiled, "");
  const std::string libraries = "LD_LIBRARY_PATH='" GRAVEN_STAND_INS "' ";
  EXPECT_EQ(output_of(libraries + "'" + program + "'"), "as expected\n");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Fault& fault = all[i];
    const std::string refuse = fault.report == "work on the default stream" ? "CUDA_ON_CPU_DEFAULT_STREAM=refuse " : "";
    // Whether a message between two processes overtakes what it should wait for, is chance: several runs are looked at.
    std::string output;
    for (int run = 0; run < 5 && output.find(fault.report) == std::string::npos; ++run)
      output = output_of(libraries + refuse + "'" + program + "' " + std::to_string(i + 1) + " '" + fault.use + "'");
    EXPECT_NE(output.find(fault.report), std::string::npos)
        << fault.use << " with\n"
        << fault.replacement << "\nin " << fault.file << " in the place of\n"
        << fault.found << "\nsays\n"
        << output << "and not\n"
        << fault.report;
  }
}

}  // namespace
