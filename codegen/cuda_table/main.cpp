// Writes the table of launchers (codegen/build/cuda/table.h): the host's side of kernels/cuda (host_text.h), and C++
// files with one thunk for each (function, element types) that the operators' entries declare: each form in each dtype
// (ir/forms.h) that the CUDA target takes.
//
//   graven_cuda_table SOURCE_DIRECTORY OUTPUT_DIRECTORY PARTS     writes cuda_host/*.cuh, part_0.cpp ... and parts.cpp
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "codegen/build/cuda/table.h"
#include "codegen/cuda_table/host_text.h"
#include "codegen/targets/cuda/kernels.h"
#include "ir/call.h"
#include "ir/diagnostic.h"
#include "ir/forms.h"
#include "ir/ops.h"

namespace graven::codegen {

namespace {

using ir::DType;

struct Entry {
  std::string include;  ///< "linear.cuh"
  std::string body;     ///< of the thunk
};

/// "f32": the alias of kernels/cpu/dtype.h.
std::string type_name(DType d) { return d == DType::boolean ? "bool" : std::string(ir::name(d)); }

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw UserError(path.string() + ": cannot be read");
  return text.str();
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  {
    std::ifstream old(path);
    std::stringstream present;
    present << old.rdbuf();
    if (old && present.str() == text) return;  // nothing is compiled again for nothing
  }
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw UserError(path.string() + ": cannot be written");
}

class Table {
 public:
  void add_all() {
    for (const ir::OpDef* op : ir::all_ops())
      for (const DType d : ir::kAllDTypes)
        if (op->dtypes.contains(d))
          for (ir::Graph& graph : ir::graphs_of_forms(*op, d)) {
            // The target's images are NHWC, in whatever form the entry has them.
            if (op->find_attribute("channels_last") != nullptr) graph.nodes[0].attributes.set("channels_last", true);
            add(graph);
          }
    add_elementwise();
    add_updates();
  }

  void write(const std::filesystem::path& output, std::size_t parts) const {
    // Functions of one file stay together, so that each part parses few of them.
    std::map<std::string, std::vector<std::string>> by_include;
    for (const auto& [key, entry] : entries_) by_include[entry.include].push_back(key);
    std::vector<std::pair<std::string, std::vector<std::string>>> groups(by_include.begin(), by_include.end());
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
    std::vector<std::vector<std::string>> keys(parts);
    for (const auto& [include, group] : groups) {
      auto& part =
          *std::min_element(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
      part.insert(part.end(), group.begin(), group.end());
    }
    std::string index =
        "// Written by graven_cuda_table.\n#include \"codegen/build/cuda/table.h\"\n\nnamespace graven::codegen {\n\n";
    std::string list;
    for (std::size_t p = 0; p < parts; ++p) {
      write_text(output / fmt::format("part_{}.cpp", p), part_text(p, keys[p]));
      index += fmt::format("std::span<const CudaTableEntry> cuda_part_{}();\n", p);
      list += fmt::format("{}cuda_part_{}()", p ? ", " : "", p);
    }
    index += fmt::format(
        "\nstd::span<const std::span<const CudaTableEntry>> cuda_table_parts() {{\n  static const std::span<const "
        "CudaTableEntry> parts[] = {{{}}};\n  return parts;\n}}\n\n}}  // namespace graven::codegen\n",
        list);
    write_text(output / "parts.cpp", index);
  }

 private:
  void add(const ir::Graph& graph) {
    const ir::Node& node = graph.nodes[0];
    const ir::OpDef& op = *node.op;
    if (op.alias || op.rule != nullptr) return;
    ir::KernelCall call;
    try {
      call = lower_for_cuda({graph, node});
    } catch (const UserError&) {
      return;  // the target says so when it is asked
    }
    if (call.name.empty() || call.name == "elementwise" || call.name == "broadcast") return;
    if (call.file == "recurrent") call.checks_data = true;  // of padded sequences, which have the same key
    const bool has_epilogue = op.find_attribute("epilogue") != nullptr;
    for (const FunctorForm functor : {FunctorForm::none, FunctorForm::relu, FunctorForm::of_one, FunctorForm::of_two}) {
      if (functor != FunctorForm::none && !has_epilogue) break;
      Entry& entry = entries_[cuda_key(graph, node, call, functor)];
      const std::string file = call.file.empty() ? call.name : call.file;
      entry.include = file + ".cuh";
      entry.body = body(graph, node, call, call.config_type.empty() ? file + "_config" : call.config_type, functor);
    }
  }

  static std::string body(const ir::Graph& graph, const ir::Node& node, const ir::KernelCall& call,
                          const std::string& config_type, FunctorForm functor) {
    std::string text = fmt::format("kernels::{} config{{}};\n", config_type);
    for (std::size_t i = 0; i < call.config.size(); ++i)
      text += fmt::format("  read_field(*a.call, {}, config.{});\n", i, call.config[i].first);
    const std::vector<DType> types = pointer_types(graph, node, call);
    std::string arguments;
    std::size_t tensor = 0;
    using Kind = ir::Argument::Kind;
    for (const ir::Argument& a : ir::arguments_of(node, call, true)) {
      std::string argument;
      switch (a.kind) {
        case Kind::threads:
          argument = "a.context";
          break;
        case Kind::config:
          argument = "config";
          break;
        case Kind::count:
          argument = "a.count";
          break;
        case Kind::sizes:
          argument = "a.sizes";
          break;
        case Kind::workspace:
          continue;
        case Kind::where:
          argument = "a.where";
          break;
        default: {
          const bool writes = a.kind == Kind::output || ir::lowered(*node.op).inputs[a.index].donated();
          argument = fmt::format("static_cast<{}{}{}>(a.tensors[{}])", writes ? "" : "const ", type_name(types[tensor]),
                                 a.kind == Kind::list ? "* const*" : "*", tensor);
          ++tensor;
        }
      }
      arguments.append(arguments.empty() ? "" : ", ").append(argument);
    }
    static const char* const kFunctors[] = {"", "<relu_functor>", "<functor<1>>", "<functor<2>>"};
    return text + fmt::format("  kernels::{}{}({});", call.name, kFunctors[static_cast<int>(functor)], arguments);
  }

  void add_elementwise() {
    constexpr int kMostInputs = 8;
    for (const char* name : {"elementwise", "broadcast"})
      for (const int bytes : {1, 2, 4, 8})
        for (int inputs = 1; inputs <= kMostInputs; ++inputs) {
          std::string fields, arguments = fmt::format("static_cast<element<{}, 0>*>(a.tensors[0])", bytes);
          for (int i = 1; i <= inputs; ++i)
            arguments += fmt::format(", static_cast<const element<{}, {}>*>(a.tensors[{}])", bytes, i, i);
          const bool broadcasts = std::string(name) == "broadcast";
          std::size_t field = 0;
          for (const char* each : {"rank", "shape", "strides"})
            if (broadcasts) fields += fmt::format("  read_field(*a.call, {}, config.{});\n", field++, each);
          if (!broadcasts) fields = "  read_field(*a.call, 0, config.n);\n";
          entries_[fmt::format("{}({}:{})", name, bytes, inputs)] = {
              "elementwise.cuh",
              fmt::format("kernels::{0}_config config{{}};\n{1}  kernels::{0}<functor<{2}>>(a.context, "
                          "config, {3});",
                          name, fields, inputs, arguments)};
        }
  }

  void add_updates() {
    constexpr int kMostStates = 5, kMostNorms = 2;
    for (const char* type : {"f32", "f64", "f16", "bf16"})
      for (int states = 0; states <= kMostStates; ++states)
        for (int norms = 0; norms <= kMostNorms; ++norms) {
          std::string arguments;
          for (int s = 0; s < states; ++s) arguments += fmt::format(", tensors[{}]", 2 + s);
          entries_[fmt::format("update_parameters({}:{}:{})", type, states, norms)] = {
              "update.cuh",
              fmt::format("{0}* const* const* const tensors = reinterpret_cast<{0}* const* const*>(a.tensors);\n"
                          "  const void* const* const numbers = a.tensors + {1};\n"
                          "  kernels::update_parameters<rule<{2}>>(a.context, rule_options{{a.rule_options}}, a.count, "
                          "tensors[0], tensors[1], a.sizes,\n"
                          "      static_cast<const double*>(numbers[0]), static_cast<const std::int64_t*>(numbers[1]), "
                          "static_cast<const {0}*>(numbers[2]){3});",
                          type, 2 + states, norms, arguments)};
        }
  }

  std::string part_text(std::size_t part, const std::vector<std::string>& keys) const {
    std::set<std::string> includes;
    std::string thunks, list;
    std::size_t n = 0;
    for (const std::string& key : keys) {
      const Entry& e = entries_.at(key);
      includes.insert(e.include);
      thunks += fmt::format("void thunk_{}(const CudaArguments& a) {{\n  {}\n}}\n", n, e.body);
      list += fmt::format("    {{\"{}\", thunk_{}}},\n", key, n++);
    }
    std::string text = "// Written by graven_cuda_table.\n#include \"codegen/build/cuda/table.h\"\n";
    for (const std::string& i : includes) text += fmt::format("#include \"cuda_host/{}\"\n", i);
    text +=
        "#include \"cuda_host/context.cuh\"\n#include \"kernels/cpu/dtype.h\"\n\n"
        "/// The libraries have a ReLU of their own.\n"
        "template <>\ninline constexpr bool graven::kernels::is_relu<graven::cuda_toolkit::relu_functor> = true;\n\n"
        "namespace graven::codegen {\nnamespace {\n\n";
    for (const char* d : {"f32", "f64", "f16", "bf16", "i8", "i32", "i64", "u8"})
      text += fmt::format("using {0} [[maybe_unused]] = kernels::{0};\n", d);
    text += thunks;
    text += fmt::format(
        "\nconstexpr CudaTableEntry kEntries[] = {{\n{}    {{nullptr, nullptr}}}};\n\n}}  // namespace\n\n", list);
    text += fmt::format(
        "std::span<const CudaTableEntry> cuda_part_{0}();\nstd::span<const CudaTableEntry> cuda_part_{0}() {{ return "
        "{{kEntries, {1}}}; }}\n\n}}  // namespace graven::codegen\n",
        part, n);
    return text;
  }

  std::map<std::string, Entry> entries_;
};

void write_host_texts(const std::filesystem::path& source, const std::filesystem::path& output) {
  for (const auto& file : std::filesystem::directory_iterator(source / "kernels/cuda"))
    if (file.path().extension() == ".cuh")
      write_text(output / "cuda_host" / file.path().filename(),
                 host_text(read_text(file.path()), "kernels/cuda/" + file.path().filename().string()));
}

}  // namespace

}  // namespace graven::codegen

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: graven_cuda_table SOURCE_DIRECTORY OUTPUT_DIRECTORY PARTS\n";
    return 2;
  }
  try {
    graven::codegen::write_host_texts(argv[1], argv[2]);
    graven::codegen::Table table;
    table.add_all();
    table.write(argv[2], static_cast<std::size_t>(std::stoul(argv[3])));
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  return 0;
}
