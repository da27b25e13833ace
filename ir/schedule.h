// What a learning-rate schedule may say: its kinds, and the names and ranges of its options. The formulas are those of
// runtime_min/schedule.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace graven::ir {

/// What an option may be: schedules count in whole numbers, and divide by some.
enum class ScheduleNumber : std::uint8_t { any, positive, share, from_0, from_1, flag };

struct ScheduleOption {
  std::string_view name;  ///< of the field of runtime::Schedule, too
  ScheduleNumber number;
};

/// All options but those of the warm-up, in the order of runtime::Schedule's fields.
std::span<const ScheduleOption> schedule_options();
/// warmup_factor and warmup_iters, which count where there is a third, warmup_linear.
std::span<const ScheduleOption> warmup_options();

/// The kind of a schedule that is a function of the program that recorded the graph: that program's calls have its
/// rates, and no file can.
inline constexpr std::string_view kProgramsOwnSchedule = "lambda";

/// User error for that: the graph is saved or emitted.
void require_portable(const Schedule& schedule);

/// User error when there is no such schedule, or none could be computed: from a file anything may come.
void check_schedule(const Schedule& schedule);

}  // namespace graven::ir
