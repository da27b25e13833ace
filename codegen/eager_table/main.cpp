// Writes the table of compiled kernels of eager mode (frontend/eager/table.h): C++ files that include kernels/**.h and
// hold one thunk for each (function, element types) that the operators' test cases reach after lowering, in the fast
// and in the reference version.
//
//   graven_eager_table SOURCE_DIRECTORY OUTPUT_DIRECTORY PARTS      writes part_0.cpp ... and parts.cpp
//
// A kernel whose file is not in the tree is left out: the operator then says at run time that it has no kernel for the
// type.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "codegen/emit/functor.h"
#include "codegen/emit/update.h"
#include "frontend/eager/table.h"
#include "ir/call.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven {

namespace {

using eager::Signature;
using ir::DType;

struct Entry {
  std::string include;   ///< "kernels/cpu/linear.h"; empty: elementwise
  std::string body;      ///< of the thunk
  std::string thunk{};   ///< or its name, where it need not be written
  std::string update{};  ///< of an optimizer: what stands before the thunk
};

/// "f32": the alias of kernels/cpu/dtype.h.
std::string type_name(DType d) { return d == DType::boolean ? "bool" : std::string(ir::name(d)); }

class Table {
 public:
  explicit Table(std::filesystem::path source) : source_(std::move(source)) {}

  void add_all() {
    for (const ir::OpDef* op : ir::all_ops()) {
      if (op->elementwise() && *op != ir::kCast && *op != ir::kFull) add_elementwise(*op);
      if (op->cases)
        for (const ir::TestCase& c : op->cases()) add_case(*op, c);
    }
    for (DType d : {DType::f32, DType::f64, DType::f16, DType::bf16}) add_optimizers(d);
  }

  void write(const std::filesystem::path& output, std::size_t parts) const {
    std::vector<std::vector<std::string>> keys(parts);
    std::size_t next = 0;
    // Functions of one file stay together, so that each part parses few kernels; elementwise operators are dealt out.
    std::map<std::string, std::vector<std::string>> by_include;
    for (const auto& [key, entry] : entries_) by_include[entry.include].push_back(key);
    std::vector<std::pair<std::string, std::vector<std::string>>> groups(by_include.begin(), by_include.end());
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
    const auto smallest = [&] {
      return static_cast<std::size_t>(
          std::min_element(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); }) -
          keys.begin());
    };
    for (const auto& [include, group] : groups) {
      if (include.empty()) {
        for (const std::string& key : group) keys[next++ % parts].push_back(key);
      } else {
        auto& part = keys[smallest()];
        part.insert(part.end(), group.begin(), group.end());
      }
    }
    std::filesystem::create_directories(output);
    std::string index =
        "// Written by graven_eager_table.\n#include \"frontend/eager/table.h\"\n\nnamespace graven::eager {\n\n";
    std::string list;
    for (std::size_t p = 0; p < parts; ++p) {
      write_file(output / fmt::format("part_{}.cpp", p), part_text(p, keys[p]));
      index += fmt::format("std::span<const TableEntry> part_{}();\n", p);
      list += fmt::format("{}part_{}()", p ? ", " : "", p);
    }
    index += fmt::format(
        "\nstd::span<const std::span<const TableEntry>> table_parts() {{\n  static const std::span<const TableEntry> "
        "parts[] = {{{}}};\n  return "
        "parts;\n}}\n\n"
        "}}  // namespace graven::eager\n",
        list);
    write_file(output / "parts.cpp", index);
  }

 private:
  // ---- elementwise: every dtype that inference accepts ----

  void add_elementwise(const ir::OpDef& op) {
    for (DType d : ir::kAllDTypes) {
      std::vector<std::optional<ir::TensorType>> types(op.inputs.size(), ir::TensorType{d, {2}});
      if (op == ir::kWhere) types[0]->dtype = DType::boolean;
      ir::Attributes attributes;
      std::vector<ir::TensorType> results;
      try {
        results = ir::infer(op, types, attributes);
      } catch (const UserError&) {
        continue;
      }
      std::vector<DType> inputs;
      for (const auto& t : types) inputs.push_back(t->dtype);
      const codegen::Functor functor = codegen::make_functor_with_inputs(op);
      functors_.emplace(op.name, functor);
      std::string types_of_tensors = type_name(results[0].dtype);
      for (DType i : inputs) types_of_tensors += ", " + type_name(i);
      // Attributes come in the type that the functor computes in.
      const DType computed = d == DType::f16 || d == DType::bf16 ? DType::f32 : d;
      for (std::size_t k = 0; k < eager::scalar_attributes(op).size(); ++k)
        types_of_tensors += ", " + type_name(computed);
      entries_[eager::elementwise_key(op.name, results[0].dtype, inputs)] = {
          {}, {}, fmt::format("broadcast_thunk<{}, {}>", functor.name, types_of_tensors)};
    }
  }

  // ---- kernels: what the test cases reach ----

  void add_case(const ir::OpDef& op, const ir::TestCase& c) {
    try {
      ir::Graph graph;
      std::vector<ir::ValueId> inputs;
      for (const auto& i : c.inputs) inputs.push_back(i.absent ? ir::kNone : graph.add_input("x", i.type));
      graph.outputs = graph.add_node(op, inputs, c.attributes, {});
      add_graph(graph);
      if (op.gradient) add_gradient(op, c, inputs.size());
    } catch (const UserError&) {
      // A case that inference refuses reaches no kernel.
    }
  }

  void add_gradient(const ir::OpDef& op, const ir::TestCase& c, std::size_t input_count) {
    ir::Graph graph;
    ir::Node node{&op, c.attributes, {}, {}, ir::Phase::forward, {}};
    std::vector<std::optional<ir::TensorType>> types;
    std::vector<bool> needed;
    for (const auto& i : c.inputs) {
      node.inputs.push_back(i.absent ? ir::kNone : graph.add_input("x", i.type));
      types.push_back(i.absent ? std::nullopt : std::optional(i.type));
      needed.push_back(!i.absent && ir::is_floating(i.type.dtype));
    }
    for (const ir::TensorType& t : ir::infer(op, types, node.attributes))
      node.outputs.push_back(graph.add_input("y", t));
    if (!ir::is_floating(graph.type(node.outputs[0]).dtype)) return;
    std::vector<ir::ValueId> gradients(node.outputs.size(), ir::kNone);
    gradients[0] = graph.add_input("dy", graph.type(node.outputs[0]));
    ir::GradientBuilder builder(graph, node, gradients, needed);
    op.gradient(builder);
    for (std::size_t i = 0; i < input_count; ++i)
      if (builder.gradients()[i] != ir::kNone) graph.outputs.push_back(builder.gradients()[i]);
    add_graph(graph);
  }

  /// Of every dtype, with each choice of the states that options ask for: each is a function.
  void add_optimizers(DType dtype) {
    for (const ir::OpDef* op : ir::all_ops()) {
      if (!ir::is_update(*op)) continue;
      std::vector<std::string_view> options;
      for (const ir::InputSpec& spec : op->inputs)
        if (!spec.option.empty()) options.push_back(spec.option);
      for (std::size_t choice = 0; choice < std::size_t{1} << options.size(); ++choice) {
        ir::Attributes attributes;
        for (std::size_t o = 0; o < options.size(); ++o) {
          const ir::AttributeSpec* const spec = op->find_attribute(options[o]);
          const bool on = (choice >> o & 1) != 0;
          attributes.set(options[o],
                         spec->type == ir::AttributeType::boolean ? ir::Attribute(on) : ir::Attribute(on ? 0.5 : 0.0));
        }
        add_optimizer(*op, dtype, attributes);
      }
    }
  }

  void add_optimizer(const ir::OpDef& op, DType dtype, const ir::Attributes& attributes) {
    ir::Graph graph;
    std::vector<ir::ValueId> inputs;
    for (const ir::InputSpec& spec : op.inputs) {
      if (spec.role == ir::InputRole::factor) continue;  // the executor multiplies by it before
      const ir::TensorType type = spec.role == ir::InputRole::rate   ? ir::TensorType{DType::f64, {}}
                                  : spec.role == ir::InputRole::step ? ir::TensorType{DType::i64, {}}
                                                                     : ir::TensorType{dtype, {4}};
      const bool present = ir::is_used(spec, attributes) && ir::state_type(spec.shape, type);
      inputs.push_back(present ? graph.add_input("x", type) : ir::kNone);
    }
    graph.add_node(op, inputs, ir::Attributes(attributes), {});
    add_nodes(graph);
  }

  void add_graph(ir::Graph graph) {
    add_nodes(graph);
    eager::lower_for_eager(graph);
    add_nodes(graph);
  }

  void add_nodes(const ir::Graph& graph) {
    for (const ir::Node& node : graph.nodes) {
      if (node.op->elementwise() || node.op->alias || !node.op->kernel) continue;
      if (node.is(ir::kFusedReduction)) continue;  // the executor runs its program and its reduction apart
      ir::KernelCall call;
      try {
        call = node.op->kernel(ir::NodeView{graph, node});
      } catch (const InternalError&) {
        continue;  // before the passes a node may have a form that they take apart
      }
      if (call.name.empty() || call.name == "elementwise" || call.name == "broadcast" || call.name == "fill") continue;
      const auto dtype = [&](ir::ValueId v) { return graph.type(v).dtype; };
      // The oracle computes in double, except for the numbers that kernels take by value.
      const auto wide = [&](ir::ValueId v) { return ir::is_floating(dtype(v)) ? DType::f64 : dtype(v); };
      const Signature own = eager::signature_of(node, dtype), doubles = eager::signature_of(node, wide);
      add_kernel(node, call, own);
      // To the oracle, packed weights are the weights: it packs nothing.
      if (!call.reference && !node.op->packs && !has_function(call, true)) add_kernel(node, call, doubles);
      call.reference = true;
      add_kernel(node, call, own);
      add_kernel(node, call, doubles);
    }
  }

  const std::string& text_of(const std::string& path) {
    auto [it, fresh] = texts_.try_emplace(path);
    if (fresh) {
      std::ifstream file(source_ / path);
      std::stringstream text;
      text << file.rdbuf();
      it->second = text.str();
    }
    return it->second;
  }
  static std::string file_of(const ir::KernelCall& call, bool reference) {
    return fmt::format("kernels/{}/{}.h", reference ? "reference" : "cpu", call.file.empty() ? call.name : call.file);
  }
  bool has_function(const ir::KernelCall& call, bool reference) {
    const std::string& text = text_of(file_of(call, reference));
    // Headers may only gather others; then the functions stand in files whose names begin alike.
    return text.find(" " + call.name + "(") != std::string::npos ||
           (!reference && !text.empty() && text.find("#include \"" + call.name) != std::string::npos);
  }

  void add_kernel(const ir::Node& node, const ir::KernelCall& call, const Signature& s) {
    const std::string key = eager::kernel_key(call, s.outputs, s.inputs);
    if (entries_.count(key)) {
      if (call.workspace_bytes == 0 || call.reference) return;
    } else if (!has_function(call, call.reference)) {
      return;
    }
    const std::string config_type =
        call.config_type.empty() ? (call.file.empty() ? call.name : call.file) + "_config" : call.config_type;
    std::string text;
    if (!call.config.empty()) {
      text += fmt::format("{}{} config{{}};\n", node.op->rule ? "" : "kernels::", config_type);
      for (std::size_t i = 0; i < call.config.size(); ++i)
        text += fmt::format("  read_field(*a.call, {}, config.{});\n", i, call.config[i].first);
      text += "  ";
    }
    std::string arguments;
    std::size_t tensor = 0;
    for (const ir::Argument& a : ir::arguments_of(node, call))
      if (const std::string argument = argument_text(node, a, s, tensor); !argument.empty())
        arguments.append(arguments.empty() ? "" : ", ").append(argument);
    std::string templates;
    for (const std::string& t : call.template_arguments) templates.append(templates.empty() ? "" : ", ").append(t);
    text += fmt::format("kernels::{}{}{}({});", call.reference ? "reference::" : "", call.name,
                        templates.empty() ? "" : "<" + templates + ">", arguments);
    entries_[key] = {file_of(call, call.reference), text, {}, {}};
    if (node.op->rule == nullptr) return;
    const codegen::UpdateText update = codegen::print_update(ir::UpdateRule(*node.op, node.attributes, false));
    entries_[key].update = update.config + "\n" + update.functor.text + "\n";
  }

  /// How a thunk passes an argument on; those that have pointers take `tensors` in order.
  static std::string argument_text(const ir::Node& node, const ir::Argument& argument, const Signature& s,
                                   std::size_t& tensor) {
    using Kind = ir::Argument::Kind;
    const std::size_t i = argument.index;
    std::string type;
    switch (argument.kind) {
      case Kind::threads:
        return "a.threads";
      case Kind::config:
        return "config";
      case Kind::count:
        return "a.count";
      case Kind::sizes:
        return "a.sizes.data()";
      case Kind::workspace:
        return "a.workspace";
      case Kind::where:
        return {};  // an operator that runs at once stands in no module
      case Kind::output:
        type = type_name(s.outputs[i]);
        break;
      case Kind::input:
      case Kind::list:
      case Kind::number:
        type = (node.op->inputs[i].donated() ? "" : "const ") + type_name(s.inputs[i]);
        break;
    }
    return fmt::format("{}static_cast<{}{}>(a.tensors[{}])", argument.kind == Kind::number ? "*" : "", type,
                       argument.kind == Kind::list ? "* const*" : "*", tensor++);
  }

  std::string part_text(std::size_t part, const std::vector<std::string>& keys) const {
    std::set<std::string> includes{"frontend/eager/broadcast.h", "kernels/cpu/scalar_math.h", "kernels/config/device.h",
                                   "kernels/cpu/threads.h"};
    std::set<std::string> functors, updates;
    std::string thunks, list;
    std::size_t n = 0;
    for (const std::string& key : keys) {
      const Entry& e = entries_.at(key);
      if (!e.include.empty()) includes.insert(e.include);
      if (key.rfind("elementwise/", 0) == 0) functors.insert(key.substr(12, key.find('(') - 12));
      if (!e.update.empty()) updates.insert(e.update);
      if (e.thunk.empty())
        thunks += fmt::format("void thunk_{}([[maybe_unused]] const Arguments& a) {{\n  {}\n}}\n", n, e.body);
      list += fmt::format("    {{\"{}\", {}}},\n", key, e.thunk.empty() ? fmt::format("thunk_{}", n) : e.thunk);
      ++n;
    }
    std::string text = "// Written by graven_eager_table.\n#include \"frontend/eager/table.h\"\n";
    for (const std::string& i : includes) text += fmt::format("#include \"{}\"\n", i);
    text += "\nnamespace graven::eager {\nnamespace {\n\n";
    for (const char* d : {"f32", "f64", "f16", "bf16", "i8", "i32", "i64", "u8"})
      text += fmt::format("using {0} [[maybe_unused]] = kernels::{0};\n", d);
    text += "namespace math = kernels::math;\n\n";
    for (const std::string& f : functors) text += functors_.at(f).text + "\n";
    for (const std::string& u : updates) text += u;
    text += thunks;
    text += fmt::format("\nconstexpr TableEntry kEntries[] = {{\n{}    {{nullptr, nullptr}}}};\n\n}}  // namespace\n\n",
                        list);
    text += fmt::format(
        "std::span<const TableEntry> part_{}();\nstd::span<const TableEntry> part_{}() {{ return {{kEntries, {}}}; "
        "}}\n\n}}  // namespace "
        "graven::eager\n",
        part, part, n);
    return text;
  }

  static void write_file(const std::filesystem::path& path, const std::string& text) {
    {
      std::ifstream old(path);
      std::stringstream present;
      present << old.rdbuf();
      if (old && present.str() == text) return;  // nothing is compiled again for nothing
    }
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) throw UserError(path.string() + ": cannot write");
  }

  std::filesystem::path source_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, codegen::Functor, std::less<>> functors_;
  std::map<std::string, std::string> texts_;
};

}  // namespace
}  // namespace graven

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: graven_eager_table SOURCE_DIRECTORY OUTPUT_DIRECTORY PARTS\n";
    return 2;
  }
  try {
    graven::Table table(argv[1]);
    table.add_all();
    table.write(argv[2], static_cast<std::size_t>(std::stoul(argv[3])));
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  return 0;
}
