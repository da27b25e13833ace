#include "ir/ops/shared.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace graven::ir::ops {

// ---- attributes and dimensions --------------------------------------------------------------------------------------

std::int64_t wrap_dim(const InferContext& c, std::int64_t dim, std::size_t rank) {
  const auto r = static_cast<std::int64_t>(std::max<std::size_t>(rank, 1));
  if (dim < -r || dim >= r)
    c.fail("dimension " + std::to_string(dim) + " is out of range: a tensor of rank " + std::to_string(rank) +
           " takes " + std::to_string(-r) + " to " + std::to_string(r - 1));
  return dim < 0 ? dim + r : dim;
}

std::int64_t normalize_dim(InferContext& c, std::string_view key, std::size_t rank) {
  const std::int64_t dim = wrap_dim(c, c.attributes.integer(key), rank);
  c.attributes.set(key, dim);
  return dim;
}

Ints normalize_dims(InferContext& c, std::string_view key, std::size_t rank) {
  Ints dims;
  for (std::int64_t d : c.attributes.integers(key)) dims.push_back(wrap_dim(c, d, rank));
  std::sort(dims.begin(), dims.end());
  if (const auto twice = std::adjacent_find(dims.begin(), dims.end()); twice != dims.end())
    c.fail("dimension " + std::to_string(*twice) + " is named twice in '" + std::string(key) + "'");
  if (dims.empty())
    for (std::size_t d = 0; d < rank; ++d) dims.push_back(static_cast<std::int64_t>(d));
  if (rank == 0) dims.clear();
  c.attributes.set(key, dims);
  return dims;
}

const Ints& checked_list(const InferContext& c, std::string_view key, std::size_t count, std::int64_t least) {
  const Ints& list = c.attributes.integers(key);
  if (list.size() != count)
    c.fail("'" + std::string(key) + "' takes " + std::to_string(count) + " integers, got " +
           std::to_string(list.size()));
  for (std::int64_t v : list)
    if (v < least)
      c.fail("'" + std::string(key) + "' must be at least " + std::to_string(least) + ", got " + std::to_string(v));
  return list;
}

Dim product(const Shape& shape, std::size_t begin, std::size_t end) {
  Dim n = 1;
  for (std::size_t d = begin; d < end; ++d) n = n * shape[d];
  return n;
}

Span3 around(const Shape& shape, std::int64_t dim) {
  if (shape.empty()) return {};
  const auto d = static_cast<std::size_t>(dim);
  return {product(shape, 0, d), shape[d], product(shape, d + 1, shape.rank())};
}

std::int64_t fixed(const Dim& dim, const std::string& what) {
  if (dim.is_static()) return dim.value();
  UserError error(what + " must be fixed, got the symbol " + dim.to_string());
  error.note(
      "give this dimension a number in the graph's spec, and the symbol to one that the operator leaves as it is");
  throw error;
}

std::string at_least(const Dim& size) {
  if (size.is_static()) return {};
  const Symbol symbol = size.symbols()[0];
  return " (" + size.to_string() + " may be " + std::to_string(size.minimum()) + ": Dim(\"" + symbol.name +
         "\", least, " + std::to_string(symbol.most) + ") says how small it may be)";
}

std::string text_of(double number) { return fmt::format("{}", number); }

std::string count_of(const Dim& n, std::string_view noun) {
  return n.to_string() + " " + std::string(noun) + (n == Dim(1) ? "" : "s");
}

// ---- inference ------------------------------------------------------------------------------------------------------

void require_rank(const InferContext& c, std::size_t i, std::size_t rank, std::string_view what) {
  if (c.input(i).shape.rank() != rank)
    c.fail(std::string(what) + " must have " + std::to_string(rank) + " dimensions, got " + c.input(i).to_string());
}

void infer_any(InferContext& c) { c.output(c.input(0).dtype, c.input(0).shape); }

void infer_elementwise(InferContext& c) {
  const bool boolean = element_rule(c.op()).gives_boolean();
  c.output(boolean ? DType::boolean : c.input(c.input_count() - 1).dtype, broadcast_inputs(c));
}

namespace {

/// What an integer dtype can hold, as doubles; nothing for others.
std::optional<std::pair<double, double>> integer_limits(DType dtype) {
  const auto range = integer_range(dtype);
  if (!range) return std::nullopt;
  const double largest = dtype == DType::i64 ? 0x1.fffffffffffffp62  // the largest double below 2^63
                                             : static_cast<double>(range->second);
  return {{static_cast<double>(range->first), largest}};
}

}  // namespace

void clip_to_dtype(InferContext& c, std::string_view key) {
  const auto limits = integer_limits(c.input(0).dtype);
  if (!limits) return;
  const double value = c.attributes.number(key);
  c.require(value == value, [&] { return "'" + std::string(key) + "' must not be NaN for integers"; });
  c.attributes.set(key, std::clamp(std::trunc(value), limits->first, limits->second));
}

void wrap_to_dtype(InferContext& c, std::string_view key, DType dtype) {
  if (!integer_limits(dtype)) return;
  const double value = std::trunc(c.attributes.number(key));
  require_fits(c, value, DType::i64, "'" + std::string(key) + "'");
  auto integer = static_cast<std::int64_t>(value);
  if (dtype == DType::i8) integer = static_cast<std::int8_t>(integer);
  if (dtype == DType::u8) integer = static_cast<std::uint8_t>(integer);
  if (dtype == DType::i32) integer = static_cast<std::int32_t>(integer);
  c.attributes.set(key, static_cast<double>(integer));
}

void require_fits(const InferContext& c, double value, DType dtype, std::string_view what) {
  const auto limits = integer_limits(dtype);
  c.require(!limits || (std::trunc(value) >= limits->first && std::trunc(value) <= limits->second),
            [&] { return std::string(what) + ", " + text_of(value) + ", is no " + std::string(name(dtype)); });
}

Shape broadcast_inputs(const InferContext& c, std::size_t first) {
  Shape shape = c.input(first).shape;
  for (std::size_t i = first + 1; i < c.input_count(); ++i) {
    const auto both = broadcast(shape, c.input(i).shape);
    if (!both) c.fail("the shapes " + shape.to_string() + " and " + c.input(i).shape.to_string() + " do not broadcast");
    shape = *both;
  }
  return shape;
}

namespace {

/// The step's constants are the operator's scalar attributes, each once and in the order of its declaration: a
/// functor's name lists them so.
void check_constants(const InferContext& c, const OpDef& op, const ScalarProgram::Step& step, const auto& which) {
  for (const auto& constant : step.constants) {
    bool known = false;
    for (const AttributeSpec& a : op.attributes) known = known || a.name == constant.first;
    c.require(known, [&] { return which() + ": " + step.op + " has no attribute '" + constant.first + "'"; });
  }
  std::size_t next = 0;
  for (const AttributeSpec& a : op.attributes) {
    if (a.type != AttributeType::boolean && a.type != AttributeType::integer && a.type != AttributeType::number)
      continue;
    const bool given = std::any_of(step.constants.begin(), step.constants.end(),
                                   [&](const auto& constant) { return constant.first == a.name; });
    c.require(given, [&] { return which() + " (" + step.op + ") lacks its constant '" + std::string(a.name) + "'"; });
    c.require(next < step.constants.size() && step.constants[next].first == a.name, [&] {
      return which() + " (" + step.op + "): the constants must stand in the order of the operator's attributes";
    });
    ++next;
  }
  c.require(next == step.constants.size(), [&] { return which() + " (" + step.op + ") has a constant too many"; });
}

/// The dtype that the step makes of values of the dtypes `arguments`: what its operator makes of scalars.
DType infer_step(const InferContext& c, const OpDef& op, const ScalarProgram::Step& step,
                 const std::vector<DType>& arguments, const auto& which) {
  Attributes attributes;
  for (const AttributeSpec& a : op.attributes) {
    if (a.type == AttributeType::dtype) attributes.set(a.name, step.dtype);
    if (a.type == AttributeType::shape) attributes.set(a.name, Shape());
  }
  for (const auto& [key, value] : step.constants) attributes.set(key, value);
  std::vector<std::optional<TensorType>> types;
  types.reserve(arguments.size());
  for (const DType dtype : arguments) types.emplace_back(TensorType{dtype, Shape()});
  try {
    return infer(op, types, attributes).at(0).dtype;
  } catch (const UserError& error) {
    c.fail(which() + " (" + step.op + "): " + error.message());
  }
}

/// The dtype that a step computes in: none where all is boolean, or where it only stores a bool.
std::optional<DType> computes_in(const ScalarProgram::Step& step, const std::vector<DType>& arguments, bool last) {
  // Inside a program a cast loads a value as what the program computes in; at its end it stores the result as something
  // else.
  if (step.op == kCast.name && !last && step.dtype != DType::boolean) return step.dtype;
  for (const DType dtype : arguments)
    if (dtype != DType::boolean) return dtype;
  return step.dtype == DType::boolean ? std::nullopt : std::optional(step.dtype);
}

}  // namespace

void check_program(const InferContext& c, const ScalarProgram& program, const std::vector<DType>& inputs) {
  c.require(program.inputs >= 0, [&] { return "a program cannot have " + std::to_string(program.inputs) + " inputs"; });
  if (program.empty()) return;
  c.require(program.inputs == static_cast<std::int32_t>(inputs.size()), [&] {
    return "the program takes " + count_of(program.inputs, "input") + ", got " + std::to_string(inputs.size());
  });
  std::vector<DType> known = inputs;
  std::optional<DType> computes;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const ScalarProgram::Step& step = program.steps[i];
    const auto which = [&] { return "step " + std::to_string(i) + " of the program"; };
    const OpDef* op = find_op(step.op);
    c.require(op && op->elementwise(),
              [&] { return which() + " names '" + step.op.substr(0, 100) + "', which is no elementwise operator"; });
    c.require(step.arguments.size() == op->inputs.size(), [&] {
      return which() + " (" + step.op + ") takes " + count_of(static_cast<int>(op->inputs.size()), "argument") +
             ", got " + std::to_string(step.arguments.size());
    });
    std::vector<DType> arguments;
    for (std::int32_t a : step.arguments) {
      c.require(a >= 0 && a < static_cast<std::int32_t>(known.size()), [&] {
        return which() + " (" + step.op + ") uses value " + std::to_string(a) + ", which is not known yet";
      });
      arguments.push_back(known[static_cast<std::size_t>(a)]);
    }
    check_constants(c, *op, step, which);
    const DType made = infer_step(c, *op, step, arguments, which);
    c.require(step.dtype == made, [&] {
      return which() + " (" + step.op + ") gives " + std::string(name(made)) + ", and is recorded as " +
             std::string(name(step.dtype));
    });
    known.push_back(made);
    // Kernels read all inputs as one type, which the program computes in.
    const std::optional<DType> own = computes_in(step, arguments, i + 1 == program.steps.size());
    c.require(!own || !computes || *own == *computes, [&] {
      return which() + " (" + step.op + ") computes in " + std::string(name(*own)) + ", the steps before it in " +
             std::string(name(*computes));
    });
    if (own) computes = own;
  }
}

void infer_reduction(InferContext& c, bool needs_elements) {
  const Shape& from = c.input(0).shape;
  const Ints dims = normalize_dims(c, "dims", from.rank());
  const bool keep = c.attributes.flag("keepdim");
  std::vector<bool> reduced(from.rank(), false);
  for (std::int64_t d : dims) reduced[static_cast<std::size_t>(d)] = true;
  Shape shape;
  for (std::size_t d = 0; d < from.rank(); ++d) {
    if (!reduced[d])
      shape.push_back(from[d]);
    else if (keep)
      shape.push_back(1);
    if (reduced[d] && needs_elements && from[d] == Dim(0))
      c.fail("dimension " + std::to_string(d) + " of the input " + c.input(0).to_string() +
             " is empty: it has no extreme value");
  }
  c.output(c.input(0).dtype, shape);
}

void infer_arg_reduction(InferContext& c) {
  const Shape& from = c.input(0).shape;
  const auto dim = static_cast<std::size_t>(normalize_dim(c, "dim", from.rank()));
  Shape shape;
  for (std::size_t d = 0; d < from.rank(); ++d) {
    if (d == dim && from[d] == Dim(0))
      c.fail("dimension " + std::to_string(d) + " of the input " + c.input(0).to_string() + " is empty");
    if (d != dim)
      shape.push_back(from[d]);
    else if (c.attributes.flag("keepdim"))
      shape.push_back(1);
  }
  c.output(DType::i64, shape);
}

void infer_softmax(InferContext& c) {
  infer_any(c);
  const std::int64_t dim = normalize_dim(c, "dim", c.input(0).shape.rank());
  if (c.attributes.find("causal") != nullptr && c.attributes.flag("causal")) {
    const std::size_t rank = c.input(0).shape.rank();
    c.require(rank >= 2 && dim + 1 == static_cast<std::int64_t>(rank),
              [&] { return "'causal' is for the last of two dimensions or more, got " + c.input(0).to_string(); });
    c.require(c.attributes.integer("offset") >= 0,
              [&] { return "'offset' must not be negative, got " + std::to_string(c.attributes.integer("offset")); });
  }
  if (c.input_count() > 1)
    c.require(c.input(0).shape == c.input(1).shape, [&] {
      return "expects two inputs of one shape, got " + c.input(0).to_string() + " and " + c.input(1).to_string();
    });
}

// ---- gradients ------------------------------------------------------------------------------------------------------

Term Term::apply(std::string_view op, std::vector<ValueId> more, Attributes attributes) const {
  more.insert(more.begin(), id_);
  return {*g_, g_->call(op, std::move(more), std::move(attributes))};
}

Term where(Term condition, Term a, Term b) { return condition.apply("where", {a, b}); }
Term where(Term condition, Term a, double b) { return where(condition, a, a.constant(b)); }

void gradient_zero(GradientBuilder& g) {
  for (std::size_t i = 0; i < g.input_count(); ++i) {
    if (!g.needs(i)) continue;
    const TensorType type = g.type(g.input(i));
    g.set(i, g.call("full", {}, {{"shape", type.shape}, {"value", 0.0}, {"dtype", type.dtype}}));
  }
}

Term keep_dims(GradientBuilder& g, ValueId reduced) {
  const Shape& from = g.type(g.input(0)).shape;
  Shape shape = from;
  for (std::int64_t d : g.attributes().integers("dims")) shape[static_cast<std::size_t>(d)] = 1;
  if (g.type(reduced).shape == shape) return {g, reduced};
  return {g, g.call("reshape", {reduced}, {{"shape", shape}})};
}

Term count_along(GradientBuilder& g, const Shape& shape, const Ints& dims, ValueId like) {
  Dim n = 1;
  for (std::int64_t d : dims) n = n * shape[static_cast<std::size_t>(d)];
  if (n.is_static()) return {g, g.scalar(static_cast<double>(n.value()), like)};
  return {g, g.call("size", {}, {{"shape", Shape{n}}, {"dtype", g.type(like).dtype}})};
}

// ---- what comments and passes ask -----------------------------------------------------------------------------------

bool adjacent(const Shape& shape, const Ints& dims) {
  for (std::size_t i = 1; i < dims.size(); ++i)
    for (std::int64_t d = dims[i - 1] + 1; d < dims[i]; ++d)
      if (shape[static_cast<std::size_t>(d)] != Dim(1)) return false;
  return true;
}

std::string dim_remark(const NodeView& node) { return fmt::format("dim {}", node.attributes().integer("dim")); }

std::string reduction_remark(const NodeView& node) {
  const Ints& dims = node.attributes().integers("dims");
  if (dims.empty() || dims.size() == node.input(0).shape.rank()) return {};
  return fmt::format("over dim {}", fmt::join(dims, ","));
}

std::vector<AttributeSpec> softmax_attributes() {
  return {{"dim", AttributeType::integer, {}, "counted from the end when negative"},
          {"causal", AttributeType::boolean, false,
           "row i sees columns 0 to i + offset alone, the others become zeros; dim is the last"},
          {"offset", AttributeType::integer, std::int64_t{0}, "of causal; not negative"}};
}

std::string softmax_remark(const NodeView& node) {
  return node.attributes().flag("causal") ? "causal" : dim_remark(node);
}

void require_kernel_rank(const InferContext& c, std::size_t rank) {
  if (rank > kMaxRank)
    c.fail("tensors of more than " + std::to_string(kMaxRank) + " dimensions are not supported, got " +
           std::to_string(rank));
}

// ---- test cases -----------------------------------------------------------------------------------------------------

TestCase::Input random(DType dtype, Shape shape, double low, double high) {
  if (dtype == DType::u8 && low < 0) low = 0;
  if (dtype == DType::u8 && high <= low) high = low + 4;
  return {.type = {dtype, std::move(shape)}, .low = low, .high = high};
}

std::vector<TestCase> unary_cases(double low, double high, Attributes attributes, bool integers, bool gradient) {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape shape) {
    cases.push_back({.note = std::move(note),
                     .inputs = {random(dtype, std::move(shape), low, high)},
                     .attributes = attributes,
                     .gradient = gradient && is_floating(dtype)});
  };
  add("vector", DType::f32, {37});
  add("rank 3", DType::f32, {2, 1, 5});
  add("rank 0", DType::f32, {});
  add("empty", DType::f32, {0, 3});
  for (DType d : kFloats) add(std::string(name(d)), d, {19});
  if (integers)
    for (DType d : kIntegers) add(std::string(name(d)), d, {19});
  return cases;
}

std::vector<TestCase> binary_cases(double low, double high, double low2, double high2, bool integers, bool gradient) {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape a, Shape b) {
    cases.push_back({.note = std::move(note),
                     .inputs = {random(dtype, std::move(a), low, high), random(dtype, std::move(b), low2, high2)},
                     .gradient = gradient && is_floating(dtype)});
  };
  add("same shape", DType::f32, {3, 7}, {3, 7});
  add("row", DType::f32, {3, 7}, {7});
  add("column", DType::f32, {3, 7}, {3, 1});
  add("both broadcast", DType::f32, {4, 1, 5}, {3, 1});
  add("scalar left", DType::f32, {}, {6});
  add("scalar right", DType::f32, {6}, {});
  add("rank 0", DType::f32, {}, {});
  add("empty", DType::f32, {0, 3}, {3});
  add("inner broadcast", DType::f32, {2, 3, 4, 5}, {3, 1, 1});
  for (DType d : kFloats) add(std::string(name(d)), d, {3, 5}, {5});
  if (integers)
    for (DType d : kIntegers) add(std::string(name(d)), d, {3, 5}, {5});
  return cases;
}

std::vector<AttributeSpec> reduction_attributes() {
  return {{"dims", AttributeType::integers, Ints{}, "dimensions to reduce; empty: all"},
          {"keepdim", AttributeType::boolean, false, "keep them, with size 1"}};
}

std::vector<TestCase> reduction_cases(double low, double high, bool integers, bool needs_elements) {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape shape, Ints dims, bool keep) {
    cases.push_back({.note = std::move(note),
                     .inputs = {random(dtype, std::move(shape), low, high)},
                     .attributes = {{"dims", std::move(dims)}, {"keepdim", keep}},
                     .gradient = is_floating(dtype)});
  };
  add("all", DType::f32, {3, 4, 5}, {}, false);
  add("all kept", DType::f32, {3, 4, 5}, {}, true);
  add("last", DType::f32, {3, 4, 21}, {-1}, false);
  add("first", DType::f32, {7, 18}, {0}, false);
  add("middle", DType::f32, {2, 5, 3}, {1}, true);
  add("two side by side", DType::f32, {2, 3, 4, 5}, {1, 2}, false);
  add("first and last", DType::f32, {3, 4, 5}, {0, 2}, false);
  add("separate", DType::f32, {2, 3, 4, 5}, {-3, 3}, true);
  add("size 1", DType::f32, {1}, {0}, false);
  add("rank 0", DType::f32, {}, {}, false);
  add("empty result", DType::f32, {0, 3}, {1}, false);
  if (!needs_elements) add("of nothing", DType::f32, {3, 0}, {1}, false);
  for (DType d : kFloats) add(std::string(name(d)), d, {3, 4}, {1}, false);
  if (integers)
    for (DType d : kIntegers) add(std::string(name(d)), d, {3, 4}, {1}, false);
  return cases;
}

std::vector<TestCase> arg_reduction_cases() {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape shape, std::int64_t dim, bool keep, double reach) {
    cases.push_back({.note = std::move(note),
                     .inputs = {random(dtype, std::move(shape), -reach, reach)},
                     .attributes = {{"dim", dim}, {"keepdim", keep}},
                     .gradient = false});
  };
  add("last", DType::f32, {5, 37}, -1, false, 4);
  add("first", DType::f32, {9, 4}, 0, false, 4);
  add("middle", DType::f32, {2, 5, 3}, 1, true, 4);
  add("equals", DType::i32, {4, 9}, 1, false, 2);
  add("size 1", DType::f32, {3, 1}, 1, false, 4);
  add("rank 0", DType::f32, {}, 0, false, 4);
  add("empty result", DType::f32, {0, 3}, 1, false, 4);
  for (DType d : {DType::f64, DType::f16, DType::bf16, DType::i8, DType::i32, DType::i64, DType::u8})
    add(std::string(name(d)), d, {3, 8}, 1, false, 4);
  return cases;
}

std::vector<TestCase> softmax_cases(std::size_t inputs) {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape shape, std::int64_t dim) {
    TestCase c{.note = std::move(note), .attributes = {{"dim", dim}}, .gradient = inputs == 1};
    for (std::size_t i = 0; i < inputs; ++i) c.inputs.push_back(random(dtype, shape, -4, i == 0 ? 4 : 0));
    cases.push_back(std::move(c));
  };
  add("last", DType::f32, {5, 37}, -1);
  add("first", DType::f32, {4, 6}, 0);
  add("middle", DType::f32, {2, 3, 5}, 1);
  add("size 1", DType::f32, {3, 1}, 1);
  add("rank 0", DType::f32, {}, 0);
  add("empty", DType::f32, {0, 4}, 1);
  for (DType d : kFloats) add(std::string(name(d)), d, {3, 6}, 1);
  return cases;
}

std::vector<TestCase> causal_softmax_cases(std::size_t inputs) {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape shape, std::int64_t offset = 0) {
    TestCase c{.note = "causal, " + std::move(note),
               .attributes = {{"dim", std::int64_t{-1}}, {"causal", true}, {"offset", offset}},
               .gradient = inputs == 1};
    for (std::size_t i = 0; i < inputs; ++i) c.inputs.push_back(random(dtype, shape, -4, i == 0 ? 4 : 0));
    cases.push_back(std::move(c));
  };
  add("square", DType::f32, {5, 5});
  add("heads", DType::f32, {2, 3, 37, 37});
  add("more keys", DType::f32, {2, 3, 20});
  add("more queries", DType::f32, {2, 7, 3});
  add("offset", DType::f32, {2, 4, 9}, 5);
  add("offset beyond the keys", DType::f32, {3, 2}, 8);
  add("one", DType::f32, {1, 1});
  add("no queries", DType::f32, {2, 0, 4});
  add("no keys", DType::f32, {2, 3, 0});
  for (DType d : kFloats) add(std::string(name(d)), d, {2, 4, 4});
  return cases;
}

std::vector<TestCase> comparison_cases() {
  std::vector<TestCase> cases;
  for (DType d : kAllDTypes) {
    const bool b = d == DType::boolean;
    cases.push_back({.note = std::string(name(d)),
                     .inputs = {random(d, {4, 9}, b ? 0 : -3, b ? 2 : 3), random(d, {9}, b ? 0 : -3, b ? 2 : 3)},
                     .gradient = false});
  }
  cases.push_back({.note = "column",
                   .inputs = {random(DType::i32, {4, 1}, -2, 2), random(DType::i32, {4, 9}, -2, 2)},
                   .gradient = false});
  cases.push_back({.note = "rank 0", .inputs = {random(DType::f32, {}), random(DType::f32, {})}, .gradient = false});
  cases.push_back({.note = "empty", .inputs = {random(DType::f32, {0}), random(DType::f32, {0})}, .gradient = false});
  return cases;
}

namespace {

/// The first case with no elements, with one, and of rank 0.
void add_small_sizes(std::vector<TestCase>& cases) {
  for (const Shape& shape : {Shape{0, 7}, Shape{1}, Shape{}}) {
    TestCase c = cases[0];
    c.note = "shape " + shape.to_string();
    for (TestCase::Input& i : c.inputs) i.type.shape = shape;
    cases.push_back(std::move(c));
  }
}

}  // namespace

std::vector<TestCase> logical_cases(std::size_t inputs) {
  std::vector<TestCase> cases;
  for (DType d : kAllDTypes) {
    TestCase c{.note = std::string(name(d)), .gradient = false};
    for (std::size_t i = 0; i < inputs; ++i) c.inputs.push_back(random(d, i == 0 ? Shape{5, 7} : Shape{7}, 0, 2));
    cases.push_back(std::move(c));
  }
  add_small_sizes(cases);
  return cases;
}

std::vector<TestCase> comparison_cases_of(std::size_t inputs) {
  std::vector<TestCase> cases;
  for (DType d : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    TestCase c{.note = std::string(name(d)), .gradient = false};
    for (std::size_t i = 0; i < inputs; ++i) c.inputs.push_back(random(d, {5, 7}, -3, 3));
    cases.push_back(std::move(c));
  }
  add_small_sizes(cases);
  return cases;
}

std::vector<TestCase> bitwise_cases(std::size_t inputs) {
  std::vector<TestCase> cases;
  for (DType d : {DType::boolean, DType::i8, DType::u8, DType::i32, DType::i64}) {
    TestCase c{.note = std::string(name(d)), .gradient = false};
    for (std::size_t i = 0; i < inputs; ++i)
      c.inputs.push_back(random(d, i == 0 ? Shape{5, 7} : Shape{7}, d == DType::boolean || d == DType::u8 ? 0 : -100,
                                d == DType::boolean ? 2 : 100));
    cases.push_back(std::move(c));
  }
  add_small_sizes(cases);
  return cases;
}

std::vector<TestCase> join(std::vector<TestCase> a, std::vector<TestCase> b) {
  for (TestCase& c : b) a.push_back(std::move(c));
  return a;
}

std::vector<AttributeSpec> join(std::vector<AttributeSpec> a, const std::vector<AttributeSpec>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace graven::ir::ops
