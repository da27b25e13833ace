#include "graven/utils/averaging.h"

#include <fmt/format.h>

#include <cstddef>

#include "frontend/dispatch.h"
#include "frontend/tensor_impl.h"
#include "frontend/trace.h"

namespace graven::nn {

using graven::detail::fail_at;

AfterUpdate::AfterUpdate(Location where) {
  if (graven::detail::Trace* trace = graven::detail::active_trace()) trace->read_updates(where);
}

namespace utils {

namespace {

void require_alike(const NamedTensors& average, const NamedTensors& model, const char* kind, Location where) {
  const auto refuse = [&](const std::string& what) { fail_at("update_average_: " + what, where); };
  if (average.size() != model.size())
    refuse(fmt::format("the average has {} {}, the model {}", average.size(), kind, model.size()));
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (average[i].first != model[i].first)
      refuse(fmt::format("expected {} of the same names, got {} of the average and {} of the model", kind,
                         average[i].first, model[i].first));
    const Tensor &a = average[i].second, &p = model[i].second;
    if (a.dtype() != p.dtype() || a.shape() != p.shape())
      refuse(fmt::format("{} is {} of the average and {} of the model", model[i].first, a.describe(), p.describe()));
    if (a.impl() == p.impl()) refuse(model[i].first + " of the average is the model's own; make a module of its own");
  }
}

}  // namespace

void update_average_(const ModuleBase& average, const ModuleBase& model, double decay, Location where) {
  if (!(decay >= 0 && decay <= 1))
    fail_at(fmt::format("update_average_: decay must lie in [0, 1], got {}", decay), where);
  const NamedTensors averages = average.named_parameters(), parameters = model.named_parameters();
  const NamedTensors copies = average.named_buffers(), buffers = model.named_buffers();
  require_alike(averages, parameters, "parameters", where);
  require_alike(copies, buffers, "buffers", where);
  const AfterUpdate after(where.in("update_average_"));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Tensor own = averages[i].second;
    own.lerp_(parameters[i].second, Operand(1 - decay, where));
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    Tensor own = copies[i].second;
    own.copy_(buffers[i].second, where);
  }
}

}  // namespace utils

}  // namespace graven::nn
