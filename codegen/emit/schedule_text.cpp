#include "codegen/emit/schedule_text.h"

#include <cstdint>
#include <map>

#include "codegen/emit/functor.h"
#include "codegen/emit/text.h"
#include "ir/schedule.h"

namespace graven::codegen {

namespace {

std::string schedule_number_text(double x, ir::ScheduleNumber number) {
  switch (number) {
    case ir::ScheduleNumber::from_0:
    case ir::ScheduleNumber::from_1:
      return fmt::format("{}", static_cast<std::int64_t>(x));
    case ir::ScheduleNumber::flag:
      return x != 0 ? "true" : "false";
    default:
      return number_text(x);
  }
}

void add_schedule_options(std::vector<std::string>& fields, const std::map<std::string, double>& given,
                          std::span<const ir::ScheduleOption> options) {
  for (const ir::ScheduleOption& o : options)
    if (const auto found = given.find(std::string(o.name)); found != given.end())
      fields.push_back(fmt::format(".{} = {}", o.name, schedule_number_text(found->second, o.number)));
}

}  // namespace

std::string schedule_text(const ir::Schedule& schedule, const std::string& indent) {
  ir::require_portable(schedule);
  ir::check_schedule(schedule);
  if (schedule.kind.empty() || schedule.kind == "none") return {};
  std::vector<std::string> fields{".kind = Schedule::Kind::" + schedule.kind};
  add_schedule_options(fields, schedule.options, ir::schedule_options());
  if (!schedule.milestones.empty()) {
    std::vector<std::string> list;
    for (const double m : schedule.milestones) list.push_back(schedule_number_text(m, ir::ScheduleNumber::from_0));
    fields.push_back(".milestones = {" + join(list) + "}");
  }
  if (!schedule.parts.empty()) {
    std::string list;
    for (const ir::Schedule& part : schedule.parts)
      list += "\n" + indent + "  {" + schedule_text(part, indent + "  ") + "},";
    fields.push_back(".parts = {" + list + "\n" + indent + "}");
  }
  if (!schedule.factors.empty()) {
    // The factors of twelve steps a line.
    std::string list;
    for (std::size_t t = 0; t < schedule.factors.size(); ++t)
      list += (t % 12 == 0 ? "\n" + indent + "  " : " ") + number_text(schedule.factors[t]) + ",";
    fields.push_back(".factors = {" + list + "\n" + indent + "}");
  }
  if (const auto linear = schedule.options.find("warmup_linear"); linear != schedule.options.end()) {
    fields.push_back(std::string(".warmup = Schedule::Warmup::") + (linear->second != 0 ? "linear" : "constant"));
    add_schedule_options(fields, schedule.options, ir::warmup_options());
  }
  return join(fields);
}

std::string plateau_text(const ir::Optimizer& optimizer) {
  ir::check_plateau(optimizer);
  std::vector<std::string> fields;
  add_schedule_options(fields, optimizer.plateau, ir::plateau_options());
  return join(fields);
}

}  // namespace graven::codegen
