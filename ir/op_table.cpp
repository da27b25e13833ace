#include "ir/op_table.h"

#include <fmt/format.h>

#include <string_view>

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
    out += fmt::format("{}{}{}{}{}{}", out.empty() ? "" : ", ", i.name, i.variadic ? "..." : "", i.optional ? "?" : "",
                       i.own_dtype() ? fmt::format(" {}", name(*i.own_dtype())) : "", i.donated() ? " (in place)" : "");
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
  if (op.dtypes == kAnyDType) return "all";
  std::string out;
  for (const DType d : kAllDTypes)
    if (op.dtypes.contains(d)) out += fmt::format("{}{}", out.empty() ? "" : " ", name(d));
  return out;
}

}  // namespace

std::string operator_table() {
  constexpr std::string_view kHead =
      "| operator | inputs → outputs | attributes | computes | differentiable | dtypes |\n|---|---|---|---|---|---|\n";
  std::string out =
      "# Operators\n\n"
      "Made by `graven ops --markdown` from the operators' entries, one file each in `ir/ops/`. Names, defaults and\n"
      "formulas are PyTorch's unless the row says otherwise. `?` is an optional input, `...` any number of tensors,\n"
      "\"in place\" one whose new value is a further output, in its memory, → the outputs where there are several. An\n"
      "attribute without a default must be given. An input with a dtype behind its name takes that alone; the others\n"
      "take one of those in the last column, all of them the same, as does the attribute `dtype`. Elementwise\n"
      "operators broadcast as NumPy does, and the frontend casts.\n\n";
  std::string lowered =
      "\n## Lowered operators\n\n"
      "What kernels compute: passes put them where the operators above stood (`ir/ops/lowered/`). No traced graph has\n"
      "one; they are listed because graphs that have been through the passes, and projects' `graph.json`, do.\n\n";
  out += kHead;
  lowered += kHead;
  for (const OpDef* op : all_ops())
    (op->lowered ? lowered : out) +=
        fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", op->name, cell(inputs_of(*op)), cell(attributes_of(*op)),
                    cell(op->doc), op->gradient ? "yes" : "no", dtypes_of(*op));
  return out + lowered;
}

}  // namespace graven::ir
