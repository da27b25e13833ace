// Each pass alone: the graph before it and the graph after it, as texts in tests/passes/<pass>/<case>.{before,after}.json. `test_passes --bless`
// writes them anew; the difference is for the reviewer to read.
#include "ir/passes/pass.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>

#include "graphs.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/verify.h"

namespace graven::tests {
namespace {

bool bless = false;

struct Case {
  std::string pass, name;
  Graph (*before)();
  ir::Target target = ir::Target::cpu;
};

/// The graph as the pass finds it in the pipeline.
Graph prepared(Graph g, const std::string& until) {
  ir::PassOptions options;
  options.to = until;
  ir::run_passes(g, options);
  return g;
}

Graph small_mlp() { return mlp_training(4, 8); }

/// A graph of one input x f32[2,3] and what `build` makes of it.
Graph of(void (*build)(Graph&, Recorder&, ValueId)) {
  Graph g;
  g.name = "Case";
  const ValueId x = g.add_input("x", {DType::f32, {2, 3}});
  Recorder record(g);
  build(g, record, x);
  return g;
}

Graph dead_nodes() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    r("dead", "relu", {r("dead", "exp", {x})});
    g.outputs = {r("alive", "tanh", {x})};
  });
}

Graph shared_parameter() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId w = parameter(g, "w", {3, 3}), frozen = g.add_parameter("frozen", {DType::f32, {3}}, false);
    ValueId y = r("a", "tanh", {r("a", "linear", {x, w, frozen})});
    y = r("b", "linear", {y, w});
    y = r("b", "add", {y, r("b", "detach", {y})});
    g = train(g, r("loss", "mean", {r("loss", "square", {y})}, {{"dims", Ints{}}}), sgd(g, 0));
    g.optimizers[0].groups[0].parameters = {w};
  });
}

/// A part of a dimension that counts the batch: its gradient has zeros before it and behind it.
Graph part_of_batch() {
  return of([](Graph& g, Recorder& r, ValueId) {
    const ValueId rows = g.add_input("rows", {DType::f32, {ir::Dim("batch", 4) * ir::Dim(4), 3}});
    const ValueId scaled = r("a", "mul", {rows, parameter(g, "w", {3})});
    const ValueId part =
        r("a", "slice", {scaled}, {{"dim", std::int64_t{0}}, {"start", std::int64_t{1}}, {"end", std::int64_t{3}}, {"of_symbol", true}});
    g = train(g, r("loss", "mean", {r("loss", "square", {part})}, {{"dims", Ints{}}}), sgd(g, 0));
  });
}

/// The classes' probabilities beside the loss, and a gradient through both.
Graph probabilities() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId labels = g.add_input("labels", {DType::i64, {2}});
    const std::vector<ValueId> out = r.all("loss_fn", "cross_entropy", {r("a", "mul", {x, parameter(g, "w", {3})}), labels});
    const ValueId largest = r("loss", "mean", {r("loss", "amax", {out[1]}, {{"dims", Ints{1}}})}, {{"dims", Ints{}}});
    g = train(g, r("loss", "add", {out[0], largest}), sgd(g, 0));
  });
}

/// An embedding whose weight is the output layer's, too.
Graph shared_embedding() {
  Graph g;
  g.name = "Case";
  const ValueId tokens = g.add_input("tokens", {DType::i64, {5}}), w = parameter(g, "w", {7, 3});
  Recorder r(g);
  const ValueId y = r("head", "linear", {r("tokens", "embedding", {w, tokens}), w});
  return train(g, r("loss", "mean", {r("loss", "square", {y})}, {{"dims", Ints{}}}), sgd(g, 0));
}

Graph asking_for_update_in_backward(Graph g) {
  g.config[std::string(ir::kUpdateInBackward)] = true;
  return g;
}

/// The biases in a group of their own, as they are where only weights decay.
Graph with_groups(Graph g) {
  std::vector<ir::ParameterGroup>& groups = g.optimizers[0].groups;
  groups.push_back(groups[0]);
  groups[1].parameters = {groups[0].parameters[1], groups[0].parameters[3]};
  groups[0].parameters = {groups[0].parameters[0], groups[0].parameters[2]};
  return g;
}

/// One norm over all gradients, or one for the weights and another for the biases.
Graph clipping(Graph g) {
  g.optimizers[0].groups[0].options.insert({{"clip_grad_max_norm", 1}, {"clip_grad_norm_type", 2}});
  return g;
}
Graph clipping_apart(Graph g) {
  g = with_groups(std::move(g));
  std::vector<ir::ParameterGroup>& groups = g.optimizers[0].groups;
  groups[0].options.insert({{"clip_grad_max_norm", 0.5}, {"clip_grad_norm_type", std::numeric_limits<double>::infinity()}});
  groups[1].options.insert({{"clip_grad_max_norm", 2}, {"clip_grad_norm_type", 3}});
  return g;
}

Graph clipping_weights_only() {
  Graph g = clipping_apart(small_mlp());
  for (const char* option : {"clip_grad_max_norm", "clip_grad_norm_type"}) g.optimizers[0].groups[1].options.erase(option);
  return g;
}

/// Two linear layers without biases, the second one's weight larger than the caches.
Graph large_weight() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId small = parameter(g, "small", {3, 3}), large = parameter(g, "large", {1500000, 3});
    const ValueId y = r("b", "linear", {r("a", "tanh", {r("a", "linear", {x, small})}), large});
    g = train(g, r("loss", "mean", {r("loss", "square", {y})}, {{"dims", Ints{}}}), sgd(g, 0));
  });
}

Graph algebra() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId zero = r.number(0), one = r.number(1), two = r.number(2);
    ValueId y = r("", "div", {r("", "mul", {r("", "add", {x, zero}), one}), two});
    y = r("", "neg", {r("", "neg", {y})});
    y = r("", "pow", {y, two});
    y = r("", "permute", {r("", "permute", {y}, {{"dims", Ints{1, 0}}})}, {{"dims", Ints{1, 0}}});
    y = r("", "reshape", {r("", "reshape", {y}, {{"shape", Shape{6}}})}, {{"shape", Shape{3, 2}}});
    const ValueId row = r("", "expand", {g.add_input("row", {DType::f32, {2}})}, {{"shape", Shape{3, 2}}});
    y = r("", "sub", {y, r("", "neg", {row})});
    y = r("", "cast", {r("", "cast", {y}, {{"dtype", DType::f64}})}, {{"dtype", DType::f32}});
    y = r("", "matmul", {r("", "permute", {x}, {{"dims", Ints{1, 0}}}), r("", "permute", {y}, {{"dims", Ints{1, 0}}})});
    g.outputs = {y};
  });
}

/// Copies of what is written into are not what they are copies of.
Graph copies() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId buffer = g.add_buffer("buffer", {DType::f32, {2, 3}}), w = parameter(g, "w", {2, 3}), v = parameter(g, "v", {2, 3});
    const ValueId one = r.number(1), before = r("", "mul", {buffer, one});
    r.all("", "assign", {buffer, x});
    const ValueId product = r("", "mul", {r("", "mul", {w, one}), r("", "mul", {v, one})});
    const ValueId loss = r("", "sum", {r("", "add", {product, before})}, {{"dims", Ints{}}});
    g = train(g, loss, sgd(g, 0));
  });
}

/// The same through views: what is written into is read under another shape.
Graph copies_of_views() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId buffer = g.add_buffer("buffer", {DType::f32, {3, 2}}), w = parameter(g, "w", {2, 3}), v = parameter(g, "v", {3, 2});
    const ValueId one = r.number(1), before = r("", "mul", {r("", "reshape", {buffer}, {{"shape", Shape{2, 3}}}), one});
    r.all("", "assign", {buffer, r("", "reshape", {x}, {{"shape", Shape{3, 2}}})});
    // The gradient of v is a view of a copy of w, which the same update changes.
    const ValueId product = r("", "mul", {w, r("", "reshape", {v}, {{"shape", Shape{2, 3}}})});
    const ValueId loss = r("", "add", {r("", "sum", {product}, {{"dims", Ints{}}}), r("", "sum", {before}, {{"dims", Ints{}}})});
    g = train(g, loss, sgd(g, 0));
  });
}

/// What nearly is an identity, and stays: inexact casts and numbers, a mask of another image, another number where it does not hold, what is
/// read again, a size that is not known.
Graph no_identities() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId half = g.add_input("half", {DType::f16, {3}}), count = g.add_input("count", {DType::i32, {3}});
    const ValueId wide = g.add_input("wide", {DType::f64, {3}}), rows = g.add_input("rows", {DType::f32, {ir::Dim("batch", 4), 3}});
    const auto cast = [&](ValueId v, DType dtype) { return r("", "cast", {v}, {{"dtype", dtype}}); };
    g.outputs = {cast(cast(half, DType::bf16), DType::f32), cast(cast(count, DType::f32), DType::f64),
                 r("", "mul", {r("", "mul", {x, r.number(3)}), r.number(5)}), r("", "div", {wide, r.number(3, DType::f64)})};
    const ValueId image = g.add_input("image", {DType::f32, {1, 2, 4, 4}}), other = g.add_input("other", {DType::f32, {1, 2, 4, 4}});
    const std::vector<ValueId> pooled = r.all("", "max_pool2d", {image}, {{"kernel_size", Ints{2, 2}}});
    Attributes backward{{"kernel_size", Ints{2, 2}}, {"input_shape", Shape{1, 2, 4, 4}}};
    const ValueId dz = g.add_input("dz", {DType::f32, {1, 2, 2, 2}});
    const auto masked = [&](ValueId mask, double otherwise) {
      const ValueId dx = r("", "max_pool2d_backward", {dz, pooled[1]}, backward);
      return r("", "where", {r("", "gt", {mask, r.number(0)}), dx, r.number(otherwise)});
    };
    g.outputs.insert(g.outputs.end(), {pooled[0], masked(other, 0), masked(image, 1)});
    const ValueId index = g.add_input("index", {DType::i64, {2}}), table = g.add_input("table", {DType::f32, {5, 3}});
    const ValueId added = r("", "index_add", {x, index}, {{"dim", std::int64_t{0}}, {"size", std::int64_t{5}}});
    const ValueId twos = r("", "full", {}, {{"shape", Shape{ir::Dim("batch", 4), 3}}, {"value", 2.0}, {"dtype", DType::f32}});
    g.outputs.insert(g.outputs.end(), {r("", "add", {added, table}), added, rows, r("", "sum", {twos}, {{"dims", Ints{0}}})});
  });
}

/// Of one weight, packed more than once: it is written between two uses, or two convolutions step differently.
Graph packed_again() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId buffer = g.add_buffer("buffer", {DType::f32, {2, 3}}), before = r("", "linear", {x, buffer});
    r.all("", "assign", {buffer, x});
    const ValueId after = r("", "linear", {x, buffer}), again = r("", "linear", {after, r("", "permute", {buffer}, {{"dims", Ints{1, 0}}})});
    const ValueId images = g.add_input("images", {DType::f32, {2, 4, 8, 8}}), w = parameter(g, "w", {4, 4, 3, 3});
    const auto convolve = [&](std::int64_t stride) {
      return r("", "conv2d", {images, w}, {{"padding", Ints{1, 1}}, {"stride", Ints{stride, stride}}});
    };
    g.outputs = {before, after, again, convolve(1), convolve(2), r("", "tanh", {convolve(1)})};
  });
}

/// Results, what depends on the batch, and what is much larger than its inputs are computed in each call.
Graph unprepared() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId w = parameter(g, "w", {3}), rows = g.add_input("rows", {DType::f32, {ir::Dim("batch", 4), 3}});
    const ValueId repeated = r("", "expand", {r("", "sin", {w})}, {{"shape", Shape{ir::Dim("batch", 4), 3}}});
    const ValueId large = r("", "expand", {r("", "cos", {w})}, {{"shape", Shape{2000, 3}}});
    g.outputs = {r("", "exp", {w}), r("", "cat", {rows, repeated}, {{"dim", std::int64_t{1}}}), r("", "sum", {large}, {{"dims", Ints{0}}}), x};
  });
}

/// Work in another dtype is no epilogue.
Graph wider_residual() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId y = g.add_input("y", {DType::f32, {2, 4}});
    const auto cast = [&](ValueId v, DType dtype) { return r("", "cast", {v}, {{"dtype", dtype}}); };
    const ValueId residual = cast(r("", "sin", {cast(y, DType::f64)}), DType::f32);
    g.outputs = {r("", "add", {r("", "linear", {x, parameter(g, "w", {4, 3})}), residual})};
  });
}

/// Chains that end at a border: at what is computed once, and at a wider dtype.
Graph borders_of_chains() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId w = parameter(g, "w", {2, 3});
    const auto cast = [&](ValueId v, DType dtype) { return r("", "cast", {v}, {{"dtype", dtype}}); };
    const ValueId wide = r("", "exp", {cast(r("", "sin", {x}), DType::f64)});
    g.outputs = {r("", "mul", {r("", "tanh", {w}), x}), r("", "cos", {cast(wide, DType::f32)})};
  });
}

/// A weight that is read under another shape.
Graph view_of_weight() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId v = parameter(g, "a.v", {4, 3}), w = parameter(g, "b.w", {2, 10});
    ValueId y = r("a", "tanh", {r("a", "linear", {x, v})});
    y = r("b", "linear", {y, r("b", "reshape", {w}, {{"shape", Shape{5, 4}}})});
    g = train(g, r("loss", "mean", {r("loss", "square", {y})}, {{"dims", Ints{}}}), sgd(g, 0));
  });
}

/// Norms of f64 are formed in f64.
Graph clipping_wide() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId w = g.add_parameter("w", {DType::f64, {3}}, true), v = parameter(g, "v", {3});
    const ValueId y = r("", "mul", {r("", "cast", {r("", "mul", {x, v})}, {{"dtype", DType::f64}}), w});
    g = train(g, r("loss", "mean", {y}, {{"dims", Ints{}}}), sgd(g, 0));
    g.optimizers[0].groups[0].options.insert({{"clip_grad_max_norm", 1}, {"clip_grad_norm_type", 2}});
  });
}

Graph constants() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId table = g.add_constant("table", floats({2, 3}, {0, 1, 2, 3, 4, 5}));
    const ValueId turned = r("", "permute", {r("", "mul", {table, r.number(0.5)})}, {{"dims", Ints{1, 0}}});
    const ValueId ones = r("", "exp", {r("", "mul", {table, r.number(0)})});
    const ValueId folded = r("", "sqrt", {r("", "add", {r.number(3), r.number(1)})});
    g.outputs = {r("", "matmul", {x, turned}), r("", "mul", {x, ones}), r("", "mul", {x, folded})};
  });
}

/// Zeros of both signs are no number that stands everywhere; powers of integers are left to the kernels.
Graph no_one_number() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId signs = g.add_constant("signs", floats({3}, {1, -1, 1})), zeros = r("", "mul", {signs, r.number(0)});
    const auto whole = [&](double value) { return r.number(value, DType::i64); };
    const ValueId count = g.add_input("count", {DType::i64, {3}});
    g.outputs = {r("", "div", {x, zeros}), r("", "add", {count, r("", "pow", {whole(3), whole(20)})})};
  });
}

Graph repeats() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId y = g.add_input("y", {DType::f32, {2, 3}}), buffer = g.add_buffer("buffer", {DType::f32, {2, 3}});
    const ValueId a = r("first", "add", {x, y}), b = r("second", "add", {y, x});
    const ValueId before = r("", "exp", {buffer});
    r.all("", "assign", {buffer, a});
    const ValueId after = r("", "exp", {buffer});
    g.outputs = {r("", "mul", {a, b}), before, after, r("", "sub", {x, y}), r("", "sub", {y, x})};
  });
}

Graph matrices() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId w = parameter(g, "w", {3, 4}), b = parameter(g, "b", {4});
    g.outputs = {r("my_linear", "add", {r("my_linear", "matmul", {x, w}), b})};
  });
}

Graph separate_dimensions() {
  return of([](Graph& g, Recorder& r, ValueId) {
    const ValueId images = g.add_input("images", {DType::f32, {2, 3, 4, 5}}), rows = g.add_input("rows", {DType::f32, {2, 3, 1, 5}});
    const ValueId channels = r("a", "sum", {images}, {{"dims", Ints{0, 2, 3}}}),
                  kept = r("b", "mean", {images}, {{"dims", Ints{1, 3}}, {"keepdim", true}});
    g.outputs = {channels, kept, r("c", "amax", {rows}, {{"dims", Ints{1, 3}}}), r("d", "sum", {images}, {{"dims", Ints{1, 2}}})};
  });
}

Graph mixed_batches() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId a = g.add_input("a", {DType::f32, {2, 1, 5, 3}}), b = g.add_input("b", {DType::f32, {4, 3, 2}});
    g.outputs = {r("mixed", "matmul", {a, b}), r("one_sided", "matmul", {x, b})};
  });
}

Graph chains() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId row = g.add_input("row", {DType::f32, {3}}), counts = g.add_input("counts", {DType::i64, {2, 3}});
    const ValueId scaled = r("a", "mul", {r("a", "cast", {counts}, {{"dtype", DType::f32}}), r.number(0.5)});
    const ValueId mask = r("b", "gt", {x, r.number(0)});
    const ValueId y = r("b", "where", {mask, r("b", "add", {r("b", "tanh", {x}), row}), scaled});
    // `mask` is computed again on the other side of the reduction, which no group reaches across.
    const ValueId total = r("c", "sum", {y}, {{"dims", Ints{1}}, {"keepdim", true}});
    g.outputs = {r("d", "where", {mask, r("d", "div", {y, total}), r.number(-1)})};
  });
}

/// Convolutions of small images: one tap, one row, whole rows and two by two taps meet the image, the last of which do not lie together; the last
/// kernel is met whole.
Graph small_images() {
  Graph g;
  g.name = "SmallImages";
  Recorder r(g);
  const auto convolve = [&](const std::string& name, ir::Shape image, ir::Shape weight, Attributes attributes) {
    const ValueId x = g.add_input(name, {DType::f32, std::move(image)}), w = g.add_parameter(name + ".weight", {DType::f32, std::move(weight)}, true);
    g.outputs.push_back(r(name, "conv2d", {x, w}, std::move(attributes)));
  };
  const Ints one{1, 1}, two{2, 2};
  convolve("pixel", {ir::Dim("batch", 4), 5, 1, 1}, {6, 5, 3, 3}, {{"padding", one}});
  convolve("corner", {2, 5, 2, 2}, {6, 5, 3, 3}, {{"padding", one}, {"stride", two}});
  convolve("row", {2, 5, 1, 9}, {6, 5, 3, 3}, {{"padding", one}});
  convolve("rows", {2, 5, 1, 9}, {6, 5, 5, 1}, {{"padding", Ints{2, 0}}});
  convolve("dilated", {2, 5, 2, 2}, {6, 5, 3, 3}, {{"padding", two}, {"dilation", two}});
  convolve("whole", {2, 5, 2, 2}, {6, 5, 3, 3}, {{"padding", one}});
  return g;
}

/// Reductions of elementwise work: of one tensor, of two; and what must stay, terms that are read twice or are broadcast.
Graph norms() {
  return of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId y = g.add_input("y", {DType::f32, {2, 3}}), row = g.add_input("row", {DType::f32, {3}});
    const Attributes all{{"dims", Ints{}}, {"keepdim", false}}, rows{{"dims", Ints{1}}, {"keepdim", true}};
    const ValueId squares = r("a", "sum", {r("a", "square", {x})}, rows);
    const ValueId distance = r("b", "mean", {r("b", "abs", {r("b", "sub", {x, y})})}, all);
    const ValueId twice = r("c", "exp", {x});
    const ValueId share = r("c", "div", {twice, r("c", "sum", {twice}, rows)});
    const ValueId wide = r("d", "sum", {r("d", "mul", {y, row})}, all);
    g.outputs = {squares, distance, share, wide};
  });
}

const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      {"remove_dead_nodes", "branch", dead_nodes},
      {"trim_kernels", "small_images", small_images},
      {"differentiate", "mlp", small_mlp},
      {"differentiate", "shared_parameter", shared_parameter},
      {"differentiate", "part_of_batch", part_of_batch},
      {"differentiate", "probabilities", probabilities},
      {"differentiate", "lenet", [] { return lenet_training(2); }},
      {"differentiate", "residual", [] { return residual_training(); }},
      {"clip_gradients", "mlp", [] { return prepared(clipping(small_mlp()), "differentiate"); }},
      {"clip_gradients", "groups", [] { return prepared(clipping_apart(small_mlp()), "differentiate"); }},
      {"clip_gradients", "one_group", [] { return prepared(clipping_weights_only(), "differentiate"); }},
      {"clip_gradients", "wide", [] { return prepared(clipping_wide(), "differentiate"); }},
      {"add_optimizer_updates", "mlp", [] { return prepared(small_mlp(), "differentiate"); }},
      {"add_optimizer_updates", "residual", [] { return prepared(residual_training(), "differentiate"); }},
      {"fold_constants", "arithmetic", constants},
      {"fold_constants", "no_one_number", no_one_number},
      {"simplify_algebra", "shared_embedding", [] { return prepared(shared_embedding(), "fold_constants"); }},
      {"simplify_algebra", "identities", algebra},
      {"simplify_algebra", "copies", [] { return prepared(copies(), "fold_constants"); }},
      {"simplify_algebra", "copies_of_views", [] { return prepared(copies_of_views(), "fold_constants"); }},
      {"simplify_algebra", "no_identities", no_identities},
      {"simplify_algebra", "lenet", [] { return prepared(lenet_training(2), "fold_constants"); }},
      {"simplify_algebra", "polynomial", [] { return prepared(polynomial_training(), "fold_constants"); }},
      {"merge_common_subexpressions", "repeats", repeats},
      {"recognize_linear", "my_linear", matrices},
      {"fold_batch_norm", "residual", [] { return prepared(residual_inference(), "recognize_linear"); }},
      {"fold_batch_norm", "norms", [] { return prepared(norms_inference(), "recognize_linear"); }},
      {"choose_layout", "residual", [] { return prepared(residual_inference(), "fold_batch_norm"); }},
      {"choose_layout", "lenet", [] { return prepared(lenet_training(2), "fold_batch_norm"); }},
      {"choose_layout", "lenet_inference", [] { return prepared(lenet_inference(), "fold_batch_norm"); }},
      {"decompose_reductions", "separate", separate_dimensions},
      {"decompose_matmuls", "mixed_batches", mixed_batches},
      {"pack_weights", "mlp", [] { return prepared(small_mlp(), "choose_layout"); }},
      {"choose_winograd", "wide", [] { return prepared(wide_inference(), "choose_layout"); }},
      {"pack_weights", "residual", [] { return prepared(residual_inference(), "choose_layout"); }},
      {"pack_weights", "large_weight", [] { return prepared(large_weight(), "choose_layout"); }},
      {"pack_weights", "wide", [] { return prepared(wide_inference(), "choose_winograd"); }},
      {"pack_weights", "again", [] { return prepared(packed_again(), "choose_layout"); }},
      {"prepare_weights", "residual", [] { return prepared(residual_inference(), "pack_weights"); }},
      {"prepare_weights", "lenet_inference", [] { return prepared(lenet_inference(), "pack_weights"); }},
      {"prepare_weights", "unprepared", unprepared},
      {"fuse_epilogues", "mlp", [] { return prepared(small_mlp(), "pack_weights"); }},
      {"fuse_epilogues", "residual", [] { return prepared(residual_inference(), "prepare_weights"); }},
      {"fuse_epilogues", "wide", [] { return prepared(wide_inference(), "prepare_weights"); }},
      {"fuse_epilogues", "my_linear", [] { return prepared(matrices(), "prepare_weights"); }},
      {"fuse_epilogues", "wider_residual", [] { return prepared(wider_residual(), "prepare_weights"); }},
      {"fuse_inverted_residuals", "blocks", [] { return prepared(inverted_residuals(), "fuse_epilogues"); }},
      {"fuse_elementwise", "borders", [] { return prepared(borders_of_chains(), "fuse_epilogues"); }},
      {"fuse_elementwise", "chains", [] { return prepared(chains(), "fuse_epilogues"); }},
      {"fuse_elementwise", "polynomial", [] { return prepared(polynomial_training(), "fuse_epilogues"); }},
      {"fuse_elementwise", "lenet", [] { return prepared(lenet_training(2), "fuse_epilogues"); }},
      {"fuse_elementwise", "residual_training", [] { return prepared(residual_training(), "fuse_epilogues"); }},
      {"fuse_reductions", "polynomial", [] { return prepared(polynomial_training(), "fuse_elementwise"); }},
      {"update_in_backward", "mlp", [] { return prepared(asking_for_update_in_backward(small_mlp()), "fuse_reductions"); }},
      {"update_in_backward", "shared_parameter", [] { return prepared(asking_for_update_in_backward(shared_parameter()), "fuse_reductions"); }},
      {"update_in_backward", "view", [] { return prepared(asking_for_update_in_backward(view_of_weight()), "fuse_reductions"); }},
      {"fuse_updates", "wide_mlp", [] { return prepared(asking_for_update_in_backward(mlp_training(4, 160)), "update_in_backward"); }},
      {"fuse_updates", "pixel", [] { return prepared(asking_for_update_in_backward(pixel_training()), "update_in_backward"); }},
      {"fuse_updates", "groups", [] { return prepared(asking_for_update_in_backward(with_groups(mlp_training(4, 160))), "update_in_backward"); }},
      {"fuse_reductions", "norms", [] { return prepared(norms(), "fuse_elementwise"); }},
  };
  return table;
}

std::filesystem::path text_path(const Case& c, const char* which) {
  return std::filesystem::path(GRAVEN_SOURCE_DIR) / "tests" / "passes" / c.pass / (c.name + "." + which + ".json");
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Compares with the file, or writes it.
void check_text(const std::filesystem::path& path, const std::string& text) {
  if (bless) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  const std::string expected = read_text(path);
  if (text == expected) return;
  std::istringstream now(text), then(expected);
  std::string a, b;
  int line = 1;
  for (; std::getline(now, a), std::getline(then, b), a == b && now; ++line) {
  }
  ADD_FAILURE() << path << " differs in line " << line << ".\n  now:      " << a << "\n  expected: " << b
                << "\nIf the change is meant, run: test_passes --bless, and read the difference";
}

class PassTest : public testing::TestWithParam<Case> {};

TEST_P(PassTest, RewritesAsBefore) {
  const Case& c = GetParam();
  Graph g = c.before();
  check_text(text_path(c, "before"), ir::to_json(g));
  // What the pass gets is what a file would give it.
  g = ir::from_json(ir::to_json(g), "before.json");
  ir::PassOptions options;
  options.target = c.target;
  options.from = options.to = c.pass;
  ir::run_passes(g, options);
  check_text(text_path(c, "after"), ir::to_json(g));
}

INSTANTIATE_TEST_SUITE_P(Passes, PassTest, testing::ValuesIn(cases()), [](const auto& i) { return i.param.pass + "_" + i.param.name; });

// ---- the pipeline -----------------------------------------------------------------------------------------------------------------------

const std::vector<std::pair<std::string, Graph (*)()>>& networks() {
  static const std::vector<std::pair<std::string, Graph (*)()>> table = {
      {"mlp", small_mlp},
      {"lenet", [] { return lenet_training(); }},
      {"lenet_inference", [] { return lenet_inference(); }},
      {"residual_inference", [] { return residual_inference(ir::Dim("batch", 8)); }},
      {"residual_training", [] { return residual_training(); }},
      {"polynomial", [] { return polynomial_training(); }},
      {"algebra", algebra},
      {"chains", chains},
  };
  return table;
}

TEST(Pipeline, EveryPassHasACaseAndAReason) {
  for (const ir::Pass& pass : ir::pipeline()) {
    EXPECT_FALSE(pass.reason.empty()) << pass.name;
    EXPECT_TRUE(std::any_of(cases().begin(), cases().end(), [&](const Case& c) { return c.pass == pass.name; })) << pass.name;
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(GRAVEN_SOURCE_DIR) / "ir" / "passes" / (std::string(pass.name) + ".cpp"))) << pass.name;
  }
}

TEST(Pipeline, EveryDumpIsAValidInputAgain) {
  // Two runs may meet.
  const std::filesystem::path directory =
      std::filesystem::path(GRAVEN_BINARY_DIR) / ("passes_dump" + std::to_string(::getpid()));
  for (const auto& [name, make] : networks()) {
    std::filesystem::remove_all(directory);
    Graph whole = make();
    ir::PassOptions options;
    options.dump_directory = directory.string();
    ir::run_passes(whole, options);
    std::vector<std::filesystem::path> dumps;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) dumps.push_back(entry.path());
    std::sort(dumps.begin(), dumps.end());
    ASSERT_GE(dumps.size(), 8u);
    EXPECT_EQ(dumps[0].filename(), "00-trace.json");
    for (const auto& dump : dumps) {
      Graph again = ir::read_graph(dump.string());
      EXPECT_EQ(ir::to_json(again), read_text(dump)) << name << " " << dump.filename();
      // Started in the middle, it ends the same.
      const std::string stage = dump.stem().string().substr(3);
      const auto passes = ir::pipeline();
      std::size_t next = 0;
      for (std::size_t i = 0; i < passes.size(); ++i)
        if (passes[i].name == stage) next = i + 1;
      if (next < passes.size()) {
        ir::PassOptions rest;
        rest.from = passes[next].name;
        ir::run_passes(again, rest);
      }
      EXPECT_EQ(ir::to_json(again), ir::to_json(whole)) << name << " from " << stage;
    }
  }
  std::filesystem::remove_all(directory);
}

// A graph that has been through the last pass, as every emitted project's, is finished as it is.
TEST(Pipeline, NothingIsLeftOfAFinishedGraph) {
  for (const auto& [name, make] : networks()) {
    Graph g = make();
    ir::finish_passes(g, {});
    const std::string finished = ir::to_json(g);
    EXPECT_EQ(g.stage, ir::pipeline().back().name);
    EXPECT_TRUE(ir::finish_passes(g, {}).empty()) << name;
    EXPECT_EQ(ir::to_json(g), finished) << name;
    ir::PassOptions unknown;
    unknown.disabled = {"no_such_pass"};
    EXPECT_THROW(ir::finish_passes(g, unknown), UserError);
  }
}

TEST(Pipeline, IsDeterministic) {
  for (const auto& [name, make] : networks()) {
    Graph a = make(), b = make();
    ir::run_passes(a, {});
    ir::run_passes(b, {});
    EXPECT_EQ(ir::to_json(a), ir::to_json(b)) << name;
  }
}

TEST(Pipeline, EveryPassMayBeLeftOut) {
  for (const auto& [name, make] : networks())
    for (const ir::Pass& pass : ir::pipeline()) {
      Graph g = make();
      // Updates need gradients; without either, a training graph is half a graph.
      ir::PassOptions options;
      options.disabled = {std::string(pass.name)};
      EXPECT_NO_THROW(ir::run_passes(g, options)) << name << " without " << pass.name;
    }
}

TEST(Pipeline, RefusesUnknownNames) {
  for (ir::PassOptions options : {ir::PassOptions{.disabled = {"no_such_pass"}, .from = {}, .to = {}, .dump_directory = {}},
                                  ir::PassOptions{.disabled = {}, .from = "no_such_pass", .to = {}, .dump_directory = {}},
                                  ir::PassOptions{.disabled = {}, .from = {}, .to = "no_such_pass", .dump_directory = {}},
                                  ir::PassOptions{.disabled = {}, .from = "fuse_elementwise", .to = "differentiate", .dump_directory = {}}}) {
    Graph g = small_mlp();
    EXPECT_THROW(ir::run_passes(g, options), UserError);
  }
}

std::size_t count(const Graph& g, std::string_view op) {
  return static_cast<std::size_t>(std::count_if(g.nodes.begin(), g.nodes.end(), [&](const ir::Node& n) { return n.op->name == op; }));
}

TEST(Pipeline, LeNetBecomesWhatItShould) {
  Graph g = lenet_training();
  ir::run_passes(g, {});
  // Every relu is an epilogue, forward and backward.
  EXPECT_EQ(count(g, "relu"), 0u);
  EXPECT_EQ(count(g, "where"), 0u);
  EXPECT_EQ(count(g, "fused_elementwise"), 0u);
  EXPECT_EQ(count(g, "sgd"), 1u);
  // One permute to the linear layers, one back: with one channel the images are a reshape away.
  EXPECT_EQ(count(g, "permute"), 2u);
  EXPECT_EQ(count(g, "conv2d_backward_input"), 1u);

  Graph i = lenet_inference();
  ir::run_passes(i, {});
  std::size_t forward_permutes = 0, forward_packs = 0;
  for (const ir::Node& n : i.nodes) {
    forward_permutes += n.phase == ir::Phase::forward && n.op->name == "permute";
    forward_packs += n.phase == ir::Phase::forward && n.op->name.substr(0, 4) == "pack";
  }
  EXPECT_EQ(forward_permutes, 0u);
  EXPECT_EQ(forward_packs, 0u);
  EXPECT_EQ(count(i, "fused_elementwise"), 0u);
}

TEST(Pipeline, ResidualNetworkBecomesTwoConvolutionsAndAMean) {
  Graph g = residual_inference();
  ir::run_passes(g, {});
  std::vector<std::string_view> forward;
  for (const ir::Node& n : g.nodes)
    if (n.phase == ir::Phase::forward && !n.op->alias) forward.push_back(n.op->name);
  EXPECT_EQ(forward, (std::vector<std::string_view>{"permute", "conv2d", "conv2d", "mean"}));
}

TEST(Pipeline, OnCudaNothingIsPacked) {
  for (const auto& [name, make] : networks()) {
    Graph g = make();
    ir::PassOptions options;
    options.target = ir::Target::cuda;
    ir::run_passes(g, options);
    EXPECT_EQ(count(g, "pack_linear_weight") + count(g, "pack_conv2d_weight"), 0u) << name;
    for (const ir::Node& n : g.nodes) EXPECT_TRUE(n.op->name != "conv2d" || n.attributes.flag("channels_last")) << name;
  }
}

TEST(Pipeline, EvaluationIsForwardOnly) {
  const Graph g = ir::evaluation_graph(residual_training());
  ir::verify(g);
  EXPECT_EQ(g.outputs.size(), 2u);
  EXPECT_EQ(g.type(g.outputs[1]).shape, (Shape{2, 5}));
  EXPECT_EQ(count(g, "batch_norm_training") + count(g, "assign"), 0u);
  EXPECT_EQ(count(g, "batch_norm"), 2u);
  Graph lowered = g;
  ir::run_passes(lowered, {});
  EXPECT_EQ(count(lowered, "batch_norm"), 0u);

  // What is drawn is drawn with a seed and a step that do not change.
  const Graph noisy = of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId seed = g.add_value("seed", ir::ValueKind::hyper, {DType::i64, {}}),
                  step = g.add_value("step", ir::ValueKind::hyper, {DType::i64, {}});
    const ValueId noise = r("", "random_normal", {seed, step}, {{"shape", Shape{2, 3}}, {"dtype", DType::f32}, {"stream", std::int64_t{1}}});
    g = train(g, r("", "sum", {r("", "mul", {r("", "add", {x, noise}), parameter(g, "w", {3})})}, {{"dims", Ints{}}}), sgd(g));
  });
  const Graph quiet = ir::evaluation_graph(noisy);
  EXPECT_EQ(count(quiet, "random_normal"), 1u);
  for (const ir::Node& n : quiet.nodes)
    for (const ValueId v : n.inputs) EXPECT_NE(quiet.value(v).kind, ir::ValueKind::hyper) << n.op->name;
}

// ---- errors -----------------------------------------------------------------------------------------------------------------------------

std::string error_of(Graph g) {
  try {
    ir::run_passes(g, {});
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Differentiate, NamesTheOperatorWithoutGradient) {
  const Graph g = of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId y = r("model", "linear", {x, parameter(g, "w", {3, 3})});
    const ValueId z = r("model.last", "linear_backward_input", {y, parameter(g, "v", {3, 3})});
    g = train(g, r("loss", "sum", {z}, {{"dims", Ints{}}}), sgd(g));
  });
  const std::string text = error_of(g);
  EXPECT_NE(text.find("model.last (linear_backward_input): has no gradient"), std::string::npos) << text;
  EXPECT_NE(text.find("at network.cpp:2"), std::string::npos) << text;
}

TEST(Differentiate, RefusesALossThatNothingTrains) {
  const Graph g = of([](Graph& g, Recorder& r, ValueId x) { g = train(g, r("loss", "sum", {x}, {{"dims", Ints{}}}), sgd(g)); });
  EXPECT_NE(error_of(g).find("no parameter that is to be trained has part in it"), std::string::npos) << error_of(g);
  const Graph detached = of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId y = r("", "detach", {r("", "mul", {x, parameter(g, "w", {3})})});
    g = train(g, r("loss", "sum", {y}, {{"dims", Ints{}}}), sgd(g));
  });
  EXPECT_NE(error_of(detached).find("no parameter that is to be trained has part in it"), std::string::npos) << error_of(detached);
}

TEST(Differentiate, FrozenParametersHaveNoGradient) {
  Graph g = of([](Graph& g, Recorder& r, ValueId x) {
    const ValueId w = parameter(g, "w", {3}), frozen = g.add_parameter("frozen", {DType::f32, {3}}, false);
    g = train(g, r("loss", "sum", {r("", "mul", {r("", "mul", {x, w}), frozen})}, {{"dims", Ints{}}}), sgd(g));
  });
  ASSERT_EQ(g.optimizers[0].groups[0].parameters.size(), 2u) << "the optimizer has it all the same";
  g = prepared(std::move(g), "differentiate");
  ASSERT_EQ(g.gradients.size(), 1u);
  EXPECT_EQ(g.value(g.gradients[0].parameter).name, "w");
}

TEST(ClipGradients, RefusesWhatIsNoNorm) {
  for (const auto& [option, value] : {std::pair{"clip_grad_max_norm", -1.0}, {"clip_grad_max_norm", std::nan("")}, {"clip_grad_norm_type", 0.0}}) {
    Graph g = clipping(small_mlp());
    g.optimizers[0].groups[0].options[option] = value;
    EXPECT_NE(error_of(g).find(std::string("option ") + option + ": expected a positive number, found "), std::string::npos) << error_of(g);
  }
}

TEST(ClipGradients, LeavesGradientsWithoutElementsAlone) {
  Graph g = of([](Graph& graph, Recorder& r, ValueId x) {
    const ValueId none = parameter(graph, "none", {0, 3}), w = parameter(graph, "w", {1, 3});
    const ValueId sums =
        r("", "add",
          {r("", "sum", {r("", "linear", {x, none})}, {{"dims", Ints{0, 1}}}), r("", "sum", {r("", "linear", {x, w})}, {{"dims", Ints{0, 1}}})});
    graph = train(graph, sums, sgd(graph, 0));
  });
  g.optimizers[0].groups[0].options["clip_grad_norm_type"] = std::numeric_limits<double>::infinity();
  g.optimizers[0].groups[0].options["clip_grad_max_norm"] = 1;
  ir::run_passes(g, {});
  EXPECT_EQ(count(g, "amax"), 1u);
}

TEST(AddOptimizerUpdates, RefusesUnknownKindsAndOptions) {
  Graph g = small_mlp();
  g.optimizers[0].kind = "sdg";
  EXPECT_NE(error_of(g).find("found 'sdg'"), std::string::npos) << error_of(g);
  g = small_mlp();
  g.optimizers[0].groups[0].options["momentun"] = 1;
  EXPECT_NE(error_of(g).find("has no option 'momentun'"), std::string::npos) << error_of(g);
}

TEST(AddOptimizerUpdates, RefusesNamesOfTheTrainingLoop) {
  Graph g = small_mlp();
  g.add_input("step", {DType::f32, {3}});
  EXPECT_NE(error_of(g).find("the name 'step' belongs to the training loop"), std::string::npos) << error_of(g);
}

// ---- size -------------------------------------------------------------------------------------------------------------------------------

/// A chain of layers with shortcuts, and a wide sum: about `nodes` nodes.
Graph synthetic(int nodes) {
  Graph g;
  g.name = "Synthetic";
  Recorder r(g);
  ValueId x = g.add_input("x", {DType::f32, {8, 16}});
  const ValueId w = parameter(g, "w", {16, 16}), b = parameter(g, "b", {16});
  ValueId sum = x;
  for (int i = 0; i * 5 < nodes; ++i) {
    const std::string path = "model.block" + std::to_string(i);
    const ValueId y = r(path, "tanh", {r(path, "mul", {r(path, "linear", {x, w, b}), r.number(0.5)})});
    x = r(path, "add", {x, y});
    if (i % 7 == 0) sum = r(path, "maximum", {sum, x});
  }
  g.outputs = {sum, x};
  return g;
}

TEST(Pipeline, LargeGraphs) {
  Graph g = synthetic(20000);
  const std::size_t before = g.nodes.size();
  const auto start = std::chrono::steady_clock::now();
  for (const ir::PassTiming& t : ir::run_passes(g, {.disabled = {}, .from = {}, .to = {}, .dump_directory = {}, .verify = false}))
    std::cout << "  " << t.name << ": " << t.milliseconds << " ms, " << t.nodes_before << " -> " << t.nodes_after << " nodes\n";
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::cout << "  " << before << " nodes: " << elapsed.count() << " s\n";
  const auto write_start = std::chrono::steady_clock::now();
  const std::string text = ir::to_json(g);
  const auto read_start = std::chrono::steady_clock::now();
  const Graph again = ir::from_json(text, "large");
  const auto end = std::chrono::steady_clock::now();
  std::cout << "  JSON of " << text.size() / 1000000 << " MB: written in " << std::chrono::duration<double>(read_start - write_start).count()
            << " s, read in " << std::chrono::duration<double>(end - read_start).count() << " s\n";
  EXPECT_LT(g.nodes.size(), before);
  EXPECT_EQ(again.nodes.size(), g.nodes.size());
  ir::verify(g);
}

}  // namespace
}  // namespace graven::tests

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--bless") {
      std::cerr << "unknown argument " << argv[i] << "; --bless rewrites the texts\n";
      return 2;
    }
    graven::tests::bless = true;
  }
  return RUN_ALL_TESTS();
}
