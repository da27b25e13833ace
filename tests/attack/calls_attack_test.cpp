// Programs that call the library wrongly: functions, methods, layers, losses, optimizers, dictionaries, files and
// graphs, in any order, with tensors of any shape and dtype, none and empty ones, sizes and dimensions from nowhere,
// numbers that are none. A call returns, or says with a UserError what is wrong; nothing else, and it ends.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ir/diagnostic.h"
#include "tests/attack/attack.h"

namespace graven::attack {
namespace {

namespace fs = std::filesystem;

/// What one try has, and draws its calls' arguments from.
class Program {
 public:
  explicit Program(Attack& attack) : attack_(attack) {}

  std::size_t below(std::size_t n) { return attack_.below(n); }
  template <class Container>
  const auto& choose(const Container& from) {
    return attack_.choose(from);
  }

  /// A size or a dimension: mostly one that there could be.
  std::int64_t integer() {
    static constexpr std::int64_t odd[] = {-1,        -2,        -7,           100, 65536, std::int64_t{1} << 40,
                                           INT64_MAX, INT64_MIN, INT64_MAX - 1};
    return below(12) == 0 ? choose(odd) : static_cast<std::int64_t>(below(5));
  }
  double number() {
    static constexpr double odd[] = {-1, -0.0, 1e300, 1e-320, 1e19, -1e19};
    static constexpr double inf = std::numeric_limits<double>::infinity(),
                            nan = std::numeric_limits<double>::quiet_NaN();
    static constexpr double none[] = {nan, inf, -inf};
    return below(12) == 0 ? choose(none) : below(6) == 0 ? choose(odd) : static_cast<double>(below(9)) / 4;
  }
  Sizes sizes() {
    Sizes s(below(5));
    for (auto& n : s) n = integer();
    return s;
  }
  DType dtype() {
    static constexpr DType all[] = {f32, f32, f32, i64, i64, f64, i32, u8, boolean, f16, bf16, i8};
    return choose(all);
  }
  /// A tensor that there is, or another one.
  Tensor tensor() {
    if (below(40) == 0) return {};
    if (tensors_.empty() || below(3) == 0) return keep(fresh());
    return choose(tensors_);
  }
  Tensor keep(const Tensor& t) {
    if (tensors_.size() < 12)
      tensors_.push_back(t);
    else
      tensors_[below(tensors_.size())] = t;
    return t;
  }
  nn::StateDict& dictionary() { return dictionary_; }

 private:
  Tensor fresh() {
    std::vector<ir::Dim> dims;
    static constexpr std::int64_t some[] = {1, 2, 3, 4, 4, 5, 0};
    for (std::size_t n = below(5); n > 0; --n) dims.emplace_back(choose(some));
    const DType type = dtype();
    Tensor t = below(3) == 0 ? zeros(Shape(dims), type) : (randn(Shape(dims)) * 3).to(type);
    if (below(3) == 0 && ir::is_floating(type)) t.requires_grad_();
    return t;
  }

  Attack& attack_;
  std::vector<Tensor> tensors_;
  nn::StateDict dictionary_;
};

// ---- an argument of each type ----

template <class T>
struct Drawn {
  static T from(Program&) { return {}; }  // options that are not drawn below
};
template <class T>
T draw(Program& p) {
  return Drawn<T>::from(p);
}
#define DRAWN(...)            \
  template <>                 \
  struct Drawn<__VA_ARGS__> { \
    static __VA_ARGS__ from([[maybe_unused]] Program& p)
DRAWN(std::int64_t) { return p.integer(); }
};
DRAWN(double) { return p.number(); }
};
DRAWN(bool) { return p.below(2) == 0; }
}
;
DRAWN(Tensor) { return p.tensor(); }
}
;
DRAWN(Sizes) { return p.sizes(); }
}
;
DRAWN(DType) { return p.dtype(); }
}
;
DRAWN(Device) { return p.below(2) == 0 ? Device("cpu") : Device("cuda"); }
}
;
DRAWN(Location) { return Location::current(); }
}
;
DRAWN(Scalar) { return p.below(2) == 0 ? Scalar(p.integer()) : Scalar(p.number()); }
}
;
DRAWN(Operand) { return p.below(4) == 0 ? Operand(draw<Scalar>(p)) : Operand(p.tensor()); }
}
;
DRAWN(Shape) {
  std::vector<ir::Dim> dims;
  for (const std::int64_t n : p.sizes()) dims.emplace_back(n);
  return Shape(dims);
}
}
;
DRAWN(TensorOptions) { return {p.dtype(), p.below(4) == 0}; }
}
;
DRAWN(std::string_view) {
  static constexpr std::string_view words[] = {"none",      "tanh",      "mean",     "sum",      "prod", "amax",
                                               "ij",        "xy",        "floor",    "trunc",    "row",  "batch",
                                               "reflect",   "replicate", "circular", "constant", "",     "nonsense",
                                               "ij,jk->ik", "ii->i",     "->",       "ab",       "...i"};
  return p.choose(words);
}
}
;
DRAWN(std::string) { return std::string(draw<std::string_view>(p)); }
}
;
DRAWN(Reduction) { return static_cast<Reduction>(p.below(3)); }
}
;
DRAWN(Size2) { return p.below(2) == 0 ? Size2(p.integer()) : Size2{p.integer(), p.integer()}; }
}
;
DRAWN(Size3) { return Size3(p.integer()); }
}
;
DRAWN(std::vector<Tensor>) {
  std::vector<Tensor> all(p.below(4));
  for (Tensor& t : all) t = p.tensor();
  return all;
}
}
;
DRAWN(Conv2dFunctionOptions) {
  return {.stride = draw<Size2>(p), .padding = draw<Size2>(p), .dilation = draw<Size2>(p), .groups = p.integer()};
}
}
;
DRAWN(Conv1dFunctionOptions) {
  return {.stride = p.integer(), .padding = p.integer(), .dilation = p.integer(), .groups = p.integer()};
}
}
;
DRAWN(ConvTranspose2dFunctionOptions) {
  return {.stride = draw<Size2>(p),
          .padding = draw<Size2>(p),
          .output_padding = draw<Size2>(p),
          .groups = p.integer(),
          .dilation = draw<Size2>(p)};
}
}
;
DRAWN(MaxPool2dOptions) {
  return {.stride = draw<Size2>(p), .padding = draw<Size2>(p), .dilation = draw<Size2>(p), .ceil_mode = draw<bool>(p)};
}
}
;
DRAWN(AvgPool2dOptions) { return {.stride = draw<Size2>(p), .padding = draw<Size2>(p), .ceil_mode = draw<bool>(p)}; }
}
;
DRAWN(WindowOptions) { return {.dilation = draw<Size2>(p), .padding = draw<Size2>(p), .stride = draw<Size2>(p)}; }
}
;
DRAWN(VarianceOptions) { return {.correction = p.number(), .keepdim = draw<bool>(p)}; }
}
;
DRAWN(NllLossOptions) {
  return {
      .weight = p.below(3) == 0 ? p.tensor() : Tensor(), .ignore_index = p.integer(), .reduction = draw<Reduction>(p)};
}
}
;
DRAWN(InterpolateOptions) { return {.mode = draw<std::string>(p)}; }
}
;
template <class T>
struct Drawn<std::optional<T>> {
  static std::optional<T> from(Program& p) {
    if (p.below(2) == 0) return {};
    return draw<T>(p);
  }
};

// ---- calls ----

void keep(Program& p, const Tensor& t) { p.keep(t); }
void keep(Program& p, const std::vector<Tensor>& all) {
  if (!all.empty()) p.keep(all[p.below(all.size())]);
}
void keep(Program& p, const std::tuple<Tensor, Tensor>& both) {
  p.keep(p.below(2) == 0 ? std::get<0>(both) : std::get<1>(both));
}
template <class T>
void keep(Program&, const T&) {}

struct Call {
  std::string name;
  std::function<void(Program&)> run;
};

template <class R, class... A>
Call call(const char* name, R (*function)(A...)) {
  return {name, [function](Program& p) {
            // Braces: drawn from the first to the last.
            const std::tuple<std::remove_cvref_t<A>...> arguments{draw<std::remove_cvref_t<A>>(p)...};
            keep(p, std::apply(function, arguments));
          }};
}
template <class R, class... A>
Call call(const char* name, R (Tensor::*method)(A...) const) {
  return {name, [method](Program& p) {
            const Tensor self = p.tensor();
            const std::tuple<std::remove_cvref_t<A>...> arguments{draw<std::remove_cvref_t<A>>(p)...};
            std::apply([&](const auto&... a) { keep(p, (self.*method)(a...)); }, arguments);
          }};
}
template <class... A>
Call call(const char* name, void (Tensor::*method)(A...) const) {
  return {name, [method](Program& p) {
            const Tensor self = p.tensor();
            const std::tuple<std::remove_cvref_t<A>...> arguments{draw<std::remove_cvref_t<A>>(p)...};
            std::apply([&](const auto&... a) { (self.*method)(a...); }, arguments);
          }};
}
template <class R, class... A>
Call call(const char* name, R (Tensor::*method)(A...)) {
  return {name, [method](Program& p) {
            Tensor self = p.tensor();
            const std::tuple<std::remove_cvref_t<A>...> arguments{draw<std::remove_cvref_t<A>>(p)...};
            std::apply([&](const auto&... a) { (self.*method)(a...); }, arguments);
          }};
}

#define F(name) call(#name, &graven::name)
#define F_OF(name, ...) call(#name, static_cast<__VA_ARGS__>(&graven::name))
#define M(name) call("Tensor::" #name, &Tensor::name)
#define M_OF(name, ...) call("Tensor::" #name, static_cast<__VA_ARGS__>(&Tensor::name))

const std::vector<Call>& functions() {
  static const std::vector<Call> all = {
      F(add),
      F(sub),
      F(mul),
      F_OF(div, Tensor(*)(const Operand&, const Operand&)),
      F(pow),
      F(maximum),
      F(minimum),
      F(eq),
      F(lt),
      F(logical_and),
      F(where),
      F(neg),
      F(abs),
      F(exp),
      F(log),
      F(sqrt),
      F(rsqrt),
      F(reciprocal),
      F(floor),
      F(round),
      F_OF(clamp, Tensor(*)(const Operand&, std::optional<Scalar>, std::optional<Scalar>)),
      F(relu),
      F(sigmoid),
      F(gelu),
      F(softplus),
      F(leaky_relu),
      F(elu),
      F(hardtanh),
      F(softmax),
      F(log_softmax),
      F(sum),
      F(mean),
      F(amax),
      F(amin),
      F(prod),
      F(argmax),
      F(argmin),
      F(reshape),
      F(flatten),
      F(transpose),
      F(permute),
      F(cat),
      F(stack),
      F(linear),
      F(matmul),
      F(conv2d),
      F(max_pool2d),
      F(avg_pool2d),
      F(adaptive_avg_pool2d),
      F(conv1d),
      F(conv_transpose2d),
      F(normalize),
      F(cosine_similarity),
      F(pairwise_distance),
      F(cdist),
      F(embedding),
      F(embedding_bag),
      F(one_hot),
      F(gather),
      F(scatter),
      F(scatter_add),
      F(scatter_reduce),
      F(index_select),
      F(index_add),
      F(take_along_dim),
      F(take),
      F_OF(nll_loss, Tensor(*)(const Operand&, const Operand&, const NllLossOptions&)),
      F_OF(cross_entropy, Tensor(*)(const Operand&, const Operand&, const CrossEntropyOptions&)),
      F(mse_loss),
      F(l1_loss),
      F(smooth_l1_loss),
      F(huber_loss),
      F(binary_cross_entropy),
      F(kl_div),
      F(margin_ranking_loss),
      F(cosine_embedding_loss),
      F(triplet_margin_loss),
      F(multi_margin_loss),
      F(gaussian_nll_loss),
      F(layer_norm),
      F(rms_norm),
      F(group_norm),
      F(local_response_norm),
      F_OF(pad, Tensor(*)(const Operand&, const Sizes&, double)),
      F_OF(pad, Tensor(*)(const Operand&, const Sizes&, std::string_view, double)),
      F(asin),
      F(isnan),
      F(nan_to_num),
      F(bitwise_not),
      F(atan2),
      F(floor_divide),
      F(remainder),
      F(fmod),
      F(bitwise_xor),
      F(celu),
      F(softshrink),
      F(threshold),
      F(glu),
      F(prelu),
      F(logit),
      F(xlogy),
      F(max_pool1d),
      F(avg_pool1d),
      F(adaptive_max_pool2d),
      F(lp_pool1d),
      F(lp_pool2d),
      F(mm),
      F(bmm),
      F(mv),
      F(dot),
      F(outer),
      F(addmm),
      F(baddbmm),
      F(bilinear),
      F(trace),
      F(cross),
      F(dropout),
      F(dropout2d),
      F(stochastic_depth),
      F(rand_like),
      F(bernoulli),
      F(alpha_dropout),
      F(var),
      F(std),
      F(norm),
      F(logsumexp),
      F(all),
      F(any),
      F(count_nonzero),
      F(cumsum),
      F(cumprod),
      F(sort),
      F(argsort),
      F(topk),
      F(kthvalue),
      F_OF(median, Tensor(*)(const Operand&)),
      F(scaled_dot_product_attention),
      F_OF(squeeze, Tensor(*)(const Operand&, std::int64_t)),
      F(unsqueeze),
      F(unflatten),
      F(movedim),
      F(broadcast_to),
      F(narrow),
      F(select),
      F_OF(split, std::vector<Tensor>(*)(const Operand&, std::int64_t, std::int64_t)),
      F_OF(split, std::vector<Tensor>(*)(const Operand&, const Sizes&, std::int64_t)),
      F(chunk),
      F(unbind),
      F(hstack),
      F(vstack),
      F(flip),
      F(roll),
      F(repeat),
      F(tile),
      F(repeat_interleave),
      F(tril),
      F(triu),
      F(diagonal),
      F(masked_fill),
      F(meshgrid),
      F(pixel_shuffle),
      F(pixel_unshuffle),
      F(channel_shuffle),
      F(diff),
      F(interpolate),
      F(grid_sample),
      F(affine_grid),
      F(unfold),
      F(fold),
      F(zeros),
      F(full),
      F_OF(zeros_like, Tensor(*)(const Tensor&, Location)),
      F_OF(full_like, Tensor(*)(const Tensor&, Scalar, DType, Location)),
      F_OF(arange, Tensor(*)(Scalar, Scalar, Scalar, Location)),
      F(linspace),
      F(eye),
      F(rand),
      F(randint),
      F(randperm),
      F(to_string),
      {"einsum", [](Program& p) { keep(p, einsum(draw<std::string_view>(p), draw<std::vector<Tensor>>(p))); }},
      {"batch_norm",
       [](Program& p) { keep(p, batch_norm(p.tensor(), p.tensor(), p.tensor(), p.tensor(), p.tensor())); }},
      {"grad",
       [](Program& p) {
         keep(p, grad(draw<std::vector<Tensor>>(p), draw<std::vector<Tensor>>(p), draw<std::vector<Tensor>>(p)));
       }},
      M(size),
      M(strides),
      M(numel),
      M(item<float>),
      M(item<std::int64_t>),
      M(to_vector<double>),
      M(data<float>),
      M(requires_grad_),
      M(grad),
      M(set_grad),
      M(backward),
      M(detach),
      M(clone),
      M(contiguous),
      M_OF(to, Tensor(Tensor::*)(DType, Location) const),
      M_OF(to, Tensor(Tensor::*)(const Device&, Location) const),
      M_OF(view, Tensor(Tensor::*)(const Shape&, Location) const),
      M(t),
      M(expand),
      call("Tensor::slice",
           static_cast<Tensor (Tensor::*)(std::int64_t, std::int64_t, std::int64_t, std::int64_t, Location) const>(
               &Tensor::slice)),
      M(add_),
      M(mul_),
      M(pow_),
      M(exp_),
      M(clamp_),
      M(tril_),
      M(masked_fill_),
      M(scatter_),
      M(scatter_add_),
      M(index_add_),
      M(copy_),
      M(fill_),
      M(uniform_),
      M(normal_),
      M(lerp_),
      M(addcdiv_),
      {"Tensor::index",
       [](Program& p) {
         std::vector<TensorIndex> indices;
         for (std::size_t n = p.below(4); n > 0; --n) {
           if (p.below(3) == 0)
             indices.emplace_back(p.tensor());
           else if (p.below(2) == 0)
             indices.emplace_back(p.integer());
           else
             indices.emplace_back(indexing::Slice(p.integer(), p.integer(), p.integer()));
         }
         keep(p, p.tensor().index(indices));
       }},
  };
  return all;
}

/// Makes the layer and calls it, in both modes; its parameters can then be learned.
template <class Layer>
void use(Program& p, Layer layer) {
  if (p.below(3) == 0) layer.eval();
  for (int i = 0; i < 2; ++i) keep(p, layer(p.tensor()));
  if (p.below(3) == 0) p.dictionary() = layer.state_dict();
  if (p.below(3) == 0) layer.load_state_dict(p.dictionary(), draw<bool>(p));
  const std::vector<Tensor> parameters = layer.parameters();
  if (parameters.empty()) return;
  const auto learn = [&](auto optimizer) {
    for (int i = 0; i < 2; ++i) {
      if (p.below(2) == 0) sum(layer(p.tensor())).backward();
      optimizer.step();
      if (p.below(2) == 0) optimizer.zero_grad(draw<bool>(p));
      if (p.below(4) == 0) optimizer.set_learning_rate(p.number());
      if (p.below(4) == 0)
        optimizer.load_state_dict(p.below(2) == 0 ? p.dictionary() : optimizer.state_dict(), draw<bool>(p));
    }
  };
  if (p.below(2) == 0)
    learn(optim::SGD(parameters, {.lr = p.number(),
                                  .momentum = p.number(),
                                  .dampening = p.number(),
                                  .weight_decay = p.number(),
                                  .nesterov = draw<bool>(p),
                                  .clip_grad_max_norm = p.number(),
                                  .clip_grad_norm_type = p.number()}));
  else
    learn(optim::Adam(
        parameters,
        {.lr = p.number(), .betas = {p.number(), p.number()}, .eps = p.number(), .amsgrad = draw<bool>(p)}));
}

#define LAYER(name, ...) {"nn::" #name, [](Program& p) { use(p, nn::name(__VA_ARGS__)); }}

const std::vector<Call>& layers() {
  static const std::vector<Call> all = {
      LAYER(Linear, p.integer(), p.integer()),
      LAYER(Conv2d, p.integer(), p.integer(), draw<Size2>(p), {.stride = draw<Size2>(p), .groups = p.integer()}),
      LAYER(Conv1d, p.integer(), p.integer(), p.integer()),
      LAYER(ConvTranspose2d, p.integer(), p.integer(), draw<Size2>(p)),
      LAYER(BatchNorm1d, p.integer()),
      LAYER(BatchNorm2d, p.integer()),
      LAYER(InstanceNorm2d, p.integer()),
      LAYER(LayerNorm, p.sizes()),
      LAYER(RMSNorm, p.sizes()),
      LAYER(GroupNorm, p.integer(), p.integer()),
      LAYER(LocalResponseNorm, p.integer()),
      LAYER(Flatten, p.integer(), p.integer()),
      LAYER(Softmax, p.integer()),
      LAYER(GELU, draw<std::string>(p)),
      LAYER(PReLU, p.integer(), p.number()),
      LAYER(GLU, p.integer()),
      LAYER(Embedding, p.integer(), p.integer()),
      LAYER(MaxPool2d, draw<Size2>(p)),
      LAYER(AvgPool2d, draw<Size2>(p)),
      LAYER(AdaptiveAvgPool2d, draw<Size2>(p)),
      LAYER(MaxPool1d, p.integer()),
      LAYER(Softplus, p.number(), p.number()),
      LAYER(Hardtanh, p.number(), p.number()),
      LAYER(Threshold, p.number(), p.number()),
      {"nn::MultiheadAttention",
       [](Program& p) {
         nn::MultiheadAttention layer(p.integer(), p.integer());
         keep(p, layer(p.tensor(), p.tensor(), p.tensor()).first);
       }},
      {"nn::LSTM",
       [](Program& p) {
         nn::LSTM layer(p.integer() % 8, p.integer() % 8);
         keep(p, std::get<0>(layer(p.tensor())));
       }},
      {"nn::CrossEntropyLoss",
       [](Program& p) {
         const Tensor loss = nn::CrossEntropyLoss()(p.tensor(), p.tensor());
         keep(p, loss);
         loss.backward();
       }},
  };
  return all;
}

const fs::path& folder() {
  static const fs::path path = fs::path(GRAVEN_BINARY_DIR) / "attack/calls";
  return path;
}

std::string some_path(Program& p) {
  static const char* const names[] = {"weights.safetensors", "a/b/weights.safetensors", "", "folder",
                                      "damaged.safetensors"};
  return p.below(6) == 0 ? std::string("/proc/none/x") : (folder() / p.choose(names)).string();
}

const std::vector<Call>& files() {
  static const std::vector<Call> all = {
      {"nn::save",
       [](Program& p) {
         if (p.below(2) == 0) p.dictionary().emplace_back(draw<std::string>(p), p.tensor());
         nn::save(p.dictionary(), some_path(p));
       }},
      {"nn::load", [](Program& p) { p.dictionary() = nn::load(some_path(p)); }},
      {"nn::load_graph", [](Program& p) { nn::SavedGraph graph(some_path(p)); }},
  };
  return all;
}

/// A graph that does what calls it draws do. Recording is cheap; compiling is left to the calls at the end, of few.
struct Recorded : nn::Graph<Recorded> {
  Program& program;
  nn::Linear model = child("model", nn::Linear(3, 2));
  optim::SGD optimizer{model.parameters()};
  explicit Recorded(Program& p) : program(p) {
    if (p.below(2) == 0) add_optimizer(optimizer);
    if (p.below(6) == 0) add_optimizer(optimizer);
  }
  Tensor build(Tensor x) {
    program.keep(x);
    for (std::size_t n = program.below(4); n > 0; --n) program.choose(functions()).run(program);
    Tensor y = program.below(3) == 0 ? program.tensor() : model(x);
    if (program.below(3) != 0) y = sum(y);
    if (program.below(2) == 0) y.backward();
    return y;
  }
};

void run_graph(Program& p) {
  Recorded graph(p);
  if (p.below(8) == 0) (void)graph.graph();
  if (p.below(8) == 0) graph.save(some_path(p));
  Sizes shape = {4, 3};
  if (p.below(4) == 0) shape = p.sizes();
  std::vector<ir::Dim> dims;
  for (const std::int64_t n : shape) dims.emplace_back(n);
  if (!dims.empty() && p.below(3) == 0) dims[0] = ir::Dim("batch", 4);
  const DType type = p.below(3) == 0 ? p.dtype() : f32;
  // The recording ends, however it ends: what it kept is of no use behind it, and may be used all the same.
  graph.compile(spec(Shape(dims), type));
  (void)graph.repr();
  if (p.below(3) == 0) graph.load_state_dict(p.dictionary(), draw<bool>(p));
  if (p.below(8) == 0) graph.compile(spec(Shape(dims), type));
  if (p.below(4) == 0) graph.save((folder() / "folder").string());
}

// ---- a process a number of tries, which tells of each before it makes it ----

struct Shared {
  std::int64_t number;
  std::int64_t calls, refused;
  char last[200];
};

/// Empty, or what is wrong with this way of ending.
template <class Run>
std::string fault_of(const Run& run, bool& refused) {
  try {
    run();
    return {};
  } catch (const UserError& e) {
    refused = true;
    const std::string text = e.what();
    return text.find("internal error") != std::string::npos || text.size() < 12 || text.size() > 4000
               ? "its error: " + text
               : std::string();
  } catch (const std::exception& e) {
    return std::string("another exception: ") + e.what();
  }
}

/// One try: a program of calls. The first fault.
std::string run_program(Attack& attack, Shared& shared) {
  Program p(attack);
  manual_seed(static_cast<std::int64_t>(attack.below(1000)));
  std::string trail;
  for (std::size_t n = 1 + attack.below(12); n > 0; --n) {
    const std::size_t kind = attack.below(20);
    static const Call graph = {"a graph", run_graph};
    const Call& c = kind == 0   ? graph
                    : kind == 1 ? attack.choose(files())
                    : kind < 5  ? attack.choose(layers())
                                : attack.choose(functions());
    std::snprintf(shared.last, sizeof shared.last, "%s", c.name.c_str());
    alarm(60);  // a wait for ever is a failure
    bool refused = false;
    const std::string fault = fault_of([&] { c.run(p); }, refused);
    alarm(0);
    ++shared.calls;
    shared.refused += refused ? 1 : 0;
    trail += c.name + " ";
    if (!fault.empty()) return trail + "\n" + fault;
  }
  return {};
}

/// What a process may have: beyond it, memory is not to be had.
constexpr rlim_t kMemory = rlim_t{4} << 30;

TEST(Calls, ReturnOrSayWhatIsWrong) {
  fs::remove_all(folder());
  fs::create_directories(folder());
  FILE* damaged = std::fopen((folder() / "damaged.safetensors").c_str(), "w");
  std::fputs("12345678{}", damaged);
  std::fclose(damaged);
  auto* const shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  *shared = {};
  Attack attack("wrong calls of the library", 1500);
  while (attack.next()) {
    // One process for 25 tries: it begins without any state of the library.
    const pid_t child = fork();
    if (child == 0) {
      const rlimit memory = {kMemory, kMemory};
      setrlimit(RLIMIT_AS, &memory);
      std::string fault;
      for (int i = 0; i < 25; ++i) {
        shared->number = attack.number();
        fault = run_program(attack, *shared);
        if (!fault.empty()) {
          std::printf("%s: %s\n", attack.where().c_str(), fault.c_str());
          std::fflush(stdout);
          _exit(1);
        }
        if (i < 24 && !attack.next()) break;
      }
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (status != 0) {
      ADD_FAILURE() << "try " << shared->number << ", in " << shared->last << ": status " << status
                    << " (256: above; else the signal: 11 a fault of memory, 6 an abort, 14 no end)";
      attack.count("faults");
    }
    for (int i = 0; i < 24 && attack.next(); ++i) continue;
  }
  attack.count("calls", shared->calls);
  attack.count("of them refused", shared->refused);
  munmap(shared, sizeof(Shared));
}

// What the attack found: these went through each of the windows, of however many.
TEST(Calls, WindowsBeyondTheTensorCostNothing) {
  const Tensor x = from_data(std::vector<float>{1, -2, 3, 4, 0, 2}, {1, 3, 2});
  const Tensor far = local_response_norm(x, 1 << 20, 0.5), whole = local_response_norm(x, 5, 0.5 * 5 / (1 << 20));
  EXPECT_EQ(far.to_vector<float>(), whole.to_vector<float>());
  constexpr std::int64_t kMany = 100000;
  const std::vector<float> row = {3, 1, 2},
                           most = adaptive_max_pool1d(from_data(row, {1, 1, 3}), kMany).to_vector<float>();
  ASSERT_EQ(most.size(), static_cast<std::size_t>(kMany));
  for (std::int64_t i = 0; i < kMany; ++i) {
    const std::int64_t begin = i * 3 / kMany, end = ((i + 1) * 3 + kMany - 1) / kMany;
    ASSERT_EQ(most[static_cast<std::size_t>(i)], *std::max_element(row.begin() + begin, row.begin() + end)) << i;
  }
}

}  // namespace
}  // namespace graven::attack
