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
#include "codegen/emit/embedded.h"
#include "codegen/emit/schedule_text.h"
#include "codegen/emit/text.h"
#include "codegen/kernel_flags.h"
#include "codegen/plan/storage.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/passes.h"
#include "ir/sizes.h"

namespace graven::codegen {

namespace {

using nlohmann::json;

constexpr std::size_t kCallsPerFile = 1000;
constexpr std::size_t kModulesPerBanner = 6;
constexpr int kTypesColumn = 50, kPlaceColumn = 106;  // of a call's comment
// Columns of params.h and of the plans. They are where they are whatever else stands in the file, so that a longer name
// moves its own line alone.
constexpr int kParameterColumn = 48, kPathColumn = 54, kShapeColumn = 96, kValueColumn = 58, kBytesColumn = 54;
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

/// Up to the column; one space behind what is longer.
std::string padded(std::string text, int column) {
  const auto wanted = static_cast<std::size_t>(column);
  text.append(text.size() < wanted ? wanted - text.size() : 1, ' ');
  return text;
}

std::string maxima(const ir::Shape& shape) {
  std::vector<std::string> dims;
  for (const std::int64_t d : shape.maxima()) dims.push_back(fmt::format("{}", d));
  return join(dims);
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

/// What the kernels' headers declare: functions without a result, and types.
const std::unordered_set<std::string_view>& names_of_kernels() {
  static const std::unordered_set<std::string_view> names = [] {
    std::unordered_set<std::string_view> found;
    for (const EmbeddedFile& file : embedded_files()) {
      if (file.path.rfind("kernels/", 0) != 0) continue;
      for (const std::string_view before : {"void ", "struct ", "class ", "using "})
        for (std::size_t at = file.text.find(before); at != std::string_view::npos; at = file.text.find(before, at)) {
          at += before.size();
          std::size_t end = at;
          while (end < file.text.size() &&
                 (std::isalnum(static_cast<unsigned char>(file.text[end])) || file.text[end] == '_'))
            ++end;
          if (end > at) found.insert(file.text.substr(at, end - at));
        }
    }
    return found;
  }();
  return names;
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
        style_(target_style(options.target)) {
    if (evaluation) evaluation_values_.emplace(evaluation->graph, evaluation->plan, values_);
    out_.training = !graph.optimizers.empty() || !graph.losses.empty();
    // An inference's weights are its own. A training saves its weights; those of a host program are the host's.
    if (!out_.training && !options.jit_entry && !style_.on_device) {
      style_.calls.release = "release({data}, {count});";
      style_.calls.release_header = "kernels/cpu/release.h";
    }
    updates_in_backward_ = ir::updates_in_backward(graph);
    name_ = project_name(graph, options);
    json& d = out_.common;
    d["name"] = comment_text(name_);
    d["namespace"] = name_;
    d["program"] = name_;
    d["guard"] = upper(name_);
    d["constant_prefix"] = upper(name_);
    d["graph_name"] = comment_text(graph.name);
    d["graph_hash"] = graph_hash;
    d["generator"] = std::string("graven ") + kVersion;
    d["generator_version"] = kVersion;
    d["name_literal"] = string_literal(name_);
    d["training"] = out_.training;
    d["updates_in_backward"] = updates_in_backward_;
    d["needs"] = style_.needs;
    d["purpose"] = out_.training ? "A training program and library" : "An inference program and library";
    const std::string licence = fmt::format(
        " Generated by Graven from the graph {}. This file is yours; the text in kernels/ and runtime/ is Graven's.",
        comment_text(graph.name));
    d["banner"] = "//" + licence;
    d["hash_banner"] = "#" + licence;
    d["execution_type"] = style_.execution_type;
    d["execution_name"] = style_.execution_name;
    d["program_headers"] = style_.program_headers;
    d["scalar_math"] = style_.scalar_math;
    d["on_device"] = style_.on_device;
    d["model_extension"] = style_.model_extension;
    d["create_argument"] = style_.on_device ? "device" : "threads";
    out_.headers = style_.program_headers;
    out_.headers.push_back(style_.scalar_math);
    out_.headers.push_back("kernels/config/device.h");
    if (!style_.api_header.empty()) out_.headers.push_back(style_.api_header);
    write_calls();
    signature();
    note_names();
    memory();
    optimizers();
    evaluation_results();
    calls();
    program();
    d["kernel_flags"] = kKernelFlags;
    d["kernel_flags_of_gnu"] = kKernelFlagsOfGnu;
    d["default_levels"] = out_.training ? "native" : "all";
  }

  ProjectData take() { return std::move(out_); }

 private:
  static std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
  }

  json tensor(ir::ValueId v, const std::string& member) const {
    const ir::TensorType& type = graph_.type(v);
    json t;
    t["member"] = member;
    t["name"] = member;
    t["element"] = element_type(type.dtype);
    t["public_type"] = public_type(type.dtype);
    t["dtype"] = ir::name(type.dtype);
    t["type"] = type.to_string();
    t["shape"] = type.shape.to_string();
    t["maxima"] = maxima(type.shape);
    t["storage"] = fmt::format("{}", std::max<std::int64_t>(1, type.shape.numel().maximum()));
    t["tested"] = tested(type.shape);
    t["tested_storage"] = fmt::format("{}", std::max<std::int64_t>(1, tested_count(type.shape)));
    t["count_in_step"] =
        type.shape.is_static() ? values_.dimension(type.shape.numel()) : step_dimension(type.shape.numel());
    return t;
  }
  /// The shape that the self-test runs with.
  std::string tested(const ir::Shape& shape) const {
    std::vector<std::string> dims;
    for (const ir::Dim& d : shape) dims.push_back(fmt::format("{}", tested_size(d)));
    return join(dims);
  }
  std::int64_t tested_count(const ir::Shape& shape) const { return tested_size(shape.numel()); }
  std::int64_t tested_size(const ir::Dim& d) const {
    return d.is_static() ? d.value() : d.at(extent_.symbols.at(d.symbol()));
  }
  std::string step_dimension(const ir::Dim& d) const {
    for (const Symbol& s : values_.symbols())
      if (s.name == d.symbol()) return fmt::format("{} * step.size.{}", d.coefficient(), s.identifier);
    return values_.dimension(d);
  }

  /// Inputs, outputs, and how functions take them.
  void signature() {
    json& d = out_.common;
    std::vector<std::string> parameters, c_parameters, names, outputs, c_outputs, output_names, again, erased,
        erased_outputs;
    std::vector<std::string> others, described, largest;  // the symbols besides the batch
    d["inputs"] = json::array();
    d["outputs"] = json::array();
    d["symbols"] = json::array();
    std::size_t width = 0;
    for (const ir::ValueId v : graph_.inputs) width = std::max(width, values_.member(v).size());
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) width = std::max(width, values_.output(i).size());

    const std::int64_t batch = batch_ = batch_size();
    auto is_batched = [&](const ir::Shape& s) {
      if (s.empty() || !batch_dimensions(s).empty()) return false;
      return batch_symbol_.empty() ? s[0].is_static() && s[0].value() == batch
                                   : !s[0].is_static() && s[0] == ir::Dim(batch_symbol_, batch);
    };
    auto c_type = [](std::string type) { return type.compare(0, 5, "std::") == 0 ? type.substr(5) : type; };
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ir::ValueId v = graph_.inputs[i];
      const std::string member = values_.member(v);
      const std::string type(public_type(graph_.type(v).dtype));
      json t = tensor(v, member);
      t["name_padded"] = fmt::format("{:<{}}", member, width);
      t["batched"] = is_batched(graph_.type(v).shape) ? "true" : "false";
      t["classes"] = fmt::format("{}", classes_of(graph_, plan_, v));
      // The run time lets pass what PyTorch's losses ignore unless told otherwise; 0 is a class, so no further label.
      const std::int64_t ignored = ignored_label(graph_, plan_, v).value_or(0);
      t["ignored"] =
          classes_of(graph_, plan_, v) == 0 || ignored == -100 ? "" : fmt::format(", .ignored = {}", ignored);
      const bool cast = type == "std::uint16_t";
      t["converted"] = cast ? fmt::format("static_cast<const {}*>(static_cast<const void*>({}))",
                                          element_type(graph_.type(v).dtype), member)
                            : member;
      d["inputs"].push_back(t);
      parameters.push_back(fmt::format("const {}* {}", type, member));
      c_parameters.push_back(fmt::format("const {}* {}", c_type(type), member));
      names.push_back(member);
      erased.push_back(fmt::format("static_cast<const {}*>(inputs[{}])", type, i));
    }
    const std::map<std::string, std::int64_t> least = ir::least_sizes(graph_);
    for (const Symbol& s : values_.symbols()) {
      const auto bound = least.find(s.name);
      d["symbols"].push_back({{"identifier", s.identifier},
                              {"least", fmt::format("{}", bound == least.end() ? 1 : bound->second)},
                              {"maximum", fmt::format("{}", s.maximum)},
                              {"tested", fmt::format("{}", extent_.symbols.at(s.name))}});
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
      json t = tensor(v, member);
      t["name_padded"] = fmt::format("{:<{}}", member, width);
      t["batched"] = is_batched(graph_.type(v).shape) ? "true" : "false";
      t["in_instance"] = values_.expression_in("instance.", v);
      t["in_memory"] = values_.expression_in("memory_->", v);
      t["writable"] = values_.writable_expression_in("memory_->", v);
      const bool cast = type == "std::uint16_t";
      t["converted"] =
          cast ? fmt::format("static_cast<{}*>(static_cast<void*>({}))", element_type(graph_.type(v).dtype), member)
               : member;
      d["outputs"].push_back(t);
      outputs.push_back(fmt::format("{}* {}", type, member));
      c_outputs.push_back(fmt::format("{}* {}", c_type(type), member));
      output_names.push_back(member);
      again.push_back(member + "_again");
      erased_outputs.push_back(fmt::format("static_cast<{}*>(outputs[{}])", type, i));
    }
    if (graph_.inputs.empty())
      throw UserError(out_.training
                          ? "a training graph without inputs cannot be emitted: there would be no samples to train on"
                          : "a graph without inputs cannot be emitted: it would compute the same at each call");
    if (graph_.outputs.empty() && !out_.training) throw UserError("a graph without outputs computes nothing");
    d["parameters"] = join(parameters);
    d["c_parameters"] = join(c_parameters);
    d["argument_names"] = join(names);
    d["output_parameters"] = join(outputs);
    d["c_output_parameters"] = join(c_outputs);
    d["output_names"] = join(output_names);
    d["output_names_again"] = join(again);
    d["erased_arguments"] = join(erased);
    d["erased_outputs"] = join(erased_outputs);
    d["other_symbols"] = others;
    d["described_symbols"] = join(described);
    d["largest_sizes"] = join(largest);
    // Values that the samples of a call have a part in.
    std::vector<bool> depends(graph_.values.size(), false);
    for (const ir::ValueId v : graph_.inputs) {
      const ir::Shape& shape = graph_.type(v).shape;
      depends[at(v)] = is_batched(shape) || !batch_dimensions(shape).empty();
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
    const auto say_symbolic = [&](json& tensors, const std::vector<ir::ValueId>& values, bool are_inputs) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::vector<std::string> dimensions;
        const ir::Shape& shape = graph_.type(values[i]).shape;
        for (std::size_t k = 0; k < shape.rank(); ++k) {
          const auto found = std::find(others.begin(), others.end(), shape[k].symbol());
          if (!shape[k].is_static() && found != others.end())
            dimensions.push_back(fmt::format("{{{}, {}, {}}}", k, found - others.begin(), shape[k].coefficient()));
        }
        std::string text = dimensions.empty() ? std::string() : fmt::format(", .symbolic = {{{}}}", join(dimensions));
        if (const std::vector<std::string> elsewhere = batch_dimensions(shape); !elsewhere.empty())
          text += fmt::format(", .batch_dimensions = {{{}}}", join(elsewhere));
        if (!are_inputs && !is_batched(shape) && !depends[at(values[i])]) text += ", .shared = true";
        tensors[i]["symbolic"] = text;
      }
    };
    say_symbolic(d["inputs"], graph_.inputs, true);
    say_symbolic(d["outputs"], graph_.outputs, false);
    d["batch"] = fmt::format("{}", batch);
    d["batch_if_passed"] = batch_symbol_.empty() ? " /* batch */" : " batch";
    d["batch_is_symbolic"] = batch_symbol_.empty() ? "false" : "true";
    // Statistics of a batch need more than one value a channel: where a sample has one, two samples.
    d["least_batch_is_two"] = !batch_symbol_.empty() && least.count(batch_symbol_) != 0;
  }

  /// The samples of a call: the maximum of the symbol that is an input's first dimension, or the first dimension of the
  /// first input that has one. Of several such symbols it is the first that no input has elsewhere.
  std::int64_t batch_size() {
    const auto is_elsewhere = [&](const std::string& symbol) {
      return std::any_of(graph_.inputs.begin(), graph_.inputs.end(),
                         [&](ir::ValueId v) { return !dimensions_elsewhere(graph_.type(v).shape, symbol).empty(); });
    };
    const ir::Dim* batch = nullptr;
    for (const ir::ValueId v : graph_.inputs)
      if (const ir::Shape& s = graph_.type(v).shape; !s.empty() && !s[0].is_static() && s[0].coefficient() == 1)
        if (batch == nullptr || (is_elsewhere(batch->symbol()) && !is_elsewhere(s[0].symbol()))) batch = &s[0];
    if (batch != nullptr) {
      batch_symbol_ = counted_ = batch->symbol();
      return batch->maximum();
    }
    // No input has a symbol there, but one may be called a batch: whatever a first dimension counts, it is not samples.
    for (const ir::ValueId v : graph_.inputs)
      for (const ir::Dim& d : graph_.type(v).shape)
        if (counted_.empty() && !d.is_static() && d.symbol().find("batch") != std::string::npos) counted_ = d.symbol();
    for (const ir::ValueId v : graph_.inputs)
      if (const ir::Shape& s = graph_.type(v).shape; !s.empty() && s[0].is_static()) return s[0].value();
    return 1;
  }

  /// Where the symbol stands, as {dimension, coefficient} in C++; nothing where it is just the first dimension.
  static std::vector<std::string> dimensions_elsewhere(const ir::Shape& shape, const std::string& symbol) {
    std::vector<std::string> dimensions;
    bool plain = true;
    for (std::size_t k = 0; k < shape.rank(); ++k)
      if (!shape[k].is_static() && shape[k].symbol() == symbol) {
        dimensions.push_back(fmt::format("{{{}, {}}}", k, shape[k].coefficient()));
        plain = plain && k == 0 && shape[k].coefficient() == 1;
      }
    return plain ? std::vector<std::string>() : dimensions;
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
    json& d = out_.common;
    struct Line {
      std::string macro, name, dtype, path, shape, comment;
    };
    std::vector<Line> lines;
    auto add = [&](const char* macro, ir::ValueId v, const std::string& comment) {
      const ir::TensorType& type = graph_.type(v);
      lines.push_back({macro, values_.member(v), std::string(element_type(type.dtype)),
                       string_literal(graph_.value(v).name), maxima(type.shape), comment});
    };
    // Constants of the evaluation that the training has not.
    auto only_evaluated = [&](const std::vector<ir::ValueId>& candidates) {
      std::vector<ir::ValueId> list;
      for (const ir::ValueId v : candidates)
        if (const ir::Value& value = evaluation_->graph.value(v);
            value.kind == ir::ValueKind::constant && value.name.rfind("evaluation.", 0) == 0)
          list.push_back(v);
      return list;
    };
    std::int64_t count = 0, bytes = 0;
    for (const ir::ValueId v : values_.stored()) {
      if (graph_.value(v).kind == ir::ValueKind::constant) out_.stored_constants.push_back(v);
      add(values_.has_gradient(v) ? "GRAVEN_PARAM" : "GRAVEN_FIXED", v, {});
      count += graph_.type(v).shape.numel().maximum();
      bytes += byte_count(graph_.type(v));
    }
    if (evaluation_)
      for (const ir::ValueId v : only_evaluated(evaluation_values_->stored())) {
        const ir::TensorType& type = evaluation_->graph.type(v);
        lines.push_back({"GRAVEN_FIXED",
                         evaluation_values_->member(v),
                         std::string(element_type(type.dtype)),
                         string_literal(evaluation_->graph.value(v).name),
                         maxima(type.shape),
                         {}});
      }
    for (const ir::ValueId v : graph_.states) add("GRAVEN_STATE", v, {});
    for (const ir::ValueId v : values_.prepared()) add("GRAVEN_PREPARED", v, {});
    std::vector<std::pair<std::string, std::string>> texts;
    for (const Line& l : lines) {
      std::string text = padded(l.macro + arguments_of(l.name) + ",", kParameterColumn) + l.dtype + ",";
      text = padded(std::move(text), kPathColumn) + l.path;
      texts.emplace_back(block_of(l.name),
                         l.shape.empty() ? text + ")" : padded(text + ",", kShapeColumn) + l.shape + ")");
    }
    d["parameter_lines"] = by_block(texts);
    d["nests"] = !values_.nesting().empty();
    d["parameter_count"] = fmt::format("{}", count);
    d["parameter_bytes"] = fmt::format("{}", bytes);
    d["has_weights"] = !values_.stored().empty();
    d["has_prepared"] = !values_.prepared().empty();
    d["example_path"] =
        graph_.parameters.empty() ? "model.weight" : comment_text(graph_.value(graph_.parameters[0]).name);

    d["inline_constants"] = json::array();
    auto add_constant = [&](const ir::Graph& graph, const ValueNames& values, ir::ValueId v) {
      d["inline_constants"].push_back(
          {{"type", element_type(graph.type(v).dtype)},
           {"name", values.member(v)},
           {"values", constant_values(*graph.constants.at(v))},
           {"comment", comment_text(graph.type(v).to_string() + " " + graph.value(v).name)}});
    };
    for (const ir::ValueId v : values_.inline_constants()) add_constant(graph_, values_, v);
    if (evaluation_)
      for (const ir::ValueId v : only_evaluated(evaluation_values_->inline_constants()))
        add_constant(evaluation_->graph, *evaluation_values_, v);

    plan_data(d, graph_, plan_, values_);
    d["plan_subject"] = out_.training ? "The arena of a step" : "The arena";
    d["plan_constant"] = "kArenaBytes";
    d["ends"] = "end";
    d["alignment"] = plan_.alignment;
    d["plans"] = json::array({{{"ends", "end"}, {"file", "memory_plan.h"}, {"bytes", "kArenaBytes"}}});
    d["plan_guard"] = upper(name_) + "_MEMORY_PLAN";
    d["evaluates_apart"] = evaluation_ != nullptr;
    if (!evaluation_) return;
    json& e = out_.evaluation_plan;
    for (const char* key : {"banner", "namespace", "nests"}) e[key] = d[key];
    plan_data(e, evaluation_->graph, evaluation_->plan, *evaluation_values_);
    e["plan_subject"] = "The arena of an evaluation, which lies in the memory of a step's";
    e["plan_constant"] = "kEvaluationBytes";
    e["ends"] = "evaluation_end";
    d["plans"].push_back({{"ends", "evaluation_end"}, {"file", "evaluation_plan.h"}, {"bytes", "kEvaluationBytes"}});
    e["plan_guard"] = upper(name_) + "_EVALUATION_PLAN";
    for (const char* key : {"arena_bytes", "lower_bound", "arena_ratio"}) d[std::string("evaluation_") + key] = e[key];
  }

  /// "(hidden_weight", or "_OF(features_3, conv_0_weight" of "features_3.conv_0_weight".
  static std::string arguments_of(const std::string& member) {
    const std::size_t dot = member.find('.');
    return dot == std::string::npos ? "(" + member
                                    : fmt::format("_OF({}, {}", member.substr(0, dot), member.substr(dot + 1));
  }
  static std::string block_of(const std::string& member) {
    const std::size_t dot = member.find('.');
    return dot == std::string::npos ? std::string() : member.substr(0, dot);
  }

  /// Lines, those of a block together where its first one stands, between the lines that begin and end it.
  static json by_block(const std::vector<std::pair<std::string, std::string>>& lines) {
    std::unordered_map<std::string, std::vector<std::string>> blocks;
    for (const auto& [block, line] : lines)
      if (!block.empty()) blocks[block].push_back(line);
    json result = json::array();
    for (const auto& [block, line] : lines) {
      if (block.empty()) {
        result.push_back(line);
      } else if (const auto own = blocks.find(block); own != blocks.end()) {
        result.push_back(fmt::format("GRAVEN_BLOCK({})", block));
        for (const std::string& text : own->second) result.push_back(text);
        result.push_back(fmt::format("GRAVEN_BLOCK_END({})", block));
        blocks.erase(own);
      }
    }
    return result;
  }

  /// What memory_plan.h says of one plan.
  void plan_data(json& d, const ir::Graph& graph, const Plan& plan, const ValueNames& values) const {
    d["arena_lines"] = arena_lines(graph, plan, values);
    d["arena_bytes"] = fmt::format("{}", plan.arena_bytes);
    d["lower_bound"] = fmt::format("{}", plan.lower_bound);
    d["arena_ratio"] = fmt::format(
        "{:.3f}",
        plan.lower_bound > 0 ? static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) : 1.0);
    d["memory_budget"] = fmt::format("{}", options_.memory_budget);
  }

  /// Where each buffer lies: "0", or behind one that lives at the same time, "end::hidden_linear()", so that what
  /// changes the size of one changes its line alone. Of several that end there the one that is written first; a number
  /// where there is none, and where so many would stand on one another that a compiler might refuse to follow them.
  std::vector<std::string> offset_texts(const ir::Graph& graph, const Plan& plan, const ValueNames& values) const {
    const std::string ends_of = &graph == &graph_ ? "end::" : "evaluation_end::";
    std::vector<std::string> names(plan.buffers.size());
    for (std::size_t b = 0; b < plan.buffers.size(); ++b)
      for (const ir::ValueId v : plan.buffers[b].values)
        // What takes over a buffer may fill less of it.
        if (names[b].empty() && plan.aligned(byte_count(graph.type(v))) == plan.buffers[b].bytes)
          names[b] = values.member(v);
    for (const Step& step : plan.steps)
      if (step.workspace >= 0) names[at(step.workspace)] = values.workspace(step);
    std::unordered_map<std::int64_t, std::vector<std::size_t>> ends;
    std::vector<std::size_t> upwards(plan.buffers.size());
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      upwards[b] = b;
      if (plan.buffers[b].bytes > 0) ends[plan.buffers[b].offset + plan.buffers[b].bytes].push_back(b);
    }
    std::stable_sort(upwards.begin(), upwards.end(),
                     [&](std::size_t a, std::size_t b) { return plan.buffers[a].offset < plan.buffers[b].offset; });
    constexpr int kDeepest = 200;
    std::vector<int> depth(plan.buffers.size(), 0);
    std::vector<std::string> texts(plan.buffers.size());
    for (const std::size_t b : upwards) {
      const Buffer& own = plan.buffers[b];
      texts[b] = fmt::format("{}", own.offset);
      if (own.offset == 0) continue;
      const auto below = ends.find(own.offset);
      if (below == ends.end()) continue;
      for (const std::size_t other : below->second) {
        const Buffer& under = plan.buffers[other];
        if (under.last < own.first || own.last < under.first || names[other].empty() || depth[other] >= kDeepest)
          continue;
        std::string name = names[other];
        std::replace(name.begin(), name.end(), '.', '_');
        texts[b] = ends_of + name + "()";
        depth[b] = depth[other] + 1;
        break;
      }
    }
    return texts;
  }

  /// One line a value: name, offset, bytes; who writes it, who reads it last, whose memory it takes over.
  json arena_lines(const ir::Graph& graph, const Plan& plan, const ValueNames& values) const {
    struct Line {
      std::string name, dtype, comment, offset;
      std::int64_t bytes;
    };
    const std::vector<std::string> offsets = offset_texts(graph, plan, values);
    std::vector<std::int32_t> last(graph.values.size(), -1), first(graph.values.size(), -1);
    for (std::size_t s = 0; s < plan.steps.size(); ++s) {
      const ir::Node& n = graph.nodes[at(plan.steps[s].node)];
      for (const ir::ValueId v : n.inputs)
        if (v != ir::kNone) last[at(root(plan, v))] = static_cast<std::int32_t>(s);
      for (const ir::ValueId v : n.outputs) first[at(v)] = static_cast<std::int32_t>(s);
    }
    auto where = [&](std::int32_t step) -> std::string {
      if (step < 0) return "nobody";
      const ir::Node& n = graph.nodes[at(plan.steps[at(step)].node)];
      std::string module = ir::owner_of(n.origins);
      if (module.empty()) module = n.op->name;
      return comment_text(module) + (n.phase == ir::Phase::forward ? "" : " (" + std::string(ir::name(n.phase)) + ")");
    };
    std::vector<Line> lines;
    std::size_t next = 0;
    const auto& arena_values = values.arena();
    for (const Step& step : plan.steps) {
      for (; next < arena_values.size(); ++next) {
        const ir::ValueId v = arena_values[next];
        const auto& outputs = graph.nodes[at(step.node)].outputs;
        if (std::find(outputs.begin(), outputs.end(), v) == outputs.end()) break;
        const std::size_t buffer = at(plan.placements[at(v)].buffer);
        const Buffer& b = plan.buffers[buffer];
        std::string comment =
            fmt::format("{:<22} {} .. {}", graph.type(v).to_string(), where(first[at(v)]), where(last[at(v)]));
        const auto own = std::find(b.values.begin(), b.values.end(), v);
        if (own != b.values.begin() && own != b.values.end())
          comment += "; takes over " + values.member(*std::prev(own)) + ", in place";
        lines.push_back({values.member(v), std::string(element_type(graph.type(v).dtype)), comment, offsets[buffer],
                         byte_count(graph.type(v))});
      }
      if (step.workspace >= 0) {
        const Buffer& b = plan.buffers[at(step.workspace)];
        const std::int32_t index = static_cast<std::int32_t>(&step - plan.steps.data());
        lines.push_back({values.workspace(step), "u8", fmt::format("{:<22} {}", "scratch", where(index)),
                         offsets[at(step.workspace)], b.bytes});
      }
    }
    for (const BlockFunction& f : &graph == &graph_ ? blocks_ : evaluation_blocks_)
      for (const std::string& name : f.unneeded)
        lines.push_back({name, "u8", "scratch that others of its class need, and this one does not", "0", 0});
    std::vector<std::pair<std::string, std::string>> texts;
    for (const Line& l : lines) {
      const std::string bytes = fmt::format("{}", l.bytes);
      const std::string place = fmt::format("{:<4} {},", l.dtype + ",", l.offset);
      texts.emplace_back(block_of(l.name), padded("GRAVEN_VALUE" + arguments_of(l.name) + ",", kValueColumn) +
                                               padded(place, kBytesColumn - static_cast<int>(bytes.size())) + bytes +
                                               ")  // " + l.comment);
    }
    return by_block(texts);
  }

  /// "sgd, momentum 0.9".
  static std::string description(const ir::Optimizer& optimizer) {
    if (optimizer.groups.size() != 1) return fmt::format("{}, {} groups", optimizer.kind, optimizer.groups.size());
    const ir::OptimizerKind& kind = ir::optimizer_kind(optimizer.kind);
    const std::string options =
        describe_options(ir::get_op(kind.op), ir::update_attributes(kind, optimizer.groups[0].options));
    return options.empty() ? optimizer.kind : optimizer.kind + ", " + options;
  }

  void optimizers() {
    json& d = out_.common;
    d["groups"] = json::array();
    d["has_schedule"] = false;
    std::vector<std::string> rates, descriptions;
    for (const ir::Optimizer& o : graph_.optimizers) {
      for (const ir::ParameterGroup& g : o.groups) {
        const auto lr = g.options.find("lr");
        rates.push_back(number_text(lr == g.options.end() ? 0 : lr->second));
        // A host program gives the rates of each step itself.
        const std::string schedule =
            options_.jit_entry ? std::string() : schedule_text(o.schedule, std::string(12, ' '));
        d["groups"].push_back({{"lr", rates.back()}, {"schedule", schedule}});
        if (d["groups"].back()["schedule"] != "") d["has_schedule"] = true;
      }
      descriptions.push_back(description(o));
    }
    d["group_count"] = fmt::format("{}", rates.size());
    d["learning_rates"] = join(rates);
    optimizer_text_ = join(descriptions, "; ");

    // The loss: the sum of all that backward() was called on.
    std::vector<std::string> losses;
    d["losses"] = json::array();
    for (const ir::Loss& l : graph_.losses) {
      if (graph_.type(l.value).shape.numel() != ir::Dim(1)) continue;
      losses.push_back("static_cast<double>(*" + values_.expression(l.value) + ")");
      d["losses"].push_back(
          {{"expression", values_.expression(l.value)}, {"element", element_type(graph_.type(l.value).dtype)}});
    }
    d["loss_count"] = fmt::format("{}", losses.size());
    d["loss_value"] = losses.empty() ? "0" : join(losses, " + ");
    // What the program's log shows beside the loss: the other results of one number. Of several losses each is one.
    std::vector<std::string> logged;
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ir::ValueId v = graph_.outputs[i];
      const bool is_loss = losses.size() == 1 && root(plan_, graph_.losses[0].value) == root(plan_, v);
      if (graph_.type(v).shape.rank() == 0 && !is_loss) logged.push_back(fmt::format("results[{}]", i));
    }
    d["logs_results"] = !logged.empty();
    d["logged_results"] = "{" + join(logged) + "}";
    std::string loss = "loss";
    for (const ir::Node& n : graph_.nodes)
      if (!n.outputs.empty() && !graph_.losses.empty() && root(plan_, graph_.losses[0].value) == n.outputs[0])
        loss = describe_node(graph_, n);
    d["loss_literal"] = string_literal(loss);
    d["random"] = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [](const ir::Node& n) { return n.op->random; });
  }

  /// The losses of an evaluation, and the scores of the classes where its labels are an input.
  void evaluation_results() {
    json& d = out_.common;
    d["has_evaluation"] = evaluation_unknown_ || graph_.losses.empty() ? "false" : "true";
    d["evaluation_losses"] = json::array();
    d["has_accuracy"] = "false";
    d["scores"] = json::array();
    d["score_type"] = "float";
    d["label_input"] = "0";
    d["label_type"] = "std::int64_t";
    d["classes"] = "1";
    d["times_rows_per_sample"] = "";
    d["count_if_used"] = " /* count */";
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
    std::vector<std::string> terms;
    bool sums = !losses.empty();
    for (const ir::ValueId loss : losses) {
      terms.push_back("static_cast<double>(*" + values.expression(loss) + ")");
      d["evaluation_losses"].push_back(
          {{"expression", values.expression(loss)}, {"element", element_type(graph.type(loss).dtype)}});
      bool sum = false;
      for (const ir::Node& n : graph.nodes) {
        if (n.outputs.empty() || root(plan, loss) != n.outputs[0]) continue;
        const ir::Attribute* reduction = n.attributes.find("reduction");
        sum = n.is(ir::kSum) ||
              (reduction && std::get_if<std::string>(reduction) && std::get<std::string>(*reduction) == "sum");
      }
      sums = sums && sum;
    }
    d["loss_is_sum"] = sums;
    d["ignorable_labels"] = ignorable_labels(graph, plan, losses);
    d["evaluation_loss_value"] = terms.empty() ? "0" : join(terms, " + ");

    for (const ir::Node& n : graph.nodes) {
      // A loss from labels, beside which the probabilities of the classes stay.
      const auto spec = std::find_if(n.op->inputs.begin(), n.op->inputs.end(),
                                     [](const ir::InputSpec& i) { return i.classes_of >= 0; });
      const auto probabilities = std::find(n.op->outputs.begin(), n.op->outputs.end(), "probabilities");
      if (spec == n.op->inputs.end() || probabilities == n.op->outputs.end() || n.phase != ir::Phase::forward) continue;
      if (losses.size() != 1 || root(plan, losses[0]) != n.outputs[0]) continue;
      const ir::ValueId labels = root(plan, n.inputs[static_cast<std::size_t>(spec - n.op->inputs.begin())]);
      const ir::ValueId beside = n.outputs[static_cast<std::size_t>(probabilities - n.op->outputs.begin())];
      const auto input = std::find(graph.inputs.begin(), graph.inputs.end(), labels);
      if (input == graph.inputs.end() || !ir::is_integral(graph.type(labels).dtype)) continue;
      // The logits of an evaluation are kept; of a training's forward phase, whose backward phase reads them, the
      // probabilities are.
      const ir::ValueId scores = root(plan, evaluation_ ? graph.outputs.back() : beside);
      const Placement& place = plan.placements[at(scores)];
      const ir::TensorType type = graph.type(evaluation_ ? graph.outputs.back() : beside);
      if (type.shape.rank() != 2 || (type.dtype != ir::DType::f32 && type.dtype != ir::DType::f64)) continue;
      if (place.home == Home::arena ? place.buffer < 0 : place.home != Home::parameter && place.home != Home::input)
        continue;
      const std::int64_t rows = type.shape[0].maximum(), batch = std::max<std::int64_t>(1, batch_);
      if (rows % batch != 0) continue;
      json t;
      t["element"] = element_type(type.dtype);
      t["dtype"] = ir::name(type.dtype);
      t["maxima"] = maxima(type.shape);
      t["tested"] = tested(type.shape);
      t["storage"] = fmt::format("{}", std::max<std::int64_t>(1, type.shape.numel().maximum()));
      t["expression"] = values.expression(scores);
      t["writable"] = values.writable_expression_in("", scores);
      d["scores"].push_back(t);
      d["has_accuracy"] = "true";
      if (style_.on_device) out_.headers.emplace_back("kernels/cuda/reduce.cuh");  // its argmax
      d["score_type"] = public_type(type.dtype);
      d["label_input"] = fmt::format("{}", input - graph.inputs.begin());
      d["label_type"] = public_type(graph.type(labels).dtype);
      d["classes"] = fmt::format("{}", type.shape.back().maximum());
      d["times_rows_per_sample"] = rows == batch ? std::string() : fmt::format(" * {}", rows / batch);
      d["count_if_used"] = " count";
    }
  }

  /// The input of the labels of the loss, as a number in C++, where a sample whose labels are the ignored one leaves
  /// the loss as it is without that sample: the loss is one operator's of labels, which the forward phase reads nowhere
  /// else but element by element. Empty otherwise, and for a symbolic batch, which is never filled up.
  std::string ignorable_labels(const ir::Graph& graph, const Plan& plan, const std::vector<ir::ValueId>& losses) const {
    if (losses.size() != 1 || !batch_symbol_.empty()) return {};
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      const ir::ValueId labels = graph.inputs[i];
      const ir::TensorType& type = graph.type(labels);
      const std::optional<std::int64_t> ignored = ignored_label(graph, plan, labels);
      // It is the one that main.cpp states, of all that reads the labels in training.
      if (!ignored || ignored != ignored_label(graph_, plan_, graph_.inputs.at(i))) continue;
      if (out_.common["inputs"].at(i)["batched"] != "true") continue;
      const bool fits = type.dtype == ir::DType::i32  ? *ignored >= INT32_MIN && *ignored <= INT32_MAX
                        : type.dtype == ir::DType::i8 ? *ignored >= INT8_MIN && *ignored <= INT8_MAX
                        : type.dtype == ir::DType::u8 ? *ignored >= 0 && *ignored <= UINT8_MAX
                                                      : type.dtype == ir::DType::i64;
      bool is_loss = false, others_bear_it = true;
      for (const ir::Node& n : graph.nodes) {
        if (n.phase != ir::Phase::forward) continue;
        for (std::size_t k = 0; k < n.inputs.size(); ++k) {
          if (n.inputs[k] == ir::kNone || root(plan, n.inputs[k]) != labels) continue;
          const bool as_labels = k < n.op->inputs.size() && n.op->inputs[k].classes_of >= 0;
          const bool is_view = n.outputs.size() == 1 && root(plan, n.outputs[0]) == labels;
          is_loss = is_loss || (as_labels && n.outputs[0] == root(plan, losses[0]));
          others_bear_it = others_bear_it && (as_labels || is_view || n.op->elementwise());
        }
      }
      if (fits && is_loss && others_bear_it) return fmt::format("{}", i);
    }
    return {};
  }

  void write_plain_calls() {
    calls_ = make_calls(graph_, plan_, values_, style_.calls);
    if (!evaluation_) return;
    evaluation_calls_ = make_calls(evaluation_->graph, evaluation_->plan, *evaluation_values_, style_.calls, &calls_);
    // Blocks whose configs are all the training's have none of their own.
    std::set<std::string> own, of_training;
    for (const Config& c : evaluation_calls_.configs) own.insert(c.block);
    for (const Config& c : calls_.configs) of_training.insert(c.block);
    static constexpr std::string_view kPrefix = "config::evaluation::", kShared = "config::";
    for (auto& [phase, list] : evaluation_calls_.phases)
      for (Call& call : list)
        for (std::size_t i = call.code.find(kPrefix); i != std::string::npos; i = call.code.find(kPrefix, i + 1)) {
          const std::size_t begin = i + kPrefix.size();
          const std::string block = call.code.substr(begin, call.code.find_first_of(":,()", begin) - begin);
          if (of_training.count(block) && !own.count(block)) call.code.replace(i, kPrefix.size(), kShared);
        }
  }

  /// The calls, those of repeated blocks as functions.
  void write_calls() {
    write_plain_calls();
    std::vector<const std::vector<Call>*> phases;
    std::size_t most = 0, total = 0;
    for (const auto& [phase, list] : calls_.phases) {
      if (phase != ir::Phase::update) phases.push_back(&list);
      total += list.size();
    }
    for (const auto& [phase, list] : evaluation_calls_.phases) {
      phases.push_back(&list);
      most = std::max(most, list.size());
    }
    // Host programs are compiled, not read; and what is spread over files has no place for functions.
    if (options_.jit_entry || std::max(most, total) > kCallsPerFile) return;
    std::map<std::string, std::vector<std::string>> paths;  // by identifier
    const std::unordered_set<std::string> members = values_.all_members();
    for (const std::string& path : repeated_modules(graph_.modules, phases))
      paths[identifier(path, values_.root())].push_back(path);
    std::unordered_map<std::string, std::string> blocks;
    for (const auto& [name, of] : paths)
      if (of.size() == 1 && !members.count(name) && !members.count(name + "_block")) blocks.emplace(of.front(), name);
    std::unordered_map<std::string, std::string> classes;
    for (const ir::ModuleInfo& m : graph_.modules) classes.emplace(m.path, m.class_name);
    // A class whose modules turn out to be different has no structs.
    for (std::size_t before = 0; blocks.size() != before && !blocks.empty();) {
      share(blocks);
      std::set<std::string> shared;
      for (const auto* functions : {&blocks_, &evaluation_blocks_})
        for (const BlockFunction& f : *functions) shared.insert(classes[f.modules.front()]);
      before = blocks.size();
      std::erase_if(blocks, [&](const auto& block) { return !shared.count(classes[block.first]); });
    }
    if (blocks.empty()) share(blocks);
  }

  /// The calls with structs and functions for these blocks, identifiers by path.
  void share(const std::unordered_map<std::string, std::string>& blocks) {
    std::vector<std::string> names;
    for (const auto& [path, name] : blocks) names.push_back(name);
    values_.nest(Nesting(names));
    if (evaluation_values_) evaluation_values_->nest(Nesting(names));
    write_plain_calls();
    blocks_.clear();
    evaluation_blocks_.clear();
    if (blocks.empty()) return;
    const std::unordered_set<std::string> taken = taken_by_calls();
    std::unordered_set<std::string> used;
    std::unordered_map<std::string, std::unordered_map<std::string, std::string>> arguments;
    const auto known = pointers(graph_, plan_, values_);
    for (const ir::Phase phase : {ir::Phase::prepare, ir::Phase::forward, ir::Phase::backward}) {
      const auto list = calls_.phases.find(phase);
      if (list == calls_.phases.end()) continue;
      const std::string suffix = phase == ir::Phase::forward ? "" : "_" + std::string(ir::name(phase));
      for (BlockFunction& f : share_blocks(list->second, graph_.modules, blocks, suffix, taken, used, known, arguments))
        blocks_.push_back(std::move(f));
    }
    if (!evaluation_) return;
    used.clear();
    arguments.clear();
    evaluation_blocks_ =
        share_blocks(evaluation_calls_.phases[ir::Phase::forward], evaluation_->graph.modules, blocks, "", taken, used,
                     pointers(evaluation_->graph, evaluation_->plan, *evaluation_values_), arguments);
  }

  /// What functions of blocks may not be called: they are members, which hide what calls name.
  std::unordered_set<std::string> taken_by_calls() const {
    std::unordered_set<std::string> taken = {"in",
                                             "out",
                                             "param",
                                             "grad",
                                             "state",
                                             "prepared",
                                             "buf",
                                             "hyper",
                                             "size",
                                             "prepare",
                                             "forward",
                                             "backward",
                                             "update",
                                             "evaluate",
                                             "config",
                                             "constant",
                                             "reference",
                                             "numel",
                                             style_.execution_name,
                                             name_};
    for (const std::string_view name : names_of_kernels()) taken.emplace(name);
    for (const Calls* calls : {&calls_, &evaluation_calls_})
      for (const auto& [name, functor] : calls->functors) taken.insert(name);
    return taken;
  }

  static std::unordered_map<std::string, Pointer> pointers(const ir::Graph& graph, const Plan& plan,
                                                           const ValueNames& values) {
    std::unordered_map<std::string, Pointer> known;
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const auto id = static_cast<ir::ValueId>(v);
      const Home home = plan.placements[v].home;
      if (home == Home::alias || home == Home::hyper) continue;
      const ir::TensorType& type = graph.type(id);
      known.emplace(values.expression(id), Pointer{std::string(element_type(type.dtype)), type.to_string()});
    }
    return known;
  }

  void calls() {
    json& d = out_.common;
    Calls calls = std::move(calls_), evaluation = std::move(evaluation_calls_);
    const std::set<std::string> training_headers = calls.headers;
    calls.headers.insert(evaluation.headers.begin(), evaluation.headers.end());
    calls.config_headers.insert(evaluation.config_headers.begin(), evaluation.config_headers.end());
    const bool functors_in_training = !calls.functors.empty();
    calls.functors.insert(evaluation.functors.begin(), evaluation.functors.end());
    for (const std::string& h : calls.headers) out_.headers.push_back(h);
    for (const std::string& h : calls.config_headers) out_.headers.push_back(h);
    d["config_headers"] = calls.config_headers;
    if (!d["inline_constants"].empty()) {  // the names of their types
      d["config_headers"].push_back("kernels/cpu/dtype.h");
      out_.headers.push_back("kernels/cpu/dtype.h");
    }
    d["config_structs"] = json::array();
    for (const auto& [name, text] : calls.config_structs) d["config_structs"].push_back(text);
    d["configs"] = config_sections(calls.configs, {});
    std::set<std::string> of_training;
    for (const Config& c : calls.configs) of_training.insert(c.block);
    d["evaluation_configs"] = config_sections(evaluation.configs, of_training);
    const auto is_wrapped = [](const std::vector<Config>& configs) {
      return std::any_of(configs.begin(), configs.end(),
                         [](const Config& c) { return c.text.find('\n') != std::string::npos; });
    };
    d["wrapped_configs"] = is_wrapped(calls.configs) || is_wrapped(evaluation.configs);
    d["functors"] = json::array();
    for (const auto& [name, functor] : calls.functors) d["functors"].push_back(functor.text);
    d["has_functors"] = !calls.functors.empty();
    d["relu_trait"] = calls.functors.count("relu") ? style_.relu_trait : std::string();
    d["uses_cudnn"] = calls.headers.count("kernels/cuda/conv2d.cuh") != 0;
    d["uses_cublas"] =
        calls.headers.count("kernels/cuda/linear.cuh") + calls.headers.count("kernels/cuda/matmul.cuh") != 0;
    std::string libraries = "CUDA::cudart";
    if (d["uses_cublas"]) libraries += " CUDA::cublasLt";
    if (d["uses_cudnn"]) libraries += " ${CUDNN_LIBRARY}";
    d["cuda_libraries"] = libraries;
    d["uses_configs"] = !calls.configs.empty() || !evaluation.configs.empty() || !d["inline_constants"].empty();

    const std::vector<std::string> headers = includes(functors_in_training, training_headers);

    const std::size_t total = call_count(calls);
    const std::size_t prepared = call_count(calls, ir::Phase::prepare);
    d["call_count"] = fmt::format("{} kernel call{}", total - prepared, total - prepared == 1 ? "" : "s") +
                      (prepared == 0 ? "" : fmt::format(", and {} once after the weights were loaded", prepared));
    d["unit"] = out_.training ? "step" : "call";
    d["flops_text"] = quantity(plan_.flops, "FLOP");
    d["bytes_text"] = quantity(plan_.bytes, "B");
    ModelFile main{"model" + style_.model_extension, {}};
    main.data = file_data(true, headers);
    d["block_functions"] = add_blocks(main, "Calls", blocks_);
    d["functions"] = json::array();
    d["step_functions"] = json::array();
    const bool split = total > kCallsPerFile;
    std::vector<ModelFile> others;
    for (const ir::Phase phase : {ir::Phase::prepare, ir::Phase::forward, ir::Phase::backward, ir::Phase::update}) {
      const bool may_be_empty =
          phase == ir::Phase::forward || (out_.training && !(phase == ir::Phase::update && updates_in_backward_));
      const bool wanted = calls.phases.count(phase) != 0 || (phase != ir::Phase::prepare && may_be_empty);
      if (!wanted) continue;
      const std::string name(ir::name(phase));
      const std::vector<Call>& list = calls.phases[phase];
      const json parts = add_function(main, others, "model", "Calls", name, title(phase), list, split);
      d["functions"].push_back({{"name", name}, {"parts", parts}});
      if (phase != ir::Phase::prepare) d["step_functions"].push_back(name);
    }
    d["has_update"] = !updates_in_backward_ || calls.phases.count(ir::Phase::update) != 0;
    d["has_prepare"] = calls.phases.count(ir::Phase::prepare) != 0;
    if (split) main.data["headers"] = json::array();
    d["split"] = split;
    out_.files.push_back(std::move(main));
    if (evaluation_) {
      const std::vector<Call>& list = evaluation.phases[ir::Phase::forward];
      const std::vector<std::string> own = includes(!evaluation.functors.empty(), evaluation.headers);
      const bool long_evaluation = list.size() > kCallsPerFile;
      ModelFile file{"evaluation" + style_.model_extension, {}};
      file.data = file_data(false, own);
      d["evaluation_block_functions"] = add_blocks(file, "EvaluationCalls", evaluation_blocks_);
      d["evaluation_parts"] = add_function(file, others, "evaluation", "EvaluationCalls", "evaluate",
                                           double_rule("evaluate"), list, long_evaluation);
      if (long_evaluation) file.data["headers"] = json::array();
      d["evaluation_call_count"] = fmt::format("{}", call_count(evaluation));
      d["evaluation_flops_text"] = quantity(evaluation_->plan.flops, "FLOP");
      d["evaluation_bytes_text"] = quantity(evaluation_->plan.bytes, "B");
      out_.files.push_back(std::move(file));
    }
    for (ModelFile& f : others) out_.files.push_back(std::move(f));
    std::vector<std::string> sources;
    for (const ModelFile& f : out_.files) sources.push_back(f.path);
    d["model_sources"] = join(sources, " ");
  }

  /// The kernel calls of a phase, or of all.
  static std::size_t call_count(const Calls& calls, std::optional<ir::Phase> of = {}) {
    std::size_t count = 0;
    for (const auto& [phase, list] : calls.phases)
      for (const Call& call : list)
        if (!of || phase == *of) count += call.kernel_calls;
    return count;
  }

  /// Configs by the block that they belong to, each block where its first one stands. Of an evaluation, `of_training`
  /// are the blocks whose structs its own add to.
  static json config_sections(const std::vector<Config>& configs, const std::set<std::string>& of_training) {
    std::vector<std::string> order;
    std::map<std::string, std::vector<std::string>> lines;
    json sections = json::array();
    const auto close = [&](const std::string& block) {
      const std::string base = of_training.count(block) ? " : config::" + block : "";
      sections.push_back({{"block", block}, {"base", block.empty() ? "" : base}, {"lines", lines[block]}});
      lines.erase(block);
    };
    std::map<std::string, std::vector<std::string>> all;
    for (const Config& c : configs) all[c.block].push_back(c.text);
    for (const Config& c : configs) {
      if (!c.block.empty() && all.count(c.block) == 0) continue;
      if (c.block.empty()) {
        if (!lines.count("")) order.emplace_back();
        lines[""].push_back(c.text);
        continue;
      }
      if (lines.count("")) close("");
      lines[c.block] = std::move(all[c.block]);
      all.erase(c.block);
      close(c.block);
    }
    if (lines.count("")) close("");
    return sections;
  }

  /// The functions of blocks stand before the calls of them. Returns how program.h declares them.
  json add_blocks(ModelFile& file, const char* owner, const std::vector<BlockFunction>& blocks) const {
    json declared = json::array();
    for (const BlockFunction& b : blocks) {
      std::vector<std::string> parameters;
      for (std::size_t i = 0; i < b.types.size(); ++i) parameters.push_back(b.types[i] + " " + b.parameters[i]);
      const std::string head = b.uses_config ? "template <class Config>" : "";
      file.data["functions"].push_back({{"owner", owner},
                                        {"name", b.name},
                                        {"template", head},
                                        {"parameters", join(parameters)},
                                        {"title", double_rule(comment_text(ir::braced(b.modules)))},
                                        {"parts", json::array()},
                                        {"groups", groups(b.calls, 0, b.calls.size())}});
      declared.push_back({{"template", head}, {"text", fmt::format("void {}({}) const;", b.name, join(parameters))}});
    }
    return declared;
  }

  static json file_data(bool is_main, const std::vector<std::string>& headers) {
    return {{"is_main", is_main}, {"headers", headers}, {"functions", json::array()}, {"uses_copy", false}};
  }

  /// What a file of calls includes: of the project, then of the kernels.
  std::vector<std::string> includes(bool functors, const std::set<std::string>& kernels) const {
    std::vector<std::string> list;
    if (out_.common["uses_configs"]) list.emplace_back("configs.h");
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
  json add_function(ModelFile& main, std::vector<ModelFile>& others, const std::string& file_stem, const char* owner,
                    const std::string& name, const std::string& title, const std::vector<Call>& list,
                    bool split) const {
    json function{{"owner", owner}, {"name", name},           {"template", ""},         {"parameters", ""},
                  {"title", title}, {"parts", json::array()}, {"groups", json::array()}};
    const auto copies = [&](std::size_t begin, std::size_t end) {
      return std::any_of(list.begin() + static_cast<std::ptrdiff_t>(begin),
                         list.begin() + static_cast<std::ptrdiff_t>(end),
                         [](const Call& c) { return c.code.find("std::memcpy") != std::string::npos; });
    };
    if (!split) {
      function["groups"] = groups(list, 0, list.size());
      if (copies(0, list.size())) main.data["uses_copy"] = true;
    } else {
      for (std::size_t begin = 0, part = 1; begin < list.size(); begin += kCallsPerFile, ++part) {
        const std::size_t end = std::min(list.size(), begin + kCallsPerFile);
        const std::string part_name = fmt::format("{}_{}", name, part);
        function["parts"].push_back(part_name);
        json piece{{"owner", owner},
                   {"name", part_name},
                   {"template", ""},
                   {"parameters", ""},
                   {"title", fmt::format("{}, part {}", name, part)},
                   {"parts", json::array()}};
        piece["groups"] = groups(list, begin, end);
        ModelFile file{fmt::format("{}_{}{}", file_stem, part_name, style_.model_extension), {}};
        file.data = file_data(false, used_headers(list, begin, end));
        file.data["functions"].push_back(std::move(piece));
        file.data["uses_copy"] = copies(begin, end);
        others.push_back(std::move(file));
      }
    }
    json parts = function["parts"];
    main.data["functions"].push_back(std::move(function));
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

  json groups(const std::vector<Call>& list, std::size_t begin, std::size_t end) const {
    json result = json::array();
    for (std::size_t i = begin; i < end;) {
      json group{{"calls", json::array()}};
      if (list[i].is_block) {  // one after the other, each a line or two
        for (; i < end && list[i].is_block; ++i)
          group["calls"].push_back({{"comment", call_comment(list[i])}, {"lines", json::array({list[i].code})}});
        group["banner"] = "";
        result.push_back(std::move(group));
        continue;
      }
      std::vector<std::string> modules;  // the owner's, and those whose operators its calls took in
      const std::string owner = list[i].owner();
      for (; i < end && list[i].owner() == owner && !list[i].is_block; ++i) {
        for (const std::string& m : list[i].modules) {
          const bool encloses = owner.size() > m.size() && owner.compare(0, m.size(), m) == 0 && owner[m.size()] == '.';
          if (!encloses && std::find(modules.begin(), modules.end(), m) == modules.end()) modules.push_back(m);
        }
        json lines = json::array();
        std::size_t at = 0;
        while (at <= list[i].code.size()) {
          const std::size_t stop = std::min(list[i].code.find('\n', at), list[i].code.size());
          lines.push_back(list[i].code.substr(at, stop - at));
          at = stop + 1;
        }
        group["calls"].push_back({{"comment", call_comment(list[i])}, {"lines", lines}});
      }
      if (modules.size() > kModulesPerBanner) {
        // A block's modules by the block; what has no more in common than the network, by the first of them.
        const std::string block = ir::common_module(modules);
        if (block.find('.') != std::string::npos)
          modules = {block};
        else
          modules.resize(kModulesPerBanner), modules.emplace_back("...");
      }
      group["banner"] = modules.empty() ? std::string() : rule("-", comment_text(ir::braced(modules)));
      result.push_back(std::move(group));
    }
    return result;
  }

  void program() {
    json& d = out_.common;
    auto list = [](const std::vector<double>& numbers) {
      std::vector<std::string> items;
      for (const double n : numbers) items.push_back(number_text(n));
      return join(items);
    };
    d["mean"] = list(options_.mean);
    d["std"] = list(options_.std);
    d["data_literal"] = string_literal(options_.data);
    d["test_data_literal"] = string_literal(options_.test_data);
    d["epochs"] = fmt::format("{}", options_.epochs);
    d["threads"] = fmt::format("{}", options_.threads);
    d["threads_default"] =
        options_.threads && !style_.on_device ? fmt::format(".threads = {}, ", options_.threads) : std::string();
    d["seed"] = fmt::format("{}", options_.seed);
    d["shuffle"] = options_.shuffle ? "true" : "false";
    d["recorded"] = extent_.recorded;
    d["has_states"] = !graph_.states.empty();
  }

  const ir::Graph& graph_;
  const Plan& plan_;
  const Evaluation* evaluation_;
  bool evaluation_unknown_;
  bool updates_in_backward_ = false;
  const EmitOptions& options_;
  const Extent& extent_;
  ValueNames values_;
  std::optional<ValueNames> evaluation_values_;
  TargetStyle style_;
  ProjectData out_;
  Calls calls_, evaluation_calls_;
  std::vector<BlockFunction> blocks_, evaluation_blocks_;
  std::int64_t batch_ = 1;
  std::string name_, batch_symbol_, optimizer_text_;
  std::string counted_;  ///< the batch symbol, or one that is called so and is no input's first dimension
};

}  // namespace

TargetStyle target_style(ir::Target target) {
  TargetStyle style;
  if (target == ir::Target::cpu) return style;
  style.calls = {.first_argument = "context",
                 .kernel_folder = "cuda",
                 .kernel_extension = ".cuh",
                 .copy = "copy_on_device(context, {to}, {from}, {bytes});",
                 .numbers_by_value = true};
  style.model_extension = ".cu";
  style.execution_type = "CudaContext&";
  style.execution_name = "context";
  style.program_headers = {"kernels/cpu/dtype.h", "kernels/cuda/context.cuh"};
  style.scalar_math = "kernels/cuda/scalar_math.cuh";
  style.api_header = "kernels/cuda/mirror.cuh";
  style.folder = "cuda/";
  style.needs =
      "the CUDA toolkit (12 or later) with cuBLAS and cuDNN 9,\na C++20 compiler that nvcc takes, CMake 3.24 and POSIX "
      "threads";
  style.on_device = true;
  style.relu_trait = "is_relu";
  return style;
}

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
  if (name.starts_with("cmake_") || ir::find_op(name) || names_of_kernels().count(name) ||
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
