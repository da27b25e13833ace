// Stands in for cuDNN (libcudnn.so.9): the backend interface of version 9, for convolutions of four-dimensional tensors
// and the additions and ReLUs behind them, by plain loops on the emulated device of the program that opens it.
//
// A graph has engines that the library would not recommend for every purpose, too: one whose sums differ each time, one
// that adds up in less than float, one that no plan can be made of; then as many as cuda_on_cpu::algorithms() has,
// which take so long. CUDNN_STAND_IN in the environment: `unsupported`, no graph has a plan; `uninitialized`, there is
// no handle.
//
// What the library refuses is refused by its status, and stderr says why; what it would do unseen is a Failure.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda_on_cpu/numbers.h"
#include "cuda_runtime.h"

namespace {

using cuda_on_cpu::Failure;

// As the library's documentation lists them.
enum Status {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_NOT_SUPPORTED = 3000
};
enum Kind {
  POINTWISE = 0,
  CONVOLUTION = 1,
  ENGINE = 2,
  ENGINECFG = 3,
  ENGINEHEUR = 4,
  EXECUTION_PLAN = 5,
  CONVOLUTION_FORWARD = 10,
  CONVOLUTION_BACKWARD_FILTER = 11,
  CONVOLUTION_BACKWARD_DATA = 12,
  OPERATION_POINTWISE = 13,
  OPERATIONGRAPH = 15,
  VARIANT_PACK = 16,
  TENSOR = 17
};
enum Type {
  HANDLE = 0,
  DATA_TYPE = 1,
  BOOLEAN = 2,
  INT64 = 3,
  FLOAT = 4,
  VOID_PTR = 6,
  CONVOLUTION_MODE = 7,
  HEUR_MODE = 8,
  NUMERICAL_NOTE = 11,
  POINTWISE_MODE = 14,
  BACKEND_DESCRIPTOR = 15
};
enum Attribute {
  POINTWISE_MODE_ = 0,
  POINTWISE_MATH_PREC = 1,
  CONVOLUTION_COMP_TYPE = 100,
  CONVOLUTION_CONV_MODE = 101,
  CONVOLUTION_DILATIONS = 102,
  CONVOLUTION_FILTER_STRIDES = 103,
  CONVOLUTION_POST_PADDINGS = 104,
  CONVOLUTION_PRE_PADDINGS = 105,
  CONVOLUTION_SPATIAL_DIMS = 106,
  ENGINEHEUR_MODE = 200,
  ENGINEHEUR_OPERATION_GRAPH = 201,
  ENGINEHEUR_RESULTS = 202,
  ENGINECFG_ENGINE = 300,
  EXECUTION_PLAN_HANDLE = 400,
  EXECUTION_PLAN_ENGINE_CONFIG = 401,
  EXECUTION_PLAN_WORKSPACE_SIZE = 402,
  FORWARD_ALPHA = 700,
  FORWARD_BETA = 701,
  FORWARD_CONV_DESC = 702,
  FORWARD_W = 703,
  FORWARD_X = 704,
  FORWARD_Y = 705,
  BWD_DATA_ALPHA = 706,
  BWD_DATA_BETA = 707,
  BWD_DATA_CONV_DESC = 708,
  BWD_DATA_W = 709,
  BWD_DATA_DX = 710,
  BWD_DATA_DY = 711,
  BWD_FILTER_ALPHA = 712,
  BWD_FILTER_BETA = 713,
  BWD_FILTER_CONV_DESC = 714,
  BWD_FILTER_DW = 715,
  BWD_FILTER_X = 716,
  BWD_FILTER_DY = 717,
  OPERATION_POINTWISE_PW_DESCRIPTOR = 750,
  OPERATION_POINTWISE_XDESC = 751,
  OPERATION_POINTWISE_BDESC = 752,
  OPERATION_POINTWISE_YDESC = 753,
  OPERATIONGRAPH_HANDLE = 800,
  OPERATIONGRAPH_OPS = 801,
  TENSOR_BYTE_ALIGNMENT = 900,
  TENSOR_DATA_TYPE = 901,
  TENSOR_DIMENSIONS = 902,
  TENSOR_STRIDES = 903,
  TENSOR_UNIQUE_ID = 906,
  TENSOR_IS_VIRTUAL = 907,
  VARIANT_PACK_UNIQUE_IDS = 1000,
  VARIANT_PACK_DATA_POINTERS = 1001,
  VARIANT_PACK_WORKSPACE = 1003,
  ENGINE_NUMERICAL_NOTE = 1303
};
enum DataType { DATA_FLOAT = 0, DATA_HALF = 2, DATA_BFLOAT16 = 9 };
enum Note { TENSOR_CORE = 0, REDUCED_PRECISION_REDUCTION = 2, NONDETERMINISTIC = 4 };
constexpr int kAdd = 0, kRelu = 100, kHeuristicFallback = 2, kHeuristicA = 3, kCrossCorrelation = 1;

/// What an attribute takes: its type, and how many. Handles are wanted, as by the first versions 9.
struct Slot {
  Attribute name;
  Type type;
  std::int64_t least, most;
  bool required = true;
};
const std::map<Kind, std::vector<Slot>> kSlots = {
    {POINTWISE, {{POINTWISE_MODE_, POINTWISE_MODE, 1, 1}, {POINTWISE_MATH_PREC, DATA_TYPE, 1, 1}}},
    {CONVOLUTION,
     {{CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, 1},
      {CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, 1},
      {CONVOLUTION_DILATIONS, INT64, 2, 2},
      {CONVOLUTION_FILTER_STRIDES, INT64, 2, 2},
      {CONVOLUTION_POST_PADDINGS, INT64, 2, 2},
      {CONVOLUTION_PRE_PADDINGS, INT64, 2, 2},
      {CONVOLUTION_SPATIAL_DIMS, INT64, 1, 1}}},
    {ENGINE, {}},
    {ENGINECFG, {}},
    {ENGINEHEUR, {{ENGINEHEUR_MODE, HEUR_MODE, 1, 1}, {ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, 1}}},
    {EXECUTION_PLAN, {{EXECUTION_PLAN_HANDLE, HANDLE, 1, 1}, {EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, 1}}},
    {CONVOLUTION_FORWARD,
     {{FORWARD_ALPHA, FLOAT, 1, 1},
      {FORWARD_BETA, FLOAT, 1, 1},
      {FORWARD_CONV_DESC, BACKEND_DESCRIPTOR, 1, 1},
      {FORWARD_W, BACKEND_DESCRIPTOR, 1, 1},
      {FORWARD_X, BACKEND_DESCRIPTOR, 1, 1},
      {FORWARD_Y, BACKEND_DESCRIPTOR, 1, 1}}},
    {CONVOLUTION_BACKWARD_DATA,
     {{BWD_DATA_ALPHA, FLOAT, 1, 1},
      {BWD_DATA_BETA, FLOAT, 1, 1},
      {BWD_DATA_CONV_DESC, BACKEND_DESCRIPTOR, 1, 1},
      {BWD_DATA_W, BACKEND_DESCRIPTOR, 1, 1},
      {BWD_DATA_DX, BACKEND_DESCRIPTOR, 1, 1},
      {BWD_DATA_DY, BACKEND_DESCRIPTOR, 1, 1}}},
    {CONVOLUTION_BACKWARD_FILTER,
     {{BWD_FILTER_ALPHA, FLOAT, 1, 1},
      {BWD_FILTER_BETA, FLOAT, 1, 1},
      {BWD_FILTER_CONV_DESC, BACKEND_DESCRIPTOR, 1, 1},
      {BWD_FILTER_DW, BACKEND_DESCRIPTOR, 1, 1},
      {BWD_FILTER_X, BACKEND_DESCRIPTOR, 1, 1},
      {BWD_FILTER_DY, BACKEND_DESCRIPTOR, 1, 1}}},
    {OPERATION_POINTWISE,
     {{OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, 1},
      {OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, 1},
      {OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, 1, false},
      {OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, 1}}},
    {OPERATIONGRAPH, {{OPERATIONGRAPH_HANDLE, HANDLE, 1, 1}, {OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, 8}}},
    {VARIANT_PACK,
     {{VARIANT_PACK_UNIQUE_IDS, INT64, 1, 8},
      {VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, 8},
      {VARIANT_PACK_WORKSPACE, VOID_PTR, 1, 1}}},
    {TENSOR,
     {{TENSOR_BYTE_ALIGNMENT, INT64, 1, 1},
      {TENSOR_DATA_TYPE, DATA_TYPE, 1, 1},
      {TENSOR_DIMENSIONS, INT64, 4, 4},
      {TENSOR_STRIDES, INT64, 4, 4},
      {TENSOR_UNIQUE_ID, INT64, 1, 1},
      {TENSOR_IS_VIRTUAL, BOOLEAN, 1, 1, false}}}};

std::size_t width_of(Type type) {
  switch (type) {
    case BOOLEAN:
      return sizeof(bool);
    case INT64:
      return sizeof(std::int64_t);
    case HANDLE:
    case VOID_PTR:
    case BACKEND_DESCRIPTOR:
      return sizeof(void*);
    default:
      return sizeof(int);  // enumerators and floats
  }
}

int refuse(int status, const std::string& why) {
  std::fprintf(stderr, "cuda_on_cpu: cuDNN: %s\n", why.c_str());
  return status;
}
int bad(const std::string& why) { return refuse(CUDNN_STATUS_BAD_PARAM, why); }
int not_supported(const std::string& why) { return refuse(CUDNN_STATUS_NOT_SUPPORTED, why); }

/// An engine of those that a graph has.
struct Engine {
  std::vector<int> notes;
  bool has_plan = true;
  bool is_exact = true;        ///< as it should be: else its results are seen to be others
  int place = 0;               ///< among those that are
  std::int64_t workspace = 0;  ///< bytes
};

}  // namespace

struct Handle {
  int device = 0;
  cudaStream_t stream = nullptr;
  bool destroyed = false;
};

/// Those that were destroyed stay, so that their use is seen.
struct Descriptor {
  explicit Descriptor(Kind kind) : kind(kind) {}
  Kind kind;
  bool finalized = false, destroyed = false;
  std::map<int, std::vector<char>> values = {};
  // Of engines and their configs, which come from a heuristic: the graph, and which of its engines.
  Descriptor* graph = nullptr;
  std::optional<Engine> engine = {};

  bool has(int attribute) const { return values.count(attribute) != 0; }
  template <class T>
  std::vector<T> all(int attribute) const {
    const std::vector<char>& bytes = values.at(attribute);
    std::vector<T> result(bytes.size() / sizeof(T));
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }
  template <class T>
  T get(int attribute) const {
    T value;
    std::memcpy(&value, values.at(attribute).data(), sizeof value);
    return value;
  }
};

namespace {

Descriptor* existing(Descriptor* d, const char* call) {
  if (d != nullptr && d->destroyed) throw Failure(std::string(call) + ": a descriptor is used that was destroyed");
  return d;
}

/// Four sizes, the strides of each, and where it lies.
struct Tensor {
  std::int64_t id, alignment;
  int type;
  std::vector<std::int64_t> sizes, strides;
  bool is_virtual;

  explicit Tensor(const Descriptor& d)
      : id(d.get<std::int64_t>(TENSOR_UNIQUE_ID)),
        alignment(d.get<std::int64_t>(TENSOR_BYTE_ALIGNMENT)),
        type(d.get<int>(TENSOR_DATA_TYPE)),
        sizes(d.all<std::int64_t>(TENSOR_DIMENSIONS)),
        strides(d.all<std::int64_t>(TENSOR_STRIDES)),
        is_virtual(d.has(TENSOR_IS_VIRTUAL) && d.get<bool>(TENSOR_IS_VIRTUAL)) {}

  std::size_t width() const { return type == DATA_FLOAT ? 4 : 2; }
  std::size_t bytes() const {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < 4; ++i) last += (sizes[i] - 1) * strides[i];
    return static_cast<std::size_t>(last + 1) * width();
  }
  std::int64_t at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  float load(const void* data, std::int64_t i) const {
    if (type == DATA_FLOAT) return cuda_on_cpu::rounded_to_tf32(static_cast<const float*>(data)[i]);
    return (type == DATA_HALF ? cuda_on_cpu::kF16 : cuda_on_cpu::kBf16)
        .decode(static_cast<const std::uint16_t*>(data)[i]);
  }
  float load_whole(const void* data, std::int64_t i) const {
    return type == DATA_FLOAT ? static_cast<const float*>(data)[i] : load(data, i);
  }
  void store(void* data, std::int64_t i, float value) const {
    if (type == DATA_FLOAT)
      static_cast<float*>(data)[i] = value;
    else
      static_cast<std::uint16_t*>(data)[i] = (type == DATA_HALF ? cuda_on_cpu::kF16 : cuda_on_cpu::kBf16).encode(value);
  }
};

struct Convolution {
  std::vector<std::int64_t> stride, before, behind, dilation;
  explicit Convolution(const Descriptor& d)
      : stride(d.all<std::int64_t>(CONVOLUTION_FILTER_STRIDES)),
        before(d.all<std::int64_t>(CONVOLUTION_PRE_PADDINGS)),
        behind(d.all<std::int64_t>(CONVOLUTION_POST_PADDINGS)),
        dilation(d.all<std::int64_t>(CONVOLUTION_DILATIONS)) {}
};

/// The three operations' names for the same.
struct Names {
  Attribute x, w, y, convolution, alpha, beta;
};
Names names_of(Kind kind) {
  if (kind == CONVOLUTION_FORWARD)
    return {FORWARD_X, FORWARD_W, FORWARD_Y, FORWARD_CONV_DESC, FORWARD_ALPHA, FORWARD_BETA};
  if (kind == CONVOLUTION_BACKWARD_DATA)
    return {BWD_DATA_DX, BWD_DATA_W, BWD_DATA_DY, BWD_DATA_CONV_DESC, BWD_DATA_ALPHA, BWD_DATA_BETA};
  return {BWD_FILTER_X, BWD_FILTER_DW, BWD_FILTER_DY, BWD_FILTER_CONV_DESC, BWD_FILTER_ALPHA, BWD_FILTER_BETA};
}
bool is_convolution(Kind kind) {
  return kind == CONVOLUTION_FORWARD || kind == CONVOLUTION_BACKWARD_DATA || kind == CONVOLUTION_BACKWARD_FILTER;
}

/// A graph that can be computed: a convolution, and what follows it.
struct Computation {
  Kind kind;
  Tensor x, w, y;
  Convolution convolution;
  std::vector<Tensor> added;
  bool applies_relu = false;
  Tensor result;  // what is stored

  explicit Computation(const Descriptor& operation)
      : kind(operation.kind),
        x(*operation.get<Descriptor*>(names_of(kind).x)),
        w(*operation.get<Descriptor*>(names_of(kind).w)),
        y(*operation.get<Descriptor*>(names_of(kind).y)),
        convolution(*operation.get<Descriptor*>(names_of(kind).convolution)),
        result(kind == CONVOLUTION_FORWARD         ? y
               : kind == CONVOLUTION_BACKWARD_DATA ? x
                                                   : w) {}

  std::vector<Tensor> operands() const {
    std::vector<Tensor> all{kind == CONVOLUTION_FORWARD ? result : y, x, w};
    all.insert(all.end(), added.begin(), added.end());
    return all;
  }
  std::string check() const {
    if (x.type != w.type) return "the image and the weights are of different types";
    if (w.sizes[1] == 0 || x.sizes[1] % w.sizes[1] != 0) return "the weights' channels do not divide the image's";
    const std::int64_t groups = x.sizes[1] / w.sizes[1];
    if (w.sizes[0] % groups != 0) return "the groups do not divide the channels out";
    if (y.sizes[0] != x.sizes[0] || y.sizes[1] != w.sizes[0]) return "images or channels out are not those of y";
    for (std::size_t d = 0; d < 2; ++d) {
      const std::int64_t room = x.sizes[2 + d] + convolution.before[d] + convolution.behind[d] -
                                convolution.dilation[d] * (w.sizes[2 + d] - 1) - 1;
      if (room < 0 || room / convolution.stride[d] + 1 != y.sizes[2 + d]) return "y has another height or width";
    }
    for (const Tensor& t : added)
      for (std::size_t d = 0; d < 4; ++d)
        if (t.sizes[d] != y.sizes[d] && t.sizes[d] != 1) return "what is added does not broadcast to y";
    for (const Tensor& t : operands())
      if (t.is_virtual) return "an operand is virtual";
    return {};
  }
};

/// Nullopt: none that is emulated.
std::optional<Computation> computation_of(const Descriptor& graph) {
  const auto operations = graph.all<Descriptor*>(OPERATIONGRAPH_OPS);
  if (!is_convolution(operations.front()->kind)) return std::nullopt;
  Computation result(*operations.front());
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const Descriptor& operation = *operations[i];
    if (operation.kind != OPERATION_POINTWISE || result.kind != CONVOLUTION_FORWARD || !result.result.is_virtual ||
        result.applies_relu)
      return std::nullopt;
    const int mode = operation.get<Descriptor*>(OPERATION_POINTWISE_PW_DESCRIPTOR)->get<int>(POINTWISE_MODE_);
    if (Tensor(*operation.get<Descriptor*>(OPERATION_POINTWISE_XDESC)).id != result.result.id) return std::nullopt;
    if (mode == kAdd && operation.has(OPERATION_POINTWISE_BDESC))
      result.added.emplace_back(*operation.get<Descriptor*>(OPERATION_POINTWISE_BDESC));
    else if (mode == kRelu && !operation.has(OPERATION_POINTWISE_BDESC))
      result.applies_relu = true;
    else
      return std::nullopt;
    result.result = Tensor(*operation.get<Descriptor*>(OPERATION_POINTWISE_YDESC));
    if (result.result.sizes != result.y.sizes || result.result.strides != result.y.strides) return std::nullopt;
  }
  return result;
}

/// Every pair of a place of y and a place of the kernel that sees a pixel: y's and w's channel out, their places.
template <class Visit>
void each_pair(const Computation& c, const Visit& visit) {
  const std::int64_t each = c.w.sizes[1], groups = c.x.sizes[1] / each, outs = c.w.sizes[0] / groups;
  for (std::int64_t n = 0; n < c.y.sizes[0]; ++n)
    for (std::int64_t k = 0; k < c.y.sizes[1]; ++k)
      for (std::int64_t p = 0; p < c.y.sizes[2]; ++p)
        for (std::int64_t q = 0; q < c.y.sizes[3]; ++q)
          for (std::int64_t r = 0; r < c.w.sizes[2]; ++r) {
            const std::int64_t h =
                p * c.convolution.stride[0] - c.convolution.before[0] + r * c.convolution.dilation[0];
            if (h < 0 || h >= c.x.sizes[2]) continue;
            for (std::int64_t s = 0; s < c.w.sizes[3]; ++s) {
              const std::int64_t v =
                  q * c.convolution.stride[1] - c.convolution.before[1] + s * c.convolution.dilation[1];
              if (v < 0 || v >= c.x.sizes[3]) continue;
              for (std::int64_t i = 0; i < each; ++i)
                visit(c.x.at(n, k / outs * each + i, h, v), c.w.at(k, i, r, s), c.y.at(n, k, p, q));
            }
          }
}

void compute(const Computation& c, const std::map<std::int64_t, void*>& places, bool is_exact) {
  const Tensor& y = c.kind == CONVOLUTION_FORWARD ? c.result : c.y;  // of the same sizes and strides
  void* const x_data = places.at(c.x.id);
  void* const w_data = places.at(c.w.id);
  void* const y_data = places.at(y.id);
  std::vector<float> sums(c.result.bytes() / c.result.width());
  std::vector<bool> is_element(sums.size());
  const auto each_element = [&](const auto& visit) {
    for (std::int64_t a = 0; a < c.result.sizes[0]; ++a)
      for (std::int64_t b = 0; b < c.result.sizes[1]; ++b)
        for (std::int64_t d = 0; d < c.result.sizes[2]; ++d)
          for (std::int64_t e = 0; e < c.result.sizes[3]; ++e) visit(a, b, d, e);
  };
  each_pair(c, [&](std::int64_t x, std::int64_t w, std::int64_t y_at) {
    if (c.kind == CONVOLUTION_FORWARD)
      sums[static_cast<std::size_t>(y_at)] += c.x.load(x_data, x) * c.w.load(w_data, w);
    else if (c.kind == CONVOLUTION_BACKWARD_DATA)
      sums[static_cast<std::size_t>(x)] += y.load(y_data, y_at) * c.w.load(w_data, w);
    else
      sums[static_cast<std::size_t>(w)] += y.load(y_data, y_at) * c.x.load(x_data, x);
  });
  each_element([&](std::int64_t a, std::int64_t b, std::int64_t d, std::int64_t e) {
    const std::int64_t at = c.result.at(a, b, d, e);
    float value = sums[static_cast<std::size_t>(at)] * (is_exact ? 1.0f : 1.25f);
    for (const Tensor& t : c.added)
      value += t.load_whole(places.at(t.id), t.at(t.sizes[0] == 1 ? 0 : a, t.sizes[1] == 1 ? 0 : b,
                                                  t.sizes[2] == 1 ? 0 : d, t.sizes[3] == 1 ? 0 : e));
    if (c.applies_relu && value < 0) value = 0;
    c.result.store(places.at(c.result.id), at, value);
  });
}

bool environment_says(const char* word) {
  const char* const value = std::getenv("CUDNN_STAND_IN");
  return value != nullptr && std::string(value) == word;
}

std::vector<Engine> engines(int mode) {
  if (environment_says("unsupported")) return {};
  if (mode == kHeuristicFallback) return {{.notes = {}, .workspace = 0}};
  std::vector<Engine> all = {{.notes = {TENSOR_CORE, NONDETERMINISTIC}, .is_exact = false},
                             {.notes = {REDUCED_PRECISION_REDUCTION}, .is_exact = false},
                             {.notes = {TENSOR_CORE}, .has_plan = false},
                             {.notes = {TENSOR_CORE}, .workspace = std::int64_t{1} << 40}};
  const int known = std::max(static_cast<int>(cuda_on_cpu::algorithms().size()), 1);
  for (int place = 0; place < known; ++place)
    all.push_back({.notes = {TENSOR_CORE}, .place = place, .workspace = 4096 + 1000 * place});
  return all;
}

std::string problem_of(const Descriptor& d) {
  for (const Slot& slot : kSlots.at(d.kind)) {
    if (!d.has(slot.name)) {
      if (slot.required) return "attribute " + std::to_string(slot.name) + " is not set";
      continue;
    }
    if (slot.type == HANDLE) {
      const Handle* const handle = d.get<Handle*>(slot.name);
      if (handle == nullptr || handle->destroyed || handle->device != cuda_on_cpu::current_device())
        return "there is no handle, or it is another device's";
    }
    if (slot.type == BACKEND_DESCRIPTOR)
      for (const Descriptor* part : d.all<Descriptor*>(slot.name)) {
        if (part == nullptr) return "attribute " + std::to_string(slot.name) + " is a null pointer";
        if (part->destroyed) throw Failure("cudnnBackendFinalize: a part was destroyed");
        if (!part->finalized && part->kind != ENGINECFG)
          return "attribute " + std::to_string(slot.name) + " is not finalized";
      }
  }
  const auto all_at_least = [&](Attribute attribute, std::int64_t least) {
    const auto values = d.all<std::int64_t>(attribute);
    return std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v >= least; });
  };
  switch (d.kind) {
    case TENSOR: {
      const auto alignment = d.get<std::int64_t>(TENSOR_BYTE_ALIGNMENT);
      if (alignment < 1 || (alignment & (alignment - 1)) != 0) return "an alignment that is no power of 2";
      const int type = d.get<int>(TENSOR_DATA_TYPE);
      if (type != DATA_FLOAT && type != DATA_HALF && type != DATA_BFLOAT16) return "this type is not emulated";
      if (!all_at_least(TENSOR_DIMENSIONS, 1) || !all_at_least(TENSOR_STRIDES, 1)) return "sizes and strides below 1";
      return {};
    }
    case CONVOLUTION:
      if (d.get<std::int64_t>(CONVOLUTION_SPATIAL_DIMS) != 2) return "other than two dimensions are not emulated";
      if (d.get<int>(CONVOLUTION_COMP_TYPE) != DATA_FLOAT) return "this compute type is not emulated";
      if (d.get<int>(CONVOLUTION_CONV_MODE) != kCrossCorrelation) return "a mirrored kernel is not emulated";
      if (!all_at_least(CONVOLUTION_DILATIONS, 1) || !all_at_least(CONVOLUTION_FILTER_STRIDES, 1) ||
          !all_at_least(CONVOLUTION_PRE_PADDINGS, 0) || !all_at_least(CONVOLUTION_POST_PADDINGS, 0))
        return "a stride, dilation or padding that there is not";
      return {};
    case POINTWISE:
      return d.get<int>(POINTWISE_MATH_PREC) == DATA_FLOAT ? "" : "this compute type is not emulated";
    case CONVOLUTION_FORWARD:
    case CONVOLUTION_BACKWARD_DATA:
    case CONVOLUTION_BACKWARD_FILTER: {
      const Names names = names_of(d.kind);
      if (d.get<float>(names.alpha) != 1 || d.get<float>(names.beta) != 0) return "scaled results are not emulated";
      return {};
    }
    case OPERATIONGRAPH: {
      const auto computation = computation_of(d);
      if (!computation) return "this graph is not emulated";
      if (const std::string why = computation->check(); !why.empty()) return why;
      std::set<std::int64_t> ids;
      for (const Tensor& t : computation->operands())
        if (!ids.insert(t.id).second) return "two tensors have one id";
      return {};
    }
    case VARIANT_PACK: {
      const auto ids = d.all<std::int64_t>(VARIANT_PACK_UNIQUE_IDS);
      if (ids.size() != d.all<void*>(VARIANT_PACK_DATA_POINTERS).size()) return "not as many pointers as ids";
      return std::set<std::int64_t>(ids.begin(), ids.end()).size() == ids.size() ? "" : "an id comes twice";
    }
    default:
      return {};
  }
}

/// Failure where two operands, of which the first is written, share memory.
void require_apart(const char* what, const void* written, std::size_t written_bytes, const void* other,
                   std::size_t bytes) {
  const auto *a = static_cast<const char*>(written), *b = static_cast<const char*>(other);
  if (a < b + bytes && b < a + written_bytes)
    throw Failure(std::string("cudnnBackendExecute: ") + what + " lies upon another operand");
}

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() { return 91900; }
const char* cudnnGetErrorString(int status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    default:
      return "CUDNN_STATUS_NOT_SUPPORTED";
  }
}

int cudnnCreate(Handle** handle) {
  if (environment_says("uninitialized")) return CUDNN_STATUS_NOT_INITIALIZED;
  cuda_on_cpu::refuse_while_recording("cudnnCreate");
  cuda_on_cpu::count_descriptor();
  *handle = new Handle{.device = cuda_on_cpu::current_device()};
  return CUDNN_STATUS_SUCCESS;
}
int cudnnDestroy(Handle* handle) {
  if (handle == nullptr) return bad("cudnnDestroy: nullptr");
  if (handle->destroyed) throw Failure("cudnnDestroy: the handle was destroyed");
  handle->destroyed = true;
  return CUDNN_STATUS_SUCCESS;
}
int cudnnSetStream(Handle* handle, cudaStream_t stream) {
  if (handle == nullptr || handle->destroyed) throw Failure("cudnnSetStream: there is no handle");
  if (cuda_on_cpu::existing(stream)->device != handle->device)
    return bad("cudnnSetStream: the stream is another device's");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

int cudnnBackendCreateDescriptor(int kind, Descriptor** descriptor) {
  if (kSlots.count(static_cast<Kind>(kind)) == 0)
    return not_supported("descriptor " + std::to_string(kind) + " is not emulated");
  cuda_on_cpu::count_descriptor();
  *descriptor = new Descriptor(static_cast<Kind>(kind));
  return CUDNN_STATUS_SUCCESS;
}
int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  if (descriptor == nullptr) return bad("cudnnBackendDestroyDescriptor: nullptr");
  existing(descriptor, "cudnnBackendDestroyDescriptor")->destroyed = true;
  return CUDNN_STATUS_SUCCESS;
}

int cudnnBackendSetAttribute(Descriptor* descriptor, int attribute, int type, std::int64_t count, const void* values) {
  if (descriptor == nullptr || values == nullptr) return bad("cudnnBackendSetAttribute: nullptr");
  existing(descriptor, "cudnnBackendSetAttribute");
  if (descriptor->finalized) return bad("an attribute is set of what was finalized");
  for (const Slot& slot : kSlots.at(descriptor->kind)) {
    if (slot.name != attribute) continue;
    const std::string name = "attribute " + std::to_string(attribute);
    if (slot.type != type) return bad(name + " is of another type than " + std::to_string(type));
    if (count < slot.least || count > slot.most) return bad(name + " is given " + std::to_string(count) + " values");
    const auto* bytes = static_cast<const char*>(values);
    descriptor->values[attribute].assign(bytes, bytes + static_cast<std::size_t>(count) * width_of(slot.type));
    return CUDNN_STATUS_SUCCESS;
  }
  return bad("descriptor " + std::to_string(descriptor->kind) + " has no attribute " + std::to_string(attribute));
}

int cudnnBackendFinalize(Descriptor* descriptor) {
  if (descriptor == nullptr) return bad("cudnnBackendFinalize: nullptr");
  existing(descriptor, "cudnnBackendFinalize");
  if (descriptor->finalized) return bad("what was finalized is finalized again");
  if (const std::string why = problem_of(*descriptor); !why.empty())
    return bad("descriptor " + std::to_string(descriptor->kind) + ": " + why);
  if (descriptor->kind == EXECUTION_PLAN) {
    const Descriptor& config = *descriptor->get<Descriptor*>(EXECUTION_PLAN_ENGINE_CONFIG);
    if (!config.engine) return bad("a plan of a config that no heuristic made");
    if (!config.engine->has_plan) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  descriptor->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

int cudnnBackendGetAttribute(Descriptor* descriptor, int attribute, int type, std::int64_t room, std::int64_t* count,
                             void* values) {
  if (descriptor == nullptr || count == nullptr) return bad("cudnnBackendGetAttribute: nullptr");
  existing(descriptor, "cudnnBackendGetAttribute");
  if (descriptor->kind == ENGINEHEUR && attribute == ENGINEHEUR_RESULTS && type == BACKEND_DESCRIPTOR) {
    if (!descriptor->finalized) return bad("results of a heuristic that is not finalized");
    const std::vector<Engine> all = engines(descriptor->get<int>(ENGINEHEUR_MODE));
    *count = static_cast<std::int64_t>(all.size());
    if (values == nullptr) return CUDNN_STATUS_SUCCESS;
    *count = std::min(*count, room);
    for (std::int64_t i = 0; i < *count; ++i) {
      Descriptor* const config = static_cast<Descriptor**>(values)[i];
      if (config == nullptr || config->kind != ENGINECFG) return bad("results go into configs of engines");
      config->graph = descriptor->get<Descriptor*>(ENGINEHEUR_OPERATION_GRAPH);
      config->engine = all[static_cast<std::size_t>(i)];
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (values == nullptr || room < 1) return bad("cudnnBackendGetAttribute: there is no room");
  if (descriptor->kind == ENGINECFG && attribute == ENGINECFG_ENGINE && type == BACKEND_DESCRIPTOR) {
    Descriptor* const engine = *static_cast<Descriptor**>(values);
    if (engine == nullptr || engine->kind != ENGINE || !descriptor->engine) return bad("no engine");
    engine->engine = descriptor->engine;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  if (descriptor->kind == ENGINE && attribute == ENGINE_NUMERICAL_NOTE && type == NUMERICAL_NOTE &&
      descriptor->engine) {
    const std::vector<int>& notes = descriptor->engine->notes;
    *count = std::min(static_cast<std::int64_t>(notes.size()), room);
    std::copy_n(notes.begin(), *count, static_cast<int*>(values));
    return CUDNN_STATUS_SUCCESS;
  }
  if (descriptor->kind == EXECUTION_PLAN && attribute == EXECUTION_PLAN_WORKSPACE_SIZE && type == INT64 &&
      descriptor->finalized) {
    *count = 1;
    *static_cast<std::int64_t*>(values) = descriptor->get<Descriptor*>(EXECUTION_PLAN_ENGINE_CONFIG)->engine->workspace;
    return CUDNN_STATUS_SUCCESS;
  }
  return bad("attribute " + std::to_string(attribute) + " of descriptor " + std::to_string(descriptor->kind) +
             " is not emulated");
}

int cudnnBackendExecute(Handle* handle, Descriptor* plan, Descriptor* pack) {
  if (handle == nullptr || plan == nullptr || pack == nullptr) return bad("cudnnBackendExecute: nullptr");
  existing(plan, "cudnnBackendExecute");
  existing(pack, "cudnnBackendExecute");
  if (handle->destroyed) throw Failure("cudnnBackendExecute: the handle was destroyed");
  if (handle->device != cuda_on_cpu::current_device())
    throw Failure("cudnnBackendExecute: the handle is another device's than the current one");
  if (plan->kind != EXECUTION_PLAN || !plan->finalized || pack->kind != VARIANT_PACK || !pack->finalized)
    return bad("cudnnBackendExecute: expected a plan and a variant pack that are finalized");
  const Descriptor& config = *plan->get<Descriptor*>(EXECUTION_PLAN_ENGINE_CONFIG);
  if (config.destroyed || config.graph->destroyed)
    throw Failure("cudnnBackendExecute: what the plan was made of was destroyed");
  const Computation computation = *computation_of(*config.graph);
  std::map<std::int64_t, void*> places;
  const auto ids = pack->all<std::int64_t>(VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack->all<void*>(VARIANT_PACK_DATA_POINTERS);
  for (std::size_t i = 0; i < ids.size(); ++i) places[ids[i]] = pointers[i];
  const auto bytes = static_cast<std::size_t>(config.engine->workspace);
  void* const workspace = pack->get<void*>(VARIANT_PACK_WORKSPACE);
  const std::vector<Tensor> operands = computation.operands();
  for (const Tensor& t : operands) {
    const std::string name = "cudnnBackendExecute, tensor " + std::to_string(t.id);
    if (places.count(t.id) == 0) return bad(name + " is not among the arguments");
    cuda_on_cpu::require_current_device(places[t.id], t.bytes(), name);
    if (reinterpret_cast<std::uintptr_t>(places[t.id]) % static_cast<std::uintptr_t>(t.alignment) != 0)
      throw Failure(name + " lies elsewhere than at a multiple of " + std::to_string(t.alignment));
  }
  const Tensor& result = computation.result;
  for (const Tensor& t : operands) {
    if (t.id != result.id) require_apart("the result", places[result.id], result.bytes(), places[t.id], t.bytes());
    if (bytes > 0) require_apart("the workspace", workspace, bytes, places[t.id], t.bytes());
  }
  if (bytes > 0) cuda_on_cpu::require_current_device(workspace, bytes, "cudnnBackendExecute, workspace");
  const bool is_exact = config.engine->is_exact;
  const auto place = static_cast<std::size_t>(config.engine->place);
  const double delay = place < cuda_on_cpu::algorithms().size() ? cuda_on_cpu::algorithms()[place] : 0;
  if (delay < 0) return not_supported("an algorithm that fails");
  cuda_on_cpu::count_library_call();
  cuda_on_cpu::count_algorithm(static_cast<std::int64_t>(place));
  cuda_on_cpu::count_convolution();
  cuda_on_cpu::enqueue(
      "cudnnBackendExecute",
      [=] {
        cuda_on_cpu::pass_time(delay);
        if (bytes > 0) std::memset(workspace, 0xff, bytes);
        compute(computation, places, is_exact);
      },
      handle->stream);
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
