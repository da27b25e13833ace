#include "codegen/emit/project_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "codegen/emit/blocks.h"
#include "codegen/emit/computation.h"
#include "codegen/emit/embedded.h"
#include "codegen/emit/labels_data.h"
#include "codegen/emit/memory_text.h"
#include "codegen/emit/ranks_data.h"
#include "codegen/emit/schedule_text.h"
#include "codegen/emit/text.h"
#include "codegen/kernel_flags.h"
#include "codegen/lowering/lowering.h"
#include "codegen/plan/labels.h"
#include "codegen/plan/storage.h"
#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/passes/passes.h"
#include "ir/rank_layout.h"
#include "ir/schedule.h"
#include "ir/sharding.h"
#include "ir/sizes.h"
#include "ir/stages.h"

namespace graven::codegen {

namespace {

constexpr std::size_t kCallsPerFile = 1000;
constexpr std::size_t kModulesPerBanner = 6;
constexpr int kTypesColumn = 50, kPlaceColumn = 106;  // of a call's comment
constexpr const char* kVersion = "0.1.0";

std::string quantity(double value, std::string_view unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T"};
  int p = 0;
  while (value >= 1000 && p < 4) value /= 1000, ++p;
  return fmt::format("{:.{}f} {}{}", value, value < 10 && p > 0 ? 1 : 0, prefixes[p], unit);
}

std::string rule(std::string_view mark, const std::string& title) {
  std::string text = fmt::format("// {0}{0}{0}{0} {1} ", mark, title);
  while (text.size() < 118) text += mark;
  return text;
}

/// The elements of an inline constant, as C++.
std::string constant_values(const ir::TensorData& data) {
  std::vector<std::string> items;
  const std::size_t size = ir::size_of(data.type.dtype);
  for (std::size_t i = 0; i + size <= data.bytes.size(); i += size) {
    auto read = [&]<class T>(T) {
      T value;
      std::memcpy(&value, data.bytes.data() + i, sizeof value);
      return value;
    };
    switch (data.type.dtype) {
      case ir::DType::f32: {
        const float value = read(0.0f);
        items.push_back(std::isfinite(value)
                            ? fmt::format("{}", value) +
                                  (fmt::format("{}", value).find_first_of(".e") == std::string::npos ? ".0f" : "f")
                            : fmt::format("static_cast<float>({})", number_text(static_cast<double>(value))));
        break;
      }
      case ir::DType::f64:
        items.push_back(number_text(read(0.0)));
        break;
      case ir::DType::i8:
        items.push_back(fmt::format("{}", static_cast<int>(read(std::int8_t{}))));
        break;
      case ir::DType::i32:
        items.push_back(fmt::format("{}", read(std::int32_t{})));
        break;
      case ir::DType::i64: {
        const std::int64_t value = read(std::int64_t{});
        items.push_back(value == INT64_MIN ? std::string("INT64_MIN") : fmt::format("{}", value));
        break;
      }
      case ir::DType::u8:
        items.push_back(fmt::format("{}", static_cast<int>(read(std::uint8_t{}))));
        break;
      case ir::DType::boolean:
        items.push_back(read(std::uint8_t{}) ? "true" : "false");
        break;
      case ir::DType::f16:
      case ir::DType::bf16:
        GRAVEN_CHECK(false, "16-bit constants are not inline");
    }
  }
  return join(items);
}

/// Whether emitted text means something of kernels/ by this name, which a namespace outside would hide.
bool is_name_of_kernels(const std::string& name) {
  const ir::OpDef* const op = ir::find_op(name);  // functors are called after elementwise ones
  if ((op != nullptr && op->elementwise())) return true;
  if (names_of_calls().count(name)) return true;
  for (const Target* target : targets())
    if (const auto& words = target->style.words; std::find(words.begin(), words.end(), name) != words.end())
      return true;
  return false;
}

class Builder {
 public:
  Builder(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation, bool evaluation_unknown,
          const EmitOptions& options, const Extent& extent, const std::string& graph_hash)
      : graph_(graph),
        plan_(plan),
        evaluation_(evaluation),
        evaluation_unknown_(evaluation_unknown),
        options_(options),
        extent_(extent),
        values_(graph, plan, evaluation ? &evaluation->graph : nullptr, project_name(graph, options)),
        style_(plan.target->style) {
    if (evaluation) evaluation_values_.emplace(evaluation->graph, evaluation->plan, values_);
    const bool training = out_.names.training = !graph.optimizers.empty() || !graph.losses.empty();
    // An inference's weights are its own. A training saves its weights; those of a host program are the host's.
    if (training || options.jit_entry) style_.calls.release.clear();  // others may hold the weights
    updates_in_backward_ = ir::updates_in_backward(graph);
    name_ = project_name(graph, options);
    out_.names.name = comment_text(name_);
    out_.names.project = name_;
    out_.names.constant_prefix = upper(name_);
    out_.names.graph_name = comment_text(graph.name);
    out_.names.graph_hash = graph_hash;
    out_.names.computation = graph.text(kComputation);
    out_.names.generator = std::string("graven ") + kVersion;
    out_.names.generator_version = kVersion;
    out_.names.name_literal = string_literal(name_);
    out_.names.updates_in_backward = updates_in_backward_;
    accumulates_ = std::any_of(graph.gradients.begin(), graph.gradients.end(),
                               [](const ir::Gradient& g) { return g.sum != ir::kNone; });
    out_.names.accumulates = accumulates_;
    if (ir::has_stages(graph) && !options.jit_entry) {
      out_.pipeline.pipeline = true;
      staged_.emplace(StagedGraph{graph, plan, values_, stages_of_project(graph)});
      if (evaluation)
        staged_evaluation_.emplace(StagedGraph{evaluation->graph, evaluation->plan, *evaluation_values_,
                                               stages_of_project(evaluation->graph)});
    }
    describe_ranks(graph, options, out_.names, style_);
    if (out_.names.training)
      style_.api_headers.insert(style_.api_headers.end(), style_.training_headers.begin(),
                                style_.training_headers.end());
    out_.names.needs = style_.needs;
    out_.names.purpose = out_.names.training ? "A training program and library" : "An inference program and library";
    const std::string licence = fmt::format(
        " Generated by Graven from the graph {}. This file is yours; the text in kernels/ and runtime/ is Graven's.",
        comment_text(graph.name));
    out_.names.banner = "//" + licence;
    out_.names.hash_banner = "#" + licence;
    out_.names.execution_type = style_.execution_type;
    out_.names.execution_name = style_.execution_name;
    out_.names.program_headers = style_.program_headers;
    out_.names.scalar_math = style_.scalar_math;
    out_.names.on_device = style_.on_device;
    out_.names.model_extension = style_.model_extension;
    out_.names.create_argument = style_.on_device ? "device" : "threads";
    out_.headers = style_.program_headers;
    out_.headers.push_back(style_.scalar_math);
    out_.headers.push_back("kernels/config/device.h");
    out_.names.device_type = style_.device_type;
    write_calls();
    signature();
    note_names();
    memory();
    optimizers();
    evaluation_results();
    out_.names.api_headers = style_.api_headers;
    calls();
    if (is_pipeline()) describe_pipeline(*staged_, staged_evaluation_ ? &*staged_evaluation_ : nullptr, out_.pipeline);
    program();
    out_.names.kernel_flags = kKernelFlags;
    out_.names.kernel_flags_of_gnu = kKernelFlagsOfGnu;
    out_.names.default_levels = out_.names.training ? "native" : "all";
  }

  ProjectData take() { return std::move(out_); }

 private:
  static std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
  }

  TensorText tensor(ir::ValueId v, const std::string& member, std::size_t width, bool batched) const {
    const ir::TensorType& type = graph_.type(v);
    return {.member = member,
            .name_padded = fmt::format("{:<{}}", member, width),
            .element = std::string(element_type(type.dtype)),
            .public_type = std::string(public_type(type.dtype)),
            .dtype = std::string(ir::name(type.dtype)),
            .type = type.to_string(),
            .shape = type.shape.to_string(),
            .maxima = maxima(type.shape),
            .storage = std::max<std::int64_t>(1, type.shape.numel().maximum()),
            .tested = tested(type.shape),
            .tested_storage = std::max<std::int64_t>(1, tested_count(type.shape)),
            .count_in_step = values_.dimension(type.shape.numel(), "step.size."),
            .batched = batched};
  }
  /// The shape that the self-test runs with.
  std::string tested(const ir::Shape& shape) const {
    std::vector<std::string> dims;
    for (const ir::Dim& d : shape) dims.push_back(fmt::format("{}", tested_size(d)));
    return join(dims);
  }
  std::int64_t tested_count(const ir::Shape& shape) const { return tested_size(shape.numel()); }
  std::int64_t tested_size(const ir::Dim& d) const { return d.at(extent_.symbols); }
  /// Inputs, outputs, and how functions take them.
  void signature() {
    std::vector<std::string> parameters, c_parameters, names, outputs, c_outputs, output_names, again, erased,
        erased_outputs;
    std::vector<std::string> others, described, largest;  // the symbols besides the batch
    std::size_t width = 0;
    for (const ir::ValueId v : graph_.inputs) width = std::max(width, values_.member(v).size());
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) width = std::max(width, values_.output(i).size());

    const std::int64_t batch = batch_ = batch_size();
    auto is_batched = [&](const ir::Shape& s) {
      if (s.empty() || (!batch_symbol_.empty() && is_elsewhere(s, batch_symbol_))) return false;
      return batch_symbol_.empty() ? s[0] == ir::Dim(batch) : is_symbol(s[0], batch_symbol_);
    };
    auto c_type = [](std::string type) { return type.compare(0, 5, "std::") == 0 ? type.substr(5) : type; };
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ir::ValueId v = graph_.inputs[i];
      const std::string member = values_.member(v);
      const std::string type(public_type(graph_.type(v).dtype));
      TensorText t = tensor(v, member, width, is_batched(graph_.type(v).shape));
      t.classes = classes_of(graph_, plan_, v);
      // The run time lets pass what PyTorch's losses ignore unless told otherwise; 0 is a class, so no further label.
      const std::optional<std::int64_t> label = ignored_label(graph_, plan_, v);
      const std::int64_t ignored = label.value_or(t.classes == 0 ? -100 : 0);
      t.ignored = ignored == -100 ? "" : fmt::format(", .ignored = {}", ignored);
      const bool cast = type == "std::uint16_t";
      t.converted = cast ? fmt::format("static_cast<const {}*>(static_cast<const void*>({}))",
                                       element_type(graph_.type(v).dtype), member)
                         : member;
      if (is_pipeline()) t.stages = join(stages_of_input(v));
      out_.signature.inputs.push_back(t);
      parameters.push_back(fmt::format("const {}* {}", type, member));
      c_parameters.push_back(fmt::format("const {}* {}", c_type(type), member));
      names.push_back(member);
      erased.push_back(fmt::format("static_cast<const {}*>(inputs[{}])", type, i));
    }
    const ir::SizeRules rules = ir::size_rules(graph_);
    for (const ir::SizeBound& bound : rules.bounds)
      out_.signature.size_bounds.push_back({values_.dimension(bound.size), bound.size.to_string(), bound.least});
    std::vector<std::string> identifiers;
    for (const Symbol& s : values_.symbols()) {
      identifiers.push_back(s.identifier);
      out_.signature.symbols.push_back(
          {s.identifier, rules.find(s.name)->least, s.least, s.maximum, extent_.symbols.at(s.name)});
      parameters.push_back("std::int64_t " + s.identifier);
      c_parameters.push_back("int64_t " + s.identifier);
      names.push_back(s.identifier);
      if (s.name == batch_symbol_) {
        erased.emplace_back("batch");
        continue;
      }
      erased.push_back(fmt::format("sizes_[{}]", others.size()));
      described.push_back(fmt::format("{{{}, {}}}", string_literal(s.name), s.maximum));
      largest.push_back(fmt::format("{}", s.maximum));
      others.push_back(s.name);
    }
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ir::ValueId v = graph_.outputs[i];
      const std::string& member = values_.output(i);
      const std::string type(public_type(graph_.type(v).dtype));
      TensorText t = tensor(v, member, width, is_batched(graph_.type(v).shape));
      t.in_instance = values_.expression_in("instance.", v);
      t.writable = values_.writable_expression_in("memory_->", v);
      const bool cast = type == "std::uint16_t";
      t.converted =
          cast ? fmt::format("static_cast<{}*>(static_cast<void*>({}))", element_type(graph_.type(v).dtype), member)
               : member;
      out_.signature.outputs.push_back(t);
      outputs.push_back(fmt::format("{}* {}", type, member));
      c_outputs.push_back(fmt::format("{}* {}", c_type(type), member));
      output_names.push_back(member);
      again.push_back(member + "_again");
      erased_outputs.push_back(fmt::format("static_cast<{}*>(outputs[{}])", type, i));
    }
    if (graph_.inputs.empty())
      throw UserError(out_.names.training
                          ? "a training graph without inputs cannot be emitted: there would be no samples to train on"
                          : "a graph without inputs cannot be emitted: it would compute the same at each call");
    if (graph_.outputs.empty() && !out_.names.training) throw UserError("a graph without outputs computes nothing");
    out_.signature.parameters = join(parameters);
    out_.signature.c_parameters = join(c_parameters);
    out_.signature.argument_names = join(names);
    out_.signature.symbol_list = join(identifiers);
    out_.signature.output_parameters = join(outputs);
    out_.signature.c_output_parameters = join(c_outputs);
    out_.signature.output_names = join(output_names);
    out_.signature.output_names_again = join(again);
    out_.signature.erased_arguments = join(erased);
    out_.signature.erased_outputs = join(erased_outputs);
    out_.signature.other_symbols = others;
    out_.signature.described_symbols = join(described);
    out_.signature.largest_sizes = join(largest);
    // Values that the samples of a call have a part in.
    std::vector<bool> depends(graph_.values.size(), false);
    for (const ir::ValueId v : graph_.inputs) {
      const ir::Shape& shape = graph_.type(v).shape;
      depends[at(v)] = is_batched(shape) || (!counted_.empty() && is_elsewhere(shape, counted_));
      if (!options_.jit_entry && !batch_dimensions(shape).empty())
        out_.notes.push_back(fmt::format(
            "the program cannot be fed: the input '{}' {} has the batch elsewhere than as its first dimension; the "
            "library (model.h) takes it",
            graph_.value(v).name, graph_.type(v).to_string()));
    }
    for (const ir::Node& n : graph_.nodes)
      if (std::any_of(n.inputs.begin(), n.inputs.end(),
                      [&](ir::ValueId v) { return v != ir::kNone && depends[at(v)]; }))
        for (const ir::ValueId v : n.outputs) depends[at(v)] = true;
    // As the programs know them: the batch, and the others by their place in a list.
    const auto size_in_program = [&](const ir::Symbol& symbol) {
      if (symbol.name == batch_symbol_) return std::string("batch");
      return fmt::format("size[{}]", std::find(others.begin(), others.end(), symbol.name) - others.begin());
    };
    const auto say_symbolic = [&](std::vector<TensorText>& tensors, const std::vector<ir::ValueId>& values,
                                  bool are_inputs) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::vector<std::string> dimensions, computed;
        const ir::Shape& shape = graph_.type(values[i]).shape;
        for (std::size_t k = 0; k < shape.rank(); ++k) {
          if (shape[k].is_static()) continue;
          const std::optional<ir::Dim::Linear> linear = shape[k].linear();
          if (!linear) {
            const bool reads_batch = !batch_symbol_.empty() && shape[k].depends_on(batch_symbol_);
            const bool reads_sizes = shape[k].symbols().size() > (reads_batch ? 1U : 0U);
            computed.push_back(fmt::format("{{{}, [](std::int64_t{}, const std::int64_t*{}) {{ return {}; }}}}", k,
                                           reads_batch ? " batch" : "", reads_sizes ? " size" : "",
                                           shape[k].to_code(size_in_program)));
            continue;
          }
          const auto found = std::find(others.begin(), others.end(), linear->symbol.name);
          if (found == others.end()) continue;
          std::string text = fmt::format("{}, {}, {}", k, found - others.begin(), linear->coefficient);
          if (linear->offset != 0 || linear->symbol.least != 1)
            text += fmt::format(", {}, {}", linear->offset, linear->symbol.least);
          dimensions.push_back("{" + text + "}");
        }
        std::string text = dimensions.empty() ? std::string() : fmt::format(", .symbolic = {{{}}}", join(dimensions));
        if (!computed.empty()) text += fmt::format(", .computed = {{{}}}", join(computed));
        if (const std::vector<std::string> elsewhere = batch_dimensions(shape); !elsewhere.empty())
          text += fmt::format(", .batch_dimensions = {{{}}}", join(elsewhere));
        if (!are_inputs && !is_batched(shape) && !depends[at(values[i])]) text += ", .shared = true";
        tensors[i].symbolic = text;
      }
    };
    say_symbolic(out_.signature.inputs, graph_.inputs, true);
    say_symbolic(out_.signature.outputs, graph_.outputs, false);
    out_.signature.batch = batch;
    out_.signature.batch_if_passed = batch_symbol_.empty() ? " /* batch */" : " batch";
    out_.signature.batch_is_symbolic = !batch_symbol_.empty();
    // Statistics of a batch need more than one value a channel: where a sample has one, two samples.
    out_.signature.least_batch = batch_symbol_.empty() ? 1 : rules.find(batch_symbol_)->least;
  }

  /// The samples of a call: the maximum of the symbol that is an input's first dimension, or the first dimension of the
  /// first input that has one. Of several such symbols it is the first that no input has elsewhere.
  std::int64_t batch_size() {
    const auto is_elsewhere_in_one = [&](const std::string& symbol) {
      return std::any_of(graph_.inputs.begin(), graph_.inputs.end(),
                         [&](ir::ValueId v) { return is_elsewhere(graph_.type(v).shape, symbol); });
    };
    std::optional<ir::Symbol> batch;
    for (const ir::ValueId v : graph_.inputs) {
      const ir::Shape& s = graph_.type(v).shape;
      if (s.empty() || s[0].is_static()) continue;
      const ir::Symbol symbol = s[0].symbols()[0];
      if (!is_symbol(s[0], symbol.name)) continue;
      if (!batch || (is_elsewhere_in_one(batch->name) && !is_elsewhere_in_one(symbol.name))) batch = symbol;
    }
    if (batch) {
      batch_symbol_ = counted_ = batch->name;
      return batch->most;
    }
    // No input has a symbol there, but one may be called a batch: whatever a first dimension counts, it is not samples.
    for (const ir::ValueId v : graph_.inputs)
      for (const ir::Dim& d : graph_.type(v).shape)
        for (const ir::Symbol& s : d.symbols())
          if (counted_.empty() && s.name.find("batch") != std::string::npos) counted_ = s.name;
    for (const ir::ValueId v : graph_.inputs)
      if (const ir::Shape& s = graph_.type(v).shape; !s.empty() && s[0].is_static()) return s[0].value();
    return 1;
  }

  static bool is_symbol(const ir::Dim& d, const std::string& symbol) {
    const std::optional<ir::Dim::Linear> linear = d.linear();
    return linear && linear->is_symbol() && linear->symbol.name == symbol;
  }
  /// Whether the symbol is in a shape otherwise than as its first dimension.
  static bool is_elsewhere(const ir::Shape& shape, const std::string& symbol) {
    for (std::size_t k = 0; k < shape.rank(); ++k)
      if (shape[k].depends_on(symbol) && (k > 0 || !is_symbol(shape[k], symbol))) return true;
    return false;
  }

  /// Where the symbol stands, as {dimension, coefficient, offset} in C++; nothing where it is just the first dimension.
  static std::vector<std::string> dimensions_elsewhere(const ir::Shape& shape, const std::string& symbol) {
    std::vector<std::string> dimensions;
    if (!is_elsewhere(shape, symbol)) return dimensions;
    for (std::size_t k = 0; k < shape.rank(); ++k)
      if (const auto linear = shape[k].linear(); linear && linear->symbol.name == symbol)
        dimensions.push_back(linear->offset == 0
                                 ? fmt::format("{{{}, {}}}", k, linear->coefficient)
                                 : fmt::format("{{{}, {}, {}}}", k, linear->coefficient, linear->offset));
    return dimensions;
  }
  std::vector<std::string> batch_dimensions(const ir::Shape& shape) const {
    return counted_.empty() ? std::vector<std::string>() : dimensions_elsewhere(shape, counted_);
  }

  /// What users gave a name that the project cannot have is found under another one: they are told.
  void note_names() {
    if (options_.jit_entry) return;
    const std::string wanted = options_.name.empty() ? snake_case(graph_.name) : options_.name;
    if (name_ != wanted && !wanted.empty())
      out_.notes.push_back(
          fmt::format("the project, its library and its program are called '{}': '{}' is no identifier, or another "
                      "name that its code or its build has",
                      name_, comment_text(wanted)));
    const auto compare = [&](const char* what, const std::string& given, const std::string& name) {
      if (given != name)
        out_.notes.push_back(fmt::format("the {} '{}' is called '{}' in the project", what, comment_text(given), name));
    };
    for (const ir::ValueId v : graph_.inputs) compare("input", graph_.value(v).name, values_.member(v));
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      std::string path = values_.output_path(i);  // of nested keys and places, underscores are the rule
      std::replace(path.begin(), path.end(), '.', '_');
      compare("output", path, values_.output(i));
    }
    for (const Symbol& s : values_.symbols()) compare("size", s.name, s.identifier);
  }

  void memory() {
    std::vector<BlockLine> lines;
    auto add = [&](const char* macro, ir::ValueId v) { lines.push_back(parameter_line(macro, graph_, values_, v)); };
    // Constants of the evaluation that the training has not.
    auto only_evaluated = [&](const std::vector<ir::ValueId>& candidates) {
      std::vector<ir::ValueId> list;
      for (const ir::ValueId v : candidates)
        if (const ir::Value& value = evaluation_->graph.value(v);
            value.kind == ir::ValueKind::constant && value.name.rfind("evaluation.", 0) == 0)
          list.push_back(v);
      return list;
    };
    out_.memory.part_lines = part_lines(graph_);
    std::int64_t count = 0, bytes = 0;
    for (const ir::ValueId v : values_.stored()) {
      if (graph_.value(v).kind == ir::ValueKind::constant) out_.stored_constants.push_back(v);
      add(values_.has_gradient(v) ? "GRAVEN_PARAM" : "GRAVEN_FIXED", v);
      count += graph_.type(v).shape.numel().maximum();
      bytes += byte_count(graph_.type(v));
    }
    if (evaluation_)
      for (const ir::ValueId v : only_evaluated(evaluation_values_->stored()))
        lines.push_back(parameter_line("GRAVEN_FIXED", evaluation_->graph, *evaluation_values_, v));
    for (const ir::ValueId v : graph_.states) add("GRAVEN_STATE", v);
    for (const ir::ValueId v : values_.prepared()) add("GRAVEN_PREPARED", v);
    out_.memory.parameter_lines = marked_by_block(lines);
    out_.memory.nests = !values_.nesting().empty();
    out_.memory.parameter_count = count;
    out_.memory.parameter_bytes = bytes;
    out_.memory.has_weights = !values_.stored().empty();
    out_.memory.has_prepared = !values_.prepared().empty();
    out_.memory.example_path =
        graph_.parameters.empty() ? "model.weight" : comment_text(graph_.value(graph_.parameters[0]).name);

    auto add_constant = [&](const ir::Graph& graph, const ValueNames& values, ir::ValueId v) {
      out_.memory.inline_constants.push_back({std::string(element_type(graph.type(v).dtype)), values.member(v),
                                              constant_values(*graph.constants.at(v)),
                                              comment_text(graph.type(v).to_string() + " " + graph.value(v).name)});
    };
    for (const ir::ValueId v : values_.inline_constants()) add_constant(graph_, values_, v);
    if (evaluation_)
      for (const ir::ValueId v : only_evaluated(evaluation_values_->inline_constants()))
        add_constant(evaluation_->graph, *evaluation_values_, v);

    out_.memory.plan = plan_text(graph_, plan_, values_);
    out_.memory.alignment = plan_.alignment;
    out_.memory.plans = {{"end", "memory_plan.h", "kArenaBytes"}};
    out_.memory.evaluates_apart = evaluation_ != nullptr;
    if (!evaluation_) return;
    out_.memory.evaluation_plan = plan_text(evaluation_->graph, evaluation_->plan, *evaluation_values_);
    out_.memory.plans.push_back({"evaluation_end", "evaluation_plan.h", "kEvaluationBytes"});
  }

  /// What memory_plan.h says of one plan.
  PlanText plan_text(const ir::Graph& graph, const Plan& plan, const ValueNames& values) const {
    const bool is_step = &graph == &graph_;
    PlanText text{.subject = !is_step              ? "The arena of an evaluation, which lies in the memory of a step's"
                             : out_.names.training ? "The arena of a step"
                                                   : "The arena",
                  .constant = is_step ? "kArenaBytes" : "kEvaluationBytes",
                  .ends = is_step ? "end" : "evaluation_end",
                  .guard = upper(name_) + (is_step ? "_MEMORY_PLAN" : "_EVALUATION_PLAN"),
                  .arena_bytes = plan.arena_bytes(),
                  .lower_bound = plan.lower_bound(),
                  .memory_budget = options_.memory_budget};
    text.lines =
        arena_lines(graph, plan, values, text.ends, is_step ? written_.functions : written_.evaluation_functions);
    text.ratio = fmt::format("{:.3f}", plan.lower_bound() > 0 ? static_cast<double>(plan.arena_bytes()) /
                                                                    static_cast<double>(plan.lower_bound())
                                                              : 1.0);
    return text;
  }

  /// "sgd, momentum 0.9".
  static std::string description(const ir::Optimizer& optimizer) {
    if (optimizer.groups.size() != 1) return fmt::format("{}, {} groups", optimizer.kind, optimizer.groups.size());
    const ir::OptimizerKind& kind = ir::optimizer_kind(optimizer.kind);
    const std::string options =
        describe_options(ir::get_op(kind.op), ir::update_attributes(kind, optimizer.groups[0].options));
    return options.empty() ? optimizer.kind : optimizer.kind + ", " + options;
  }

  /// Leaves of a result that are keys of a map, or lie within one.
  static std::set<std::int32_t> named_leaves(const ir::Tree& tree, bool is_named = false) {
    if (tree.kind == ir::Tree::Kind::leaf) return is_named ? std::set{tree.index} : std::set<std::int32_t>();
    std::set<std::int32_t> leaves;
    for (const ir::Tree& child : tree.children)
      leaves.merge(named_leaves(child, is_named || tree.kind == ir::Tree::Kind::map));
    return leaves;
  }

  static LossText loss_text(const ir::Graph& graph, const ValueNames& values, ir::ValueId loss) {
    return {values.expression(loss), std::string(element_type(graph.type(loss).dtype))};
  }

  void optimizers() {
    std::vector<std::string> rates, descriptions;
    for (const ir::Optimizer& o : graph_.optimizers) {
      for (const ir::ParameterGroup& g : o.groups) {
        const auto lr = g.options.find("lr");
        rates.push_back(number_text(lr == g.options.end() ? 0 : lr->second));
        // A host program gives the rates of each step itself.
        const std::string schedule =
            options_.jit_entry ? std::string() : schedule_text(o.schedule, std::string(12, ' '));
        std::string plateau;
        if (!o.plateau.empty() && !options_.jit_entry)
          plateau = fmt::format(".plateau = {}, .min_lr = {}", out_.training.plateaus.size(),
                                number_text(o.plateau.at(ir::plateau_min_lr(&g - o.groups.data()))));
        out_.training.groups.push_back({rates.back(), schedule, plateau});
        if (!schedule.empty()) out_.training.has_schedule = true;
      }
      if (!o.plateau.empty() && !options_.jit_entry) out_.training.plateaus.push_back(plateau_text(o));
      descriptions.push_back(description(o));
    }
    out_.training.accumulation_steps = ir::accumulation_steps(graph_);
    if (const ir::ValueId scale = ir::loss_scale(graph_); scale != ir::kNone) {
      out_.training.scales_loss = true;
      out_.training.loss_scale = values_.expression(scale);
      out_.training.first_loss_scale = number_text(graph_.number(ir::kLossScale).value_or(1));
      std::vector<std::string> numbers;
      for (std::size_t o = 0; o < graph_.optimizers.size(); ++o) {
        const ir::ValueId skipped = graph_.find(std::string(ir::kSkippedState) + std::to_string(o));
        // An optimizer whose parameters no loss depends on skips what any other does.
        const std::size_t number = out_.training.skipped.size() - (skipped == ir::kNone && o > 0 ? 1 : 0);
        numbers.insert(numbers.end(), graph_.optimizers[o].groups.size(), std::to_string(number));
        if (skipped != ir::kNone) out_.training.skipped.push_back(values_.expression(skipped));
      }
      out_.training.optimizers_of_groups = join(numbers);
      list_unscaled_gradients(graph_, out_.training);
    }
    out_.training.group_count = static_cast<std::int64_t>(rates.size());
    out_.training.learning_rates = join(rates);
    optimizer_text_ = join(descriptions, "; ");

    // The loss: the sum of all that backward() was called on.
    for (const ir::Loss& l : graph_.losses)
      if (graph_.type(l.value).shape.numel() == ir::Dim(1)) {
        out_.training.losses.push_back(loss_text(graph_, values_, l.value));
        if (is_pipeline()) out_.training.losses.back().stage = stage_of(*staged_, l.value);
      }
    // What the program's log shows beside the loss: the other results of one number. Of several losses each is one.
    std::vector<std::string> logged, shown;
    const std::set<std::int32_t> named = named_leaves(graph_.output_tree);
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ir::ValueId v = graph_.outputs[i];
      const bool is_loss = out_.training.losses.size() == 1 && root(plan_, graph_.losses[0].value) == root(plan_, v);
      if (graph_.type(v).shape.rank() == 0 && !is_loss) {
        if (named.count(static_cast<std::int32_t>(i))) shown.push_back(std::to_string(logged.size()));
        logged.push_back(fmt::format("results[{}]", i));
        out_.pipeline.numbers_of_stages.push_back(loss_text(graph_, values_, v));
        if (is_pipeline()) out_.pipeline.numbers_of_stages.back().stage = stage_of(*staged_, v);
      }
    }
    out_.training.logs_results = !logged.empty();
    out_.training.logged_results = "{" + join(logged) + "}";
    out_.training.shown_results = join(shown);
    std::string loss = "loss";
    for (const ir::Node& n : graph_.nodes)
      if (!n.outputs.empty() && !graph_.losses.empty() && root(plan_, graph_.losses[0].value) == n.outputs[0])
        loss = describe_node(graph_, n);
    out_.training.loss_literal = string_literal(loss);
    out_.training.random = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), ir::is_random);
    // Of several parts backward alone has the number where nothing is random.
    out_.training.drawn_by = accumulates_ && !out_.training.random ? "" : ", own.numbers.random()";
  }

  /// The losses of an evaluation, and the scores of the classes where its labels are an input.
  void evaluation_results() {
    out_.training.has_evaluation = !evaluation_unknown_ && !graph_.losses.empty();
    const ir::Graph& graph = evaluation_ ? evaluation_->graph : graph_;
    const Plan& plan = evaluation_ ? evaluation_->plan : plan_;
    const ValueNames& values = evaluation_ ? *evaluation_values_ : values_;
    std::vector<ir::ValueId> losses;
    if (evaluation_) {
      for (std::size_t i = 0; i < graph.outputs.size(); ++i)
        if (graph.output_tree.keys.at(i) != "scores") losses.push_back(graph.outputs[i]);
    } else {
      for (const ir::Loss& l : graph.losses)
        if (graph.type(l.value).shape.numel() == ir::Dim(1)) losses.push_back(l.value);
    }
    bool sums = !losses.empty();
    for (const ir::ValueId loss : losses) {
      out_.training.evaluation_losses.push_back(loss_text(graph, values, loss));
      if (is_pipeline()) out_.training.evaluation_losses.back().stage = stage_of(evaluated_in_stages(), loss);
      bool sum = false;
      for (const ir::Node& n : graph.nodes) {
        if (n.outputs.empty() || root(plan, loss) != n.outputs[0]) continue;
        const ir::Attribute* reduction = n.attributes.find("reduction");
        sum = n.is(ir::kSum) ||
              (reduction && std::get_if<std::string>(reduction) && std::get<std::string>(*reduction) == "sum");
      }
      sums = sums && sum;
    }
    out_.training.loss_is_sum = sums;
    const std::optional<std::size_t> ignorable =
        batch_symbol_.empty() ? ignorable_labels(graph, plan, losses, batched_inputs()) : std::nullopt;
    // It is the one that main.cpp states, of all that reads the labels in training.
    if (ignorable && ignored_label(graph, plan, graph.inputs[*ignorable]) ==
                         ignored_label(graph_, plan_, graph_.inputs.at(*ignorable)))
      out_.training.ignorable_labels = fmt::format("{}", *ignorable);

    if (losses.size() != 1) return;
    for (const ir::Node& n : graph.nodes) {
      // A loss from labels, beside which the probabilities of the classes stay; or one of ranks with some classes each.
      const auto spec = std::find_if(n.op->inputs.begin(), n.op->inputs.end(),
                                     [](const ir::InputSpec& i) { return i.classes_of >= 0; });
      const auto probabilities = std::find(n.op->outputs.begin(), n.op->outputs.end(), "probabilities");
      if (n.phase != ir::Phase::forward) continue;
      if (evaluation_ && n.is(ir::kIndexOnRank) && n.attributes.flag("ignores")) {
        list_scores(graph, plan, values, n.inputs[0], ir::scores_of(graph), n.attributes.integer("size"));
      } else if (spec != n.op->inputs.end() && probabilities != n.op->outputs.end() &&
                 root(plan, losses[0]) == n.outputs[0]) {
        // The logits of an evaluation are kept; of a training's forward phase, whose backward phase reads them, the
        // probabilities are.
        const ir::ValueId beside = n.outputs[static_cast<std::size_t>(probabilities - n.op->outputs.begin())];
        const ir::ValueId scores = evaluation_ ? graph.outputs.back() : beside;
        list_scores(graph, plan, values, n.inputs[static_cast<std::size_t>(spec - n.op->inputs.begin())], scores,
                    graph.type(scores).shape.back().maximum());
      }
    }
  }
  std::vector<bool> batched_inputs() const {
    std::vector<bool> batched;
    for (const TensorText& input : out_.signature.inputs) batched.push_back(input.batched);
    return batched;
  }
  /// Of labels that are an input: the accuracy, by scores [rows, classes]; of ranks that have some of the classes each,
  /// `own` is how many.
  void list_scores(const ir::Graph& graph, const Plan& plan, const ValueNames& values, ir::ValueId labels,
                   ir::ValueId scores, std::int64_t own) {
    if (scores == ir::kNone || !out_.training.scores.empty()) return;
    const auto input = std::find_if(graph.inputs.begin(), graph.inputs.end(), [&](ir::ValueId v) {
      return ir::is_integral(graph.type(v).dtype) && elements_of(graph, plan, v, Moves::in_order)(labels);
    });
    if (input == graph.inputs.end()) return;
    const ir::TensorType type = graph.type(scores);
    const ir::ValueId kept = root(plan, scores);
    const Placement& place = plan.placements[at(kept)];
    if (type.shape.rank() != 2 || (type.dtype != ir::DType::f32 && type.dtype != ir::DType::f64)) return;
    if (place.home == Home::arena ? place.buffer < 0 : place.home != Home::parameter && place.home != Home::input)
      return;
    const std::int64_t rows = type.shape[0].maximum(), batch = std::max<std::int64_t>(1, batch_);
    if (rows % batch != 0) return;
    out_.training.scores.push_back({.element = std::string(element_type(type.dtype)),
                                    .dtype = std::string(ir::name(type.dtype)),
                                    .maxima = maxima(type.shape),
                                    .tested = tested(type.shape),
                                    .expression = values.expression(kept),
                                    .writable = values.writable_expression_in("", kept),
                                    .storage = std::max<std::int64_t>(1, type.shape.numel().maximum())});
    if (is_pipeline()) out_.training.scores.back().stage = stage_of(evaluated_in_stages(), kept);
    out_.training.has_accuracy = true;
    out_.training.score_type = public_type(type.dtype);
    out_.training.label_input = input - graph.inputs.begin();
    out_.training.label_type = public_type(graph.type(*input).dtype);
    out_.training.classes = type.shape.back().maximum();
    const bool in_parts = out_.names.tensor_ranks > 1 && classes_of(graph, plan, *input) > out_.training.classes;
    out_.training.own_classes = in_parts ? own : 0;
    if (in_parts) out_.training.classes = own * out_.names.tensor_ranks;
    if (const std::string& header = in_parts ? style_.team_predictions_header : style_.predictions_header;
        !header.empty())
      style_.api_headers.push_back(header);
    out_.training.times_rows_per_sample = rows == batch ? std::string() : fmt::format(" * {}", rows / batch);
    out_.training.count_if_used = " count";
  }

  /// The calls, those of repeated blocks as functions, but for host programs, which are compiled and not read.
  void write_calls() {
    const WrittenGraph main{graph_, plan_, values_};
    std::optional<WrittenGraph> evaluation;
    if (evaluation_) evaluation.emplace(WrittenGraph{evaluation_->graph, evaluation_->plan, *evaluation_values_});
    const std::unordered_set<std::string> reserved = {style_.execution_name, name_};
    // Functions of blocks are templates of one file, and stages have several.
    written_ = options_.jit_entry || is_pipeline()
                   ? plain_calls(main, evaluation, style_.calls)
                   : block_calls(main, evaluation, style_.calls, reserved, kCallsPerFile);
  }

  void calls() {
    Calls &calls = written_.calls, &evaluation = written_.evaluation;
    const std::set<std::string> training_headers = calls.headers;
    calls.headers.insert(evaluation.headers.begin(), evaluation.headers.end());
    calls.config_headers.insert(evaluation.config_headers.begin(), evaluation.config_headers.end());
    const bool functors_in_training = !calls.functors.empty();
    calls.functors.insert(evaluation.functors.begin(), evaluation.functors.end());
    for (const std::string& h : calls.headers) out_.headers.push_back(h);
    for (const std::string& h : calls.config_headers) out_.headers.push_back(h);
    out_.calls.config_headers.assign(calls.config_headers.begin(), calls.config_headers.end());
    if (!out_.memory.inline_constants.empty()) {  // the names of their types
      out_.calls.config_headers.push_back("kernels/cpu/dtype.h");
      out_.headers.push_back("kernels/cpu/dtype.h");
    }
    for (const auto& [name, text] : calls.config_structs) out_.calls.config_structs.push_back(text);
    SharedConfigs shared = shared_configs(calls.configs, [](const std::string&) { return std::string(); });
    SharedConfigs evaluated = shared_configs(evaluation.configs, [&](const std::string& block) {
      const auto of = shared.first.find(block);
      return of == shared.first.end() ? std::string() : of->second;
    });
    calls.configs = std::move(shared.lines);
    evaluation.configs = std::move(evaluated.lines);
    const auto head_of = [](const SharedConfigs& of, const std::string& block) {
      const auto rest = of.rest_from.find(block);
      return "struct " + block + (rest == of.rest_from.end() ? "" : " : " + rest->second) + " {";
    };
    const auto head = [&](const std::string& block) { return head_of(shared, block); };
    const auto added = [&](const std::string& block) {
      return shared.first.count(block) ? "struct " + block + " : config::" + block + " {" : head_of(evaluated, block);
    };
    const auto tail = [](const std::string&) { return std::string("};"); };
    out_.calls.configs = lines_by_block(calls.configs, head, tail);
    out_.calls.evaluation_configs = lines_by_block(evaluation.configs, added, tail);
    const auto is_wrapped = [](const std::vector<BlockLine>& configs) {
      return std::any_of(configs.begin(), configs.end(), [](const BlockLine& c) { return c.is_wrapped; });
    };
    out_.calls.wrapped_configs = is_wrapped(calls.configs) || is_wrapped(evaluation.configs);
    for (const auto& [name, functor] : calls.functors) out_.calls.functors.push_back(functor.text);
    out_.calls.has_functors = !calls.functors.empty();
    out_.calls.relu_trait = calls.functors.count("relu") ? style_.relu_trait : std::string();
    for (const TargetLibrary& library : style_.libraries)
      if (library.kernels.empty() ||
          std::any_of(library.kernels.begin(), library.kernels.end(),
                      [&](const std::string& file) { return calls.headers.count(file) != 0; }))
        out_.calls.libraries.push_back(library.name);
    out_.calls.uses_configs =
        !calls.configs.empty() || !evaluation.configs.empty() || !out_.memory.inline_constants.empty();

    const std::vector<std::string> headers = includes(functors_in_training, training_headers);

    const std::size_t total = call_count(calls);
    const std::size_t prepared = call_count(calls, ir::Phase::prepare);
    out_.calls.call_count = fmt::format("{} kernel call{}", total - prepared, total - prepared == 1 ? "" : "s") +
                            (prepared == 0 ? "" : fmt::format(", and {} once after the weights were loaded", prepared));
    out_.calls.unit = out_.names.training ? "step" : "call";
    out_.calls.flops_text = quantity(plan_.flops, "FLOP");
    out_.calls.bytes_text = quantity(plan_.bytes, "B");
    ModelFile main{.path = "model" + style_.model_extension, .is_main = true, .headers = headers};
    out_.calls.block_functions = add_blocks(main, "Calls", written_.functions);
    const bool split = !is_pipeline() && written_calls(calls, written_.functions) > kCallsPerFile;
    std::vector<ModelFile> others;
    for (const ir::Phase phase : {ir::Phase::prepare, ir::Phase::forward, ir::Phase::backward, ir::Phase::update}) {
      const bool may_be_empty =
          phase == ir::Phase::forward || (out_.names.training && !(phase == ir::Phase::update && updates_in_backward_));
      const bool wanted = calls.phases.count(phase) != 0 || (phase != ir::Phase::prepare && may_be_empty);
      if (!wanted) continue;
      const std::string name(ir::name(phase));
      const std::vector<Call>& list = calls.phases[phase];
      const std::vector<std::string> parts =
          is_pipeline() ? add_stages(main, others, "Calls", name, title(phase), phase, list)
                        : add_function(main, others, "model", "Calls", name, title(phase), list, split);
      out_.calls.functions.push_back({name, parts});
      const bool of_last_part = phase == ir::Phase::update && accumulates_;
      if (phase != ir::Phase::prepare && !of_last_part) out_.calls.step_functions.push_back(name);
    }
    out_.calls.has_update = !updates_in_backward_ || calls.phases.count(ir::Phase::update) != 0;
    out_.calls.has_prepare = calls.phases.count(ir::Phase::prepare) != 0;
    if (split || is_pipeline()) main.headers.clear();
    out_.calls.split = split;
    if (evaluation_) {
      out_.calls.evaluation_call_count = call_count(evaluation);
      out_.calls.evaluation_flops_text = quantity(evaluation_->plan.flops, "FLOP");
      out_.calls.evaluation_bytes_text = quantity(evaluation_->plan.bytes, "B");
    }
    if (evaluation_ && is_pipeline())
      out_.calls.evaluation_parts = add_stages(main, others, "EvaluationCalls", "evaluate", double_rule("evaluate"),
                                               ir::Phase::forward, evaluation.phases[ir::Phase::forward]);
    out_.files.push_back(std::move(main));
    if (evaluation_ && !is_pipeline()) {
      const std::vector<Call>& list = evaluation.phases[ir::Phase::forward];
      const std::vector<std::string> own = includes(!evaluation.functors.empty(), evaluation.headers);
      const bool long_evaluation = written_calls(evaluation, written_.evaluation_functions) > kCallsPerFile;
      ModelFile file{.path = "evaluation" + style_.model_extension, .headers = own};
      out_.calls.evaluation_block_functions = add_blocks(file, "EvaluationCalls", written_.evaluation_functions);
      out_.calls.evaluation_parts = add_function(file, others, "evaluation", "EvaluationCalls", "evaluate",
                                                 double_rule("evaluate"), list, long_evaluation);
      if (long_evaluation) file.headers.clear();
      out_.files.push_back(std::move(file));
    }
    for (ModelFile& f : others) out_.files.push_back(std::move(f));
    list_measured(calls.measured, {});
    list_measured(evaluation.measured, "evaluate");
    out_.calls.measured_at_largest = !graph_.symbols().empty();
    out_.measured = std::move(calls.measured);
    std::vector<std::string> sources;
    for (const ModelFile& f : out_.files) sources.push_back(f.path);
    out_.calls.model_sources = join(sources, " ");
  }

  /// The lines of calls.h. `function`: which makes all of them; empty: that of their phase.
  void list_measured(std::vector<MeasuredCall> calls, const std::string& function) {
    // A pipeline's phases go from stage to stage, backward from the last one.
    if (is_pipeline())
      std::stable_sort(calls.begin(), calls.end(), [](const MeasuredCall& a, const MeasuredCall& b) {
        const auto place = [](const MeasuredCall& c) {
          return std::tuple(c.phase, c.second_round, c.phase == ir::Phase::backward ? -c.stage : c.stage);
        };
        return place(a) < place(b);
      });
    for (const MeasuredCall& c : calls)
      out_.calls.measured_lines.push_back(fmt::format(
          "GRAVEN_CALL({}, {}, {}, {}, {:.17g}, {:.17g})", function.empty() ? ir::name(c.phase) : function,
          string_literal(c.module), string_literal(c.description), string_literal(c.types), c.flops, c.bytes));
  }

  /// The kernel calls of a phase, or of all.
  static std::size_t call_count(const Calls& calls, std::optional<ir::Phase> of = {}) {
    std::size_t count = 0;
    for (const auto& [phase, list] : calls.phases)
      for (const Call& call : list)
        if (!of || phase == *of) count += call.kernel_calls;
    return count;
  }

  /// The functions of blocks stand before the calls of them. Returns how program.h declares them.
  std::vector<BlockText> add_blocks(ModelFile& file, const char* owner,
                                    const std::vector<BlockFunction>& blocks) const {
    std::vector<BlockText> declared;
    for (const BlockFunction& b : blocks) {
      const std::string parameters = join(b.parameters);
      const std::string head = b.uses_config ? "template <class Config>" : "";
      file.functions.push_back({.owner = owner,
                                .name = b.name,
                                .head = head,
                                .parameters = parameters,
                                .title = double_rule(comment_text(ir::braced(b.modules))),
                                .groups = groups(b.calls, 0, b.calls.size())});
      declared.push_back({head, fmt::format("void {}({}) const;", b.name, parameters)});
    }
    return declared;
  }

  /// What a file of calls includes: of the project, then of the kernels.
  std::vector<std::string> includes(bool functors, const std::set<std::string>& kernels) const {
    std::vector<std::string> list;
    if (out_.calls.uses_configs) list.emplace_back("configs.h");
    if (functors) list.emplace_back("functors.h");
    list.insert(list.end(), kernels.begin(), kernels.end());
    return list;
  }

  /// The same, of the calls from `begin` to `end`.
  std::vector<std::string> used_headers(const std::vector<Call>& list, std::size_t begin, std::size_t end) const {
    std::set<std::string> kernels;
    bool functors = false;
    for (std::size_t i = begin; i < end; ++i) {
      kernels.insert(list[i].headers.begin(), list[i].headers.end());
      functors = functors || list[i].uses_functor;
    }
    return includes(functors, kernels);
  }

  /// Adds a function of the calls to `main`; when they are many, as calls of its parts, which get files of their own.
  /// Returns the parts' names.
  std::vector<std::string> add_function(ModelFile& main, std::vector<ModelFile>& others, const std::string& file_stem,
                                        const char* owner, const std::string& name, const std::string& title,
                                        const std::vector<Call>& list, bool split) const {
    FunctionText function{.owner = owner, .name = name, .title = title};
    const auto copies = [&](std::size_t begin, std::size_t end) {
      return std::any_of(list.begin() + static_cast<std::ptrdiff_t>(begin),
                         list.begin() + static_cast<std::ptrdiff_t>(end), [](const Call& c) { return c.is_copy; });
    };
    if (!split) {
      function.groups = groups(list, 0, list.size());
      if (copies(0, list.size())) main.copy_header = style_.calls.copy_header;
    } else {
      for (std::size_t begin = 0, part = 1; begin < list.size(); begin += kCallsPerFile, ++part) {
        const std::size_t end = std::min(list.size(), begin + kCallsPerFile);
        const std::string part_name = fmt::format("{}_{}", name, part);
        function.parts.push_back(part_name);
        ModelFile file{.path = fmt::format("{}_{}{}", file_stem, part_name, style_.model_extension),
                       .headers = used_headers(list, begin, end)};
        file.functions.push_back({.owner = owner,
                                  .name = part_name,
                                  .title = fmt::format("{}, part {}", name, part),
                                  .groups = groups(list, begin, end)});
        if (copies(begin, end)) file.copy_header = style_.calls.copy_header;
        others.push_back(std::move(file));
      }
    }
    std::vector<std::string> parts = function.parts;
    main.functions.push_back(std::move(function));
    return parts;
  }

  // ---- stages of a pipeline

  bool is_pipeline() const { return out_.pipeline.pipeline; }
  /// The stages that read an input, in training or when they evaluate.
  std::vector<std::string> stages_of_input(ir::ValueId v) const {
    std::set<std::int32_t> stages;
    for (const auto* staged : {&staged_, &staged_evaluation_}) {
      const ir::ValueId own = *staged ? (*staged)->graph.find(graph_.value(v).name) : ir::kNone;
      if (own == ir::kNone) continue;
      const std::vector<std::vector<std::int32_t>> have = ir::stages_of_variables((*staged)->graph);
      stages.insert(have[at(own)].begin(), have[at(own)].end());
    }
    std::vector<std::string> list;
    for (const std::int32_t stage : stages) list.push_back(std::to_string(stage));
    return list;
  }

  const StagedGraph& evaluated_in_stages() const { return staged_evaluation_ ? *staged_evaluation_ : *staged_; }

  /// A phase as calls of the stages' parts of it, each in its stage's file. `owner`: whose functions they are, the
  /// training's or the evaluation's. Returns the parts' names, in the order in which they run.
  std::vector<std::string> add_stages(ModelFile& main, std::vector<ModelFile>& files, const char* owner,
                                      const std::string& name, const std::string& title, ir::Phase phase,
                                      const std::vector<Call>& list) {
    FunctionText function{.owner = owner, .name = name, .title = title};
    const std::int32_t count = ir::count_stages(graph_);
    std::vector<std::string> seconds;
    if (phase == ir::Phase::update)
      out_.pipeline.has_norms = std::any_of(list.begin(), list.end(), [](const Call& c) { return c.second_round; });
    for (std::int32_t stage = 0; stage < count; ++stage) {
      if (std::cmp_equal(out_.pipeline.stages.size(), stage))
        out_.pipeline.stages.push_back(
            {.number = stage, .path = fmt::format("stage_{}{}", stage, style_.model_extension)});
      StageText& text = out_.pipeline.stages[at(stage)];
      std::string& own = name == "evaluate"             ? text.evaluate
                         : phase == ir::Phase::forward  ? text.forward
                         : phase == ir::Phase::backward ? text.backward
                                                        : text.update;
      own = fmt::format("{}_stage_{}", name, stage);
      auto file = std::find_if(files.begin(), files.end(), [&](const ModelFile& f) { return f.path == text.path; });
      if (file == files.end()) file = files.insert(files.end(), ModelFile{.path = text.path});
      const auto add = [&](const std::string& part, bool second_round) {
        std::vector<Call> calls;
        for (const Call& call : list)
          if (call.stage == stage && call.second_round == second_round) calls.push_back(call);
        for (const std::string& header : used_headers(calls, 0, calls.size()))
          if (std::find(file->headers.begin(), file->headers.end(), header) == file->headers.end())
            file->headers.push_back(header);
        if (std::any_of(calls.begin(), calls.end(), [](const Call& c) { return c.is_copy; }))
          file->copy_header = style_.calls.copy_header;
        std::string words = part;
        std::replace(words.begin(), words.end(), '_', ' ');
        file->functions.push_back(
            {.owner = owner, .name = part, .title = double_rule(words), .groups = groups(calls, 0, calls.size())});
      };
      if (phase == ir::Phase::update && out_.pipeline.has_norms) {
        text.norms = fmt::format("norms_stage_{}", stage);
        add(text.norms, false);
        function.parts.push_back(text.norms);
        add(own, true);
        seconds.push_back(own);
      } else {
        add(own, false);
        function.parts.push_back(own);
      }
      // The project's own first, as in every file of calls.
      std::sort(file->headers.begin(), file->headers.end(), [](const std::string& x, const std::string& y) {
        return std::pair(x.starts_with("kernels/"), std::string_view(x)) <
               std::pair(y.starts_with("kernels/"), std::string_view(y));
      });
    }
    function.parts.insert(function.parts.end(), seconds.begin(), seconds.end());
    if (phase == ir::Phase::backward) std::reverse(function.parts.begin(), function.parts.end());
    std::vector<std::string> parts = function.parts;
    main.functions.push_back(std::move(function));
    return parts;
  }

  /// How many calls there are is said once, in the README: another call changes its own lines.
  std::string title(ir::Phase phase) const {
    std::string text(ir::name(phase));
    if (phase == ir::Phase::prepare) text += ", once after the weights were loaded";
    if (phase == (updates_in_backward_ ? ir::Phase::backward : ir::Phase::update) && !optimizer_text_.empty())
      text += ": " + optimizer_text_;
    return double_rule(text);
  }

  static std::string double_rule(const std::string& title) {
    std::string text = title + " ";
    if (text.size() < 110) text.append(110 - text.size(), '=');
    return text;
  }

  /// In columns: what it does, on what, and the line of the user's program. What runs over its column pushes the rest
  /// to the right by as little as it can.
  static std::string call_comment(const Call& call) {
    std::string comment = fmt::format("{:<{}}", comment_text(call.description), kTypesColumn);
    if (!call.types.empty()) comment += " " + comment_text(call.types);
    if (!call.location.empty()) comment = fmt::format("{:<{}} {}", comment, kPlaceColumn, comment_text(call.location));
    while (!comment.empty() && comment.back() == ' ') comment.pop_back();
    return comment;
  }

  std::vector<CallGroup> groups(const std::vector<Call>& list, std::size_t begin, std::size_t end) const {
    std::vector<CallGroup> result;
    for (std::size_t i = begin; i < end;) {
      CallGroup group;
      if (list[i].is_block()) {  // one after the other, each a line or two
        for (; i < end && list[i].is_block(); ++i) group.calls.push_back({call_comment(list[i]), list[i].lines()});
        result.push_back(std::move(group));
        continue;
      }
      std::vector<std::string> modules;  // the owner's, and those whose operators its calls took in
      const std::string owner = list[i].owner();
      // What is computed again is one group, of whatever modules.
      const bool again = list[i].recomputes;
      const auto belongs = [&](const Call& call) {
        return !call.is_block() && call.recomputes == again && (again || call.owner() == owner);
      };
      for (; i < end && belongs(list[i]); ++i) {
        for (const std::string& m : list[i].modules) {
          const bool encloses = owner != m && ir::is_within(owner, m);
          if (!encloses && std::find(modules.begin(), modules.end(), m) == modules.end()) modules.push_back(m);
        }
        group.calls.push_back({call_comment(list[i]), list[i].lines()});
      }
      if (modules.size() > kModulesPerBanner) {
        // A block's modules by the block; what has no more in common than the network, by the first of them.
        const std::string block = ir::common_module(modules);
        if (block.find('.') != std::string::npos)
          modules = {block};
        else
          modules.resize(kModulesPerBanner), modules.emplace_back("...");
      }
      if (again)
        group.banner = rule("-", "recompute " + comment_text(ir::braced(modules)) + ": not kept, to save memory");
      else
        group.banner = modules.empty() ? std::string() : rule("-", comment_text(ir::braced(modules)));
      result.push_back(std::move(group));
    }
    return result;
  }

  void program() {
    auto list = [](const std::vector<double>& numbers) {
      std::vector<std::string> items;
      for (const double n : numbers) items.push_back(number_text(n));
      return join(items);
    };
    out_.defaults.mean = list(options_.mean);
    out_.defaults.std = list(options_.std);
    out_.defaults.data_literal = string_literal(options_.data);
    out_.defaults.test_data_literal = string_literal(options_.test_data);
    out_.defaults.epochs = options_.epochs;
    const int threads = options_.threads != 0 ? options_.threads : ir::tuned_threads(graph_);
    out_.defaults.threads = threads;
    out_.defaults.threads_default =
        threads != 0 && !style_.on_device ? fmt::format(".threads = {}, ", threads) : std::string();
    out_.defaults.seed = options_.seed;
    out_.defaults.shuffle = options_.shuffle;
    out_.defaults.recorded = extent_.recorded;
    out_.memory.has_states = !graph_.states.empty();
  }

  const ir::Graph& graph_;
  const Plan& plan_;
  const Evaluation* evaluation_;
  bool evaluation_unknown_;
  bool updates_in_backward_ = false;
  bool accumulates_ = false;  ///< a step may have several parts
  const EmitOptions& options_;
  const Extent& extent_;
  ValueNames values_;
  std::optional<ValueNames> evaluation_values_;
  TargetStyle style_;
  ProjectData out_;
  BlockCalls written_;
  std::int64_t batch_ = 1;
  std::optional<StagedGraph> staged_, staged_evaluation_;  ///< of a pipeline
  std::string name_, batch_symbol_, optimizer_text_;
  std::string counted_;  ///< the batch symbol, or one that is called so and is no input's first dimension
};

}  // namespace

std::string project_name(const ir::Graph& graph, const EmitOptions& options) {
  std::string name = snake_case(options.name.empty() ? graph.name : options.name);
  name = identifier(name.empty() ? "network" : name);
  // A namespace may not have the name of a kernel or a functor, of what the project's files declare beside it, nor of
  // anything of the C library; <unistd.h> has macros F_OK, R_OK, W_OK and X_OK. The program may not have the name of a
  // target that CMake makes, or of a folder that it fills.
  static constexpr std::string_view kTaken[] = {
#include "codegen/emit/c_library_names.inc"
      "f", "r", "w", "x", "train", "infer",
      // templates/project/*/selftest.cpp, main.cpp and c_interface.inc; tests/emit/hostile_names_test.cpp says which
      // are missing
      "allowance", "bytes", "dtype_of", "guarded", "largest", "largest_of_all", "last_error", "missing", "variables",
      // of the build folder
      "all", "all_build", "clean", "default_target", "depend", "edit_cache", "help", "include", "install",
      "list_install_components", "package", "package_source", "preinstall", "rebuild_cache", "run_tests", "selftest",
      "test", "zero_check"};
  if (name.starts_with("cmake_") || is_name_of_kernels(name) ||
      std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken))
    name += "_model";
  return name;
}

ProjectData make_project_data(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation,
                              bool evaluation_unknown, const EmitOptions& options, const Extent& extent,
                              const std::string& graph_hash) {
  return Builder(graph, plan, evaluation, evaluation_unknown, options, extent, graph_hash).take();
}

}  // namespace graven::codegen
