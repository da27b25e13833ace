// graven ops, graven passes: the tables of what there is.
#include <fmt/format.h>

#include <memory>

#include "codegen/cli/command.h"
#include "ir/op.h"
#include "ir/op_table.h"
#include "ir/passes/pass.h"

namespace graven::cli {

void add_passes(CLI::App& app, int& status) {
  auto* command = app.add_subcommand(
      "passes", "Lists the passes in order, each with its target, where it is for one, and the reason for its place");
  command->callback([&status] {
    std::string out;
    int number = 0;
    for (const ir::Pass& pass : ir::pipeline())
      out += fmt::format("{:>2}  {:<28}  {:<4}  {}\n", ++number, pass.name, pass.target, pass.reason);
    write_text("", out);
    status = 0;
  });
}

void add_ops(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("ops", "Lists the operators; with a name, all about one");
  auto name = std::make_shared<std::string>();
  auto markdown = std::make_shared<bool>(false);
  command->add_option("operator", *name, "The operator to describe");
  command->add_flag("--markdown", *markdown, "The whole table as Markdown: docs/operators.md");
  command->callback([name, markdown, &status] {
    std::string out;
    if (*markdown) {
      out = ir::operator_table();
    } else if (name->empty()) {
      for (const ir::OpDef* op : ir::all_ops()) {
        std::string inputs;
        for (const ir::InputSpec& i : op->inputs)
          inputs += (inputs.empty() ? "" : ", ") + std::string(i.name) + (i.variadic ? "..." : i.optional ? "?" : "");
        out += fmt::format("{:<28} ({})\n", op->name, inputs);
      }
    } else {
      const ir::OpDef& op = ir::get_op(*name);
      out = fmt::format("{}\n  {}\n", op.name, op.doc);
      for (const ir::InputSpec& i : op.inputs)
        out += fmt::format("  input      {}{}{}\n", i.name,
                           i.variadic   ? "..."
                           : i.optional ? " (optional)"
                                        : "",
                           i.donated() ? " (in place)" : "");
      for (const ir::AttributeSpec& a : op.attributes)
        out += fmt::format("  attribute  {}: {}{}  {}\n", a.name, ir::name(a.type), a.fallback ? "" : " (required)",
                           a.doc);
      for (const std::string_view o : op.outputs) out += fmt::format("  output     {}\n", o);
      out += fmt::format("  {}, {}\n", op.gradient ? "differentiable" : "not differentiable",
                         op.elementwise() ? "elementwise"
                         : op.alias       ? "moves nothing"
                                          : "a kernel");
    }
    write_text("", out);
    status = 0;
  });
}

}  // namespace graven::cli
