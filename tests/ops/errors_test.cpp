// What inference must refuse, and the words in which it does. A case that fails prints the whole message: paste it when
// it reads well.
#include <gtest/gtest.h>

#include <cmath>

#include "ir/diagnostic.h"
#include "tests/ops/case_graph.h"

namespace graven::tests {
namespace {

using ir::Dim;
using ir::DType;
using ir::Ints;
using ir::Shape;

struct Refusal {
  std::string op;
  std::vector<std::optional<ir::TensorType>> inputs;
  ir::Attributes attributes;
  std::string message;
};

std::optional<ir::TensorType> f(Shape s) { return ir::TensorType{DType::f32, std::move(s)}; }
std::optional<ir::TensorType> of(DType d, Shape s) { return ir::TensorType{d, std::move(s)}; }
ir::Attribute number(std::int64_t n) { return n; }

std::vector<Refusal> refusals() {
  const std::int64_t huge = std::int64_t{1} << 62;
  const Dim n("batch", 64);
  const std::optional<ir::TensorType> none;
  return {
      // ---- the declaration ----
      {"relu", {}, {}, "relu: expects 1 input, got 0"},
      {"add", {f({2}), std::nullopt}, {}, "add: the input 'y' is missing"},
      {"relu", {f({2})}, {{"slope", 1.0}}, "relu: has no attribute 'slope'"},
      {"elu", {f({2})}, {{"alpha", std::string("x")}}, "elu: the attribute 'alpha' must be of type number, got text"},
      {"permute", {f({2})}, {}, "permute: the attribute 'dims' is required"},
      // ---- elementwise ----
      {"relu", {of(DType::boolean, {2})}, {}, "relu: expects numbers, got bool"},
      {"exp", {of(DType::i64, {2})}, {}, "exp: expects floating-point numbers, got i64"},
      {"add", {f({2}), of(DType::i32, {2})}, {}, "add: expects inputs of one dtype, got x (f32) and y (i32)"},
      {"add", {f({2, 3}), f({2})}, {}, "add: the shapes [2,3] and [2] do not broadcast"},
      {"add", {f({n, 3}), f({7, 3})}, {}, "add: the shapes [batch,3] and [7,3] do not broadcast"},
      {"div", {of(DType::i32, {2}), of(DType::i32, {2})}, {}, "div: expects floating-point numbers, got i32"},
      {"bitwise_and", {f({2}), f({2})}, {}, "bitwise_and: expects integers or bools, got f32"},
      {"cat",
       {f({2}), f({2}), of(DType::f16, {2})},
       {},
       "cat: expects inputs of one dtype, got xs[0] (f32) and xs[2] (f16)"},
      {"gather", {f({2}), of(DType::i32, {2})}, {{"dim", number(0)}}, "gather: index must be i64, got i32"},
      {"pack_linear_weight", {of(DType::f16, {2, 2})}, {}, "pack_linear_weight: expects f32 or bf16, got f16"},
      {"arange", {}, {{"shape", Shape{2}}, {"dtype", DType::boolean}}, "arange: expects numbers as 'dtype', got bool"},
      {"random_normal",
       {of(DType::i64, {}), of(DType::i64, {})},
       {{"shape", Shape{2}}, {"dtype", DType::f16}},
       "random_normal: expects f32 or f64 as 'dtype', got f16"},
      {"adam",
       {f({2}), of(DType::f64, {2}), f({2}), of(DType::f64, {2}), f({2}), of(DType::f64, {2}), f({2}),
        of(DType::f64, {2}), std::nullopt, std::nullopt, of(DType::f64, {}), of(DType::i64, {})},
       {},
       "adam: expects inputs of one dtype, got params[0] (f32) and params[1] (f64)"},
      {"where", {f({2}), f({2}), f({2})}, {}, "where: condition must be bool, got f32"},
      {"hardtanh", {f({2})}, {{"min", 2.0}, {"max", 1.0}}, "hardtanh: min must not be above max, got 2 and 1"},
      // ---- data movement ----
      {"full", {}, {{"shape", Shape{-2}}, {"value", 0.0}}, "full: a dimension must not be negative, got [-2]"},
      {"full",
       {},
       {{"shape", Shape{huge, 4}}, {"value", 0.0}},
       "full: a size is too large: 4611686018427387904 times 4 does not fit in 63 bits"},
      {"full", {}, {{"shape", Shape{2}}, {"value", 1e30}, {"dtype", DType::u8}}, "full: 'value', 1e+30, is no i64"},
      {"arange",
       {},
       {{"shape", Shape{3}}, {"start", -2.0}, {"dtype", DType::u8}},
       "arange: the first element, -2, is no u8"},
      {"arange",
       {},
       {{"shape", Shape{n}}, {"start", 100.0}, {"dtype", DType::i8}},
       "arange: the last element, 163, is no i8"},
      {"pad", {of(DType::i64, {2})}, {{"pads", Ints{1, 1}}, {"value", std::nan("")}}, "pad: 'value', nan, is no i64"},
      {"sort_backward",
       {f({2, 3}), of(DType::i64, {2, 3})},
       {{"dim", std::int64_t{1}}, {"input_shape", Shape{4, 5}}},
       "sort_backward: dy must be as 'input_shape', [4,5], and no longer along dimension 1, got f32[2,3]"},
      {"reshape",
       {f({2, 3})},
       {{"shape", Shape{4, 2}}},
       "reshape: the shape [4,2] holds 8 elements, the input [2,3] has 6"},
      {"reshape", {f({2, 3})}, {{"shape", Shape{4, -1}}}, "reshape: the shape [4,-1] does not fit 6 elements"},
      {"reshape",
       {f({2, 3})},
       {{"shape", Shape{-1, -1}}},
       "reshape: only one dimension of the new shape may be -1, got [-1,-1]"},
      {"reshape",
       {f({n, 3})},
       {{"shape", Shape{64, 3}}},
       "reshape: the shape [64,3] holds 192 elements, the input [batch,3] has 3*batch"},
      {"permute",
       {f({2, 3})},
       {{"dims", Ints{0}}},
       "permute: 'dims' must name each of the 2 dimensions once, got 1 of them"},
      {"permute", {f({2, 3})}, {{"dims", Ints{1, -1}}}, "permute: dimension 1 is named twice in 'dims'"},
      {"permute",
       {f({2, 3})},
       {{"dims", Ints{0, 2}}},
       "permute: dimension 2 is out of range: a tensor of rank 2 takes -2 to 1"},
      {"permute",
       {f({1, 1, 1, 1, 1, 1, 1, 1, 1})},
       {{"dims", Ints{0, 1, 2, 3, 4, 5, 6, 7, 8}}},
       "permute: tensors of more than 8 dimensions are not supported, got 9"},
      {"expand",
       {f({2, 3})},
       {{"shape", Shape{4, 3}}},
       "expand: the input [2,3] does not expand to [4,3]: dimension 0 is 2, not 1"},
      {"expand", {f({2, 3})}, {{"shape", Shape{3}}}, "expand: the shape [3] has fewer dimensions than the input [2,3]"},
      {"slice", {f({})}, {{"dim", number(0)}}, "slice: a tensor of rank 0 cannot be sliced"},
      {"slice", {f({4})}, {{"dim", number(0)}, {"step", number(0)}}, "slice: 'step' must be at least 1, got 0"},
      {"slice",
       {f({n, 4})},
       {{"dim", number(0)}, {"end", number(8)}},
       "slice: of the symbol batch in dimension 0 only the first 1 are always there, got 0:8"},
      {"cat", {}, {}, "cat: expects at least one tensor"},
      {"cat",
       {f({2, 3}), f({2, 4})},
       {},
       "cat: tensor 1 is f32[2,4], tensor 0 is f32[2,3]: they may differ in dimension 0 only"},
      {"cat",
       {f({n, 3}), f({2, n})},
       {},
       "cat: tensor 1 is f32[2,batch], tensor 0 is f32[batch,3]: they may differ in dimension 0 only"},
      {"slice",
       {f({n * Dim(3), 8})},
       {{"dim", std::int64_t{0}}, {"bounds", Shape{n, n * Dim(4)}}},
       "slice: 'bounds' takes step 1 and two sizes within the dimension, got [batch,4*batch] of 3*batch"},
      {"pad",
       {f({2, 3})},
       {{"pads", Ints{1, 1}}},
       "pad: 'pads' takes 4 integers (before and after, for each dimension), got 2"},
      {"pad",
       {f({2, 3})},
       {{"pads", Ints{-1, -2, 0, 0}}},
       "pad: the pads -1 and -2 leave nothing of dimension 0 of f32[2,3]"},
      // ---- reductions ----
      {"sum", {f({2, 3})}, {{"dims", Ints{0, -2}}}, "sum: dimension 0 is named twice in 'dims'"},
      {"sum", {f({2, 3})}, {{"dims", Ints{2}}}, "sum: dimension 2 is out of range: a tensor of rank 2 takes -2 to 1"},
      {"mean", {of(DType::i64, {2})}, {}, "mean: expects floating-point numbers, got i64"},
      {"amax",
       {f({2, 0})},
       {{"dims", Ints{1}}},
       "amax: dimension 1 of the input f32[2,0] is empty: it has no extreme value"},
      {"argmax", {f({0})}, {{"dim", number(0)}}, "argmax: dimension 0 of the input f32[0] is empty"},
      {"softmax",
       {f({2, 3})},
       {{"dim", number(-3)}},
       "softmax: dimension -3 is out of range: a tensor of rank 2 takes -2 to 1"},
      // ---- products ----
      {"linear", {f({5, 8}), f({3, 7})}, {}, "linear: weight expects 7 features, input has 8"},
      {"linear", {f({5, 7}), f({3, 7}), f({4})}, {}, "linear: bias must be f32[3], got f32[4]"},
      {"linear", {f({5, 7}), f({3, 7, 1})}, {}, "linear: weight must have 2 dimensions, got f32[3,7,1]"},
      {"lowered_linear",
       {f({5, 7}), f({1, 7, 16})},
       {{"packed", true}, {"weight_shape", Ints{17, 7}}},
       "lowered_linear: the packed weight must be f32[2,7,16], got f32[1,7,16]"},
      {"lowered_linear",
       {f({5, 7}), f({3, 7}), std::nullopt, f({5, 3})},
       {},
       "lowered_linear: the epilogue takes 1 input, 2 are given"},
      {"matmul", {f({5, 7}), f({6, 3})}, {}, "matmul: the rows of b must be as many as the columns of a, got 6 and 7"},
      {"matmul", {f({2, 5, 7}), f({3, 7, 3})}, {}, "matmul: the batch dimensions [2] and [3] do not broadcast"},
      {"matmul", {f({}), f({3})}, {}, "matmul: both operands must have at least one dimension, got f32[] and f32[3]"},
      {"conv2d", {f({1, 32, 56, 56}), f({64, 64, 3, 3})}, {}, "conv2d: weight expects 64 channels, input has 32"},
      {"inverted_residual",
       {f({1, 5, 5, 3}), f({6, 4, 1, 1}), std::nullopt, f({6, 1, 3, 3}), std::nullopt, f({4, 6, 1, 1})},
       {{"kernel_size", Ints{3, 3}}, {"wide_channels", number(6)}, {"out_channels", number(4)}},
       "inverted_residual: expand_weight must be f32[6,3,1,1], got f32[6,4,1,1]"},
      {"inverted_residual",
       {f({1, 5, 5, 3}), f({6, 3, 1, 1}), std::nullopt, f({6, 1, 3, 3}), f({5}), f({4, 6, 1, 1})},
       {{"kernel_size", Ints{3, 3}}, {"wide_channels", number(6)}, {"out_channels", number(4)}},
       "inverted_residual: depthwise_bias must be f32[6], got f32[5]"},
      {"inverted_residual",
       {f({1, 2, 2, 3}), f({6, 3, 1, 1}), std::nullopt, f({6, 1, 3, 3}), std::nullopt, f({4, 6, 1, 1})},
       {{"kernel_size", Ints{3, 3}}, {"wide_channels", number(6)}, {"out_channels", number(4)}},
       "inverted_residual: the kernel 3x3 does not fit into the padded image 2x2"},
      {"inverted_residual",
       {f({1, 9, 400, 16}), f({96 * 16}), std::nullopt, f({96 * 9}), std::nullopt, f({16 * 96})},
       {{"kernel_size", Ints{3, 3}}, {"wide_channels", number(96)}, {"out_channels", number(16)}, {"packed", true}},
       "inverted_residual: what lies behind one row of results is more than the 81920 numbers that a thread has room "
       "for"},
      {"conv2d",
       {f({1, 3, 5, 5}), f({4, 1, 3, 3})},
       {{"groups", number(3)}},
       "conv2d: 'groups' must divide the 4 output channels, got 3"},
      {"conv2d_backward_input",
       {f({1, 4, 3, 3}), f({4, 1, 3, 3})},
       {{"groups", number(3)}, {"input_size", Shape{5, 5}}},
       "conv2d_backward_input: 'groups' must divide the 4 output channels, got 3"},
      {"conv2d",
       {f({1, 3, 2, 2}), f({4, 3, 3, 3})},
       {},
       "conv2d: the kernel 3x3 does not fit into the padded image 2x2"},
      {"conv2d", {f({3, 5, 5}), f({4, 3, 3, 3})}, {}, "conv2d: the input must have 4 dimensions, got f32[3,5,5]"},
      {"conv2d",
       {f({1, 3, 5, 5}), f({4, 3, 3, 3})},
       {{"stride", Ints{0, 1}}},
       "conv2d: 'stride' must be at least 1, got 0"},
      {"conv2d",
       {f({1, 3, 5, 5}), f({4, 3, 3, 3})},
       {{"padding", Ints{1}}},
       "conv2d: 'padding' takes 2 integers, got 1"},
      {"conv2d",
       {f({1, 3, n, 5}), f({4, 3, 3, 3})},
       {},
       "conv2d: the kernel 3x3 does not fit into the padded image batchx5 (batch may be 1: Dim(\"batch\", least, 64) "
       "says how small it may be)"},
      // ---- pooling, normalisation, losses, updates ----
      {"max_pool2d",
       {f({1, 3, 8, 8})},
       {{"kernel_size", Ints{2, 2}}, {"padding", Ints{2, 2}}},
       "max_pool2d: 'padding' must be at most half of the kernel's 2, got 2"},
      {"max_pool2d",
       {f({1, 3, 80, 80})},
       {{"kernel_size", Ints{17, 17}}},
       "max_pool2d: windows of more than 256 elements are not supported, got 17x17"},
      {"avg_pool2d",
       {f({1, 3, 2, 2})},
       {{"kernel_size", Ints{3, 3}}},
       "avg_pool2d: the window 3x3 does not fit into the padded image 2x2"},
      {"batch_norm",
       {f({2, 3, 4}), f({4}), f({3}), f({3}), f({3})},
       {},
       "batch_norm: weight expects 4 channels, input has 3"},
      {"fold_batch_norm",
       {f({4}), none, none, none, f({4}), f({4})},
       {},
       "fold_batch_norm: the weight must have at least 2 dimensions, got f32[4]"},
      {"fold_batch_norm",
       {f({4, 3}), none, f({3}), none, f({4}), f({4})},
       {},
       "fold_batch_norm: gamma expects 3 channels, input has 4"},
      {"fold_batch_norm",
       {f({4, 3}), none, none, none, f({4}), of(DType::f64, {4})},
       {},
       "fold_batch_norm: expects inputs of one dtype, got weight (f32) and var (f64)"},
      {"fold_batch_norm",
       {f({4, 3}), none, none, none, f({4}), f({4})},
       {{"eps", -1.0}},
       "fold_batch_norm: 'eps' must not be negative, got -1"},
      {"fold_batch_norm",
       {f({4, 3}), none, none, none, none, f({4})},
       {},
       "fold_batch_norm: the input 'mean' is missing"},
      {"fold_batch_norm",
       {f({n, 3}), none, none, none, f({64}), f({64})},
       {},
       "fold_batch_norm: the number of channels must be fixed, got the symbol batch"},
      {"fold_batch_norm",
       {of(DType::i32, {4, 3}), none, none, none, f({4}), f({4})},
       {},
       "fold_batch_norm: expects floating-point numbers, got i32"},
      // ---- recurrent layers ----
      {"lstm", {f({3, 2, 20}), f({19, 5})}, {}, "lstm: weight_hh must have rows for each of 4 gates, got f32[19,5]"},
      {"lstm",
       {f({3, 2, 20}), f({16, 4})},
       {},
       "lstm: x must have 16 numbers a step for weight_hh, f32[16,4], got f32[3,2,20]"},
      {"lstm", {f({3, 2, 20}), f({20, 2})}, {}, "lstm: weight_hh must be f32[20,5], got f32[20,2]"},
      {"lstm",
       {f({3, 2, 20}), f({20, 5}), none, none, none, f({5, 5})},
       {},
       "lstm: a projection must make h smaller than c, got 5 and 5"},
      {"lstm", {f({3, 2, 20}), f({20, 5}), none, f({3, 5})}, {}, "lstm: h0 must be f32[2,5], got f32[3,5]"},
      {"gru", {f({0, 2, 15}), f({15, 5})}, {}, "gru: expects at least one step, got f32[0,2,15]"},
      {"rnn", {f({2, 5}), f({5, 5})}, {}, "rnn: x must have 3 dimensions, got f32[2,5]"},
      {"batch_norm_training",
       {f({1, 3}), std::nullopt, std::nullopt, std::nullopt, std::nullopt},
       {},
       "batch_norm_training: expects more than 1 value per channel when training, got f32[1,3]"},
      {"cross_entropy", {f({4, 10}), of(DType::i32, {4})}, {}, "cross_entropy: labels must be i64, got i32"},
      {"cross_entropy",
       {f({4, 10}), of(DType::i64, {4})},
       {{"reduction", std::string("avg")}},
       "cross_entropy: 'reduction' must be none, mean or sum, got 'avg'"},
      {"sgd",
       {f({2}), f({3}), std::nullopt, of(DType::f64, {}), of(DType::i64, {})},
       {},
       "sgd: grads[0] must be f32[2] like its parameter, got f32[3]"},
      {"sgd",
       {f({2}), f({2}), std::nullopt, of(DType::f64, {}), of(DType::i64, {})},
       {{"momentum", 0.9}},
       "sgd: momentum_buffers[0] is missing"},
      {"sgd", {f({2}), f({2}), std::nullopt, f({}), of(DType::i64, {})}, {}, "sgd: lr must be f64, got f32"},
      {"adam", {of(DType::f64, {}), of(DType::i64, {})}, {{"beta1", 1.0}}, "adam: 'beta1' must lie in [0, 1), got 1"},
      {"rmsprop",
       {of(DType::f64, {}), of(DType::i64, {})},
       {{"alpha", 1.5}},
       "rmsprop: 'alpha' must lie in [0, 1], got 1.5"},
      {"rmsprop",
       {f({2}), f({2}), f({2}), std::nullopt, std::nullopt, of(DType::f64, {}), of(DType::i64, {})},
       {{"centered", true}},
       "rmsprop: grad_avg[0] is missing"},
      {"adagrad",
       {f({2}), f({2}), f({3}), of(DType::f64, {}), of(DType::i64, {})},
       {},
       "adagrad: sums[0] must be f32[2] like its parameter, got f32[3]"},
      {"adadelta",
       {f({2}), f({2}), f({2}), f({2}), f({}), of(DType::i64, {})},
       {},
       "adadelta: lr must be f64, got f32"},
      {"lamb",
       {of(DType::f64, {}), of(DType::i64, {})},
       {{"beta2", -0.5}},
       "lamb: 'beta2' must lie in [0, 1), got -0.5"},
      {"rprop",
       {of(DType::f64, {}), of(DType::i64, {})},
       {{"etaplus", 1.0}},
       "rprop: 'etaplus' must lie in (1, inf], got 1"},
      {"adafactor",
       {f({2, 3}), f({2, 3}), f({2, 1}), f({2, 3}), std::nullopt, of(DType::f64, {}), of(DType::i64, {})},
       {},
       "adafactor: col_vars[0] must be f32[1,3] for its parameter f32[2,3], got f32[2,3]"},
      {"adafactor",
       {f({2}), f({2}), std::nullopt, f({2}), f({2}), of(DType::f64, {}), of(DType::i64, {})},
       {},
       "adafactor: col_vars[0] is given, which a parameter f32[2] has not"},
      {"adafactor",
       {of(DType::f64, {}), of(DType::i64, {})},
       {{"eps1", -0.5}},
       "adafactor: eps[0] must not be negative"},
      {"lars",
       {of(DType::f64, {}), of(DType::i64, {})},
       {{"nesterov", true}},
       "lars: nesterov needs momentum above 0 and dampening 0"},
      // ---- programs ----
      {"fused_elementwise",
       {f({2})},
       {{"program", ir::ScalarProgram{}}},
       "fused_elementwise: the program has no steps"},
      {"fused_elementwise",
       {f({2})},
       {{"program", ir::ScalarProgram{1, {{.op = "sum", .arguments = {0}}}}}},
       "fused_elementwise: step 0 of the program names 'sum', which is no elementwise operator"},
      {"fused_elementwise",
       {f({2})},
       {{"program", ir::ScalarProgram{1, {{.op = "relu", .arguments = {1}}}}}},
       "fused_elementwise: step 0 of the program (relu) uses value 1, which is not known yet"},
      {"fused_elementwise",
       {f({2})},
       {{"program", ir::ScalarProgram{1, {{.op = "add", .arguments = {0}}}}}},
       "fused_elementwise: step 0 of the program (add) takes 2 arguments, got 1"},
  };
}

TEST(Refusals, SayWhatWasExpectedAndWhatCame) {
  for (const Refusal& r : refusals()) {
    SCOPED_TRACE(r.message);
    ir::Graph graph;
    std::vector<ir::ValueId> inputs;
    for (const auto& t : r.inputs) inputs.push_back(t ? graph.add_input("x", *t) : ir::kNone);
    try {
      (void)graph.add_node(ir::get_op(r.op), inputs, r.attributes, {});
      ADD_FAILURE() << "was accepted";
    } catch (const UserError& e) {
      EXPECT_EQ(e.message(), r.message);
    }
  }
}

TEST(Refusals, ListInputsAndTheLine) {
  ir::Graph graph;
  const ir::ValueId x = graph.add_input("model.maxpool", {DType::f32, {1, 32, 56, 56}});
  const ir::ValueId w = graph.add_parameter("model.layer1.0.conv1.weight", {DType::f32, {64, 64, 3, 3}}, true);
  try {
    (void)graph.add_node(ir::get_op("conv2d"), {x, w}, {}, {{"model.layer1.0.conv1", "resnet.cpp", 41}});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "error: model.layer1.0.conv1 (conv2d): weight expects 64 channels, input has 32\n"
                 "  x  f32[1,32,56,56] from model.maxpool\n"
                 "  weight  f32[64,64,3,3] from model.layer1.0.conv1.weight\n"
                 "  at resnet.cpp:41");
  }
}

}  // namespace
}  // namespace graven::tests
