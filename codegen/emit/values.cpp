#include "codegen/emit/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "ir/diagnostic.h"
#include "ir/json.h"

namespace graven::codegen {

namespace {

enum Scope : std::size_t { kParametersOfCalls, kParameters, kStates, kArena, kPrepared, kConstants };

/// What the functions that take inputs, outputs and sizes call something else: templates/project/*/model_api.*,
/// model.h, c_interface.inc and selftest.cpp. tests/emit/hostile_names_test.cpp says which are missing.
constexpr std::string_view kWordsOfCalls[] = {"again_memory",
                                              "agree",
                                              "before",
                                              "bytes",
                                              "Carrier",
                                              "carrier",
                                              "check",
                                              "checked",
                                              "comparison",
                                              "computed",
                                              "Contents",
                                              "contents",
                                              "Device",
                                              "device",
                                              "DType",
                                              "dtype_of",
                                              "evaluated",
                                              "evaluation",
                                              "evaluation_buf",
                                              "EvaluationStep",
                                              "first",
                                              "forward_and_backward",
                                              "gradients",
                                              "guard",
                                              "guarded",
                                              "Hyper",
                                              "in",
                                              "input_memory",
                                              "inputs",
                                              "int64_t",
                                              "learning_rates",
                                              "loaded",
                                              "loss",
                                              "loss_f32",
                                              "losses",
                                              "Memory",
                                              "missing",
                                              "Model",
                                              "order",
                                              "other",
                                              "out",
                                              "output_memory",
                                              "own",
                                              "program",
                                              "require_step",
                                              "restore",
                                              "score_type",
                                              "seed",
                                              "set_later_state",
                                              "shard",
                                              "size",
                                              "sized",
                                              "slot",
                                              "states",
                                              "Step",
                                              "step",
                                              "Tensor",
                                              "update_twice",
                                              "updated",
                                              "updated_states",
                                              "Weights",
                                              "weights",
                                              "whole_step"};

/// A constant that may stand in the code: small, and of a type that C++ can write down. (A device reads no array of the
/// host's.)
bool is_inline(const ir::Graph& graph, ir::ValueId v) {
  const ir::TensorType& type = graph.type(v);
  if (type.dtype == ir::DType::f16 || type.dtype == ir::DType::bf16) return false;
  const std::int64_t bytes = type.shape.numel().maximum() * static_cast<std::int64_t>(ir::size_of(type.dtype));
  return bytes > 0 && bytes <= static_cast<std::int64_t>(ir::kInlineConstantBytes);
}

/// Names of the leaves of a call's result: keys of maps, else "output", "output_0", ...
void name_outputs(const ir::Tree& tree, const std::string& path, std::vector<std::string>& names) {
  if (tree.kind == ir::Tree::Kind::leaf) {
    if (at(tree.index) < names.size()) names[at(tree.index)] = path.empty() ? "output" : path;
    return;
  }
  for (std::size_t i = 0; i < tree.children.size(); ++i) {
    const std::string key =
        tree.kind == ir::Tree::Kind::map && i < tree.keys.size() ? tree.keys[i] : fmt::format("{}", i);
    name_outputs(tree.children[i],
                 path.empty() ? (tree.kind == ir::Tree::Kind::map ? key : "output." + key) : path + "." + key, names);
  }
}

}  // namespace

std::string_view element_type(ir::DType dtype) { return dtype == ir::DType::boolean ? "boolean" : ir::name(dtype); }

std::string_view public_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f32:
      return "float";
    case ir::DType::f64:
      return "double";
    case ir::DType::f16:
    case ir::DType::bf16:
      return "std::uint16_t";
    case ir::DType::i8:
      return "std::int8_t";
    case ir::DType::i32:
      return "std::int32_t";
    case ir::DType::i64:
      return "std::int64_t";
    case ir::DType::u8:
      return "std::uint8_t";
    case ir::DType::boolean:
      return "bool";
  }
  return "float";
}

/// What lives where.
void ValueNames::find_homes() {
  has_gradient_.assign(graph_.values.size(), false);
  is_stored_.assign(graph_.values.size(), false);
  stored_ = graph_.parameters;
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const ir::ValueId id = static_cast<ir::ValueId>(v);
    const Placement& p = plan_.placements[v];
    if (graph_.values[v].kind == ir::ValueKind::constant)
      (is_inline(graph_, id) && plan_.target->constants_in_code ? inline_constants_ : stored_).push_back(id);
    if (p.home == Home::gradient) has_gradient_[at(p.parameter)] = true;
  }
  for (const ir::ValueId v : stored_) is_stored_[at(v)] = true;
  for (const ir::ValueId v : graph_.parameters)
    if (has_gradient_[at(v)]) with_gradient_.push_back(v);
  for (const Step& step : plan_.steps)
    for (const ir::ValueId v : graph_.nodes[at(step.node)].outputs) {
      const Placement& p = plan_.placements[at(v)];
      if (p.home == Home::prepared) prepared_.push_back(v);
      if (p.home == Home::arena && p.buffer >= 0) arena_.push_back(v);
    }
}

/// Workspaces stand beside the values of the arena.
void ValueNames::name_arena() {
  std::vector<std::string> arena;
  for (const ir::ValueId v : arena_) arena.push_back(graph_.value(v).name);
  for (const Step& step : plan_.steps)
    if (step.workspace >= 0) arena.push_back(plan_.buffers[at(step.workspace)].name);
  names_[kArena] = Names(arena, root_);
}

ValueNames::ValueNames(const ir::Graph& evaluation, const Plan& plan, const ValueNames& training)
    : graph_(evaluation), plan_(plan), root_(training.root_), symbols_(training.symbols_) {
  GRAVEN_CHECK(plan.keeps_results, "an evaluation's results are read in the arena");
  for (const Scope shared : {kParametersOfCalls, kParameters, kConstants}) names_[shared] = training.names_[shared];
  find_homes();
  name_arena();
}

ValueNames::ValueNames(const ir::Graph& graph, const Plan& plan, const ir::Graph* evaluation, std::string_view project)
    : graph_(graph), plan_(plan) {
  std::vector<std::string> paths;
  for (const ir::ValueId v : graph.parameters) paths.push_back(graph.value(v).name);
  root_ = common_root(paths);
  find_homes();

  auto names_of = [&](const std::vector<ir::ValueId>& values, std::vector<std::string> more = {}) {
    std::vector<std::string> list;
    list.reserve(values.size() + more.size());
    for (const ir::ValueId v : values) list.push_back(graph.value(v).name);
    list.insert(list.end(), more.begin(), more.end());
    return Names(list, root_);
  };
  std::vector<std::string> more_stored, more_inline;
  for (std::size_t v = 0; evaluation != nullptr && v < evaluation->values.size(); ++v) {
    if (evaluation->values[v].kind != ir::ValueKind::constant) continue;
    const bool stands_in_code = is_inline(*evaluation, static_cast<ir::ValueId>(v)) && plan.target->constants_in_code;
    (stands_in_code ? more_inline : more_stored).push_back(evaluation->values[v].name);
  }
  names_[kParameters] = names_of(stored_, more_stored);
  names_[kStates] = names_of(graph.states);
  names_[kPrepared] = names_of(prepared_);
  names_[kConstants] = names_of(inline_constants_, more_inline);
  name_arena();

  std::vector<std::string> results(graph.outputs.size());
  name_outputs(graph.output_tree, {}, results);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i].empty()) results[i] = results.size() == 1 ? "output" : fmt::format("output.{}", i);
  output_paths_ = results;
  // Inputs, outputs and sizes are parameters of one function.
  std::vector<std::string> parameters, sizes;
  for (const ir::ValueId v : graph.inputs) parameters.push_back(graph.value(v).name);
  const std::set<std::string> inputs(parameters.begin(), parameters.end());
  for (std::string& r : results) {
    if (inputs.count(r)) r += ".output";
    parameters.push_back(r);
  }
  for (const auto& [name, least, most] : graph.symbols()) {
    const bool is_taken = std::find(parameters.begin(), parameters.end(), name) != parameters.end();
    parameters.push_back(sizes.emplace_back(is_taken ? name + ".size" : name));
  }
  const std::string model_type = std::string(project) + "_model", weights_type = std::string(project) + "_weights";
  std::vector<std::string_view> words(std::begin(kWordsOfCalls), std::end(kWordsOfCalls));
  if (!project.empty()) words.insert(words.end(), {project, model_type, weights_type});
  names_[kParametersOfCalls] = Names(parameters, {}, words);
  for (const std::string& r : results) outputs_.push_back(names_[kParametersOfCalls][r]);
  for (const auto& [name, least, most] : graph.symbols())
    symbols_.push_back({name, names_[kParametersOfCalls][sizes[symbols_.size()]], least, most});
}

bool ValueNames::is_in_weights_block(ir::ValueId value) const {
  const ir::ValueId v = codegen::root(plan_, value);
  const Home home = plan_.placements[at(v)].home;
  return home == Home::parameter || home == Home::prepared || (home == Home::constant && is_stored_[at(v)]);
}

Nesting::Place ValueNames::place(ir::ValueId value) const {
  const ir::ValueId v = codegen::root(plan_, value);
  const std::string& name = graph_.value(v).name;
  const Placement& p = plan_.placements[at(v)];
  switch (p.home) {
    case Home::arena:
      return nested(names_[kArena][name]);
    case Home::input:
      return {{}, names_[kParametersOfCalls][name]};
    case Home::output:
      return {{}, outputs_[at(p.buffer)]};
    case Home::parameter:
      return nested(names_[kParameters][name]);
    case Home::gradient:
      return nested(names_[kParameters][graph_.value(p.parameter).name]);
    case Home::state:
      return nested(names_[kStates][name]);
    case Home::prepared:
      return nested(names_[kPrepared][name]);
    case Home::constant:
      return is_stored_[at(v)] ? nested(names_[kParameters][name]) : Nesting::Place{{}, names_[kConstants][name]};
    case Home::hyper:
    case Home::alias:
      break;
  }
  GRAVEN_CHECK(false, name + " is no member");
  return {};
}

Code ValueNames::code(ir::ValueId value) const {
  if (value == ir::kNone) return "nullptr";
  const ir::ValueId v = codegen::root(plan_, value);
  const Placement& p = plan_.placements[at(v)];
  const auto pointer = [&](const char* object) {
    Nesting::Place own = place(v);
    return Pointer{object, std::move(own.block), std::move(own.name)};
  };
  switch (p.home) {
    case Home::arena:
      return p.buffer < 0 ? Code("nullptr") : pointer("buf");
    case Home::input:
      return pointer("in");
    case Home::output:
      return pointer("out");
    case Home::parameter:
      return pointer("param");
    case Home::gradient:
      return pointer("grad");
    case Home::state:
      return pointer("state");
    case Home::prepared:
      return pointer("prepared");
    case Home::constant:
      return is_stored_[at(v)] ? Code(pointer("param")) : Code("constant::" + member(v));
    case Home::hyper:
      return "&" + hyper(v);
    case Home::alias:
      break;
  }
  GRAVEN_CHECK(false, graph_.value(v).name + " is an alias of an alias");
  return {};
}

std::string ValueNames::expression_in(std::string_view object, ir::ValueId value) const {
  const Code own = code(value);
  const bool is_member = own.pointer() != nullptr;
  return (is_member ? std::string(object) : std::string()) + own.text();
}

std::string ValueNames::writable_expression_in(std::string_view object, ir::ValueId value) const {
  const ir::ValueId v = codegen::root(plan_, value);
  const Home home = plan_.placements[at(v)].home;
  const std::string name = expression_in(object, v);
  const bool is_const = home == Home::input || (home == Home::constant && !is_stored_[at(v)]);
  return is_const ? fmt::format("const_cast<{}*>({})", element_type(graph_.type(v).dtype), name) : name;
}

Nesting::Place ValueNames::workspace_place(const Step& step) const {
  return nested(names_[kArena][plan_.buffers[at(step.workspace)].name]);
}

std::unordered_set<std::string> ValueNames::all_members() const {
  std::unordered_set<std::string> all;
  for (const Names& names : names_)
    for (const auto& [path, name] : names.by_path()) all.insert(name);
  return all;
}

std::string ValueNames::hyper(ir::ValueId value) const {
  const std::string& name = graph_.value(value).name;
  const std::optional<std::size_t> group = ir::group_of_rate(name);
  if (!group) return "hyper." + name;
  return fmt::format("hyper.learning_rates[{}]", *group);
}

std::string ValueNames::dimension(const ir::Dim& dim, std::string_view object) const {
  return dim.to_code([&](const ir::Symbol& symbol) {
    const auto found =
        std::find_if(symbols_.begin(), symbols_.end(), [&](const Symbol& s) { return s.name == symbol.name; });
    GRAVEN_CHECK(found != symbols_.end(), "the graph has no dimension " + symbol.name);
    return std::string(object) + found->identifier;
  });
}

}  // namespace graven::codegen
