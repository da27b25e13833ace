// cudnn: convolutions by cuDNN, by the backend interface of its version 9, which is opened when the first one asks for
// it. It is never needed: without it, and for what it has no plan for, conv2d.cuh has ways of its own.
//
//   Cudnn& cudnn = context.library<Cudnn>();
//   const Cudnn::Plan* plan = cudnn.plan(context, {.result = CudnnResult::y, .shape = config, ...});   // or nullptr
//   cudnn.run(context, *plan, {.image = x, .weights = w, .output = y}, scratch);   // plan->workspace_bytes()
//
// A convolution, what it is the gradient of, its types and what is fused become a graph of the library's operations.
// Of the engines that the library recommends for it, those are taken that add up in float, in the same order each time;
// of these the first that has a plan of at most kMostWorkspaceBytes, or the one that a config names, or the fastest
// (ProductScope, cublas_lt.cuh). The same plan gives the same bits on every run on a device with the same libraries.
// Plans are made when calls are rehearsed and take milliseconds each, or a second where an engine is compiled for it.
//
// Names, numbers and what a graph may be: https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/
#pragma once

#include "../config/conv2d.h"
#include "../cpu/dtype.h"
#include "context.cuh"
#include "cublas_lt.cuh"
#include "fastest.cuh"

#ifndef __CUDACC_RTC__
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace graven::kernels {

/// The library's functions, and its numbers for what they are told.
class CudnnLibrary {
 public:
  struct Handle;
  using Descriptor = void*;
  enum class Made : int {
    pointwise = 0,
    convolution = 1,
    engine = 2,
    engine_config = 3,
    engine_heuristic = 4,
    plan = 5,
    forward = 10,
    backward_weight = 11,
    backward_input = 12,
    pointwise_operation = 13,
    graph = 15,
    arguments = 16,
    tensor = 17,
    device_properties = 38
  };
  enum class Attribute : int {
    pointwise_mode = 0,
    pointwise_compute_type = 1,
    convolution_compute_type = 100,
    convolution_mode = 101,
    convolution_dilations = 102,
    convolution_strides = 103,
    convolution_padding_behind = 104,
    convolution_padding_before = 105,
    convolution_dimensions = 106,
    heuristic_mode = 200,
    heuristic_graph = 201,
    heuristic_results = 202,
    heuristic_device = 204,
    config_engine = 300,
    plan_handle = 400,
    plan_config = 401,
    plan_workspace_bytes = 402,
    plan_device = 407,
    forward_alpha = 700,
    forward_beta = 701,
    forward_convolution = 702,
    forward_weights = 703,
    forward_image = 704,
    forward_output = 705,
    backward_input_alpha = 706,
    backward_input_beta = 707,
    backward_input_convolution = 708,
    backward_input_weights = 709,
    backward_input_image = 710,
    backward_input_output = 711,
    backward_weight_alpha = 712,
    backward_weight_beta = 713,
    backward_weight_convolution = 714,
    backward_weight_weights = 715,
    backward_weight_image = 716,
    backward_weight_output = 717,
    pointwise_operation_of = 750,
    pointwise_operation_x = 751,
    pointwise_operation_b = 752,
    pointwise_operation_y = 753,
    graph_handle = 800,
    graph_operations = 801,
    tensor_alignment = 900,
    tensor_type = 901,
    tensor_dimensions = 902,
    tensor_strides = 903,
    tensor_id = 906,
    tensor_is_virtual = 907,
    arguments_ids = 1000,
    arguments_pointers = 1001,
    arguments_workspace = 1003,
    engine_notes = 1303,
    device_properties_json = 2702
  };
  enum class Type : int {
    handle = 0,
    data_type = 1,
    boolean = 2,
    int64 = 3,
    float32 = 4,
    pointer = 6,
    convolution_mode = 7,
    heuristic_mode = 8,
    numerical_note = 11,
    pointwise_mode = 14,
    descriptor = 15,
    character = 24
  };
  enum DataType : int { float32 = 0, float16 = 2, bfloat16 = 9 };
  enum PointwiseMode : int { add = 0, relu = 100 };
  enum HeuristicMode : int { fallback = 2, recommended = 3 };
  /// Of an engine. What is behind the last of these is about speed, or about numbers that are none.
  enum NumericalNote : int { down_converts_inputs = 1, adds_up_in_less = 2, differs_each_time = 4 };
  static constexpr int kCrossCorrelation = 1;

  /// Nullptr where it is not there, or too old: then why() says so.
  static const CudnnLibrary* find() {
    const CudnnLibrary& l = opened();
    return l.why_.empty() ? &l : nullptr;
  }
  static const std::string& why() { return opened().why_; }
  /// How it is opened, or why it cannot be. A program may have its own way, before anything has asked for it.
  static inline void* (*open)(std::string& why) = [](std::string& why) {
    void* const library = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    const char* const reason = library == nullptr ? ::dlerror() : nullptr;
    if (reason != nullptr) why = reason;
    return library;
  };

  int (*create)(Handle**);
  int (*destroy)(Handle*);
  int (*set_stream)(Handle*, cudaStream_t);
  int (*create_descriptor)(Made, Descriptor*);
  int (*destroy_descriptor)(Descriptor);
  int (*set_attribute)(Descriptor, Attribute, Type, std::int64_t count, const void* values);
  int (*get_attribute)(Descriptor, Attribute, Type, std::int64_t room, std::int64_t* count, void* values);
  int (*finalize)(Descriptor);
  int (*execute)(Handle*, Descriptor plan, Descriptor arguments);
  const char* (*error_text)(int);

  void check(int result, const char* call, const char* file, int line) const {
    if (result != 0) throw_cuda_error("cuDNN", error_text(result), call, file, line);
  }

 private:
  CudnnLibrary() {
    std::string reason = "no reason is given";
    void* const library = open(reason);
    if (library == nullptr) {
      why_ = "libcudnn.so.9 cannot be opened (" + reason + ")";
      return;
    }
    find_function(library, "cudnnCreate", create);
    find_function(library, "cudnnDestroy", destroy);
    find_function(library, "cudnnSetStream", set_stream);
    find_function(library, "cudnnBackendCreateDescriptor", create_descriptor);
    find_function(library, "cudnnBackendDestroyDescriptor", destroy_descriptor);
    find_function(library, "cudnnBackendSetAttribute", set_attribute);
    find_function(library, "cudnnBackendGetAttribute", get_attribute);
    find_function(library, "cudnnBackendFinalize", finalize);
    find_function(library, "cudnnBackendExecute", execute);
    find_function(library, "cudnnGetErrorString", error_text);
  }
  static const CudnnLibrary& opened() {
    static const CudnnLibrary library;
    return library;
  }
  template <class F>
  void find_function(void* library, const char* name, F& function) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr && why_.empty()) why_ = std::string("libcudnn.so.9 has no ") + name;
    std::memcpy(&function, &found, sizeof found);
  }

  std::string why_;
};

/// What is computed: the convolution, or the gradient of its input or of its weights.
enum class CudnnResult : int { y, dx, dw };

/// What a graph of the library's operations computes. Images lie as NHWC, weights and their gradient, of the same type,
/// as [out_channels, kernel_height, kernel_width, in_channels / groups].
struct CudnnConvolution {
  CudnnResult result = CudnnResult::y;
  conv2d_config shape = {};
  CudnnLibrary::DataType type = CudnnLibrary::float32;
  bool adds_bias = false, applies_relu = false;  ///< of y alone
  std::int64_t alignment = 16;                   ///< of all operands, in bytes

  auto key() const {
    const conv2d_config& s = shape;
    return std::tuple(result, type, adds_bias, applies_relu, alignment, s.batch, s.in_height, s.in_width, s.in_channels,
                      s.out_height, s.out_width, s.out_channels, s.kernel_height, s.kernel_width, s.stride_height,
                      s.stride_width, s.padding_height, s.padding_width, s.dilation_height, s.dilation_width, s.groups);
  }
};

/// Where they lie. `image` is x or dx, `output` is y or dy.
struct CudnnOperands {
  const void *image = nullptr, *weights = nullptr, *output = nullptr, *bias = nullptr;
};

/// What the library makes, with its owner.
class CudnnDescriptor {
 public:
  using Attribute = CudnnLibrary::Attribute;
  using Type = CudnnLibrary::Type;

  CudnnDescriptor(const CudnnLibrary& library, CudnnLibrary::Made what) : library_(&library) {
    library.check(library.create_descriptor(what, &made_), "cudnnBackendCreateDescriptor", __FILE__, __LINE__);
  }
  ~CudnnDescriptor() {
    if (made_ != nullptr) (void)library_->destroy_descriptor(made_);
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : library_(other.library_), made_(std::exchange(other.made_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  template <class Value>
  void set(Attribute attribute, Type type, const std::vector<Value>& values) const {
    check(library_->set_attribute(made_, attribute, type, static_cast<std::int64_t>(values.size()), values.data()));
  }
  void set(Attribute attribute, bool value) const {
    check(library_->set_attribute(made_, attribute, Type::boolean, 1, &value));
  }
  void set(Attribute attribute, const CudnnDescriptor& value) const {
    set(attribute, Type::descriptor, std::vector{value.made_});
  }
  void finalize() const { library_->check(library_->finalize(made_), "cudnnBackendFinalize", __FILE__, __LINE__); }
  /// Whether the library takes it.
  bool is_possible() const { return library_->finalize(made_) == 0; }

  CudnnLibrary::Descriptor get() const { return made_; }

 private:
  void check(int result) const { library_->check(result, "cudnnBackendSetAttribute", __FILE__, __LINE__); }

  const CudnnLibrary* library_;
  CudnnLibrary::Descriptor made_ = nullptr;
};

/// A graph of the library's operations for a convolution, and the plans that are recommended for it.
class CudnnGraph {
 public:
  static constexpr std::int64_t kMostWorkspaceBytes = std::int64_t{1} << 30;
  enum Id : std::int64_t { image = 1, weights, output, bias, between, with_bias };

  struct Plan {
    CudnnDescriptor config, plan;
    std::int64_t workspace_bytes;
  };

  /// CudaError where the library does not take it at all. Without a handle, which the first versions want, it is for
  /// devices that are described alone.
  CudnnGraph(const CudnnLibrary& library, CudnnLibrary::Handle* handle, const CudnnConvolution& convolution)
      : library_(library), handle_(handle) {
    using A = CudnnLibrary::Attribute;
    const conv2d_config& s = convolution.shape;
    const std::int64_t in = s.in_channels / s.groups;
    const auto& x = tensor(image, convolution, {s.batch, s.in_channels, s.in_height, s.in_width});
    const auto& w = tensor(weights, convolution, {s.out_channels, in, s.kernel_height, s.kernel_width});
    const std::array<std::int64_t, 4> y_sizes{s.batch, s.out_channels, s.out_height, s.out_width};
    const auto& y = tensor(output, convolution, y_sizes);

    const auto& how = make(CudnnLibrary::Made::convolution);
    how.set(A::convolution_dimensions, CudnnLibrary::Type::int64, std::vector<std::int64_t>{2});
    how.set(A::convolution_compute_type, CudnnLibrary::Type::data_type, std::vector{CudnnLibrary::float32});
    how.set(A::convolution_mode, CudnnLibrary::Type::convolution_mode, std::vector{CudnnLibrary::kCrossCorrelation});
    const auto padding = std::vector{s.padding_height, s.padding_width};
    how.set(A::convolution_padding_before, CudnnLibrary::Type::int64, padding);
    how.set(A::convolution_padding_behind, CudnnLibrary::Type::int64, padding);
    how.set(A::convolution_dilations, CudnnLibrary::Type::int64, std::vector{s.dilation_height, s.dilation_width});
    how.set(A::convolution_strides, CudnnLibrary::Type::int64, std::vector{s.stride_height, s.stride_width});
    how.finalize();

    switch (convolution.result) {
      case CudnnResult::y: {
        // What lies between the operations is nowhere in memory.
        CudnnConvolution inner = convolution;
        inner.type = CudnnLibrary::float32;
        const CudnnDescriptor* last = &y;
        if (convolution.adds_bias || convolution.applies_relu) last = &tensor(between, inner, y_sizes, true);
        convolve(CudnnLibrary::Made::forward,
                 {A::forward_image, A::forward_weights, A::forward_output, A::forward_convolution, A::forward_alpha,
                  A::forward_beta},
                 x, w, *last, how);
        if (convolution.adds_bias) {
          const auto& added = tensor(bias, convolution, {1, s.out_channels, 1, 1});
          const auto& sum = convolution.applies_relu ? tensor(with_bias, inner, y_sizes, true) : y;
          pointwise(CudnnLibrary::add, *last, &added, sum);
          last = &sum;
        }
        if (convolution.applies_relu) pointwise(CudnnLibrary::relu, *last, nullptr, y);
        break;
      }
      case CudnnResult::dx:
        convolve(CudnnLibrary::Made::backward_input,
                 {A::backward_input_image, A::backward_input_weights, A::backward_input_output,
                  A::backward_input_convolution, A::backward_input_alpha, A::backward_input_beta},
                 x, w, y, how);
        break;
      case CudnnResult::dw:
        convolve(CudnnLibrary::Made::backward_weight,
                 {A::backward_weight_image, A::backward_weight_weights, A::backward_weight_output,
                  A::backward_weight_convolution, A::backward_weight_alpha, A::backward_weight_beta},
                 x, w, y, how);
        break;
    }
    const auto& graph = make(CudnnLibrary::Made::graph);
    graph.set(A::graph_operations, CudnnLibrary::Type::descriptor, operations_);
    if (handle_ != nullptr) graph.set(A::graph_handle, CudnnLibrary::Type::handle, std::vector{handle_});
    graph.finalize();
    graph_ = graph.get();
  }

  /// The first `most` of those that are recommended and taken (see above). `device`: the properties of one that need
  /// not be there; nullptr: the current one.
  std::vector<Plan> plans(int most, const CudnnDescriptor* device = nullptr) const {
    std::vector<Plan> result;
    for (const auto mode : {CudnnLibrary::recommended, CudnnLibrary::fallback}) {
      if (!result.empty()) break;
      const CudnnDescriptor heuristic(library_, CudnnLibrary::Made::engine_heuristic);
      using A = CudnnLibrary::Attribute;
      heuristic.set(A::heuristic_graph, CudnnLibrary::Type::descriptor, std::vector{graph_});
      heuristic.set(A::heuristic_mode, CudnnLibrary::Type::heuristic_mode, std::vector{mode});
      if (device != nullptr) heuristic.set(A::heuristic_device, *device);
      std::int64_t count = 0;
      if (!heuristic.is_possible() || library_.get_attribute(heuristic.get(), A::heuristic_results,
                                                             CudnnLibrary::Type::descriptor, 0, &count, nullptr) != 0)
        continue;
      std::vector<CudnnDescriptor> configs;
      std::vector<CudnnLibrary::Descriptor> places;
      for (std::int64_t i = 0; i < count; ++i) {
        configs.emplace_back(library_, CudnnLibrary::Made::engine_config);
        places.push_back(configs.back().get());
      }
      if (count == 0 || library_.get_attribute(heuristic.get(), A::heuristic_results, CudnnLibrary::Type::descriptor,
                                               count, &count, places.data()) != 0)
        continue;
      for (std::int64_t i = 0; i < count && result.size() < static_cast<std::size_t>(most); ++i) {
        CudnnDescriptor& config = configs[static_cast<std::size_t>(i)];
        if (!is_exact(config)) continue;
        CudnnDescriptor plan(library_, CudnnLibrary::Made::plan);
        plan.set(A::plan_config, config);
        if (handle_ != nullptr) plan.set(A::plan_handle, CudnnLibrary::Type::handle, std::vector{handle_});
        if (device != nullptr) plan.set(A::plan_device, *device);
        std::int64_t bytes = 0, one = 0;
        if (!plan.is_possible() ||
            library_.get_attribute(plan.get(), A::plan_workspace_bytes, CudnnLibrary::Type::int64, 1, &one, &bytes) !=
                0 ||
            bytes > kMostWorkspaceBytes)
          continue;
        result.push_back({std::move(config), std::move(plan), bytes});
      }
    }
    return result;
  }

 private:
  struct Names {
    CudnnLibrary::Attribute image, weights, output, convolution, alpha, beta;
  };

  const CudnnDescriptor& make(CudnnLibrary::Made what) {
    made_.push_back(std::make_unique<CudnnDescriptor>(library_, what));
    return *made_.back();
  }
  /// `sizes` by the library's names, [N, C, H, W] or [K, C, R, S]; channels lie side by side.
  const CudnnDescriptor& tensor(Id id, const CudnnConvolution& of, const std::array<std::int64_t, 4>& sizes,
                                bool is_virtual = false) {
    using A = CudnnLibrary::Attribute;
    const auto [n, c, h, w] = sizes;
    const auto& made = make(CudnnLibrary::Made::tensor);
    made.set(A::tensor_type, CudnnLibrary::Type::data_type, std::vector{of.type});
    made.set(A::tensor_dimensions, CudnnLibrary::Type::int64, std::vector{n, c, h, w});
    made.set(A::tensor_strides, CudnnLibrary::Type::int64, std::vector<std::int64_t>{c * h * w, 1, w * c, c});
    made.set(A::tensor_id, CudnnLibrary::Type::int64, std::vector<std::int64_t>{id});
    made.set(A::tensor_alignment, CudnnLibrary::Type::int64, std::vector{of.alignment});
    made.set(A::tensor_is_virtual, is_virtual);
    made.finalize();
    return made;
  }
  void convolve(CudnnLibrary::Made what, const Names& names, const CudnnDescriptor& x, const CudnnDescriptor& w,
                const CudnnDescriptor& y, const CudnnDescriptor& how) {
    const auto& operation = make(what);
    operation.set(names.image, x);
    operation.set(names.weights, w);
    operation.set(names.output, y);
    operation.set(names.convolution, how);
    operation.set(names.alpha, CudnnLibrary::Type::float32, std::vector{1.0f});
    operation.set(names.beta, CudnnLibrary::Type::float32, std::vector{0.0f});
    operation.finalize();
    operations_.push_back(operation.get());
  }
  void pointwise(CudnnLibrary::PointwiseMode mode, const CudnnDescriptor& x, const CudnnDescriptor* b,
                 const CudnnDescriptor& y) {
    using A = CudnnLibrary::Attribute;
    const auto& how = make(CudnnLibrary::Made::pointwise);
    how.set(A::pointwise_mode, CudnnLibrary::Type::pointwise_mode, std::vector{mode});
    how.set(A::pointwise_compute_type, CudnnLibrary::Type::data_type, std::vector{CudnnLibrary::float32});
    how.finalize();
    const auto& operation = make(CudnnLibrary::Made::pointwise_operation);
    operation.set(A::pointwise_operation_of, how);
    operation.set(A::pointwise_operation_x, x);
    if (b != nullptr) operation.set(A::pointwise_operation_b, *b);
    operation.set(A::pointwise_operation_y, y);
    operation.finalize();
    operations_.push_back(operation.get());
  }
  /// Whether it adds up in float, in one order.
  bool is_exact(const CudnnDescriptor& config) const {
    using A = CudnnLibrary::Attribute;
    const CudnnDescriptor engine(library_, CudnnLibrary::Made::engine);
    CudnnLibrary::Descriptor place = engine.get();
    std::int64_t count = 0;
    if (library_.get_attribute(config.get(), A::config_engine, CudnnLibrary::Type::descriptor, 1, &count, &place) != 0)
      return false;
    std::array<int, 32> notes{};
    if (library_.get_attribute(engine.get(), A::engine_notes, CudnnLibrary::Type::numerical_note, notes.size(), &count,
                               notes.data()) != 0)
      return false;
    for (std::int64_t i = 0; i < count; ++i)
      if (const int note = notes[static_cast<std::size_t>(i)]; note == CudnnLibrary::down_converts_inputs ||
                                                               note == CudnnLibrary::adds_up_in_less ||
                                                               note == CudnnLibrary::differs_each_time)
        return false;
    return true;
  }

  const CudnnLibrary& library_;
  CudnnLibrary::Handle* handle_;
  std::vector<std::unique_ptr<CudnnDescriptor>> made_;
  std::vector<CudnnLibrary::Descriptor> operations_;
  CudnnLibrary::Descriptor graph_ = nullptr;
};

/// What the library calls an element type.
template <class T>
inline constexpr CudnnLibrary::DataType cudnn_type = CudnnLibrary::float32;
template <>
inline constexpr CudnnLibrary::DataType cudnn_type<half> = CudnnLibrary::float16;
template <>
inline constexpr CudnnLibrary::DataType cudnn_type<bfloat16> = CudnnLibrary::bfloat16;

/// A device's handle of the library, and for each convolution the chosen plan.
class Cudnn {
 public:
  static constexpr int slot = 2;

  struct Plan {
    CudnnGraph graph;  ///< that it is a plan of
    CudnnGraph::Plan chosen;
    /// By the addresses, which are the same from step to step.
    std::map<std::array<const void*, 5>, CudnnDescriptor> arguments = {};
    std::size_t workspace_bytes() const { return static_cast<std::size_t>(chosen.workspace_bytes); }
  };

  explicit Cudnn(cudaStream_t) : library_(CudnnLibrary::find()) {
    if (library_ == nullptr) {
      say<Note::no_library>(CudnnLibrary::why() + "; cuDNN 9 is installed with or beside the CUDA toolkit");
    } else if (const int result = library_->create(&handle_); result != 0) {
      say<Note::no_handle>(std::string("cudnnCreate gives ") + library_->error_text(result));
      library_ = nullptr;
    }
  }
  ~Cudnn() {
    plans_.clear();
    if (handle_ != nullptr) (void)library_->destroy(handle_);
  }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  /// Nullptr where the library has none, or is not there.
  Plan* plan(CudaContext& context, const CudnnConvolution& convolution) {
    if (library_ == nullptr) return nullptr;
    const CublasLt::Settings& settings = context.library<CublasLt>().settings();
    const Key key{convolution.key(), settings.measured, settings.algorithm};
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      found = plans_.emplace(key, make(context, convolution, settings)).first;
      if (found->second == nullptr) say<Note::no_plan>("it has no plan for " + text_of(convolution));
    }
    return found->second.get();
  }

  /// `workspace`: plan.workspace_bytes() of the device's memory.
  void run(CudaContext& context, Plan& plan, const CudnnOperands& operands, void* workspace) const {
    if (context.rehearses()) return;
    set_stream(context);
    check(library_->execute(handle_, plan.chosen.plan.get(), arguments(plan, operands, workspace).get()),
          "cudnnBackendExecute", __LINE__);
  }

 private:
  using Key = std::tuple<decltype(CudnnConvolution{}.key()), bool, std::int64_t>;
  static constexpr int kMeasured = 8;                ///< plans that are tried where they are measured
  static constexpr std::size_t kMostArguments = 64;  ///< that are kept of a plan

  enum class Note { no_library, no_handle, no_plan };

  /// Once of each kind: what is slower than it might be is otherwise not seen.
  template <Note>
  static void say(const std::string& why) {
    static const int written = std::fprintf(
        stderr, "note: convolutions of half types, or in TF32, are computed without cuDNN, which is slower: %s\n",
        why.c_str());
    (void)written;
  }
  static std::string text_of(const CudnnConvolution& c) {
    const conv2d_config& s = c.shape;
    const auto list = [](std::initializer_list<std::int64_t> sizes) {
      std::string text;
      for (const std::int64_t size : sizes) text += (text.empty() ? "[" : ",") + std::to_string(size);
      return text + "]";
    };
    return std::string(c.result == CudnnResult::y    ? "images "
                       : c.result == CudnnResult::dx ? "the gradient of images "
                                                     : "the gradient of weights, with images ") +
           list({s.batch, s.in_height, s.in_width, s.in_channels}) + " and weights " +
           list({s.out_channels, s.in_channels / s.groups, s.kernel_height, s.kernel_width}) +
           (c.type == CudnnLibrary::float32    ? " in TF32"
            : c.type == CudnnLibrary::bfloat16 ? " in bf16"
                                               : " in f16");
  }
  void check(int result, const char* call, int line) const { library_->check(result, call, __FILE__, line); }

  void set_stream(const CudaContext& context) const {
    check(library_->set_stream(handle_, context.stream()), "cudnnSetStream", __LINE__);
  }

  std::unique_ptr<Plan> make(CudaContext& context, const CudnnConvolution& convolution,
                             const CublasLt::Settings& settings) const {
    const int most = settings.measured ? kMeasured : static_cast<int>(settings.algorithm) + 1;
    try {
      CudnnGraph graph(*library_, handle_, convolution);
      std::vector<CudnnGraph::Plan> plans = graph.plans(most);
      if (plans.empty()) return nullptr;
      std::size_t chosen = plans.size() - 1;
      if (settings.measured && plans.size() > 1) chosen = fastest(context, convolution, plans);
      return std::unique_ptr<Plan>(new Plan{.graph = std::move(graph), .chosen = std::move(plans[chosen])});
    } catch (const CudaError&) {  // no graph that this version knows
      return nullptr;
    }
  }

  std::size_t fastest(CudaContext& context, const CudnnConvolution& convolution,
                      const std::vector<CudnnGraph::Plan>& plans) const {
    const conv2d_config& s = convolution.shape;
    const std::size_t width = convolution.type == CudnnLibrary::float32 ? sizeof(float) : sizeof(half);
    const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * width; };
    std::int64_t most = 0;
    for (const CudnnGraph::Plan& plan : plans)
      if (plan.workspace_bytes > most) most = plan.workspace_bytes;
    const DeviceBuffer image(bytes(s.batch * s.in_height * s.in_width * s.in_channels)),
        weights(bytes(s.out_channels * (s.in_channels / s.groups) * s.kernel_height * s.kernel_width)),
        output(bytes(s.batch * s.out_height * s.out_width * s.out_channels)), bias(bytes(s.out_channels)),
        workspace(static_cast<std::size_t>(most));
    for (const DeviceBuffer* operand : {&image, &weights, &output, &bias})
      GRAVEN_CUDA(cudaMemsetAsync(operand->data(), 0, operand->bytes(), context.stream()));
    set_stream(context);
    const CudnnDescriptor pack = arguments({.image = image.data(),
                                            .weights = weights.data(),
                                            .output = output.data(),
                                            .bias = convolution.adds_bias ? bias.data() : nullptr},
                                           workspace.data());
    const int place = fastest_of(context.stream(), static_cast<int>(plans.size()), [&](int i) {
      return library_->execute(handle_, plans[static_cast<std::size_t>(i)].plan.get(), pack.get()) == 0;
    });
    return static_cast<std::size_t>(place);
  }

  const CudnnDescriptor& arguments(Plan& plan, const CudnnOperands& o, void* workspace) const {
    const std::array<const void*, 5> places{o.image, o.weights, o.output, o.bias, workspace};
    auto found = plan.arguments.find(places);
    if (found == plan.arguments.end()) {
      if (plan.arguments.size() == kMostArguments) plan.arguments.clear();
      found = plan.arguments.emplace(places, arguments(o, workspace)).first;
    }
    return found->second;
  }
  CudnnDescriptor arguments(const CudnnOperands& o, void* workspace) const {
    using A = CudnnLibrary::Attribute;
    std::vector<std::int64_t> ids{CudnnGraph::image, CudnnGraph::weights, CudnnGraph::output};
    auto pointers = std::vector{o.image, o.weights, o.output};
    if (o.bias != nullptr) {
      ids.push_back(CudnnGraph::bias);
      pointers.push_back(o.bias);
    }
    CudnnDescriptor pack(*library_, CudnnLibrary::Made::arguments);
    pack.set(A::arguments_ids, CudnnLibrary::Type::int64, ids);
    pack.set(A::arguments_pointers, CudnnLibrary::Type::pointer, pointers);
    pack.set(A::arguments_workspace, CudnnLibrary::Type::pointer, std::vector{workspace});
    pack.finalize();
    return pack;
  }

  const CudnnLibrary* library_;
  CudnnLibrary::Handle* handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
