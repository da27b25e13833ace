#include "tests/review/needed.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <variant>
#include <vector>

#include "codegen/emit/calls.h"
#include "codegen/emit/evaluation.h"
#include "codegen/emit/functor.h"
#include "codegen/emit/update.h"
#include "codegen/emit/values.h"
#include "codegen/plan/plan.h"
#include "frontend/eager/oracle.h"
#include "ir/analysis.h"
#include "ir/op.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::review {

namespace {

using codegen::at;
using codegen::Home;
using codegen::Plan;
using ir::Graph;
using ir::ValueId;

std::string dimensions(const std::vector<ir::Dim>& dims) {
  std::string text = "{";
  for (const ir::Dim& d : dims) text += d.to_string() + ",";
  return text + "}";
}

std::string field(const ir::ConfigField& value) {
  if (const auto* d = std::get_if<ir::Dim>(&value)) return d->to_string();
  if (const auto* d = std::get_if<double>(&value)) return codegen::number_text(*d);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* list = std::get_if<std::vector<ir::Dim>>(&value)) return dimensions(*list);
  std::string text;
  for (const auto& row : std::get<std::vector<std::vector<ir::Dim>>>(value)) text += dimensions(row);
  return text;
}

/// One graph with its plan: the step's or the evaluation's.
class Reader {
 public:
  Reader(const Graph& graph, const Plan& plan, Statements& out, bool evaluation)
      : graph_(graph), plan_(plan), out_(out), evaluation_(evaluation), producer_(graph.values.size(), -1) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      for (const ValueId v : graph.nodes[n].outputs) producer_[at(v)] = static_cast<std::int32_t>(n);
  }

  void read() {
    calls();
    arena();
  }

 private:
  std::string calls_file() const { return evaluation_ ? "evaluation.cpp" : "model.cpp"; }
  std::string plan_file() const { return evaluation_ ? "evaluation_plan.h" : "memory_plan.h"; }

  static std::string place(const ir::Node& n) {
    const std::string owner = ir::owner_of(n.origins);
    return fmt::format("{} ({})", owner.empty() ? std::string(n.op->name) : owner, ir::name(n.phase));
  }

  /// Who a value is, whatever its name.
  std::string identity(ValueId value) const {
    if (value == ir::kNone) return "nothing";
    const ValueId v = codegen::root(plan_, value);
    const codegen::Placement& p = plan_.placements[at(v)];
    if (p.home == Home::gradient) return "gradient of " + graph_.value(p.parameter).name;
    if (p.home == Home::arena && p.buffer < 0) return "nothing";
    if (producer_[at(v)] < 0) return graph_.value(v).name;
    const ir::Node& n = graph_.nodes[at(producer_[at(v)])];
    const auto index = std::find(n.outputs.begin(), n.outputs.end(), v) - n.outputs.begin();
    return fmt::format("{} {} [{}]", place(n), n.op->name, index);
  }

  void calls() {
    std::string owner = "none yet";
    std::vector<std::string> banner;
    ir::Phase phase = ir::Phase::prepare;
    const auto end_banner = [&] {
      std::string text = "banner";
      for (const std::string& m : banner) text += " " + m;
      if (!banner.empty()) out_[calls_file()].insert(text);
      banner.clear();
    };
    std::set<std::string> headers, config_headers, shared, options;
    for (const codegen::Step& step : plan_.steps) {
      if (step.call.name.empty()) continue;
      const ir::Node& n = graph_.nodes[at(step.node)];
      const std::vector<std::string> modules = ir::modules_of(n.origins);
      const std::string own = modules.empty() ? std::string() : modules.front();
      if (own != owner || n.phase != phase) end_banner();
      owner = own;
      phase = n.phase;
      for (const std::string& m : modules)
        if (std::find(banner.begin(), banner.end(), m) == banner.end()) banner.push_back(m);
      const std::string file = step.call.file.empty() ? step.call.name : step.call.file;
      headers.insert("include " + file);
      config_headers.insert("include " + file);

      std::string config = fmt::format("config of {} in {}:", n.op->name, n.op->donates() ? "the update" : place(n));
      for (const auto& [key, value] : step.call.config) config += fmt::format(" {} = {}", key, field(value));
      // What the updates of several groups share, and an evaluation has of the training, is one line.
      if (!n.op->donates() || shared.insert(config).second)
        if (!evaluation_ || !out_["configs.h"].contains(forward_of(config)))
          out_["configs.h"].insert(forward_of(config));

      std::string code = step.call.name;
      for (const ir::AttributeSpec& spec : n.op->attributes)
        if (spec.type == ir::AttributeType::program && !n.attributes.program(spec.name).empty()) {
          const codegen::Functor functor = codegen::make_functor(n.attributes.program(spec.name));
          code += "<" + functor.name + ">";
          functors_[functor.name] = functor.text;
        }
      if (n.op->rule != nullptr) {
        const codegen::UpdateText update = codegen::print_update(ir::UpdateRule(*n.op, n.attributes, true));
        functors_[update.functor.name] = update.functor.text;
        std::istringstream lines(update.config);
        for (std::string line; std::getline(lines, line);) options.insert(update.config_type + ": " + line);
      }
      const bool plain = step.call.name == "elementwise" || step.call.name == "broadcast";
      if (plain && n.op->elementwise()) {
        const codegen::Functor functor =
            codegen::make_functor(codegen::program_of(*n.op, n.attributes, graph_.type(n.outputs[0]).dtype));
        code += "<" + functor.name + ">";
        functors_[functor.name] = functor.text;
      }
      for (const std::string& argument : step.call.template_arguments) code += "<" + argument + ">";
      code += " at " + place(n) + ":";
      for (const ValueId v : n.outputs) code += " " + identity(v) + ",";
      code += " from";
      for (std::size_t s = 0; s < n.op->inputs.size(); ++s) {
        const ir::InputRange range = ir::input_range(*n.op, n.inputs.size(), s);
        std::string list, sizes;
        for (std::size_t i = range.begin; i < range.begin + range.count && i < n.inputs.size(); ++i) {
          list += " " + identity(n.inputs[i]) + ",";
          if (n.inputs[i] != ir::kNone) sizes += graph_.type(n.inputs[i]).shape.numel().to_string() + ",";
        }
        if (!n.op->inputs[s].variadic || plain || n.op->name == "fused_reduction") {
          code += list;
          continue;
        }
        if (list.find_first_not_of(" nothing,") != std::string::npos)
          out_[calls_file()].insert(fmt::format("list of {} {}:{}", n.op->name, n.op->inputs[s].name, list));
        code += fmt::format(" {} of them,", range.count);
        if (s == 0) out_["configs.h"].insert(fmt::format("sizes of {} in {}: {}", n.op->name, place(n), sizes));
      }
      out_[calls_file()].insert(code);

      std::string types;
      const auto add = [&](ValueId v) {
        const Home home = plan_.placements[at(codegen::root(plan_, v))].home;
        if (home == Home::arena || home == Home::input) types += " " + graph_.type(v).to_string();
      };
      if (!n.op->donates()) {
        for (const ValueId v : n.inputs)
          if (v != ir::kNone) add(v);
        types += " ->";
        for (const ValueId v : n.outputs) add(v);
      }
      out_[calls_file()].insert(fmt::format("comment of {}: {},{} {}", place(n), codegen::describe_node(graph_, n),
                                            types, ir::place_of(n.origins)));
      out_["calls.h"].insert(fmt::format("{}{} computes {} of{}, {} FLOP and {} bytes",
                                         evaluation_ ? "evaluation, " : "", place(n), codegen::describe_node(graph_, n),
                                         types, step.cost.flops, step.cost.bytes));
    }
    end_banner();
    out_[calls_file()].insert(headers.begin(), headers.end());
    out_["configs.h"].insert(options.begin(), options.end());
    for (const std::string& h : config_headers)
      if (!out_["configs.h"].contains(h)) out_["configs.h"].insert(h);
    for (const auto& [name, text] : functors_) {
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);)
        if (!evaluation_ || !out_["functors.h"].contains(name + ": " + line))
          out_["functors.h"].insert(name + ": " + line);
    }
  }

  /// A config of an evaluation is the training's where they are equal.
  static std::string forward_of(const std::string& config) { return config; }

  void arena() {
    std::map<ValueId, std::string> written, read;
    for (const codegen::Step& step : plan_.steps) {
      const ir::Node& n = graph_.nodes[at(step.node)];
      for (const ValueId v : n.inputs)
        if (v != ir::kNone) read[codegen::root(plan_, v)] = place(n);
      for (const ValueId v : n.outputs) written[v] = place(n);
      if (step.workspace < 0) continue;
      const codegen::Buffer& b = plan_.buffers[at(step.workspace)];
      out_[plan_file()].insert(fmt::format("scratch of {} {}: {} bytes", place(n), n.op->name, b.bytes));
    }
    for (const codegen::Buffer& b : plan_.buffers)
      for (std::size_t i = 0; i < b.values.size(); ++i) {
        const ValueId v = b.values[i];
        if (plan_.placements[at(v)].home != Home::arena) continue;
        out_[plan_file()].insert(fmt::format("{}: {}, {} .. {}{}", identity(v), graph_.type(v).to_string(), written[v],
                                             read.count(v) ? read[v] : "nobody",
                                             i == 0 ? "" : ", takes over " + identity(b.values[i - 1])));
      }
    out_[plan_file()].insert(fmt::format("the peak is {}", plan_.arena_bytes()));
  }

  const Graph& graph_;
  const Plan& plan_;
  Statements& out_;
  bool evaluation_;
  std::vector<std::int32_t> producer_;
  std::map<std::string, std::string> functors_;
};

void parameters(const Graph& graph, Statements& out) {
  for (const auto* list : {&graph.parameters, &graph.states})
    for (const ValueId v : *list)
      out["params.h"].insert(fmt::format("{} {}", graph.value(v).name, graph.type(v).to_string()));
}

void interface(const Graph& graph, bool evaluates_apart, Statements& out) {
  const bool random = std::any_of(graph.nodes.begin(), graph.nodes.end(), ir::is_random);
  std::string types;
  for (const ValueId v : graph.inputs) {
    const std::string name = graph.value(v).name, type = graph.type(v).to_string();
    types += fmt::format("{} {}, ", codegen::public_type(graph.type(v).dtype), name);
    for (const char* file : {"model.h", "program.h", "main.cpp", "README.md"})
      out[file].insert(fmt::format("input {} {}", name, type));
    for (const char* what : {"memory", "recorded"})
      out["selftest.cpp"].insert(fmt::format("input {} {}, {}", name, type, what));
  }
  for (const ValueId v : graph.outputs)
    for (const char* file : {"model.h", "model_api.cpp", "README.md"})
      out[file].insert(fmt::format("result {}", graph.type(v).to_string()));
  const std::string drawn = random ? " and random numbers" : "";
  for (const char* function : {"step", "evaluate", "C step", "C evaluate"}) {
    const std::string numbers = std::string_view(function) == "C step" ? drawn : "";
    for (const char* file : {"model.h", "model_api.cpp"})
      out[file].insert(fmt::format("{} takes {}{}", function, types, numbers));
  }
  for (const char* function : {"forward", "backward", "C forward"})
    for (const char* file : {"model.h", "model_api.cpp"})
      out[file].insert(fmt::format("{} takes {}{}", function, types, drawn));
  // The pointers of a step, and of an evaluation, are set by functions of their own.
  out["model_api.cpp"].insert("pointers of a step from " + types);
  if (evaluates_apart) out["model_api.cpp"].insert("pointers of an evaluation from " + types);
  for (const char* function : {"step", "evaluate"})
    out["main.cpp"].insert(fmt::format("calls {} with {}", function, types));
  for (const ir::Optimizer& o : graph.optimizers)
    for (const ir::ParameterGroup& g : o.groups)
      for (const char* file : {"model.h", "main.cpp"})
        out[file].insert(fmt::format("learning rate {}", g.options.at("lr")));
  const ir::Shape& shape = graph.type(graph.inputs[0]).shape;
  out["main.cpp"].insert("batch " + shape[0].to_string());
}

/// The nodes of `a` that `b` has not.
std::multiset<std::string> without(const std::multiset<std::string>& a, const std::multiset<std::string>& b) {
  std::multiset<std::string> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(rest, rest.begin()));
  return rest;
}

}  // namespace

Statements statements_of(const Graph& traced) {
  Graph graph = traced;
  codegen::EmitOptions options;
  options.execute = eager::reference_run;
  ir::finish_passes(graph, options.passes);
  const Plan plan = codegen::make_plan(graph);
  bool unknown = false;
  const auto evaluation = codegen::make_evaluation(traced, graph, options, unknown);
  Statements out;
  parameters(graph, out);
  interface(graph, evaluation != nullptr, out);
  Reader(graph, plan, out, false).read();
  if (evaluation) Reader(evaluation->graph, evaluation->plan, out, true).read();
  return out;
}

std::map<std::string, std::multiset<std::string>> difference(const Statements& before, const Statements& after) {
  std::map<std::string, std::multiset<std::string>> result;
  std::set<std::string> files;
  for (const auto* s : {&before, &after})
    for (const auto& [file, lines] : *s) files.insert(file);
  const std::multiset<std::string> none;
  for (const std::string& file : files) {
    const auto old = before.find(file), now = after.find(file);
    const auto& a = old == before.end() ? none : old->second;
    const auto& b = now == after.end() ? none : now->second;
    for (const std::string& line : without(a, b)) result[file].insert("- " + line);
    for (const std::string& line : without(b, a)) result[file].insert("+ " + line);
  }
  return result;
}

std::map<std::string, int> needed_lines(const Statements& before, const Statements& after) {
  std::map<std::string, int> needed;
  for (const auto& [file, lines] : difference(before, after)) {
    const auto gone = std::count_if(lines.begin(), lines.end(), [](const std::string& l) { return l[0] == '-'; });
    needed[file] = static_cast<int>(std::max<std::ptrdiff_t>(gone, static_cast<std::ptrdiff_t>(lines.size()) - gone));
  }
  return needed;
}

}  // namespace graven::review
