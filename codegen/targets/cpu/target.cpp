#include "codegen/targets/cpu/target.h"

#include "codegen/plan/plan.h"
#include "codegen/targets/cpu/kernels.h"
#include "ir/passes/passes.h"

namespace graven::codegen {

namespace {

std::vector<ir::Choice> choices(const ir::Graph& graph) {
  std::vector<ir::Choice> found;
  ir::list_winograd_choices(graph, found);
  ir::list_inverted_residual_choices(graph, found);
  ir::list_packing_choices(graph, found);
  return found;
}

Target make_cpu_target() {
  Target target{.passes = ir::kHost, .title = "the CPU", .style = {}};
  target.passes.takes_half = takes_half_on_cpu;
  target.passes.lower = lower_for_cpu;
  target.passes.arena_bytes = planned_arena_bytes;
  target.constants_in_code = true;
  target.choices = choices;
  TargetStyle& style = target.style;
  style.calls.release = "release({data}, {count});";
  style.calls.release_header = "kernels/cpu/release.h";
  style.program_headers = {"kernels/cpu/dtype.h", "kernels/cpu/level.h", "kernels/cpu/limits.h",
                           "kernels/cpu/threads.h"};
  style.device_type = "runtime::HostDevice<Threads>";
  style.api_headers = {"runtime/host_device.h"};
  style.team_headers = {"kernels/config/team.h", "runtime/collectives.h", "runtime/ranks.h"};
  style.rank_headers = {"kernels/cpu/collectives.h", "runtime/collectives.h", "runtime/ranks.h"};
  style.words = {"release", "machine_limits", "measure_limits", "read_ticks"};
  style.scalar_math = "kernels/cpu/scalar_math.h";
  style.needs = "nothing but a C++20 compiler (g++ 11 or clang++ 14, or later), CMake 3.16 and POSIX threads";
  style.templates = "codegen/targets/cpu/templates/";
  style.just_in_time = "jit.cpp";
  return target;
}

}  // namespace

const Target& cpu_target() {
  static const Target target = make_cpu_target();
  return target;
}

}  // namespace graven::codegen
