// What a learning-rate schedule may say: its kinds, and the names and ranges of its options. The formulas are those of
// runtime_min/schedule.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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

/// What a schedule may have of ReduceLROnPlateau's options (Optimizer::plateau), in the order of runtime::Plateau's
/// fields. Besides there is the least rate of each parameter group, "min_lr.0".
std::span<const ScheduleOption> plateau_options();
inline std::string plateau_min_lr(std::size_t group) { return "min_lr." + std::to_string(group); }
/// User error where an option is missing, unknown or out of range, or the schedule beside it would undo a reduction.
void check_plateau(const Optimizer& optimizer);
/// What a user calls a schedule that sets each step's rate anew, whatever it was before: a reduction would be gone with
/// the next step. Null: one that multiplies the rate it finds, or what lies above its least rate.
const char* sets_rates_anew(const Schedule& schedule);

/// User error when there is no such schedule, or none could be computed: from a file anything may come.
void check_schedule(const Schedule& schedule);

}  // namespace graven::ir
