// Whatever passes run, in whatever selection, a graph computes the same: outputs, gradients, and what it writes into
// buffers, parameters and optimizer state. Computed by the reference kernels in double, so that only the order of sums
// differs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "codegen/targets/cuda/target.h"
#include "frontend/eager/executor.h"
#include "graphs.h"
#include "ir/ops.h"
#include "ir/passes/pass.h"
#include "ir/tensor_value.h"
#include "ir/text.h"
#include "tests/read_text.h"
#include "tests/tolerances.h"

namespace graven::tests {
namespace {

using Results = std::map<std::string, std::vector<double>>;

/// Values for everything that a graph reads, drawn by name, so that the same graph at another stage gets the same.
eager::Environment inputs_of(const Graph& g) {
  eager::Environment values;
  for (std::size_t v = 0; v < g.values.size(); ++v) {
    const ir::Value& value = g.values[v];
    if (value.kind == ir::ValueKind::node || value.kind == ir::ValueKind::constant) continue;
    std::mt19937 random(static_cast<std::uint32_t>(std::hash<std::string>()(value.name)));
    const Shape shape = Shape::of(value.type.shape.maxima());
    std::vector<double> elements(static_cast<std::size_t>(shape.numel().value()));
    for (double& e : elements) {
      if (value.kind == ir::ValueKind::hyper)
        e = value.name == "step" ? 3 : 0.05;
      else if (ir::is_floating(value.type.dtype))
        e = (static_cast<double>(random() >> 8) / (1 << 24) - 0.5) * 1.5;
      else
        e = static_cast<double>(random() % 5);
      // Variances, and squares' means, are positive.
      if (value.name.ends_with("running_var") || value.name.ends_with("-v")) e = std::abs(e) + 0.5;
    }
    values[static_cast<ValueId>(v)] = *ir::tensor_data({value.type.dtype, shape}, elements);
  }
  return values;
}

Results run(const Graph& g) {
  eager::Environment values = inputs_of(g);
  eager::execute(g, values, {.oracle = eager::Oracle::double_reference, .symbols = {}, .keep_all = true});
  Results results;
  auto record = [&](const std::string& name, ValueId v) {
    const ir::TensorData data = eager::convert(values.at(v), DType::f64);
    std::vector<double>& elements = results[name];
    elements.resize(data.bytes.size() / sizeof(double));
    std::memcpy(elements.data(), data.bytes.data(), data.bytes.size());
  };
  for (std::size_t i = 0; i < g.outputs.size(); ++i) record("output " + std::to_string(i), g.outputs[i]);
  for (const ir::Gradient& gradient : g.gradients)
    record("gradient of " + g.value(gradient.parameter).name, gradient.value);
  for (ValueId v : g.parameters) record(g.value(v).name, v);
  for (ValueId v : g.states) record(g.value(v).name, v);
  return results;
}

void expect_equal(const Results& expected, const Results& found, const std::string& what) {
  ASSERT_EQ(expected.size(), found.size()) << what;
  for (const auto& [name, elements] : expected) {
    const auto other = found.find(name);
    ASSERT_NE(other, found.end()) << what << ": " << name;
    ASSERT_EQ(other->second.size(), elements.size()) << what << ": " << name;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      // Folded constants are rounded to f32; the oracle rounds nothing.
      const double tolerance = tolerance::rewritten.f32 * (1 + std::abs(elements[i]));
      if (std::isnan(elements[i]) && std::isnan(other->second[i])) continue;  // of what is hidden as a whole
      ASSERT_NEAR(other->second[i], elements[i], tolerance) << what << ": " << name << "[" << i << "]";
    }
  }
}

/// Computes `make()` with the fewest passes and with random selections, and compares.
void check(const std::string& name, const std::function<Graph()>& make, std::mt19937& random, int trials) {
  ir::PassOptions least;
  for (const ir::Pass& pass : ir::pipeline())
    if (pass.name != "differentiate" && pass.name != "clip_gradients" && pass.name != "add_optimizer_updates" &&
        pass.name.substr(0, 9) != "decompose")
      least.disabled.emplace_back(pass.name);
  Graph plain = make();
  ir::run_passes(plain, least);
  const Results expected = run(plain);
  ASSERT_FALSE(expected.empty());
  for (int trial = 0; trial < trials; ++trial) {
    ir::PassOptions options;
    std::string left_out;
    for (const std::string& pass : least.disabled)
      if (trial > 0 && random() % 3 == 0) {
        options.disabled.push_back(pass);
        left_out += " " + pass;
      }
    Graph g = make();
    ir::run_passes(g, options);
    expect_equal(expected, run(g), name + " without" + left_out);
    if (testing::Test::HasFatalFailure()) return;  // it has failed
  }
}

TEST(Equivalence, AnySelectionOfPassesComputesTheSame) {
  const std::pair<std::string, Graph (*)()> networks[] = {
      {"mlp", [] { return mlp_training(4, 8); }},
      {"lenet", [] { return lenet_training(2); }},
      {"lenet_inference", [] { return lenet_inference(2); }},
      {"residual_inference", [] { return residual_inference(2); }},
      {"norms_inference", norms_inference},
      {"residual_training", [] { return residual_training(2); }},
      {"wide_inference", wide_inference},
      {"inverted_residuals", [] { return inverted_residuals(2); }},
      {"polynomial", [] { return polynomial_training(20); }},
  };
  std::mt19937 random(7);
  for (const auto& [name, make] : networks) check(name, make, random, 6);
}

/// A graph of the inputs x, y f32[2,3] and what `build` makes of them.
Graph of(void (*build)(Graph&, Recorder&, ValueId x, ValueId y)) {
  Graph g;
  g.name = "Border";
  const ValueId x = g.add_input("x", {DType::f32, {2, 3}}), y = g.add_input("y", {DType::f32, {2, 3}});
  Recorder record(g);
  build(g, record, x, y);
  return g;
}

ValueId batch_norm_of(Graph& g, Recorder& r, ValueId x) {
  const auto vector = [&](const char* name, bool is_buffer) {
    const ir::TensorType type{DType::f32, {4}};
    return is_buffer ? g.add_buffer(name, type) : g.add_parameter(name, type, true);
  };
  return r(
      "norm", "batch_norm",
      {x, vector("gamma", false), vector("beta", false), vector("running_mean", true), vector("running_var", true)});
}

// What nearly is what a pass looks for, and must stay as it is: each differs by one condition.
TEST(Equivalence, WhatIsNearlyARewriteIsNone) {
  const std::pair<std::string, Graph (*)()> borders[] = {
      {"a sum over a write",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId y) {
           const ValueId buffer = g.add_buffer("buffer", {DType::f32, {2, 3}}), squares = r("", "square", {buffer});
           g.donations.push_back({buffer, x});
           g.outputs = {r("", "sum", {squares}, {{"dims", Ints{1}}}), y};
         });
       }},
      {"a chain over a write",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId y) {
           const ValueId buffer = g.add_buffer("buffer", {DType::f32, {2, 3}}), sine = r("", "sin", {buffer});
           g.donations.push_back({buffer, x});
           g.outputs = {r("", "tanh", {sine}), y};
         });
       }},
      {"a number that gives the shape",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId y) {
           const ValueId row = g.add_input("row", {DType::f32, {3}});
           const ValueId twos = r("", "full", {}, {{"shape", Shape{2, 3}}, {"value", 2.0}, {"dtype", DType::f32}});
           g.outputs = {r("", "tanh", {r("", "mul", {row, twos})}), x, y};
         });
       }},
      {"a residual over a write",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId y) {
           const ValueId buffer = g.add_buffer("buffer", {DType::f32, {2, 3}});
           const ValueId sum = r("", "add", {r("", "linear", {x, parameter(g, "w", {3, 3})}), buffer});
           g.donations.push_back({buffer, y});
           g.outputs = {r("", "tanh", {sum})};
         });
       }},
      {"a product over a write",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId y) {
           const ValueId buffer = g.add_buffer("buffer", {DType::f32, {3, 2}}), product = r("", "matmul", {x, buffer});
           g.donations.push_back({buffer, r("", "permute", {y}, {{"dims", Ints{1, 0}}})});
           g.outputs = {r("", "tanh", {product})};
         });
       }},
      {"a packed weight over a write",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId y) {
           const ValueId buffer = g.add_buffer("buffer", {DType::f32, {2, 3}}), before = r("", "linear", {x, buffer});
           g.donations.push_back({buffer, y});
           g.outputs = {before, r("", "linear", {x, buffer})};
         });
       }},
      {"what is prepared before a write",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId y) {
           const ValueId buffer = g.add_buffer("buffer", {DType::f32, {2, 3}});
           g.donations.push_back({buffer, x});
           g.outputs = {r("", "mul", {r("", "sin", {buffer}), y})};
         });
       }},
      {"an image over a write",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId images = g.add_input("images", {DType::f32, {2, 3, 4, 4}}),
                         buffer = g.add_buffer("buffer", {DType::f32, {2, 3, 4, 4}});
           const ValueId w = parameter(g, "w", {4, 3, 3, 3}), before = r("", "conv2d", {buffer, w});
           g.donations.push_back({buffer, images});
           g.outputs = {before, r("", "conv2d", {buffer, w})};
         });
       }},
      {"a bias that changes from call to call, of a product that does not",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId row = g.add_input("row", {DType::f32, {4}});
           g.outputs = {r("", "add", {r("", "linear", {parameter(g, "v", {2, 3}), parameter(g, "w", {4, 3})}), row})};
         });
       }},
      {"a product of a transposed matrix",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId) {
           g.outputs = {r("", "matmul", {x, parameter(g, "w", {2, 4})}, {{"transpose_a", true}})};
         });
       }},
      {"a batch norm of what is read besides",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId x =
               r("", "conv2d", {g.add_input("images", {DType::f32, {2, 3, 4, 4}}), parameter(g, "w", {4, 3, 3, 3})});
           g.outputs = {batch_norm_of(g, r, x), r("", "tanh", {x})};
         });
       }},
      {"a batch norm of a result",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId x =
               r("", "conv2d", {g.add_input("images", {DType::f32, {2, 3, 4, 4}}), parameter(g, "w", {4, 3, 3, 3})});
           g.outputs = {batch_norm_of(g, r, x), x};
         });
       }},
      {"a batch norm of a linear layer's rows",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId x = r("", "linear", {g.add_input("rows", {DType::f32, {2, 4, 3}}), parameter(g, "w", {4, 3})});
           g.outputs = {batch_norm_of(g, r, x)};
         });
       }},
      {"a batch norm of a layer whose weight is an input",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId x = r(
               "", "conv2d",
               {g.add_input("images", {DType::f32, {2, 3, 4, 4}}), g.add_input("kernel", {DType::f32, {4, 3, 3, 3}})});
           g.outputs = {batch_norm_of(g, r, x)};
         });
       }},
      {"a flattened image that is a result",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId x =
               r("", "max_pool2d", {g.add_input("images", {DType::f32, {2, 3, 4, 4}})}, {{"kernel_size", Ints{2, 2}}});
           const ValueId flat = r("", "reshape", {x}, {{"shape", Shape{2, 12}}});
           g.outputs = {r("", "linear", {flat, parameter(g, "w", {5, 12})}), flat};
         });
       }},
      {"one weight in convolutions of two strides",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId images = g.add_input("images", {DType::f32, {2, 4, 8, 8}}),
                         w = parameter(g, "w", {4, 4, 3, 3});
           const ValueId x = r("", "mul", {images, parameter(g, "scale", {4, 1, 1})});
           const ValueId one = r("", "conv2d", {x, w}, {{"padding", Ints{1, 1}}}),
                         two = r("", "conv2d", {x, w}, {{"padding", Ints{1, 1}}, {"stride", Ints{2, 2}}});
           const auto mean = [&](ValueId v) { return r("", "mean", {r("", "tanh", {v})}, {{"dims", Ints{}}}); };
           g = train(g, r("", "add", {mean(one), mean(two)}), sgd(g));
         });
       }},
      {"a gradient that is given to backward()",
       [] {
         return of([](Graph& g, Recorder& r, ValueId x, ValueId y) {
           const ValueId result = r("", "linear", {x, parameter(g, "w", {3, 3})}), gradient = r("", "tanh", {y});
           g = train(g, result, sgd(g));
           g.losses = {{result, gradient}};
         });
       }},
      {"a layer whose input is a parameter, too",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId query = parameter(g, "a.query", {4, 784}), w = parameter(g, "b.w", {160, 784});
           g = train(g, r("", "mean", {r("", "square", {r("b", "linear", {query, w})})}, {{"dims", Ints{}}}), sgd(g));
           g.config[std::string(ir::kUpdateInBackward)] = true;
         });
       }},
      {"a bias that is computed",
       [] {
         return of([](Graph& g, Recorder& r, ValueId, ValueId) {
           const ValueId rows = g.add_input("rows", {DType::f32, {4, 784}}),
                         bias = r("b", "tanh", {parameter(g, "b.bias", {160})});
           const ValueId y = r("b", "linear", {rows, parameter(g, "b.w", {160, 784}), bias});
           g = train(g, r("", "mean", {r("", "square", {y})}, {{"dims", Ints{}}}), sgd(g));
           g.config[std::string(ir::kUpdateInBackward)] = true;
         });
       }},
  };
  std::mt19937 random(13);
  for (const auto& [name, make] : borders) check(name, make, random, 3);
}

// What lies behind a convolution is computed with the channels last: every operator that follows, with what it says of
// each dimension. The dimensions differ in size, and what is said of them differs on both sides.
TEST(Equivalence, WhatFollowsAConvolutionKeepsItsDimensions) {
  struct Case {
    std::string what;
    std::function<ValueId(Graph& g, Recorder& r, ValueId x)> build;
  };
  std::vector<Case> cases;
  const auto one = [&](const std::string& op, const Attributes& attributes, const std::string& note) {
    cases.push_back({op + " " + note, [=](Graph&, Recorder& r, ValueId x) { return r("", op, {x}, attributes); }});
  };
  const auto text = [](const Ints& numbers) {
    std::string all;
    for (const std::int64_t n : numbers) all += std::to_string(n) + ",";
    return all;
  };
  for (std::size_t d = 0; d < 4; ++d)
    for (std::size_t side = 0; side < 2; ++side) {
      Ints pads(8, 0);
      pads[2 * d + side] = 1 + static_cast<std::int64_t>(d);
      one("pad", {{"pads", pads}, {"value", 0.25}}, text(pads));
      pads[2 * d + side] = 1;
      if (d >= 2) one("pad_border", {{"pads", pads}, {"mode", std::string("reflect")}}, text(pads));
    }
  one("pad", {{"pads", Ints{0, 1, 2, 0, 0, 3, 1, 2}}, {"value", -0.5}}, "on all sides");
  for (std::int64_t d = 0; d < 4; ++d) {
    one("slice", {{"dim", d}, {"start", std::int64_t{1}}, {"end", std::int64_t{2}}, {"step", std::int64_t{1}}},
        std::to_string(d));
    one("cumsum", {{"dim", d}}, std::to_string(d));
    one("cumprod", {{"dim", d}}, std::to_string(d));
    cases.push_back({"cat " + std::to_string(d), [=](Graph&, Recorder& r, ValueId x) {
                       return r("", "cat", {x, r("", "tanh", {x})}, {{"dim", d}});
                     }});
    for (const char* op : {"sum", "mean", "amax", "prod"})
      for (const bool keep : {false, true}) {
        one(op, {{"dims", Ints{d}}, {"keepdim", keep}}, std::to_string(d) + (keep ? " kept" : ""));
        for (std::int64_t e = d + 1; e < 4; ++e)
          one(op, {{"dims", Ints{d, e}}, {"keepdim", keep}}, text({d, e}) + (keep ? " kept" : ""));
      }
  }
  for (Ints dims{0, 1, 2, 3};;) {
    one("permute", {{"dims", dims}}, text(dims));
    if (!std::next_permutation(dims.begin(), dims.end())) break;
  }
  for (const Shape& shape :
       {Shape{2, 60}, Shape{4, 30}, Shape{2, 3, 20}, Shape{2, 12, 5}, Shape{120}, Shape{2, 3, 2, 2, 5}})
    one("reshape", {{"shape", shape}}, shape.to_string());
  for (const Shape& shape :
       {Shape{5}, Shape{4, 1}, Shape{3, 1, 1}, Shape{3, 4, 5}, Shape{2, 1, 1, 5}, Shape{1, 3, 4, 1}, Shape{}})
    for (const char* op : {"sub", "maximum"})
      cases.push_back({op + (" with " + shape.to_string()), [=](Graph& g, Recorder& r, ValueId x) {
                         return r("", op, {parameter(g, "beside", shape), x});
                       }});
  cases.push_back({"softmax of channels",
                   [](Graph&, Recorder& r, ValueId x) { return r("", "softmax", {x}, {{"dim", std::int64_t{1}}}); }});
  cases.push_back({"linear of columns", [](Graph& g, Recorder& r, ValueId x) {
                     return r("", "linear",
                              {r("", "reshape", {x}, {{"shape", Shape{2, 60}}}), parameter(g, "columns", {7, 60})});
                   }});
  std::mt19937 random(17);
  for (const Case& c : cases)
    for (const bool trains : {false, true}) {
      const auto make = [&] {
        Graph g;
        g.name = "Follows";
        Recorder r(g);
        const ValueId images = g.add_input("images", {DType::f32, {2, 2, 4, 5}}), w = parameter(g, "w", {3, 2, 3, 3});
        const ValueId x = r("", "conv2d", {images, w}, {{"padding", Ints{1, 1}}}), y = c.build(g, r, x);
        if (!trains) {
          // As it is, and where an image goes on.
          g.outputs = {y};
          if (g.type(y).shape.rank() == 4 && g.type(y).shape[1] == ir::Dim(3))
            g.outputs.push_back(r("", "conv2d", {y, parameter(g, "more", {2, 3, 1, 1})}));
          return g;
        }
        // Each element with a weight of its own.
        const ValueId weighted = r("", "mul", {y, parameter(g, "weights", g.type(y).shape)});
        Ints all(g.type(y).shape.rank());
        std::iota(all.begin(), all.end(), 0);
        return train(g, r("", "sum", {r("", "tanh", {weighted})}, {{"dims", all}}), sgd(g));
      };
      check(c.what + (trains ? ", its gradient" : ""), make, random, 2);
      if (testing::Test::HasFatalFailure()) FAIL() << c.what;
    }
}

/// A random network of elementwise nodes, movements of data, reductions, products, convolutions and pooling; values
/// stay moderate.
Graph random_network(std::uint32_t seed) {
  std::mt19937 random(seed);
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Graph g;
  g.name = "Random" + std::to_string(seed);
  Recorder r(g);
  std::vector<ValueId> pool{g.add_input("x", {DType::f32, {2, 4}}), g.add_input("image", {DType::f32, {2, 4, 6, 6}}),
                            parameter(g, "row", {4}), parameter(g, "column", {2, 1}), parameter(g, "matrix", {2, 4})};
  auto pick = [&] { return pool[below(pool.size())]; };
  auto shape = [&](ValueId v) { return g.type(v).shape; };
  constexpr std::string_view kUnary[] = {"tanh", "sigmoid", "neg", "relu", "abs", "sin"};
  constexpr std::string_view kBinary[] = {"add", "sub", "mul", "maximum", "minimum"};
  constexpr double kNumbers[] = {0, 1, -1, 0.5, 2, 0.3};
  const std::size_t steps = 12 + below(16);
  for (std::size_t step = 0; step < steps; ++step) {
    const std::string path = "block" + std::to_string(step);
    const ValueId x = pick();
    ValueId y = ir::kNone;
    switch (below(12)) {
      case 0:
      case 1:
        y = r(path, kUnary[below(std::size(kUnary))], {x});
        break;
      case 2:
      case 3: {
        const ValueId other = pick();
        if (!ir::broadcast(shape(x), shape(other))) continue;
        y = r(path, kBinary[below(std::size(kBinary))], {x, other});
        break;
      }
      case 4:
        y = r(path, kBinary[below(2) + below(2)], {x, r.number(kNumbers[below(std::size(kNumbers))])});
        break;
      case 5: {
        const ValueId other = pick();
        if (!ir::broadcast(shape(x), shape(other))) continue;
        y = r(path, "where", {r(path, "gt", {x, other}), x, other});
        break;
      }
      case 6: {
        Ints dims;
        for (std::size_t d = 0; d < shape(x).rank(); ++d)
          dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(below(d + 1)), static_cast<std::int64_t>(d));
        y = r(path, "permute", {x}, {{"dims", dims}});
        break;
      }
      case 7: {
        if (shape(x).empty()) continue;
        const auto dim = static_cast<std::int64_t>(below(shape(x).rank()));
        y = r(path, "mean", {x}, {{"dims", Ints{dim}}, {"keepdim", below(2) == 0}});
        break;
      }
      case 8:
        y = r(path, "cast", {r(path, "cast", {x}, {{"dtype", DType::f64}})}, {{"dtype", DType::f32}});
        break;
      case 9: {
        if (shape(x).rank() < 2 || shape(x).back() != ir::Dim(4)) continue;
        const ValueId w = parameter(g, path + ".weight", {4, 4});
        y = below(2) ? r(path, "matmul", {x, w}) : r(path, "linear", {x, w, parameter(g, path + ".bias", {4})});
        break;
      }
      default: {
        if (shape(x).rank() != 4 || shape(x)[1] != ir::Dim(4) || shape(x)[2].value() < 3 || shape(x)[3].value() < 3)
          continue;
        if (below(3) == 0)
          y = r(path, "max_pool2d", {x}, {{"kernel_size", Ints{2, 2}}});
        else
          y = r(path, "conv2d", {x, parameter(g, path + ".weight", {4, 4, 3, 3}), parameter(g, path + ".bias", {4})},
                {{"padding", Ints{1, 1}}});
      }
    }
    if (shape(y).numel().value() > 4096) continue;
    pool.push_back(y);
  }
  ValueId loss = ir::kNone;
  for (std::size_t i = pool.size() - std::min<std::size_t>(pool.size(), 6); i < pool.size(); ++i) {
    const ValueId part = r("loss", "mean", {r("loss", "square", {r("loss", "tanh", {pool[i]})})}, {{"dims", Ints{}}});
    loss = loss == ir::kNone ? part : r("loss", "add", {loss, part});
  }
  if (seed % 3 != 0) {  // the others are inference
    loss = r("loss", "add", {loss, r("loss", "mean", {parameter(g, "direct", {3})}, {{"dims", Ints{}}})});
    return train(g, loss, sgd(g));
  }
  g.outputs = {loss, pool.back(), pool[0]};
  return g;
}

/// The cases of the pass compute the same as one operator and as several, with their scales, masks and groups.
TEST(Equivalence, Attention) {
  const std::filesystem::path cases = std::filesystem::path(GRAVEN_SOURCE_DIR) / "tests/passes/recognize_attention";
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cases)) {
    const std::string text = graven::read_text(entry.path());
    const auto after = [&](std::initializer_list<const char*> passes) {
      Graph g = ir::from_text(text.substr(0, text.find("==== after ")), entry.path().string());
      ir::PassOptions options;
      options.target = &codegen::cuda_target().passes;
      for (const char* pass : passes) {
        options.from = options.to = pass;
        ir::run_passes(g, options);
      }
      return g;
    };
    const Graph g = after({"recognize_attention", "decompose_matmuls"});
    for (const ir::Node& node : g.nodes) found += node.is(ir::kAttention);
    expect_equal(run(after({"decompose_matmuls"})), run(g), entry.path().filename().string());
  }
  EXPECT_GE(found, 20);
}

/// Attention to other lengths, whose heads share keys and values, with a mask and with dropout: queries, keys and
/// values are layers.
Graph attention_training() {
  Graph g;
  g.name = "TrainAttention";
  Recorder r(g);
  const ValueId x = g.add_input("x", {DType::f32, {2, 4, 6, 8}}), z = g.add_input("z", {DType::f32, {2, 2, 9, 8}}),
                mask = g.add_input("mask", {DType::f32, {2, 1, 1, 9}}), seed = g.add_hyper(ir::kSeedName, DType::i64),
                step = g.add_hyper(ir::kStepName, DType::i64);
  const auto layer = [&](const std::string& name, ValueId of) {
    return r(name, "linear", {of, parameter(g, name + ".weight", {8, 8}), parameter(g, name + ".bias", {8})});
  };
  const auto repeated = [&](ValueId v) {
    const ValueId one = r("", "reshape", {v}, {{"shape", Shape{2, 2, 1, 9, 8}}});
    return r("", "reshape", {r("", "expand", {one}, {{"shape", Shape{2, 2, 2, 9, 8}}})},
             {{"shape", Shape{2, 4, 9, 8}}});
  };
  const ValueId q = layer("q", x), k = repeated(layer("k", z)), v = repeated(layer("v", z));
  const ValueId scores = r("", "add", {r("", "matmul", {q, k}, {{"transpose_b", true}}), mask});
  const ValueId weights = r("", "dropout", {r("", "softmax", {scores}, {{"dim", std::int64_t{3}}}), seed, step},
                            {{"p", 0.3}, {"stream", std::int64_t{11}}});
  const ValueId y = layer("y", r("", "matmul", {weights, v}));
  const ValueId loss = r("loss", "mean", {r("loss", "square", {y})}, {{"dims", Ints{}}});
  return train(g, loss, sgd(g));
}

/// A step's loss, gradients and update are the same where attention is one operator, forward and backward, which drops
/// the weights that dropout by itself drops.
TEST(Equivalence, AttentionTrainsWithDropout) {
  const auto after = [&](std::vector<std::string> disabled, const ir::TargetTraits& target) {
    Graph g = attention_training();
    ir::PassOptions options;
    options.target = &target;
    options.disabled = std::move(disabled);
    ir::run_passes(g, options);
    return g;
  };
  const Graph g = after({}, codegen::cuda_target().passes);
  int found = 0;
  for (const ir::Node& node : g.nodes) {
    found += node.is(ir::kAttention, ir::kAttentionBackward);
    EXPECT_FALSE(node.is(ir::kDropout));
  }
  EXPECT_EQ(found, 2);
  const Results expected = run(after({"recognize_attention"}, codegen::cuda_target().passes));
  expect_equal(expected, run(g), "one operator");
  expect_equal(expected, run(after({}, ir::kHost)), "on a CPU");
}

TEST(Equivalence, RandomNetworks) {
  std::mt19937 random(11);
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    check("seed " + std::to_string(seed), [&] { return random_network(seed); }, random, 3);
    if (testing::Test::HasFatalFailure()) FAIL() << "the first that differs";
  }
}

}  // namespace
}  // namespace graven::tests
