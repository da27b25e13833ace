#include "ir/op_table.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/op.h"

namespace graven::ir {

namespace {

/// A vertical bar would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string text_of(const Attribute& value) {
  switch (type_of(value)) {
    case AttributeType::boolean:
      return std::get<bool>(value) ? "true" : "false";
    case AttributeType::integer:
      return std::to_string(std::get<std::int64_t>(value));
    case AttributeType::number:
      return fmt::format("{:g}", std::get<double>(value));
    case AttributeType::text:
      return std::get<std::string>(value);
    case AttributeType::integers:
      return Shape::of(std::get<Ints>(value)).to_string();
    case AttributeType::dtype:
      return std::string(name(std::get<DType>(value)));
    case AttributeType::shape:
      return std::get<Shape>(value).to_string();
    case AttributeType::program:
      return "none";
  }
  return {};
}

std::string inputs_of(const OpDef& op) {
  std::string out;
  for (const InputSpec& i : op.inputs)
    out += fmt::format("{}{}{}{}{}", out.empty() ? "" : ", ", i.name, i.variadic ? "..." : "", i.optional ? "?" : "",
                       i.donated() ? " (in place)" : "");
  for (std::size_t i = 0; i < op.outputs.size(); ++i) out += fmt::format("{}{}", i == 0 ? " → " : ", ", op.outputs[i]);
  return out;
}

std::string attributes_of(const OpDef& op) {
  std::string out;
  for (const AttributeSpec& a : op.attributes) {
    out += fmt::format("{}`{}` {}", out.empty() ? "" : "<br>", a.name, name(a.type));
    if (a.fallback) out += fmt::format(" = {}", text_of(*a.fallback));
    if (!a.doc.empty()) out += fmt::format(": {}", a.doc);
  }
  return out;
}

std::string dtypes_of(const OpDef& op) {
  const std::vector<DType> claimed = claimed_dtypes(op);
  if (claimed.size() == std::size(kAllDTypes)) return "all";
  std::string out;
  for (DType d : claimed) out += fmt::format("{}{}", out.empty() ? "" : " ", name(d));
  return out;
}

}  // namespace

std::vector<DType> claimed_dtypes(const OpDef& op) {
  if (!op.cases) return {};
  const std::vector<TestCase> cases = op.cases();
  if (cases.empty() || cases[0].inputs.empty()) return {};
  std::vector<DType> claimed;
  for (DType d : kAllDTypes) {
    std::vector<std::optional<TensorType>> inputs;
    const DType own = cases[0].inputs.back().type.dtype;
    for (const TestCase::Input& i : cases[0].inputs) {
      inputs.emplace_back();
      if (i.absent) continue;
      inputs.back() = i.type;
      if (i.type.dtype == own) inputs.back()->dtype = d;
    }
    Attributes attributes = cases[0].attributes;
    for (const auto& [key, value] : cases[0].attributes)
      if (const auto* given = std::get_if<ScalarProgram>(&value)) {  // computes in the inputs' dtype, and says so
        ScalarProgram program = *given;
        for (ScalarProgram::Step& step : program.steps)
          if (step.dtype == own) step.dtype = d;
        attributes.set(key, std::move(program));
      }
    try {
      (void)infer(op, inputs, attributes);
    } catch (const UserError&) {
      continue;
    }
    claimed.push_back(d);
  }
  return claimed;
}

std::string operator_table() {
  std::string out =
      "# Operators\n\n"
      "Made by `graven ops --markdown` from the operators' entries, one file each in `ir/ops/`. Names, defaults and\n"
      "formulas are PyTorch's unless the row says otherwise. `?` is an optional input, `...` any number of tensors,\n"
      "\"in place\" one whose new value is a further output, in its memory, → the outputs where there are several. An\n"
      "attribute without a default must be given. Elementwise operators broadcast as NumPy does and take inputs of "
      "one\n"
      "dtype: the frontend casts.\n\n"
      "| operator | inputs → outputs | attributes | computes | differentiable | dtypes |\n|---|---|---|---|---|---|\n";
  for (const OpDef* op : all_ops())
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", op->name, cell(inputs_of(*op)), cell(attributes_of(*op)),
                       cell(op->doc), op->gradient ? "yes" : "no", dtypes_of(*op));
  return out;
}

}  // namespace graven::ir
