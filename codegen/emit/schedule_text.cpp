#include "codegen/emit/schedule_text.h"

#include <cstdint>

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

void add_schedule_options(std::vector<std::string>& fields, const ir::Schedule& schedule,
                          std::span<const ir::ScheduleOption> options) {
  for (const ir::ScheduleOption& o : options)
    if (const auto found = schedule.options.find(std::string(o.name)); found != schedule.options.end())
      fields.push_back(fmt::format(".{} = {}", o.name, schedule_number_text(found->second, o.number)));
}

}  // namespace

std::string schedule_text(const ir::Schedule& schedule, const std::string& indent) {
  ir::require_portable(schedule);
  ir::check_schedule(schedule);
  if (schedule.kind.empty() || schedule.kind == "none") return {};
  std::vector<std::string> fields{".kind = Schedule::Kind::" + schedule.kind};
  add_schedule_options(fields, schedule, ir::schedule_options());
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
  if (const auto linear = schedule.options.find("warmup_linear"); linear != schedule.options.end()) {
    fields.push_back(std::string(".warmup = Schedule::Warmup::") + (linear->second != 0 ? "linear" : "constant"));
    add_schedule_options(fields, schedule, ir::warmup_options());
  }
  return join(fields);
}

}  // namespace graven::codegen
