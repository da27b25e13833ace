#include "codegen/emit/computation.h"

#include <algorithm>
#include <bit>
#include <span>

#include <fmt/format.h>

#include "ir/diagnostic.h"
#include "ir/op.h"
#include "runtime_min/sha256.h"

namespace graven::codegen {

namespace {

/// Text in which each item ends where it says.
class Digest {
 public:
  explicit Digest(const ir::Graph& graph) : graph_(graph), numbers_(graph.values.size(), -1) {
    text_.reserve(96 * graph.nodes.size() + 128 * graph.parameters.size());
  }

  std::string take() {
    for (const ir::ValueId v : graph_.inputs) {
      number(v);
      add("input", graph_.type(v).to_string());
    }
    for (const auto* variables : {&graph_.parameters, &graph_.states})
      for (const ir::ValueId v : *variables) variable(v);
    for (const ir::Node& n : graph_.nodes) node(n);
    for (const ir::Loss& l : graph_.losses) add("loss", reference(l.value), reference(l.gradient));
    for (const ir::Donation& d : graph_.donations) add("donation", reference(d.variable), reference(d.value));
    for (const ir::Clip& c : graph_.clips) {
      add("clip", c.kind == ir::Clip::Kind::norm ? "norm" : "value", bits(c.limit), bits(c.norm_type));
      references(c.parameters);
    }
    for (const ir::Optimizer& o : graph_.optimizers) optimizer(o);
    for (const auto& [key, value] : graph_.config)
      if (key == ir::kAmp || key.starts_with("grad_scaler.")) add(key, text_of(value));
    return runtime::sha256(std::as_bytes(std::span(text_.data(), text_.size()))).substr(0, kComputationDigits);
  }

 private:
  template <class... Items>
  void add(const Items&... items) {
    ((text_.append(std::to_string(std::string_view(items).size())).append(":").append(items)), ...);
    text_ += '\n';
  }
  static std::string bits(double x) { return std::to_string(std::bit_cast<std::uint64_t>(x)); }

  void number(ir::ValueId v) { numbers_[ir::at(v)] = next_++; }
  /// A value by its number: in the order of inputs, variables, constants where they are read, and results.
  std::string reference(ir::ValueId v) {
    if (v == ir::kNone) return "-";
    if (numbers_[ir::at(v)] < 0) {
      number(v);
      const ir::Value& value = graph_.value(v);
      const auto data = graph_.constants.find(v);
      // A number of the training loop has its name alone.
      add("constant", value.type.to_string(),
          data == graph_.constants.end() ? value.name : runtime::sha256(data->second->bytes));
    }
    return std::to_string(numbers_[ir::at(v)]);
  }
  void references(const std::vector<ir::ValueId>& values) {
    std::string list;
    for (const ir::ValueId v : values) list.append(reference(v)).append(" ");
    add(list);
  }

  void variable(ir::ValueId v) {
    number(v);
    const ir::Value& value = graph_.value(v);
    add("variable", value.name, value.type.to_string(), value.trainable ? "trainable" : "");
  }

  static std::string text_of(const ir::ScalarProgram& program) {
    std::string text = std::to_string(program.inputs);
    for (const ir::ScalarProgram::Step& s : program.steps) {
      text.append("; ").append(s.op).append(" ").append(ir::name(s.dtype));
      for (const std::int32_t a : s.arguments) text.append(" ").append(std::to_string(a));
      for (const auto& [key, x] : s.constants) text.append(" ").append(key).append("=").append(bits(x));
    }
    return text;
  }
  static std::string text_of(const ir::Attribute& a) {
    switch (ir::type_of(a)) {
      case ir::AttributeType::boolean:
        return std::get<bool>(a) ? "true" : "false";
      case ir::AttributeType::integer:
        return std::to_string(std::get<std::int64_t>(a));
      case ir::AttributeType::number:
        return bits(std::get<double>(a));
      case ir::AttributeType::text:
        return std::get<std::string>(a);
      case ir::AttributeType::integers: {
        std::string text;
        for (const std::int64_t i : std::get<ir::Ints>(a)) text.append(std::to_string(i)).append(" ");
        return text;
      }
      case ir::AttributeType::dtype:
        return std::string(ir::name(std::get<ir::DType>(a)));
      case ir::AttributeType::shape: {
        std::string text;
        for (const ir::Dim& d : std::get<ir::Shape>(a)) text.append(d.to_string()).append(" ");
        return text;
      }
      case ir::AttributeType::program:
        return text_of(std::get<ir::ScalarProgram>(a));
    }
    return {};
  }

  void node(const ir::Node& n) {
    add(n.op->name, ir::name(n.phase));
    references(n.inputs);
    // One that an operator has had from its beginning and one that it got since, at its default, are the same graph.
    for (const auto& [key, value] : n.attributes)
      if (const ir::AttributeSpec* spec = n.op->find_attribute(key);
          spec == nullptr || !spec->fallback || *spec->fallback != value)
        add(key, text_of(value));
    for (const ir::ValueId v : n.outputs) {
      if (v == ir::kNone) continue;
      number(v);
      add(graph_.type(v).to_string());
    }
  }

  void options(const std::map<std::string, double>& items) {
    for (const auto& [key, x] : items) add(key, bits(x));
  }
  void schedule(const ir::Schedule& s) {
    add("schedule", s.kind);
    options(s.options);
    for (const auto* list : {&s.milestones, &s.factors}) {
      add(std::to_string(list->size()));
      for (const double x : *list) add(bits(x));
    }
    for (const ir::Schedule& part : s.parts) schedule(part);
  }
  void optimizer(const ir::Optimizer& o) {
    add("optimizer", o.kind);
    for (const ir::ParameterGroup& g : o.groups) {
      options(g.options);
      references(g.parameters);
    }
    schedule(o.schedule);
    options(o.plateau);
  }

  const ir::Graph& graph_;
  std::vector<std::int64_t> numbers_;
  std::int64_t next_ = 0;
  std::string text_;
};

}  // namespace

std::string computation_digest(const ir::Graph& graph) { return Digest(graph).take(); }

void keep_computation(ir::Graph& graph) {
  const std::string key(kComputation);
  if (graph.stage == "trace" || graph.config.count(key) == 0) {
    graph.config[key] = computation_digest(graph);
    return;
  }
  const std::string digest = graph.text(kComputation);
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (digest.size() != kComputationDigits || !std::all_of(digest.begin(), digest.end(), is_digit))
    throw UserError(fmt::format("the graph {}: '{}': expected {} hexadecimal digits, found '{}'", graph.name, key,
                                kComputationDigits, digest));
}

}  // namespace graven::codegen
