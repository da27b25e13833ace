// Scales a loss, so that gradients that are small numbers of half precision do not become zero: torch.amp.GradScaler.
//
//   amp::GradScaler scaler;
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);             // where gradients are clipped, or looked at
//   nn::utils::clip_grad_norm_(parameters, 1.0);
//   scaler.step(optimizer);                 // nothing where a gradient is infinite or NaN
//   scaler.update();                        // a smaller scale then; after 2000 steps in a row a larger one
//
// A graph does all that in its step: set_grad_scaler(scaler).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "graven/optim.h"
#include "graven/state_dict.h"
#include "graven/tensor.h"

namespace graven::amp {

struct GradScalerOptions {
  double init_scale = 65536;    ///< positive
  double growth_factor = 2;     ///< more than 1: what the scale grows by
  double backoff_factor = 0.5;  ///< in (0, 1): what it shrinks by behind a step with a gradient that is not finite
  std::int64_t growth_interval = 2000;  ///< after so many steps in a row that were made it grows; at least 1
  bool enabled = true;                  ///< false: scale() and unscale_() do nothing, and step() is the optimizer's
};

/// A handle: copies are the same scaler. Each optimizer is looked at for its own gradients: of several one may step
/// while another does not. The scale shrinks where any of them did not.
class GradScaler {
 public:
  /// User error where an option is not as said above.
  explicit GradScaler(const GradScalerOptions& options = {}, Location where = Location::current());

  /// outputs * scale, in the outputs' dtype. User error for a tensor that is not of floating-point numbers, and within
  /// build(): there set_grad_scaler() scales.
  Tensor scale(const Tensor& outputs, Location where = Location::current());
  std::vector<Tensor> scale(const std::vector<Tensor>& outputs, Location where = Location::current());
  /// Divides grad() of the optimizer's parameters by the scale, and looks whether all are finite. User error where that
  /// was done since the last update(), or behind step().
  void unscale_(const optim::Optimizer& optimizer, Location where = Location::current());
  /// optimizer.step(), or nothing where a gradient is not finite; whether it was made. Gradients are unscaled first, if
  /// they are not yet. User error where that was done since the last update(), or no parameter has a gradient.
  bool step(optim::Optimizer& optimizer, Location where = Location::current());
  /// The scale of the next step. User error where no step() or unscale_() was called since the last one.
  void update(Location where = Location::current());
  /// The scale becomes this one; positive.
  void update(double new_scale, Location where = Location::current());

  double get_scale() const;  ///< 1 where it is not enabled
  double growth_factor() const;
  double backoff_factor() const;
  std::int64_t growth_interval() const;
  /// User errors where they are not as the options say.
  void set_growth_factor(double factor, Location where = Location::current());
  void set_backoff_factor(double factor, Location where = Location::current());
  void set_growth_interval(std::int64_t interval, Location where = Location::current());
  bool is_enabled() const;

  /// "scale" (f32), "growth_factor", "backoff_factor" (f64), "growth_interval" and "_growth_tracker" (i64): scalars. Of
  /// a scaler that is not enabled nothing.
  nn::StateDict state_dict() const;
  /// All or nothing: user error where something is missing, unexpected or of another shape, or an option out of range.
  void load_state_dict(const nn::StateDict& state, Location where = Location::current());

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 protected:
  std::shared_ptr<State> state_;
};

/// The scale stays as it is; steps with a gradient that is not finite are skipped all the same.
class StaticGradScaler : public GradScaler {
 public:
  explicit StaticGradScaler(double scale, Location where = Location::current());
};

}  // namespace graven::amp
