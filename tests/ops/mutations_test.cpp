// Every operator's cases with one size, rank or attribute changed at random: inference refuses them, or the kernels
// compute what the reference does and touch no memory but the tensors' (this test also runs under sanitizers). A
// graph.json may say anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/diagnostic.h"
#include "tests/ops/backends.h"
#include "tests/ops/case_graph.h"
#include "tests/ops/compare.h"

namespace graven::tests {
namespace {

using ir::Dim;
using ir::Ints;
using ir::OpDef;
using ir::Shape;
using ir::TensorData;

constexpr int kMutations = 100;                 // of each operator's cases
constexpr std::int64_t kMostElements = 100000;  // of a tensor: a size may be multiplied

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  void change(ir::TestCase& c) {
    const std::size_t attributes = static_cast<std::size_t>(std::distance(c.attributes.begin(), c.attributes.end()));
    const std::size_t chosen = below(c.inputs.size() + attributes + 1);
    if (chosen < c.inputs.size())
      change(c.inputs[chosen].type.shape);
    else if (chosen < c.inputs.size() + attributes)
      change(c.attributes, chosen - c.inputs.size());
  }
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

 private:
  std::int64_t near(std::int64_t value) {
    switch (below(8)) {
      case 0:
        return 0;
      case 1:
        return 1;
      case 2:
        return -1;
      case 3:
        return value * 2;
      case 4:
        return value + 3;
      case 5:
        return value - 1;
      default:
        return value + 1;
    }
  }
  void change(Shape& shape) {
    std::vector<Dim> dims = shape.dims();
    const std::size_t kind = below(6);
    if (dims.empty() || kind == 0) {
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(below(dims.size() + 1)),
                  Dim(static_cast<std::int64_t>(1 + below(3))));
    } else if (kind == 1) {
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(below(dims.size())));
    } else if (kind == 2) {
      std::swap(dims[below(dims.size())], dims[below(dims.size())]);
    } else {
      Dim& d = dims[below(dims.size())];
      d = Dim(std::max<std::int64_t>(near(d.value()), 0));
    }
    shape = Shape(dims);
  }
  void change(ir::Attributes& attributes, std::size_t chosen) {
    auto it = attributes.begin();
    std::advance(it, chosen);
    const std::string key = it->first;
    ir::Attribute value = it->second;
    if (auto* flag = std::get_if<bool>(&value)) {
      *flag = !*flag;
    } else if (auto* integer = std::get_if<std::int64_t>(&value)) {
      *integer = near(*integer);
    } else if (auto* number = std::get_if<double>(&value)) {
      *number = below(2) == 0 ? -*number : *number + 1;
    } else if (auto* integers = std::get_if<Ints>(&value)) {
      const std::size_t kind = below(5);
      if (integers->empty() || kind == 0)
        integers->push_back(static_cast<std::int64_t>(below(3)));
      else if (kind == 1)
        integers->pop_back();
      else
        near_in(*integers);
    } else if (auto* shape = std::get_if<Shape>(&value)) {
      change(*shape);
    }
    attributes.set(key, std::move(value));
  }
  void near_in(Ints& integers) {
    std::int64_t& i = integers[below(integers.size())];
    i = near(i);
  }

  std::mt19937 random_;
};

bool is_small(const ir::Graph& g) {
  return std::all_of(g.values.begin(), g.values.end(),
                     [](const ir::Value& v) { return v.type.shape.numel().value() <= kMostElements; });
}

class Mutations : public testing::TestWithParam<const OpDef*> {};

TEST_P(Mutations, AreRefusedOrComputed) {
  const OpDef& op = *GetParam();
  const std::vector<ir::TestCase> cases = op.cases();
  Mutator mutator(7);
  for (int i = 0; i < kMutations; ++i) {
    ir::TestCase c = cases[mutator.below(cases.size())];
    for (std::size_t changes = 1 + mutator.below(2); changes > 0; --changes) mutator.change(c);
    std::string text = std::string(op.name) + ", " + c.note;
    for (const auto& input : c.inputs) text += ", " + (input.absent ? "absent" : input.type.to_string());
    SCOPED_TRACE(text);
    std::optional<CaseGraph> made;
    try {
      made = make_forward(op, c);
      if (!is_small(made->graph)) continue;
    } catch (const UserError&) {
      continue;
    }
    for (const Backend& backend : backends()) {
      if (backend.compiles) continue;
      try {
        const std::vector<TensorData> inputs = random_inputs(*made, op, c);
        // What max_pool2d and sort wrote means nothing to other sizes, two of sort's places may be one: no other memory
        // is touched, and that is all.
        if (op.name == "max_pool2d_backward" || op.name == "sort_backward")
          backend.run(made->graph, inputs);
        else
          compare(backend, *made, inputs, c);
      } catch (const UserError&) {
        continue;  // an index beyond what it counts, as the operators' messages say
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Mutations, testing::ValuesIn(operators([](const OpDef& op) { return !op.packs; })),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace graven::tests
