// What the entries of this folder share: shape inference, arithmetic for gradient rules, test cases. It keeps
// an entry short:
//
//   static void gradient_tanh(GradientBuilder& g) {
//     const ops::Term y(g, g.output()), dy(g, g.output_gradient());
//     g.set(0, dy * (1 - y * y));
//   }
//   const OpDef kTanh{.name = "tanh", .doc = "...", .inputs = {{"x"}}, .gradient = gradient_tanh,
//                     .scalar = [](ElementRule& e) { return tanh(e.x()); },
//                     .cases = [] { return ops::unary_cases(-3, 3); }};
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/element_rule.h"
#include "ir/ops.h"

namespace graven::ir::ops {

// ---- inputs that many have ----

inline constexpr InputSpec kOptionalWeight{.name = "weight", .role = InputRole::weight, .optional = true};
inline constexpr InputSpec kOptionalBias{.name = "bias", .role = InputRole::bias, .optional = true};

// ---- attributes and dimensions --------------------------------------------------------------------------------------

/// The dimension `dim` of a tensor of this rank, counted from the end when negative. User error outside [-rank, rank -
/// 1]; a scalar counts as rank 1, as in PyTorch.
std::int64_t wrap_dim(const InferContext& c, std::int64_t dim, std::size_t rank);
/// wrap_dim of the integer attribute `key`, written back.
std::int64_t normalize_dim(InferContext& c, std::string_view key, std::size_t rank);
/// The same for a list: sorted, each once; an empty list means every dimension.
Ints normalize_dims(InferContext& c, std::string_view key, std::size_t rank);
/// The list attribute `key` must have `count` entries, each at least `least`.
const Ints& checked_list(const InferContext& c, std::string_view key, std::size_t count, std::int64_t least);
/// Whether a lowered convolution's weight is [out, height, width, in / groups].
inline bool has_weight_by_channels(const Attributes& a) { return a.flag_or("weight_by_channels", false); }
/// A convolution's weight as the layer has it, [out, in / groups, height, width], of one in that order.
inline Shape weight_by_taps(const Shape& by_channels) {
  return {by_channels[0], by_channels[3], by_channels[1], by_channels[2]};
}
/// Of the weight that a layer's node or its lowered form reads, as the layer has it: what is packed is of another
/// shape.
inline Ints weight_shape(const NodeView& node) {
  if (node.attributes().flag_or("packed", false)) return node.attributes().integers("weight_shape");
  const Shape& given = node.input(input_range(node.node, InputRole::weight).begin).shape;
  return (has_weight_by_channels(node.attributes()) ? weight_by_taps(given) : given).values();
}
/// Product of dimensions [begin, end).
Dim product(const Shape& shape, std::size_t begin, std::size_t end);
/// `shape` seen as [outer, size, inner] around dimension `dim`; a scalar is [1, 1, 1].
struct Span3 {
  Dim outer = 1, size = 1, inner = 1;
};
Span3 around(const Shape& shape, std::int64_t dim);
/// The dimension as a number: user error when it is symbolic. `what` completes "<what> must be fixed, got batch".
std::int64_t fixed(const Dim& dim, const std::string& what);
/// " (height may be 1: ...)", behind what is refused for that; nothing of a number.
std::string at_least(const Dim& size);
/// "0.5", "1e-05": shortest that reads back.
std::string text_of(double number);
/// "64 channels", "1 channel".
std::string count_of(const Dim& n, std::string_view noun);

// ---- inference ------------------------------------------------------------------------------------------------------

/// Of the gradient of a weight: half types are summed up in f32, and the sum over many rows stays it.
inline DType dtype_of_sums(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype; }

/// User error unless input i has this rank.
void require_rank(const InferContext& c, std::size_t i, std::size_t rank, std::string_view what);
/// One output of input 0's type.
void infer_any(InferContext& c);
/// What OpDef::infer says of nullptr.
void infer_elementwise(InferContext& c);
/// A limit in the attribute `key`, clipped to what the dtype of input 0 can hold when that is an integer.
void clip_to_dtype(InferContext& c, std::string_view key);
/// A number in the attribute `key` as an integer dtype has it: without its fraction, wrapped around as PyTorch's are;
/// user error beyond i64.
void wrap_to_dtype(InferContext& c, std::string_view key, DType dtype);
/// User error where an integer dtype cannot hold the number, without its fraction. `what` completes "<what>, 300, is no
/// u8".
void require_fits(const InferContext& c, double value, DType dtype, std::string_view what);
/// Reductions over 'dims' with 'keepdim'. An empty dimension is a user error when `needs_elements`.
void infer_reduction(InferContext& c, bool needs_elements);
/// argmax, argmin: 'dim' and 'keepdim', to i64.
void infer_arg_reduction(InferContext& c);
/// Softmax and its kin: 'dim' normalised.
void infer_softmax(InferContext& c);
/// The broadcast of all inputs from `first` on; user error naming the first that does not fit.
Shape broadcast_inputs(const InferContext& c, std::size_t first = 0);

/// User error unless every step names an elementwise operator, reads earlier values of dtypes that it takes, has the
/// constants that its rule reads, and records the dtype that it makes. The program reads one value of each of
/// the dtypes `inputs`.
void check_program(const InferContext& c, const ScalarProgram& program, const std::vector<DType>& inputs);

// ---- gradients ------------------------------------------------------------------------------------------------------

template <class T>
concept Number = std::is_arithmetic_v<T>;

/// A value in a gradient rule, with arithmetic that records nodes. Numbers become scalars of the other operand's dtype.
class Term {
 public:
  Term(GradientBuilder& g, ValueId id) : g_(&g), id_(id) {}
  operator ValueId() const { return id_; }  // NOLINT: passed to set() and call() as it is
  /// op(this, more...)
  Term apply(std::string_view op, std::vector<ValueId> more = {}, Attributes attributes = {}) const;
  Term constant(double value) const { return {*g_, g_->scalar(value, id_)}; }

  friend Term operator+(Term a, Term b) { return a.apply("add", {b}); }
  friend Term operator-(Term a, Term b) { return a.apply("sub", {b}); }
  friend Term operator*(Term a, Term b) { return a.apply("mul", {b}); }
  friend Term operator/(Term a, Term b) { return a.apply("div", {b}); }
  friend Term operator+(Term a, Number auto b) { return a + a.constant(static_cast<double>(b)); }
  friend Term operator-(Term a, Number auto b) { return a - a.constant(static_cast<double>(b)); }
  friend Term operator*(Term a, Number auto b) { return a * a.constant(static_cast<double>(b)); }
  friend Term operator/(Term a, Number auto b) { return a / a.constant(static_cast<double>(b)); }
  friend Term operator+(Number auto a, Term b) { return b.constant(static_cast<double>(a)) + b; }
  friend Term operator-(Number auto a, Term b) { return b.constant(static_cast<double>(a)) - b; }
  friend Term operator*(Number auto a, Term b) { return b.constant(static_cast<double>(a)) * b; }
  Term operator-() const { return apply("neg"); }
  /// Comparisons, to bool.
  Term gt(double b) const { return apply("gt", {constant(b)}); }
  Term lt(double b) const { return apply("lt", {constant(b)}); }

 private:
  GradientBuilder* g_;
  ValueId id_;
};

/// condition ? a : b
Term where(Term condition, Term a, Term b);
Term where(Term condition, Term a, double b);
/// The gradient with respect to a step function: 0 almost everywhere. PyTorch gives zeros too.
void gradient_zero(GradientBuilder& g);
/// A reduction's result (or its gradient) with the reduced dimensions put back as 1, so that it broadcasts against the
/// input.
Term keep_dims(GradientBuilder& g, ValueId reduced);
/// The number of elements behind dimensions `dims` of `shape`, as a scalar of the dtype of `like`; counted at run time
/// when symbolic.
Term count_along(GradientBuilder& g, const Shape& shape, const Ints& dims, ValueId like);

// ---- what comments and passes ask -----------------------------------------------------------------------------------

/// Whether the reduced dimensions lie side by side (sizes of 1 aside), so that the tensor is [outer, size, inner]
/// around them.
bool adjacent(const Shape& shape, const Ints& dims);
/// dim, causal and offset: of softmax and its gradient.
std::vector<AttributeSpec> softmax_attributes();
std::string softmax_remark(const NodeView& node);
/// For OpDef::remark. "dim 1" of the attribute 'dim'; "over dim 0,2" of 'dims', nothing when all are reduced.
std::string dim_remark(const NodeView& node);
std::string reduction_remark(const NodeView& node);
/// At most this many dimensions reach a kernel.
inline constexpr std::size_t kMaxRank = 8;
void require_kernel_rank(const InferContext& c, std::size_t rank);

// ---- test cases -----------------------------------------------------------------------------------------------------

/// The attributes of reductions.
std::vector<AttributeSpec> reduction_attributes();

inline constexpr DType kFloats[] = {DType::f64, DType::f16, DType::bf16};
inline constexpr DType kIntegers[] = {DType::i8, DType::i32, DType::i64, DType::u8};

/// Inputs uniform in [low, high): f32 of several shapes, every floating dtype, the integer dtypes when asked for.
std::vector<TestCase> unary_cases(double low, double high, Attributes attributes = {}, bool integers = false,
                                  bool gradient = true);
/// Two inputs, with broadcasting in both directions. The second input has its own range.
std::vector<TestCase> binary_cases(double low, double high, double low2, double high2, bool integers,
                                   bool gradient = true);
/// Reductions over first, last, middle, all and separate dimensions, with and without keepdim. `low` and `high`: range
/// of the numbers.
std::vector<TestCase> reduction_cases(double low, double high, bool integers, bool needs_elements);
std::vector<TestCase> arg_reduction_cases();
/// Along first, middle and last dimensions.
std::vector<TestCase> softmax_cases(std::size_t inputs);
std::vector<TestCase> causal_softmax_cases(std::size_t inputs);
/// Two inputs (or one) of every dtype, values that are often equal or zero; and truth values.
std::vector<TestCase> comparison_cases();
std::vector<TestCase> logical_cases(std::size_t inputs);
std::vector<TestCase> comparison_cases_of(std::size_t inputs);
std::vector<TestCase> bitwise_cases(std::size_t inputs);
/// An input of numbers in [low, high); u8 gets no negative ones.
TestCase::Input random(DType dtype, Shape shape, double low = -1, double high = 1);
/// An input that is left out.
inline TestCase::Input absent() { return {.absent = true}; }
/// Appends b to a.
std::vector<TestCase> join(std::vector<TestCase> a, std::vector<TestCase> b);
std::vector<AttributeSpec> join(std::vector<AttributeSpec> a, const std::vector<AttributeSpec>& b);

}  // namespace graven::ir::ops
