#include "codegen/emit/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <unordered_set>

#include "codegen/emit/config_defaults.h"
#include "codegen/emit/text.h"
#include "codegen/emit/update.h"
#include "codegen/plan/storage.h"
#include "ir/analysis.h"
#include "ir/call.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/sharding.h"
#include "ir/stages.h"

namespace graven::codegen {

std::vector<ir::ScalarProgram> programs_of(const ir::Node& node, const ir::KernelCall& call, ir::DType result) {
  std::vector<ir::ScalarProgram> programs;
  for (const ir::AttributeSpec& spec : node.op->attributes)
    if (spec.type == ir::AttributeType::program) programs.push_back(node.attributes.program(spec.name));
  while (!programs.empty() && programs.back().empty()) programs.pop_back();
  const bool runs_functor = call.name == "elementwise" || call.name == "broadcast";
  if (programs.empty() && runs_functor && node.op->elementwise())
    programs.push_back(program_of(*node.op, node.attributes, result));
  return programs;
}

namespace {

using ir::ConfigField;
using ir::Dim;

/// Of a weight: less is not worth a line.
constexpr std::int64_t kReleasedBytes = std::int64_t{1} << 20;

/// Of a config.
struct Declaration {
  std::string text;
  bool is_wrapped;  ///< more than one line
};

class Writer {
 public:
  Writer(const ir::Graph& graph, const Plan& plan, const ValueNames& values, const CallStyle& style,
         const Calls* training, Calls& out)
      : graph_(graph), plan_(plan), values_(values), style_(style), out_(out), beside_training_(training != nullptr) {
    if (ir::has_stages(graph)) stages_ = ir::stages_of_nodes(graph), second_round_ = ir::second_round(graph);
    if (ir::has_tuned(graph) && plan.target->choices != nullptr)
      for (const ir::Choice& choice : plan.target->choices(graph))
        if (ir::tuned(graph, choice.key) == choice.taken) tuned_.insert(choice.nodes.begin(), choice.nodes.end());
    if (style.shared_by_ranks > 1) shards_ = ir::Sharding(graph).shards_of_gradients(graph);
    if (training != nullptr) shared_.insert(training->configs.begin(), training->configs.end());
    std::vector<std::string> owners;
    std::unordered_set<std::string> variadic_owners;
    for (const Step& step : plan.steps)
      if (!step.call.name.empty()) {
        owners.push_back(owner(step));
        if (is_variadic(*node(step).op) && !variadic_owners.insert(owner(step)).second)
          shared_owners_.insert(owner(step));
      }
    for (const Step& step : plan.steps)
      if (!step.call.name.empty() && is_variadic(*node(step).op)) owners.push_back(sizes_owner(step));
    config_names_ = Names(owners, values.root());
  }

  void write() {
    for (const Step& step : plan_.steps)
      if (!step.call.name.empty()) write(step);
    copy_outputs();
    name_shared_blocks();
    list_measured();
  }

 private:
  const ir::Node& node(const Step& step) const { return graph_.nodes[at(step.node)]; }

  void list_measured() {
    for (const auto& [phase, list] : out_.phases)
      for (const Call& c : list)
        out_.measured.push_back(
            {c.node, phase, c.owner(), c.description, c.types, c.flops, c.bytes, c.stage, c.second_round});
  }

  /// What a step's config is named after: its result, or what it writes into.
  std::string owner(const Step& step) const {
    const ir::Node& n = node(step);
    if (ir::updates_parameter(*n.op)) return graph_.value(n.inputs[0]).name + ".update";
    if (ir::is_update(*n.op)) {
      const ir::Value& value = graph_.value(n.inputs[ir::input_range(n, ir::InputRole::rate).begin]);
      if (value.kind == ir::ValueKind::hyper)
        return "optimizer." + value.name.substr(value.name.find('.') + 1) + other_dtype(n);
    }
    if (n.is(ir::kCopy)) return "copy." + graph_.value(root(plan_, n.outputs[0])).name;
    return graph_.value(n.outputs.at(0)).name;
  }

  /// ".bf16", of an update whose group has one of another dtype before it: what their configs say may depend on that.
  std::string other_dtype(const ir::Node& update) const {
    const auto rate_of = [](const ir::Node& n) { return n.inputs[ir::input_range(n, ir::InputRole::rate).begin]; };
    const auto first = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const ir::Node& n) {
      return ir::is_update(*n.op) && rate_of(n) == rate_of(update);
    });
    const auto dtype_of = [&](const ir::Node& n) { return graph_.type(n.inputs[0]).dtype; };
    return dtype_of(*first) == dtype_of(update) ? "" : "." + std::string(ir::name(dtype_of(update)));
  }

  /// What the sizes of a step's variadic input are named after: several updates of one optimizer have a config in
  /// common, but not these.
  std::string sizes_owner(const Step& step) const {
    const bool shared = shared_owners_.count(owner(step)) != 0;
    return (shared ? graph_.value(node(step).inputs.at(0)).name + ".update" : owner(step)) + "_sizes";
  }

  std::string field(const ConfigField& value, bool& symbolic) const {
    auto dim = [&](const Dim& d) {
      symbolic |= !d.is_static();
      return values_.dimension(d);
    };
    auto list = [&](const std::vector<Dim>& dims) {
      std::vector<std::string> items;
      for (const Dim& d : dims) items.push_back(dim(d));
      return "{" + join(items) + "}";
    };
    if (const Dim* d = std::get_if<Dim>(&value)) return dim(*d);
    if (const double* d = std::get_if<double>(&value)) return number_text(*d);
    if (const bool* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
    if (const auto* dims = std::get_if<std::vector<Dim>>(&value)) return list(*dims);
    std::vector<std::string> rows;
    for (const auto& dims : std::get<std::vector<std::vector<Dim>>>(value)) rows.push_back(list(dims));
    return "{" + join(rows) + "}";
  }

  /// Adds the config and returns how the call names it.
  Code config(const Step& step, const std::string& file) {
    if (node(step).op->rule == nullptr)
      return config(step, step.call, file, step.call.config_type.empty() ? file + "_config" : step.call.config_type);
    // Of an update, what its options use.
    const ir::UpdateRule rule(*node(step).op, node(step).attributes, true);
    UpdateText text = print_update(rule);
    const std::vector<const ir::AttributeSpec*> used = rule.attributes();
    ir::KernelCall call = step.call;
    std::erase_if(call.config, [&](const auto& field) {
      const auto is_field = [&](const auto* a) { return a->name == field.first; };
      return !std::holds_alternative<Dim>(field.second) && std::none_of(used.begin(), used.end(), is_field);
    });
    out_.config_structs.emplace(text.config_type, std::move(text.config));
    return config(step, call, "update", text.config_type);
  }

  Code config(const Step& step, const ir::KernelCall& call, const std::string& file, const std::string& type) {
    const std::string& name = config_names_[owner(step)];
    std::vector<std::string> fields;
    bool symbolic = false;
    const std::map<std::string, std::string>& defaults = config_defaults(type);
    for (const auto& [key, value] : call.config) {
      const std::string text = field(value, symbolic);
      const auto usual = defaults.find(key);
      if (usual == defaults.end() || usual->second != text) fields.push_back("." + key + " = " + text);
    }
    out_.config_headers.insert("kernels/config/" + file + ".h");
    Nesting::Place place = values_.nesting()(name);
    place.name = layer_of(step, place, type + "{" + join(fields) + "}");
    const std::string fixed = place.block.empty() ? "constexpr " : "static constexpr ";
    if (!symbolic) return add_config(place, declaration(fixed + type + " " + place.name + "{", fields, "};"));
    std::vector<std::string> parameters, arguments;
    for (const Symbol& s : values_.symbols()) {
      if (!mentions(call, s.name)) continue;
      parameters.push_back("std::int64_t " + s.identifier);
      arguments.push_back("size." + s.identifier);
    }
    Code code = add_config(
        place, declaration("static constexpr " + type + " " + place.name + "(" + join(parameters) + ") { return {",
                           fields, "}; }"));
    code += "(" + join(arguments) + ")";
    return code;
  }

  /// The name of a config. What a layer computes backward may have the same as forward, by a name that goes on: then
  /// they share it, linear and linear_backward_input that of linear.
  std::string layer_of(const Step& step, const Nesting::Place& place, const std::string& value) {
    std::vector<std::string>& names = names_of_[place.block + "\n" + value];
    if (node(step).phase == ir::Phase::backward)
      for (const std::string& name : names)
        if (place.name.starts_with(name + "_")) return name;
    names.push_back(place.name);
    return place.name;
  }

  /// Adds a line to configs.h and returns how calls say its name.
  ConfigName add_config(const Nesting::Place& place, Declaration declared) {
    BlockLine config{place.block, std::move(declared.text), place.name, declared.is_wrapped};
    const bool is_shared = shared_.count(config) != 0;
    // The updates of one optimizer's parameters share its config.
    if (!is_shared && written_.insert(config).second) out_.configs.push_back(std::move(config));
    // The struct of an evaluation's block has what the training's has as well.
    const bool of_evaluation = beside_training_ && !(is_shared && place.block.empty());
    return {of_evaluation, place.block, place.name};
  }

  /// An evaluation's blocks whose configs are all the training's have no struct of their own.
  void name_shared_blocks() {
    std::set<std::string> own, of_training;
    for (const BlockLine& c : out_.configs) own.insert(c.block);
    for (const BlockLine& c : shared_) of_training.insert(c.block);
    for (auto& [phase, list] : out_.phases)
      for (Call& call : list)
        for (Code& argument : call.arguments)
          for (Code::Piece& piece : argument.pieces())
            if (ConfigName* config = std::get_if<ConfigName>(&piece))
              if (!config->block.empty() && of_training.count(config->block) && !own.count(config->block))
                config->is_evaluation = false;
  }

  /// On one line, or as few as the fields fill: clang-format would give each field a line.
  static Declaration declaration(const std::string& head, const std::vector<std::string>& fields,
                                 const std::string& tail) {
    constexpr std::size_t kWidth = 140;
    if (std::string line = head + join(fields) + tail; line.size() <= kWidth) return {std::move(line), false};
    std::string text = head, line = "   ";
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const std::string item = " " + fields[i] + (i + 1 < fields.size() ? "," : tail);
      if (line.size() + item.size() > kWidth && line.size() > 3) {
        text += "\n" + line;
        line = "   ";
      }
      line += item;
    }
    return {text + "\n" + line, true};
  }

  static bool mentions(const ir::KernelCall& call, const std::string& symbol) {
    auto in = [&](const Dim& d) { return d.depends_on(symbol); };
    auto in_list = [&](const std::vector<Dim>& list) { return std::any_of(list.begin(), list.end(), in); };
    for (const auto& [key, value] : call.config) {
      if (const Dim* d = std::get_if<Dim>(&value); d && in(*d)) return true;
      if (const auto* list = std::get_if<std::vector<Dim>>(&value); list && in_list(*list)) return true;
      if (const auto* rows = std::get_if<std::vector<std::vector<Dim>>>(&value);
          rows && std::any_of(rows->begin(), rows->end(), in_list))
        return true;
    }
    return false;
  }

  /// Of tensors that memory has whole, and ranks share: whether the list names this rank's elements.
  bool names_shards(const ir::Node& n, const ir::InputSpec& spec) const {
    if (style_.shared_by_ranks == 0) return false;
    if (spec.role == ir::InputRole::parameter && ir::is_update(*n.op)) return style_.shared_by_ranks < 3;
    const bool of_gradients = ir::is_update(*n.op) ? spec.role == ir::InputRole::gradient : counts_over_ranks(n);
    return of_gradients && style_.shared_by_ranks == 1;
  }
  /// Whether it makes of a gradient's shard another one, where memory has nothing but that.
  bool is_of_shard(const ir::Node& n) const {
    return style_.shared_by_ranks > 1 && n.inputs.size() == 1 && n.inputs[0] != ir::kNone && shards_(n.inputs[0]) &&
           shards_(n.outputs[0]);
  }
  static bool counts_over_ranks(const ir::Node& n) {
    return n.is(ir::kClipFactor, ir::kFiniteStep) && n.attributes.flag("over_ranks");
  }
  /// How many of `elements` a call on shards looks at.
  std::string elements_of(const ir::Node& n, const std::string& elements) const {
    if (style_.shared_by_ranks == 0 || (!ir::is_update(*n.op) && !counts_over_ranks(n))) return elements;
    return (ir::is_update(*n.op) ? "shard.count(" : "shard.counted(") + elements + ")";
  }

  /// An array of the pointers of one variadic input. `each`: what stands for one where it is a list of all parameters.
  std::vector<Code> pointers(const ir::Argument& argument, const ir::Node& n, const ir::InputSpec& spec,
                             std::string each) const {
    std::vector<Code> items;
    ir::DType dtype = ir::DType::f32;
    const bool shards = names_shards(n, spec);
    if (shards && !each.empty()) each = "shard.of(" + each + ", numel({__VA_ARGS__}))";
    for (const ir::ValueId v : argument.values) {
      Code item = values_.code(v);
      if (v != ir::kNone) {
        dtype = graph_.type(v).dtype;
        if (shards) {
          Code own = "shard.of(";
          own += std::move(item);
          own += fmt::format(", {})", graph_.type(v).shape.numel().maximum());
          item = std::move(own);
        }
      }
      items.push_back(std::move(item));
    }
    const std::string declaration =
        fmt::format("{}{}* const {}", spec.donated() ? "" : "const ", element_type(dtype), spec.name);
    if (!each.empty()) return list_of_parameters(declaration, each);
    Code line = declaration + "[] = {";
    line += join(items);
    line += "};";
    return {std::move(line)};
  }

  static bool is_variadic(const ir::OpDef& op) {
    return std::any_of(op.inputs.begin(), op.inputs.end(), [](const ir::InputSpec& s) { return s.variadic; });
  }

  /// They are shapes and stand where those are, but for symbolic ones.
  Code sizes(const ir::Argument& argument, const Step& step, std::vector<Code>& before) {
    std::vector<std::string> items;
    bool symbolic = false;
    for (const Dim& size : ir::sizes_of(graph_, step.call, argument)) {
      symbolic |= !size.is_static() || elements_of(node(step), "") != "";
      items.push_back(elements_of(node(step), values_.dimension(size, "size.")));
    }
    if (!symbolic) {
      const Nesting::Place place = values_.nesting()(config_names_[sizes_owner(step)]);
      const std::string fixed = place.block.empty() ? "constexpr " : "static constexpr ";
      return add_config(place, declaration(fixed + "std::int64_t " + place.name + "[] = {", items, "};"));
    }
    before.emplace_back("const std::int64_t sizes[] = {" + join(items) + "};");
    return "sizes";
  }

  /// What stands for one tensor of a list where it is the list of all parameters, in order, or of what belongs to each:
  /// "param.name", "grad.name", "state.name##_m". Empty where it is another list.
  std::string of_each_parameter(std::span<const ir::ValueId> list) const {
    const std::vector<ir::ValueId>& parameters = values_.with_gradient();
    if (parameters.empty() || list.size() != parameters.size()) return {};
    std::string pattern;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i] == ir::kNone) return {};
      const Code code = values_.code(list[i]);
      const Pointer* pointer = code.pointer();
      const Nesting::Place own = values_.place(parameters[i]);
      if (pointer == nullptr || pointer->block != own.block || !pointer->name.starts_with(own.name)) return {};
      const std::string suffix = pointer->name.substr(own.name.size());
      const std::string one = pointer->object + ".name" + (suffix.empty() ? "" : "##" + suffix);
      if (!pattern.empty() && one != pattern) return {};
      pattern = one;
    }
    return pattern;
  }

  static bool is_absent(std::span<const ir::ValueId> list) {
    return std::all_of(list.begin(), list.end(), [](ir::ValueId v) { return v == ir::kNone; });
  }

  /// Whether an update, or a norm of gradients, is of all parameters: then its lists are made of the lines of params.h,
  /// and a parameter more or less changes none of them.
  bool is_of_all_parameters(const Step& step) const {
    const ir::Node& n = node(step);
    if ((!is_update(*n.op) && !n.is(ir::kClipFactor, ir::kFiniteStep, ir::kAllGather)) || !step.call.sizes.empty())
      return false;
    for (const ir::Argument& a : arguments_of(n, {}))
      if (a.kind == ir::Argument::Kind::list && !is_absent(a.values) && of_each_parameter(a.values).empty())
        return false;
    const auto& parameters = values_.with_gradient();
    const ir::DType dtype = graph_.type(n.inputs[0]).dtype;
    return std::all_of(parameters.begin(), parameters.end(),
                       [&](ir::ValueId p) { return graph_.type(p).dtype == dtype; });
  }

  /// "f32* const params[] = {" and a line for each parameter, which the compiler reads in params.h.
  static std::vector<Code> list_of_parameters(const std::string& declaration, const std::string& each) {
    return {declaration + "[] = {", "#define GRAVEN_PARAM(name, dtype, path, ...) " + each + ",",
            "#include \"params.h\"", "};"};
  }

  /// One argument, nothing where it is left out. Arrays that it needs stand before the call.
  std::optional<Code> code_of(const ir::Argument& argument, const Step& step, Call& call) {
    using Kind = ir::Argument::Kind;
    const auto add = [&](std::vector<Code> lines) {
      std::move(lines.begin(), lines.end(), std::back_inserter(call.before));
    };
    switch (argument.kind) {
      case Kind::threads:
        if (style_.first_argument.empty()) return std::nullopt;
        return style_.first_argument;
      case Kind::config:
        if (is_of_shard(node(step)))
          return fmt::format("elementwise_config{{.n = shard.count({})}}",
                             values_.dimension(graph_.type(node(step).outputs[0]).shape.numel()));
        return config(step, file_of(step.call));
      case Kind::count:
        return is_of_all_parameters(step) ? "std::size(sizes)" : fmt::format("{}", argument.values.size());
      case Kind::number:
        if (const ir::ValueId v = argument.value(); v != ir::kNone && graph_.value(v).kind == ir::ValueKind::hyper)
          return values_.hyper(v);
        if (!style_.numbers_from_hyper) {
          Code number = "*";
          number += values_.code(argument.value());
          return number;
        }
        [[fallthrough]];
      case Kind::output:
      case Kind::input:
        return values_.code(argument.value());
      case Kind::list: {
        if (is_absent(argument.values)) return "nullptr";
        const ir::InputSpec& spec = node(step).op->inputs[argument.index];
        add(pointers(argument, node(step), spec, is_of_all_parameters(step) ? of_each_parameter(argument.values) : ""));
        return std::string(spec.name);
      }
      case Kind::sizes:
        if (!is_of_all_parameters(step)) return sizes(argument, step, call.before);
        if (const std::string each = elements_of(node(step), "numel({__VA_ARGS__})"); each.starts_with("shard"))
          add(list_of_parameters("const std::int64_t sizes", each));
        else
          add(list_of_parameters("static constexpr std::int64_t sizes", each));
        return "sizes";
      case Kind::workspace:
        return workspace_of(step);
      case Kind::where:
        break;
    }
    const std::string where = ir::described(node(step).origins);
    if (where.empty()) return std::nullopt;
    return string_literal(where);
  }

  std::string begin_of_call() const {
    return style_.first_argument.empty() ? std::string() : style_.first_argument + ".begin_call();";
  }

  Pointer workspace_of(const Step& step) const {
    Nesting::Place place = values_.workspace_place(step);
    return {"buf", std::move(place.block), std::move(place.name)};
  }

  static const std::string& file_of(const ir::KernelCall& call) { return call.file.empty() ? call.name : call.file; }

  void write(const Step& step) {
    const ir::Node& n = node(step);
    const std::string& file = file_of(step.call);
    const ir::DType result = n.outputs.empty() ? ir::DType::f32 : graph_.type(n.outputs[0]).dtype;
    std::vector<std::string> template_arguments;
    bool uses_functor = false;
    const auto add_functor = [&](const Functor& functor) {
      template_arguments.push_back(functor.name);
      const auto [known, fresh] = out_.functors.emplace(functor.name, functor);
      GRAVEN_CHECK(fresh || known->second.text == functor.text, "two functors are called " + functor.name);
      uses_functor = true;
    };
    const auto add_rule = [&](const ir::Node& update) {
      const ir::UpdateRule rule(*update.op, update.attributes, true);
      add_functor(print_update(rule).functor);
      // share_updates sees to it that all of its parameters are shared then.
      if (style_.shared_by_ranks > 0 && !rule.norms().empty() &&
          ir::Sharding(graph_).is_large(graph_.type(update.inputs[0])))
        template_arguments.back() = "over_ranks<" + template_arguments.back() + ">";
    };
    for (const ir::ScalarProgram& program : programs_of(n, step.call, result)) {
      if (program.empty())
        template_arguments.emplace_back("identity");
      else
        add_functor(make_functor(program));
    }
    if (n.op->rule != nullptr)
      add_rule(n);
    else
      template_arguments.insert(template_arguments.end(), step.call.template_arguments.begin(),
                                step.call.template_arguments.end());

    Call call;
    call.modules = ir::modules_of(n.origins);
    call.location = ir::place_of(n.origins);
    for (const ir::Argument& argument : ir::arguments_of(n, step.call, style_.numbers_from_hyper))
      if (std::optional<Code> code = code_of(argument, step, call)) call.arguments.push_back(std::move(*code));
    call.function = step.call.reference ? "reference::" + step.call.name : step.call.name;
    if (!template_arguments.empty()) call.function += "<" + join(template_arguments) + ">";
    call.names = template_arguments;
    call.names.push_back(step.call.name);
    if (n.op->rule != nullptr) call.names.push_back(ir::UpdateRule(*n.op, n.attributes, true).name());
    call.headers = {step.call.reference ? "kernels/reference/" + file + ".h"
                                        : "kernels/" + style_.kernel_folder + "/" + file + style_.kernel_extension};
    for (const ir::ValueId v : step.last_reads) {
      if (style_.release.empty() || byte_count(graph_.type(v)) < kReleasedBytes || !values_.is_in_weights_block(v))
        continue;
      const std::string count = values_.dimension(graph_.type(v).shape.numel());
      call.after.push_back(filled_in(style_.release, {{"data", values_.code(v)}, {"count", count}}));
      call.headers.insert(style_.release_header);
    }
    out_.headers.insert(call.headers.begin(), call.headers.end());
    call.uses_functor = uses_functor;

    const auto writes = [&](ir::ValueId v) {
      const Code code = values_.code(v);
      if (const Pointer* pointer = code.pointer()) call.written.insert(*pointer);
    };
    for (const ir::ValueId v : n.outputs) writes(v);
    if (step.workspace >= 0) call.workspace = workspace_of(step);
    call.description = describe_node(graph_, n);
    if (tuned_.count(step.node) != 0) call.description += ", as measured";
    call.types = types(step);
    call.node = step.node;
    call.flops = step.cost.flops;
    call.bytes = step.cost.bytes;
    if (step.call.reference) call.begin = begin_of_call();
    call.recomputes = n.recomputes && !n.is(ir::kGatherShards);
    if (!stages_.empty()) {
      call.stage = stages_[at(step.node)];
      call.second_round = second_round_[at(step.node)];
    }
    out_.phases[n.phase].push_back(std::move(call));
  }

  /// "f32[64,784] -> f32[64,256]": what flows; weights are left out unless nothing else comes in.
  std::string types(const Step& step) const {
    const ir::Node& n = node(step);
    if (ir::is_update(*n.op)) {
      const std::size_t count = ir::input_range(n, ir::InputRole::parameter).count;
      const std::string of = style_.shared_by_ranks > 0 ? "this rank's shard of " : "";
      return of + (is_of_all_parameters(step) ? "all parameters"
                                              : fmt::format("{} parameter{}", count, count == 1 ? "" : "s"));
    }
    std::vector<std::string> from, to;
    if (is_of_all_parameters(step)) from = {n.is(ir::kAllGather) ? "all parameters" : "all gradients"};
    auto flows = [&](ir::ValueId v) {
      const Home home = plan_.placements[at(root(plan_, v))].home;
      return home == Home::arena || home == Home::input || home == Home::output;
    };
    const std::vector<std::size_t> donated = ir::donated_inputs(*n.op, n.inputs);
    const auto is_donated = [&](std::size_t i) { return std::count(donated.begin(), donated.end(), i) != 0; };
    for (const bool all : {false, true}) {
      if (!from.empty()) break;
      for (std::size_t i = 0; i < n.inputs.size(); ++i) {
        const ir::ValueId v = n.inputs[i];
        if (v == ir::kNone || graph_.value(v).kind == ir::ValueKind::hyper || is_donated(i)) continue;
        const ir::InputRole role = i < n.op->inputs.size() ? n.op->inputs[i].role : ir::InputRole::value;
        const bool weight = role == ir::InputRole::weight || role == ir::InputRole::bias;
        if (all || (flows(v) && !weight)) from.push_back(graph_.type(v).to_string());
      }
    }
    if (ir::updates_parameter(*n.op)) to.push_back(graph_.type(n.inputs[0]).to_string());
    for (const ir::ValueId v : ir::own_outputs(n))
      if (values_.expression(v) != "nullptr") to.push_back(graph_.type(v).to_string());
    auto shorten = [](std::vector<std::string>& list) {
      if (list.size() > 4) list = {list[0], list[1], fmt::format("{} more", list.size() - 2)};
    };
    shorten(from);
    shorten(to);
    if (to.empty()) return join(from);
    return from.empty() ? join(to) : join(from) + " -> " + join(to);
  }

  /// Results of an inference that are no step's own memory: an input, a weight, or the same result twice.
  void copy_outputs() {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ir::ValueId r = root(plan_, graph_.outputs[i]);
      const Placement& p = plan_.placements[at(r)];
      if (p.home == Home::arena || (p.home == Home::output && p.buffer == static_cast<std::int32_t>(i))) continue;
      if (plan_.keeps_results) continue;  // read where it lies
      const ir::TensorType& type = graph_.type(r);
      const std::string bytes = fmt::format("sizeof({}) * static_cast<std::size_t>({})", element_type(type.dtype),
                                            values_.dimension(type.shape.numel(), "size."));
      Call call;
      call.description = "copy";
      call.types = type.to_string();
      call.is_copy = true;
      call.bytes = 2 * static_cast<double>(type.shape.numel().maximum()) * static_cast<double>(size_of(type.dtype));
      if (style_.copy.find(style_.first_argument + ",") == std::string::npos) call.begin = begin_of_call();
      call.after.push_back(filled_in(
          style_.copy, {{"to", Pointer{"out", {}, values_.output(i)}}, {"from", values_.code(r)}, {"bytes", bytes}}));
      out_.phases[ir::Phase::forward].push_back(std::move(call));
    }
  }

  std::unordered_set<ir::NodeId> tuned_;  ///< whose algorithm the graph's config says (ir/tuning.h)
  std::vector<std::int32_t> stages_;      ///< by node, of a pipeline
  std::vector<bool> second_round_;        ///< likewise
  ir::ByValue<bool> shards_;              ///< gradients of which memory has a rank's shard alone
  const ir::Graph& graph_;
  const Plan& plan_;
  const ValueNames& values_;
  const CallStyle& style_;
  Calls& out_;
  std::set<BlockLine> shared_, written_;           // of the training beside an evaluation, and so far
  std::unordered_set<std::string> shared_owners_;  // of more than one step with a variadic input
  bool beside_training_ = false;
  std::unordered_map<std::string, std::vector<std::string>> names_of_;  // of configs, by block and value
  Names config_names_;
};

}  // namespace

std::vector<std::string> Call::lines() const {
  std::vector<std::string> list;
  const auto add = [&](const std::vector<Code>& code, const char* indent) {
    for (const Code& line : code) {
      std::string text = line.text();
      list.push_back(text.front() == '#' ? std::move(text) : indent + text);
    }
  };
  if (!begin.empty()) list.push_back(begin);
  if (!before.empty()) list.emplace_back("{");
  add(before, "  ");
  if (!function.empty()) list.push_back((before.empty() ? "" : "  ") + function + "(" + join(arguments).text() + ");");
  if (!before.empty()) list.emplace_back("}");
  add(after, "");
  return list;
}

std::string describe_node(const ir::Graph& graph, const ir::Node& node) {
  const ir::Attributes& a = node.attributes;
  std::string text((node.op->lowers != nullptr ? node.op->lowers : node.op)->name);
  if (ir::is_update(*node.op) || ir::updates_parameter(*node.op)) {
    const std::string options = describe_options(*node.op, a);
    return options.empty() ? text : text + ", " + options;
  }
  auto integers = [&](const char* key) -> const ir::Ints* {
    const ir::Attribute* found = a.find(key);
    return found ? std::get_if<ir::Ints>(found) : nullptr;
  };
  if (const ir::Attribute* program = a.find("program"))
    if (const auto* p = std::get_if<ir::ScalarProgram>(program)) text = title(*p);
  for (std::size_t i = 0; i < node.op->inputs.size() && i < node.inputs.size(); ++i) {
    if (node.inputs[i] == ir::kNone) continue;
    // An operator that begins with a weight rearranges it: its window and channels are those of the layer that it is
    // for.
    if (node.op->inputs[i].role == ir::InputRole::weight && i > 0) {
      const ir::Shape* shape = &graph.type(node.inputs[i]).shape;
      ir::Shape packed;
      if (const ir::Ints* sizes = integers("weight_shape"); sizes && !sizes->empty())  // it is packed
        packed = ir::Shape::of(*sizes), shape = &packed;
      if (shape->rank() == 4) {
        // A weight has the channels of one group.
        const ir::Attribute* found = a.find("groups");
        const std::int64_t groups = found ? std::get<std::int64_t>(*found) : 1;
        text += fmt::format(" {}->{}, {}x{}", ((*shape)[1] * ir::Dim(groups)).to_string(), (*shape)[0].to_string(),
                            (*shape)[2].to_string(), (*shape)[3].to_string());
        if (groups > 1) text += fmt::format(", {} groups", groups);
      }
      if (const ir::Ints* stride = integers("stride");
          stride && std::any_of(stride->begin(), stride->end(), [](auto s) { return s != 1; }))
        text += fmt::format(", stride {}", (*stride)[0] == stride->back()
                                               ? fmt::format("{}", (*stride)[0])
                                               : fmt::format("{}x{}", (*stride)[0], stride->back()));
    }
    if (node.op->inputs[i].role == ir::InputRole::bias) text += " + bias";
  }
  if (node.op->remark != nullptr)
    if (const std::string remark = node.op->remark({graph, node}); !remark.empty()) text += " " + remark;
  if (const ir::Ints* kernel = integers("kernel_size");
      kernel && kernel->size() == 2 && node.op->name.find("pool") != std::string_view::npos)
    text += fmt::format(" {}x{}", (*kernel)[0], (*kernel)[1]);
  for (const char* key : {"reduction", "approximate"})
    if (const ir::Attribute* value = a.find(key))
      if (const auto* word = std::get_if<std::string>(value))
        text += node.is(ir::kFusedReduction) ? " + " + *word : "(" + *word + ")";
  if (const ir::Attribute* epilogue = a.find("epilogue"))
    if (const auto* program = std::get_if<ir::ScalarProgram>(epilogue); program && !program->empty())
      text += " + " + title(*program);
  return text;
}

std::string describe_options(const ir::OpDef& op, const ir::Attributes& attributes) {
  std::vector<std::string> options;
  for (const ir::AttributeSpec& spec : op.attributes) {
    const ir::Attribute* value = attributes.find(spec.name);
    if (value == nullptr || (spec.fallback && *value == *spec.fallback)) continue;
    if (const double* number = std::get_if<double>(value)) options.push_back(fmt::format("{} {}", spec.name, *number));
    if (const std::int64_t* integer = std::get_if<std::int64_t>(value))
      options.push_back(fmt::format("{} {}", spec.name, *integer));
    if (const bool* flag = std::get_if<bool>(value))
      options.push_back(*flag ? std::string(spec.name) : fmt::format("no {}", spec.name));
  }
  return join(options);
}

Calls make_calls(const ir::Graph& graph, const Plan& plan, const ValueNames& values, const CallStyle& style,
                 const Calls* training) {
  Calls calls;
  Writer(graph, plan, values, style, training, calls).write();
  return calls;
}

}  // namespace graven::codegen
