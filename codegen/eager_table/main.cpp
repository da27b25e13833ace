// Writes the table of compiled kernels of eager mode (frontend/eager/table.h): C++ files that include kernels/**.h and
// hold one thunk for each (function, element types) that the operators' entries declare: each form in each dtype
// (ir/forms.h), in the fast and in the reference version. Gradients and lowered operators add nothing: they are nodes
// of other operators, whose forms stand in their own entries.
//
//   graven_eager_table SOURCE_DIRECTORY OUTPUT_DIRECTORY PARTS      writes part_0.cpp ... and parts.cpp
//
// It fails where an entry declares what has no kernel.
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
#include "ir/forms.h"
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
    for (const ir::OpDef* op : ir::all_ops())
      for (const DType d : ir::kAllDTypes)
        if (op->dtypes.contains(d))
          for (const ir::Graph& graph : ir::graphs_of_forms(*op, d)) add(graph);
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
  void add(ir::Graph graph) {
    const ir::Node node = graph.nodes[0];
    const ir::OpDef& op = *node.op;
    // The executor casts, fills, copies, and computes what stands for several operators by itself.
    const bool by_others = op.parts && op.parts(graph, node).back().op != &op;
    if (op.alias || by_others || node.is(ir::kCast, ir::kFull, ir::kCopy, ir::kFusedElementwise, ir::kFusedReduction))
      return;
    const auto dtype = [&](ir::ValueId v) { return graph.type(v).dtype; };
    const Signature own = eager::signature_of(node, dtype);
    if (op.elementwise()) return add_elementwise(op, own);
    ir::KernelCall call = ir::lower({graph, node});
    // The oracle computes in double, except for the numbers that kernels take by value.
    const Signature doubles =
        eager::signature_of(node, [&](ir::ValueId v) { return ir::is_floating(dtype(v)) ? DType::f64 : dtype(v); });
    bool found = add_kernel(node, call, own);
    // To the oracle, packed weights are the weights: it packs nothing.
    // Files of fast kernels may be for one dtype, <file>_bf16.h; the reference has one for all.
    ir::KernelCall any = call;
    if (const std::size_t suffix = any.file.rfind("_bf16"); suffix != std::string::npos) {
      any.file.resize(suffix);
      any.workspace_bytes.reset();
    }
    if (!call.reference && !op.packs && !has_function(any, true)) add_kernel(node, call, doubles);
    if (call.file != any.file) call = any;
    // The rule of an update says what both compute: of half types one does.
    if (found && op.rule != nullptr && ir::is_half(own.inputs[0])) return;
    call.reference = true;
    found = add_kernel(node, call, own) || found;
    add_kernel(node, call, doubles);
    if (!found)
      throw UserError(fmt::format("{} has no kernel {}", op.name, eager::kernel_key(call, own.outputs, own.inputs)));
  }

  void add_elementwise(const ir::OpDef& op, const Signature& s) {
    const codegen::Functor functor = codegen::make_functor_with_inputs(op);
    functors_.emplace(op.name, functor);
    std::string types = type_name(s.outputs[0]);
    for (const DType i : s.inputs) types += ", " + type_name(i);
    // Attributes come in the type that the functor computes in.
    const DType last = s.inputs.back(), computed = last == DType::f16 || last == DType::bf16 ? DType::f32 : last;
    for (std::size_t k = 0; k < eager::scalar_attributes(op).size(); ++k) types += ", " + type_name(computed);
    entries_[eager::elementwise_key(op.name, s.outputs[0], s.inputs)] = {
        {}, {}, fmt::format("broadcast_thunk<{}, {}>", functor.name, types)};
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

  /// Whether there is one.
  bool add_kernel(const ir::Node& node, ir::KernelCall call, const Signature& s) {
    const std::string key = eager::kernel_key(call, s.outputs, s.inputs);
    if (entries_.count(key)) return true;
    if (!has_function(call, call.reference)) return false;
    if (call.workspace_bytes) call.workspace_bytes = 1;  // a thunk is for all sizes: nullptr where these need none
    const std::string config_type =
        call.config_type.empty() ? (call.file.empty() ? call.name : call.file) + "_config" : call.config_type;
    std::string text;
    text += fmt::format("{}{} config{{}};\n", node.op->rule ? "" : "kernels::", config_type);
    for (std::size_t i = 0; i < call.config.size(); ++i)
      text += fmt::format("  read_field(*a.call, {}, config.{});\n", i, call.config[i].first);
    text += "  ";
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
    if (node.op->rule == nullptr) return true;
    const codegen::UpdateText update = codegen::print_update(ir::UpdateRule(*node.op, node.attributes, false));
    entries_[key].update = update.config + "\n" + update.functor.text + "\n";
    return true;
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
        type = (ir::lowered(*node.op).inputs[i].donated() ? "" : "const ") + type_name(s.inputs[i]);
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
