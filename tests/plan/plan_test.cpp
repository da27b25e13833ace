#include "codegen/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>

#include "codegen/plan/arena.h"
#include "codegen/plan/schedule.h"
#include "codegen/plan/storage.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven::codegen {
namespace {

using ir::Attributes;
using ir::DType;
using ir::Graph;
using ir::InferContext;
using ir::InputRole;
using ir::kCopy;
using ir::KernelCall;
using ir::NodeView;
using ir::OpDef;
using ir::Phase;
using ir::TensorType;
using ir::ValueId;

// Operators with just what planning looks at.
void same_as_first(InferContext& c) { c.output(c.input(0).dtype, c.input(0).shape); }
const OpDef kPlain{
    .name = "plain", .inputs = {{.name = "xs", .variadic = true}}, .dtypes = ir::kAnyDType, .infer = same_as_first};
const OpDef kInPlace{.name = "in_place", .inputs = {{.name = "xs", .variadic = true}}, .infer = same_as_first};
const OpDef kResize{.name = "resize",
                    .inputs = {{.name = "xs", .variadic = true}},
                    .attributes = {{"n", ir::AttributeType::integer}},
                    .infer = [](InferContext& c) { c.output(DType::f32, {c.attributes.integer("n")}); }};
const OpDef kScratch{.name = "scratch", .inputs = {{.name = "xs", .variadic = true}}, .infer = same_as_first};
const OpDef kTwo{.name = "two", .inputs = {{"x"}}, .outputs = {"first", "second"}, .infer = [](InferContext& c) {
                   c.output(c.input(0).dtype, c.input(0).shape);
                   c.output(c.input(0).dtype, c.input(0).shape);
                 }};
const OpDef kTwoOver{.name = "two_over", .inputs = {{"x"}}, .outputs = kTwo.outputs, .infer = kTwo.infer};
const OpDef kInPlaceIndex{.name = "in_place_index",
                          .inputs = {{.name = "xs", .variadic = true}},
                          .infer = [](InferContext& c) { c.output(DType::i32, c.input(0).shape); }};
const OpDef kView{.name = "view", .inputs = {{"x"}}, .infer = same_as_first, .alias = true};
const OpDef kWrite{.name = "write",
                   .inputs = {{.name = "target", .role = InputRole::parameter}, {"value"}},
                   .infer = [](InferContext&) {}};
const OpDef kUpdate{.name = "update",
                    .inputs = {{.name = "params", .role = InputRole::parameter, .variadic = true},
                               {.name = "grads", .role = InputRole::gradient, .variadic = true}},
                    .infer = [](InferContext&) {}};

/// What these become; operators of ir/ops as on the CPU.
KernelCall lower(const NodeView& node) {
  const OpDef* op = node.node.op;
  if (op == &kInPlace || op == &kInPlaceIndex) return {.name = "in_place", .in_place = {0}};
  if (op == &kScratch) return {.name = "scratch", .workspace_bytes = 1000};
  if (op == &kTwoOver) return {.name = "two_over", .in_place = {0}, .over = {{1, 0}}};
  for (const OpDef* plain : {&kPlain, &kResize, &kTwo, &kWrite, &kUpdate})
    if (op == plain) return {.name = "plain"};
  return ir::lower(node);
}

const Target& planning_target() {
  static const Target target = [] {
    Target t = target_named({});
    t.passes.lower = lower;
    return t;
  }();
  return target;
}

TensorType floats(std::int64_t n) { return {DType::f32, {n}}; }

struct Builder {
  Graph graph;
  std::vector<ValueId> add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes = {},
                           Phase phase = Phase::forward, std::string name = {}) {
    return graph.add_node(op, std::move(inputs), std::move(attributes), {}, phase, std::move(name));
  }
  ValueId call(const OpDef& op, std::vector<ValueId> inputs, Phase phase = Phase::forward) {
    return add(op, std::move(inputs), {}, phase)[0];
  }
  /// What the variable holds after the call: by a copy, as insert_copies makes it.
  ValueId hold(ValueId variable, ValueId value, Phase phase = Phase::forward) {
    return held(variable, call(kCopy, {value}, phase));
  }
  /// By an update of what it holds so far.
  ValueId write(ValueId variable, ValueId old, ValueId value) { return held(variable, call(kWrite, {old, value})); }
  std::vector<ValueId> update(const std::vector<ValueId>& parameters, const std::vector<ValueId>& gradients,
                              Phase phase = Phase::update) {
    std::vector<ValueId> inputs = parameters;
    inputs.insert(inputs.end(), gradients.begin(), gradients.end());
    const std::vector<ValueId> updated = add(kUpdate, std::move(inputs), {}, phase);
    for (std::size_t i = 0; i < updated.size(); ++i) held(parameters[i], updated[i]);
    return updated;
  }
  ValueId held(ValueId variable, ValueId value) {
    std::erase_if(graph.donations, [&](const ir::Donation& d) { return d.variable == variable; });
    graph.donations.push_back({variable, value});
    return value;
  }
  ValueId resize(std::vector<ValueId> inputs, std::int64_t n) { return add(kResize, std::move(inputs), {{"n", n}})[0]; }
  Plan plan() {
    Plan p = make_plan(graph, planning_target());
    verify_plan(graph, p);
    return p;
  }
};

const Placement& place(const Plan& plan, ValueId v) { return plan.placements[static_cast<std::size_t>(v)]; }
const Buffer& buffer(const Plan& plan, ValueId v) {
  return plan.buffers.at(static_cast<std::size_t>(place(plan, v).buffer));
}

TEST(Plan, ChainTakesTwoBuffersAndWritesTheResultToTheCaller) {
  Builder b;
  ValueId v = b.graph.add_input("x", floats(100));
  std::vector<ValueId> chain;
  for (int i = 0; i < 6; ++i) chain.push_back(v = b.call(kPlain, {v}));
  b.graph.outputs = {v};
  const Plan plan = b.plan();
  EXPECT_EQ(plan.arena_bytes(), 2 * 448);  // 400 bytes each, rounded up to 64
  EXPECT_EQ(plan.lower_bound(), 2 * 448);
  EXPECT_EQ(plan.without_reuse(), 5 * 448);
  EXPECT_EQ(place(plan, v).home, Home::output);
  EXPECT_EQ(place(plan, v).buffer, 0);
  EXPECT_EQ(place(plan, b.graph.inputs[0]).home, Home::input);
  EXPECT_NE(buffer(plan, chain[0]).offset, buffer(plan, chain[1]).offset);
}

TEST(Plan, InPlaceWhereTheInputDies) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId first = b.call(kPlain, {x});
  const ValueId second = b.call(kInPlace, {first});
  const ValueId third = b.call(kInPlace, {second, first});  // first is read beside second, which dies
  b.graph.outputs = {b.call(kPlain, {third})};
  const Plan plan = b.plan();
  EXPECT_NE(place(plan, second).buffer, place(plan, first).buffer) << "first is still needed";
  EXPECT_EQ(place(plan, third).buffer, place(plan, second).buffer);
  EXPECT_EQ(buffer(plan, third).values, (std::vector<ValueId>{second, third}));
}

TEST(Plan, NothingIsWrittenOverWhatIsReadElsewhere) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId seen = b.call(kPlain, {x}), view = b.call(kView, {seen}), over = b.call(kInPlace, {seen, view});
  const ValueId number = b.call(kPlain, {x}), index = b.call(kInPlaceIndex, {number});
  const ValueId given = b.call(kPlain, {x}), twice = b.call(kInPlace, {given, given});
  const ValueId one = b.call(kPlain, {x});
  const std::vector<ValueId> two = b.add(kTwoOver, {one});
  b.graph.outputs = {b.call(kPlain, {over, twice, two[0], two[1]}), b.call(kPlain, {index})};
  const Plan plan = b.plan();
  EXPECT_NE(place(plan, over).buffer, place(plan, seen).buffer) << "the kernel reads a view of it, too";
  EXPECT_NE(place(plan, twice).buffer, place(plan, given).buffer)
      << "of the input given twice, the kernel reads the second as it likes";
  EXPECT_NE(place(plan, index).buffer, place(plan, number).buffer) << "another type lies there";
  EXPECT_EQ(place(plan, two[0]).buffer, place(plan, one).buffer);
  EXPECT_NE(place(plan, two[1]).buffer, place(plan, one).buffer) << "the first result has its memory";
}

TEST(Plan, TheCallersInputIsNeverOverwritten) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId y = b.call(kInPlace, {x});
  b.graph.outputs = {b.call(kInPlace, {y})};
  const Plan plan = b.plan();
  EXPECT_EQ(place(plan, y).home, Home::arena);
  EXPECT_EQ(place(plan, x).home, Home::input);
}

TEST(Plan, AliasesShareMemoryAndKeepItAlive) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId y = b.call(kPlain, {x});
  const ValueId view = b.call(kView, {b.call(kView, {y})});
  const ValueId z = b.call(kInPlace, {y});
  b.graph.outputs = {b.call(kPlain, {z, view})};
  const Plan plan = b.plan();
  EXPECT_EQ(place(plan, view).home, Home::alias);
  EXPECT_EQ(place(plan, view).alias_of, y);
  EXPECT_NE(place(plan, z).buffer, place(plan, y).buffer) << "the view is read later";
}

TEST(Plan, AViewOfAResultIsWrittenToTheCaller) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId y = b.call(kPlain, {x});
  b.graph.outputs = {b.call(kView, {y})};
  const Plan plan = b.plan();
  EXPECT_EQ(place(plan, y).home, Home::output);
}

TEST(Plan, ResultsThatNobodyReadsHaveNoMemoryButTheFirst) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const auto both = b.add(kTwo, {x});
  b.graph.outputs = {b.call(kPlain, {both[0]})};
  Plan plan = b.plan();
  EXPECT_GE(place(plan, both[0]).buffer, 0);
  EXPECT_EQ(place(plan, both[1]).buffer, -1);

  Builder c;
  const ValueId u = c.graph.add_input("x", floats(16));
  const auto other = c.add(kTwo, {u});
  c.graph.outputs = {c.call(kPlain, {other[1]})};
  plan = c.plan();
  EXPECT_GE(place(plan, other[0]).buffer, 0);
  EXPECT_GE(place(plan, other[1]).buffer, 0);
}

TEST(Plan, WorkspaceLivesForOneStep) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId y = b.call(kScratch, {x});
  b.graph.outputs = {b.call(kScratch, {y})};
  const Plan plan = b.plan();
  ASSERT_GE(plan.steps[0].workspace, 0);
  EXPECT_EQ(plan.buffers[static_cast<std::size_t>(plan.steps[0].workspace)].bytes, 1024);
  EXPECT_EQ(plan.arena_bytes(), 64 + 1024);
}

TEST(Plan, WritersWaitForReadersAndReadersForWriters) {
  // y reads the buffer before it is written, z after. Both orders are free of data dependencies.
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(1000));
  const ValueId state = b.graph.add_buffer("state", floats(1000));
  const ValueId y = b.call(kPlain, {state});
  const ValueId z = b.resize({b.write(state, state, x)}, 4);
  b.graph.outputs = {b.call(kPlain, {b.resize({z}, 8), y})};
  const Plan plan = b.plan();
  std::vector<int> position(b.graph.nodes.size());
  for (std::size_t s = 0; s < plan.steps.size(); ++s)
    position[static_cast<std::size_t>(plan.steps[s].node)] = static_cast<int>(s);
  EXPECT_LT(position[0], position[1]);
  EXPECT_LT(position[1], position[2]);
}

TEST(Plan, ABetterOrderIsFound) {
  // Traced: all large intermediates first, then their small sums. Reordered, one large one lives at a time.
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  std::vector<ValueId> large, small;
  for (int i = 0; i < 8; ++i) large.push_back(b.resize({x}, 10000));
  for (const ValueId v : large) small.push_back(b.resize({v}, 16));
  b.graph.outputs = {b.call(kPlain, small)};
  const Plan plan = b.plan();
  EXPECT_LT(plan.arena_bytes(), 2 * 40064);
}

/// The order of a plan, by node.
std::vector<ir::NodeId> order_of(const Plan& plan) {
  std::vector<ir::NodeId> order;
  for (const Step& step : plan.steps) order.push_back(step.node);
  return order;
}

TEST(Plan, TheProgramsOrderIsKeptWhereAnotherSavesLittle) {
  for (const std::int64_t early : {100, 1000}) {
    Builder b;
    const ValueId x = b.graph.add_input("x", floats(16));
    const ValueId first = b.resize({x}, early), large = b.resize({x}, 8000), small = b.resize({large}, 10);
    b.graph.outputs = {b.resize({small, first}, 10)};
    // `first` is alive beside `large` for nothing.
    const std::vector<ir::NodeId> expected =
        early == 100 ? std::vector<ir::NodeId>{0, 1, 2, 3} : std::vector<ir::NodeId>{1, 2, 0, 3};
    EXPECT_EQ(order_of(b.plan()), expected) << early;
  }
}

TEST(Plan, OnlyWhatLiesAroundAtThePeakMoves) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  std::vector<ValueId> late;  // as a tied weight's gradient, which is read at the end
  late.push_back(b.resize({x}, 5000));
  ValueId v = b.resize({x}, 3000);
  for (int i = 0; i < 4; ++i) {
    const ValueId aside = b.resize({v}, 20);
    v = b.resize({v}, 3000);
    late.push_back(aside);
  }
  late.push_back(b.resize({v}, 10));
  b.graph.outputs = {b.resize(late, 10)};
  const Plan plan = b.plan();
  EXPECT_EQ(order_of(plan), (std::vector<ir::NodeId>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 11}));
  EXPECT_LT(plan.lower_bound(), 25000);  // two of 3000 floats and the small ones
}

TEST(Plan, WhatReplacesItsInputStaysWhereTheProgramHasIt) {
  // Another order of backward saves memory, but not by computing `slope`, in the place of what forward has kept, before
  // its time.
  Builder b;
  const auto resize = [&](std::vector<ValueId> inputs, std::int64_t n) {
    return b.add(kResize, std::move(inputs), {{"n", n}}, Phase::backward)[0];
  };
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId kept = b.resize({x}, 10000);
  std::vector<ValueId> large, small;
  for (int i = 0; i < 8; ++i) large.push_back(resize({x}, 10000));
  for (const ValueId v : large) small.push_back(resize({v}, 16));
  const ValueId sum = b.call(kPlain, small, Phase::backward), slope = b.call(kInPlace, {kept}, Phase::backward);
  b.graph.outputs = {resize({slope, sum}, 16)};
  const Plan plan = b.plan();
  EXPECT_LT(plan.arena_bytes(), 3 * 40064);
  std::vector<ValueId> order;
  for (const Step& step : plan.steps) order.push_back(b.graph.nodes[static_cast<std::size_t>(step.node)].outputs[0]);
  EXPECT_LT(std::find(order.begin(), order.end(), sum), std::find(order.begin(), order.end(), slope));
  EXPECT_EQ(place(plan, slope).buffer, place(plan, kept).buffer);
}

TEST(Plan, GradientsOfParametersHaveTheirOwnHome) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId p = b.graph.add_parameter("p", floats(16), true);
  const ValueId loss = b.resize({x, p}, 1);
  const ValueId gradient = b.call(kPlain, {p, x}, Phase::backward);
  b.update({p}, {gradient});
  b.graph.losses = {{loss, ir::kNone}};
  b.graph.outputs = {loss};
  const Plan plan = b.plan();
  EXPECT_EQ(place(plan, gradient).home, Home::gradient);
  EXPECT_EQ(place(plan, gradient).parameter, p);
  EXPECT_EQ(place(plan, loss).home, Home::arena);
  EXPECT_EQ(buffer(plan, loss).last, 2) << "the loss is read after the step";
}

// update() may be called twice behind one backward().
TEST(Plan, WhatBackwardLeavesForTheUpdateOutlivesIt) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId p = b.graph.add_parameter("p", floats(16), true);
  const ValueId loss = b.resize({x, p}, 1);
  const ValueId kept = b.call(kPlain, {x}, Phase::backward), gradient = b.call(kPlain, {p, x}, Phase::backward);
  const ValueId over = b.call(kInPlace, {kept}, Phase::update), more = b.call(kPlain, {over}, Phase::update);
  b.update({p}, {gradient});
  b.graph.losses = {{loss, ir::kNone}};
  b.graph.outputs = {loss, more};
  const Plan plan = b.plan();
  EXPECT_NE(place(plan, over).buffer, place(plan, kept).buffer);
  const Buffer &of_kept = buffer(plan, kept), &of_over = buffer(plan, over);
  EXPECT_TRUE(of_kept.offset + of_kept.bytes <= of_over.offset || of_over.offset + of_over.bytes <= of_kept.offset);
}

TEST(Plan, TermsOfAGradientAreAddedUpWhereItLies) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(1000));
  const ValueId p = b.graph.add_parameter("p", floats(1000), true), q = b.graph.add_parameter("q", floats(1000), true);
  const ValueId loss = b.resize({x, p, q}, 1);
  const ValueId first = b.call(kPlain, {p, x}, Phase::backward), second = b.call(kPlain, {x}, Phase::backward);
  const ValueId sum = b.call(kInPlace, {first, second}, Phase::backward);
  const ValueId read_twice = b.call(kPlain, {q, x}, Phase::backward);
  const ValueId square = b.call(kInPlace, {read_twice, read_twice}, Phase::backward);
  b.update({p}, {sum});
  b.update({q}, {square});
  b.graph.losses = {{loss, ir::kNone}};
  b.graph.outputs = {loss};
  const Plan plan = b.plan();
  EXPECT_EQ(place(plan, sum).home, Home::gradient);
  EXPECT_EQ(place(plan, first).home, Home::alias);
  EXPECT_EQ(place(plan, first).alias_of, sum);
  EXPECT_EQ(place(plan, second).home, Home::arena);
  EXPECT_EQ(place(plan, read_twice).home, Home::arena) << "its memory would be overwritten while it is read";
}

TEST(Plan, TermsOfAGradientThatAreMoreThanThatStayWhereTheyAre) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(1000));
  const ValueId p = b.graph.add_parameter("p", floats(1000), true), q = b.graph.add_parameter("q", floats(1000), true),
                r = b.graph.add_parameter("r", floats(1000), true);
  const ValueId loss = b.resize({x, p, q}, 1), forward = b.call(kPlain, {x});
  const ValueId result = b.call(kPlain, {p, x}, Phase::backward);
  const ValueId sum = b.call(kInPlace, {result, x}, Phase::backward),
                of_forward = b.call(kInPlace, {forward, x}, Phase::backward);
  b.update({p, q, r}, {sum, of_forward, of_forward});
  b.graph.losses = {{loss, ir::kNone}};
  b.graph.outputs = {loss, result};
  const Plan plan = b.plan();
  EXPECT_EQ(place(plan, sum).home, Home::gradient);
  EXPECT_EQ(place(plan, result).home, Home::arena) << "it is a result of the graph";
  EXPECT_EQ(place(plan, forward).home, Home::arena) << "forward writes no gradients";
  EXPECT_EQ(place(plan, of_forward).home, Home::gradient);
  EXPECT_EQ(place(plan, of_forward).parameter, q) << "of two parameters, the first's";
}

/// Whether the value that `build` returns is computed where it is assigned to: buffer f32[16].
bool is_written_through(ValueId (*build)(Builder& b, ValueId x, ValueId buffer)) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16)), buffer = b.graph.add_buffer("buffer", floats(16));
  b.graph.outputs = {b.call(kPlain, {x})};
  const ValueId value = build(b, x, buffer);
  const Plan plan = b.plan();
  return place(plan, value).home == Home::alias && place(plan, value).alias_of == buffer;
}

TEST(Plan, WhatIsAssignedIsComputedWhereItBelongs) {
  EXPECT_TRUE(is_written_through([](Builder& b, ValueId x, ValueId buffer) {
    const ValueId value = b.call(kPlain, {x});
    b.hold(buffer, value);
    return value;
  }));
  EXPECT_TRUE(is_written_through([](Builder& b, ValueId, ValueId buffer) {
    const ValueId value = b.call(kInPlace, {buffer});
    b.hold(buffer, value);
    return value;
  })) << "the kernel reads each element where it writes it";
  EXPECT_FALSE(is_written_through([](Builder& b, ValueId, ValueId buffer) {
    const ValueId value = b.call(kPlain, {buffer});
    b.hold(buffer, value);
    return value;
  })) << "the kernel reads the old contents while it writes";
  EXPECT_FALSE(is_written_through([](Builder& b, ValueId x, ValueId buffer) {
    const ValueId value = b.call(kPlain, {x});
    b.graph.outputs = {b.call(kPlain, {buffer})};
    b.hold(buffer, value);
    return value;
  })) << "the old contents are read between";
  EXPECT_FALSE(is_written_through([](Builder& b, ValueId x, ValueId buffer) {
    const ValueId value = b.call(kPlain, {x});
    b.hold(buffer, value, Phase::update);
    return value;
  })) << "forward() changes nothing that the update does";
  EXPECT_FALSE(is_written_through([](Builder& b, ValueId x, ValueId buffer) {
    const ValueId value = b.call(kPlain, {x});
    b.hold(buffer, value);
    b.graph.losses = {{value, ir::kNone}};
    b.graph.outputs = {value};
    return value;
  })) << "it is a result of the graph";
}

// What is assigned to two buffers lies in one, and is copied into the other.
TEST(Plan, WhatIsAssignedTwiceIsCopiedOnce) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16)), value = b.call(kPlain, {x});
  const ValueId first = b.graph.add_buffer("first", floats(16)), second = b.graph.add_buffer("second", floats(16));
  b.graph.outputs = {b.call(kPlain, {b.hold(first, value), b.hold(second, value)})};
  const Plan plan = b.plan();
  EXPECT_EQ(place(plan, value).alias_of, first);
  std::vector<std::string> calls;
  for (const Step& step : plan.steps) calls.push_back(step.call.name);
  EXPECT_EQ(calls, (std::vector<std::string>{"plain", "", "strided_copy", "plain"}));
}

/// What the schedule keeps before each node.
std::vector<std::vector<ir::NodeId>> edges(const Graph& graph) {
  std::vector<KernelCall> calls;
  std::vector<const KernelCall*> by_node;
  for (const ir::Node& node : graph.nodes) calls.push_back(lower({graph, node}));
  for (const KernelCall& call : calls) by_node.push_back(&call);
  return dependencies(graph, Storage(graph, 64, false, by_node, ir::ByValue<std::int32_t>()));
}

// Nothing but a write and a read of one memory keeps these nodes in order: no result of one is an input of the other.
TEST(Plan, ReadsAndWritesOfOneMemoryStayInOrder) {
  using Edges = std::vector<std::vector<ir::NodeId>>;
  const struct {
    const char* what;
    void (*build)(Builder& b, ValueId x, ValueId buffer);
    Edges expected;
  } cases[] = {
      {"a write after a read, a read after a write",
       [](Builder& b, ValueId x, ValueId buffer) {
         b.call(kPlain, {buffer});
         b.call(kPlain, {b.write(buffer, buffer, x)});
       },
       {{}, {0}, {1}}},
      {"a write after two reads",
       [](Builder& b, ValueId x, ValueId buffer) {
         b.call(kPlain, {buffer});
         b.call(kPlain, {x, buffer});
         b.write(buffer, buffer, x);
       },
       {{}, {}, {0, 1}}},
      {"a write after a write",
       [](Builder& b, ValueId x, ValueId buffer) { b.write(buffer, b.write(buffer, buffer, x), x); },
       {{}, {0}}},
      {"two reads between two writes",
       [](Builder& b, ValueId x, ValueId buffer) {
         const ValueId first = b.write(buffer, buffer, x);
         b.call(kPlain, {first});
         b.call(kPlain, {first});
         b.call(kPlain, {b.write(buffer, first, x)});
       },
       {{}, {0}, {0}, {0, 1, 2}, {3}}},
      {"a read through a view, which is passed first",
       [](Builder& b, ValueId x, ValueId buffer) {
         b.call(kPlain, {b.call(kView, {buffer})});
         b.write(buffer, buffer, x);
       },
       {{}, {}, {0, 1}}},
      {"a write through a view",
       [](Builder& b, ValueId x, ValueId buffer) {
         b.call(kPlain, {buffer});
         b.call(kPlain, {b.write(buffer, b.call(kView, {buffer}), x)});
       },
       {{}, {}, {0, 1}, {2}}},
      {"each of several that are written at once, but not what is only read beside them",
       [](Builder& b, ValueId x, ValueId buffer) {
         const ValueId other = b.graph.add_buffer("other", floats(16)), read = b.graph.add_buffer("read", floats(16));
         b.call(kPlain, {other});
         b.call(kPlain, {read});
         const std::vector<ValueId> updated = b.update({buffer, other}, {x, read}, Phase::forward);
         b.call(kPlain, {read});
         b.call(kPlain, {updated[0]});
         b.write(read, read, x);
       },
       {{}, {}, {0}, {}, {2}, {1, 2, 3}}},
      {"what is computed where it is assigned to waits for who reads the old contents",
       [](Builder& b, ValueId x, ValueId buffer) {
         b.call(kPlain, {buffer});
         b.hold(buffer, b.call(kPlain, {x}));
       },
       {{}, {0}, {1}}},
      {"and who reads the new ones waits for it",
       [](Builder& b, ValueId x, ValueId buffer) { b.call(kPlain, {b.hold(buffer, b.call(kPlain, {x}))}); },
       {{}, {0}, {0}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Builder b;
    const ValueId x = b.graph.add_input("x", floats(16)), buffer = b.graph.add_buffer("buffer", floats(16));
    c.build(b, x, buffer);
    EXPECT_EQ(edges(b.graph), c.expected);
    EXPECT_NO_THROW(b.plan());
  }
}

TEST(Plan, WhatIsPreparedOutlivesTheCall) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId p = b.graph.add_parameter("p", floats(16), false);
  const ValueId packed = b.call(kPlain, {p}, Phase::prepare);
  b.graph.outputs = {b.call(kPlain, {x, packed})};
  EXPECT_EQ(place(b.plan(), packed).home, Home::prepared);
}

TEST(Plan, WhatOnlyThePreparePhaseReadsIsKnownByItsLastReader) {
  Builder b;
  const ValueId x = b.graph.add_input("x", floats(16));
  const ValueId once = b.graph.add_parameter("once", floats(16), false);
  const ValueId twice = b.graph.add_parameter("twice", floats(16), false);
  const ValueId tied = b.graph.add_parameter("tied", floats(16), false);
  const ValueId result = b.graph.add_parameter("result", floats(16), false);
  const ValueId moved = b.call(kPlain, {once, twice}, Phase::prepare);
  const ValueId view = b.call(kView, {moved}, Phase::prepare);
  const ValueId packed = b.call(kPlain, {view, twice, tied, result}, Phase::prepare);
  b.graph.outputs = {b.call(kPlain, {x, packed, tied}), result};
  const Plan plan = b.plan();
  std::vector<std::pair<ValueId, ValueId>> found;  // the reader's result, what it reads last
  for (const Step& step : plan.steps)
    for (const ValueId v : step.last_reads)
      found.emplace_back(b.graph.nodes[static_cast<std::size_t>(step.node)].outputs[0], v);
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<std::pair<ValueId, ValueId>>{{moved, once}, {packed, twice}, {packed, moved}}));
}

TEST(Plan, SymbolicShapesArePlannedForTheMaximum) {
  Builder b;
  const ValueId x = b.graph.add_input("x", {DType::f32, {ir::Dim("batch", 32), 10}});
  const ValueId y = b.call(kPlain, {x});
  b.graph.outputs = {b.call(kPlain, {y})};
  EXPECT_EQ(b.plan().arena_bytes(), 32 * 40);
}

TEST(Plan, TensorsBeyondMemoryAreAUserError) {
  Builder b;
  const ValueId x = b.graph.add_input("x", {DType::f32, {std::int64_t{1} << 40, std::int64_t{1} << 40}});
  b.graph.outputs = {x};
  EXPECT_THROW(make_plan(b.graph, planning_target()), UserError);
}

TEST(Plan, WhatAVariableIsToHoldIsMadeByACopyOrAnUpdate) {
  Builder b;
  const ValueId w = b.graph.add_parameter("w", floats(8), true);
  const ValueId y = b.call(kPlain, {w});
  b.graph.donations = {{w, y}};
  try {
    make_plan(b.graph, planning_target());
    ADD_FAILURE() << "planned";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("'w' is to hold 'plain', which is made elsewhere"), std::string::npos)
        << e.what();
  }
}

TEST(Plan, EmptyGraphAndEmptyTensors) {
  Builder b;
  EXPECT_EQ(b.plan().arena_bytes(), 0);
  const ValueId x = b.graph.add_input("x", floats(0));
  const ValueId y = b.call(kPlain, {x});
  b.graph.outputs = {b.call(kPlain, {y, y})};
  EXPECT_EQ(b.plan().arena_bytes(), 0);
}

/// A random graph: nodes of every kind over recent and old values, sizes over four orders of magnitude.
Graph random_graph(unsigned seed, int nodes) {
  std::mt19937 random(seed);
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Builder b;
  std::vector<ValueId> values{b.graph.add_input("x", floats(64)), b.graph.add_input("y", floats(1000))};
  const ValueId state = b.graph.add_buffer("state", floats(64));
  ValueId held = state;
  for (int i = 0; i < nodes; ++i) {
    auto pick = [&] {
      return values[below(3) == 0 ? below(values.size())
                                  : values.size() - 1 - below(std::min<std::size_t>(values.size(), 6))];
    };
    const ValueId a = pick(), c = pick();
    switch (below(7)) {
      case 0:
        values.push_back(b.resize({a, c}, static_cast<std::int64_t>(1 + below(10) * below(1000))));
        break;
      case 1:
        values.push_back(b.call(kView, {a}));
        break;
      case 2:
        for (const ValueId v : b.add(kTwo, {a})) values.push_back(v);
        break;
      case 3:
        values.push_back(b.call(kScratch, {a, c}));
        break;
      case 4:
        if (below(4) == 0)
          held = b.write(state, held, a);
        else
          values.push_back(b.call(kPlain, {held, a}));
        break;
      default:
        values.push_back(b.call(kInPlace, {a, c}));
    }
  }
  for (int i = 0; i < 3; ++i)
    b.graph.outputs.push_back(values[values.size() - 1 - below(std::min<std::size_t>(values.size(), 20))]);
  return std::move(b.graph);
}

TEST(Plan, RandomGraphsKeepEveryInvariant) {
  double worst = 1;
  int above = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    const Graph graph = random_graph(seed, 5 + static_cast<int>(seed));
    const Plan plan = make_plan(graph, planning_target());
    ASSERT_NO_THROW(verify_plan(graph, plan)) << "seed " << seed;
    const Plan again = make_plan(graph, planning_target());
    ASSERT_EQ(plan.arena_bytes(), again.arena_bytes());
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) ASSERT_EQ(plan.buffers[i].offset, again.buffers[i].offset);
    above += static_cast<double>(plan.arena_bytes()) > 1.02 * static_cast<double>(plan.lower_bound());
    if (plan.lower_bound() > 0)
      worst = std::max(worst, static_cast<double>(plan.arena_bytes()) / static_cast<double>(plan.lower_bound()));
  }
  // Sizes over four orders of magnitude and arbitrary lives; networks are kinder.
  EXPECT_LE(worst, 1.06);
  EXPECT_LE(above, 12);
}

TEST(Plan, TrainingShapedLivesArePlacedExactly) {
  // Activations of 60 layers live from their forward to their backward step: nested lives, with short ones between.
  std::vector<Buffer> buffers;
  const int layers = 60;
  for (int i = 0; i < layers; ++i) {
    buffers.push_back({"a", {}, 64 * (1 + (i * 37) % 50), 0, i, 2 * layers - i});
    buffers.push_back({"g", {}, 64 * (1 + (i * 53) % 90), 0, 2 * layers - i, 2 * layers - i + 1});
  }
  EXPECT_LE(static_cast<double>(place_buffers(buffers)), 1.02 * static_cast<double>(arena_lower_bound(buffers)));
}

TEST(Plan, TheCheckerCatchesOverlapsAndLateReads) {
  Builder b;
  ValueId v = b.graph.add_input("x", floats(100));
  for (int i = 0; i < 4; ++i) v = b.call(kPlain, {v});
  b.graph.outputs = {v};
  const Plan good = b.plan();
  Plan bad = good;
  bad.buffers[1].offset = bad.buffers[0].offset;
  EXPECT_THROW(verify_plan(b.graph, bad), InternalError);
  bad = good;
  std::swap(bad.steps[0], bad.steps[1]);
  EXPECT_THROW(verify_plan(b.graph, bad), InternalError);
  bad = good;
  bad.buffers[0].last = bad.buffers[0].first;
  EXPECT_THROW(verify_plan(b.graph, bad), InternalError);
  bad = good;
  bad.arenas[0].bytes += 64;
  EXPECT_THROW(verify_plan(b.graph, bad), InternalError);

  // Two that live at one time: one reaches into the other from below, or lies in the other's place while that is still
  // to be read.
  Builder pair;
  const ValueId x = pair.graph.add_input("x", floats(100)), first = pair.call(kPlain, {x}),
                second = pair.call(kPlain, {first});
  pair.graph.outputs = {pair.call(kPlain, {second, first})};
  const Plan both = pair.plan();
  bad = both;
  bad.buffers[0].offset = 448;
  bad.buffers[1].offset = 64;
  EXPECT_THROW(verify_plan(pair.graph, bad), InternalError);
  bad = both;
  bad.placements[static_cast<std::size_t>(second)].buffer = bad.placements[static_cast<std::size_t>(first)].buffer;
  EXPECT_THROW(verify_plan(pair.graph, bad), InternalError);
}

/// The step that runs a node.
Step& step_of(Plan& plan, ir::NodeId node) {
  return *std::find_if(plan.steps.begin(), plan.steps.end(), [&](const Step& s) { return s.node == node; });
}
Placement& placed(Plan& plan, ValueId v) { return plan.placements[static_cast<std::size_t>(v)]; }
Buffer& buffer_of(Plan& plan, ValueId v) { return plan.buffers.at(static_cast<std::size_t>(placed(plan, v).buffer)); }
void swap_steps(Plan& plan, ir::NodeId a, ir::NodeId b) { std::swap(step_of(plan, a), step_of(plan, b)); }

// Each plan computes something else, at once or in the next call, or reads what is not there. The checker knows nothing
// of the code that made it.
TEST(Plan, TheCheckerNoticesWhatComputesSomethingElse) {
  struct Nodes {
    ValueId x, buffer, weight;
  };
  const struct {
    const char* what;
    void (*build)(Builder& b, const Nodes& given);
    void (*damage)(const Graph& g, Plan& plan);
    const char* says;
  } cases[] = {
      {"a write before the read of the old contents",
       [](Builder& b, const Nodes& given) {
         b.graph.outputs = {b.call(kPlain, {given.buffer})};
         b.write(given.buffer, given.buffer, given.x);
       },
       [](const Graph&, Plan& plan) { swap_steps(plan, 0, 1); }, "does not find"},
      {"a read before the write",
       [](Builder& b, const Nodes& given) {
         b.graph.outputs = {b.call(kPlain, {b.write(given.buffer, given.buffer, given.x)})};
       },
       [](const Graph&, Plan& plan) { swap_steps(plan, 0, 1); }, "does not find"},
      {"two writes in the other order",
       [](Builder& b, const Nodes& given) {
         b.write(given.buffer, b.write(given.buffer, given.buffer, given.x), given.weight);
       },
       [](const Graph&, Plan& plan) { swap_steps(plan, 0, 1); }, "does not find"},
      {"a write before a read through a view",
       [](Builder& b, const Nodes& given) {
         b.graph.outputs = {b.call(kPlain, {b.call(kView, {given.buffer})})};
         b.write(given.buffer, given.buffer, given.x);
       },
       [](const Graph&, Plan& plan) { swap_steps(plan, 1, 2); }, "does not find"},
      {"a result where another is still to be read",
       [](Builder& b, const Nodes& given) {
         const ValueId y = b.call(kPlain, {given.x}), z = b.call(kPlain, {given.x});
         b.graph.outputs = {b.call(kPlain, {y, z})};
       },
       [](const Graph& g, Plan& plan) {
         buffer_of(plan, g.nodes[1].outputs[0]).offset = buffer_of(plan, g.nodes[0].outputs[0]).offset;
       },
       "live at one time"},
      {"a result over an input that the kernel reads as it likes",
       [](Builder& b, const Nodes& given) {
         b.graph.outputs = {b.call(kPlain, {b.call(kPlain, {b.call(kPlain, {given.x})})})};
       },
       [](const Graph& g, Plan& plan) {
         const ValueId y = g.nodes[0].outputs[0], z = g.nodes[1].outputs[0];
         buffer_of(plan, y).last = buffer_of(plan, z).last;
         placed(plan, z).buffer = placed(plan, y).buffer;
         plan.buffers.pop_back();
         plan.arenas[0].bytes = plan.arenas[0].lower_bound = 64;
       },
       "which it reads"},
      {"scratch memory over an input",
       [](Builder& b, const Nodes& given) { b.graph.outputs = {b.call(kScratch, {b.call(kPlain, {given.x})})}; },
       [](const Graph& g, Plan& plan) {
         plan.buffers.at(static_cast<std::size_t>(step_of(plan, 1).workspace)).offset =
             buffer_of(plan, g.nodes[0].outputs[0]).offset;
       },
       "live at one time"},
      {"no scratch memory", [](Builder& b, const Nodes& given) { b.graph.outputs = {b.call(kScratch, {given.x})}; },
       [](const Graph&, Plan& plan) { step_of(plan, 0).workspace = -1; }, "scratch memory"},
      {"two results in one place",
       [](Builder& b, const Nodes& given) {
         const std::vector<ValueId> two = b.add(kTwo, {given.x});
         b.graph.outputs = {b.call(kPlain, two)};
       },
       [](const Graph& g, Plan& plan) {
         placed(plan, g.nodes[0].outputs[1]).buffer = placed(plan, g.nodes[0].outputs[0]).buffer;
       },
       "two results"},
      {"a view of another value",
       [](Builder& b, const Nodes& given) {
         const ValueId y = b.call(kPlain, {given.x}), z = b.call(kPlain, {given.x});
         b.graph.outputs = {b.call(kPlain, {b.call(kView, {y}), y, z})};
       },
       [](const Graph& g, Plan& plan) { placed(plan, g.nodes[2].outputs[0]).alias_of = g.nodes[1].outputs[0]; },
       "does not find"},
      {"what is prepared once in memory of each call",
       [](Builder& b, const Nodes& given) {
         const ValueId packed = b.call(kPlain, {given.weight}, Phase::prepare), y = b.call(kPlain, {given.x});
         b.graph.outputs = {b.call(kPlain, {packed, y})};
       },
       [](const Graph& g, Plan& plan) {
         placed(plan, g.nodes[0].outputs[0]) = placed(plan, g.nodes[1].outputs[0]);
         buffer_of(plan, g.nodes[0].outputs[0]).first = 0;
       },
       "is made once"},
      {"a weight that is given up and read",
       [](Builder& b, const Nodes& given) {
         const ValueId packed = b.call(kPlain, {given.weight}, Phase::prepare);
         b.graph.outputs = {b.call(kPlain, {given.x, packed, given.weight})};
       },
       [](const Graph& g, Plan& plan) { step_of(plan, 0).last_reads = {g.nodes[0].inputs[0]}; }, "does not find"},
      {"an assignment that is not made",
       [](Builder& b, const Nodes& given) {
         const ValueId y = b.call(kPlain, {given.buffer});
         b.graph.outputs = {b.call(kPlain, {y})};
         b.hold(given.buffer, y);
       },
       [](const Graph&, Plan& plan) { step_of(plan, 2).call = {}; }, "is not run"},
      {"a new content that is computed in the buffer before the old one is read",
       [](Builder& b, const Nodes& given) {
         const ValueId y = b.call(kPlain, {given.x});
         b.graph.outputs = {b.call(kPlain, {given.buffer})};
         b.hold(given.buffer, y);
       },
       [](const Graph& g, Plan& plan) {
         placed(plan, g.nodes[0].outputs[0]) = {.home = Home::alias, .alias_of = g.donations[0].variable};
         step_of(plan, 2).call = {};
         plan.buffers.clear();
         plan.arenas[0].bytes = plan.arenas[0].lower_bound = 0;
       },
       "does not find"},
      {"a result in the place of another",
       [](Builder& b, const Nodes& given) { b.graph.outputs = {b.call(kPlain, {given.x}), b.call(kPlain, {given.x})}; },
       [](const Graph& g, Plan& plan) { placed(plan, g.nodes[1].outputs[0]).buffer = 0; },
       "is a result, but its memory was given to another"},
      {"what is made in the update before forward has read it",
       [](Builder& b, const Nodes& given) {
         b.graph.outputs = {b.call(kPlain, {given.weight, given.x})};
         b.update({given.weight}, {given.x});
       },
       [](const Graph&, Plan& plan) { swap_steps(plan, 0, 1); }, "phases"},
      {"a node that is left out",
       [](Builder& b, const Nodes& given) { b.graph.outputs = {b.call(kPlain, {b.call(kPlain, {given.x})})}; },
       [](const Graph&, Plan& plan) { step_of(plan, 1).node = 0; }, "run twice"},
      {"a buffer at an address that is not aligned",
       [](Builder& b, const Nodes& given) { b.graph.outputs = {b.call(kPlain, {b.call(kPlain, {given.x})})}; },
       [](const Graph&, Plan& plan) {
         plan.buffers[0].offset += 4;
         plan.arenas[0].bytes += 4;
       },
       "not aligned"},
      {"a bound that is not the bound",
       [](Builder& b, const Nodes& given) { b.graph.outputs = {b.call(kPlain, {b.call(kPlain, {given.x})})}; },
       [](const Graph&, Plan& plan) { plan.arenas[0].lower_bound -= 64; }, "bound"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Builder b;
    const Nodes given{b.graph.add_input("x", floats(16)), b.graph.add_buffer("buffer", floats(16)),
                      b.graph.add_parameter("weight", floats(16), true)};
    c.build(b, given);
    Plan plan;
    ASSERT_NO_THROW(plan = b.plan());
    c.damage(b.graph, plan);
    std::string said;
    try {
      verify_plan(b.graph, plan);
    } catch (const InternalError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find(c.says), std::string::npos) << said;
  }
}

TEST(Plan, LargeGraphsArePlanned) {
  // No timing here: were planning quadratic, 60,000 nodes would run into the test's own time limit.
  const Graph graph = random_graph(7, 60000);
  const Plan plan = make_plan(graph, planning_target());
  ASSERT_NO_THROW(verify_plan(graph, plan));
  EXPECT_LE(static_cast<double>(plan.arena_bytes()), 1.3 * static_cast<double>(plan.lower_bound()));
}

}  // namespace
}  // namespace graven::codegen
