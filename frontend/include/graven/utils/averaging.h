// Averages of weights, and whatever else follows the optimizer's step: eagerly, and in a graph's build(), whose program
// then does it behind the update.
//
//   optimizer.step();                                    // not in build(): a graph's step makes the update itself
//   nn::utils::update_average_(average, model, 0.999);
//
//   struct Train : nn::Graph<Train> {
//     Net model = child("model", Net()), average = child("average", Net());
//     optim::AdamW optimizer{model.parameters()};
//     Train() {
//       add_optimizer(optimizer);
//       average.load_state_dict(model.state_dict());
//     }
//     Tensor build(Tensor x, Tensor y) {
//       Tensor loss = mse_loss(model(x), y);
//       loss.backward();
//       nn::utils::update_average_(average, model, 0.999);
//       return loss;
//     }
//   };
#pragma once

#include "graven/module.h"
#include "graven/tensor.h"

namespace graven::nn {

/// What build() says while one lives, and all that it says behind it, is done behind the optimizers' updates, and reads
/// parameters as these leave them: it stands where eager code has it behind optimizer.step(). Eagerly, and besides, it
/// is a NoGradGuard.
///
///   loss.backward();
///   nn::AfterUpdate after;
///   average.mul_(0.999).add_(model.weight, 0.001);     // a buffer
///
/// It may read parameters and buffers, and write buffers and parameters that no optimizer of the graph has. User error
/// before backward(), of what was computed before it (the memory and sizes of that belong to the step before the
/// update), of random numbers, of a parameter that is updated (change it at the beginning of build()), of a result of
/// build() (what a call leaves is read from the modules), and of a backward() or clip_grad_norm_() behind it. Of a step
/// in parts (set_gradient_accumulation_steps()) it is done once, with the last one; of a step that a GradScaler skips
/// it is done all the same, as what follows scaler.step() is.
class AfterUpdate {
 public:
  explicit AfterUpdate(Location where = Location::current());

 private:
  NoGradGuard no_grad_;
};

namespace utils {

/// Exponential moving average of weights: each parameter a of `average` becomes a + (1 - decay) (p - a) with the
/// parameter p of `model` of the same name, as torch.optim.swa_utils.get_ema_multi_avg_fn(decay) has it, and each
/// buffer a copy of the model's, as AveragedModel(use_buffers=False) has it. AveragedModel's first update is a copy:
/// load average with the model's state_dict() where that is wanted. Stands behind optimizer.step(), or in build()
/// behind backward(), where it is done as under AfterUpdate. decay in [0, 1]. User error where the two have not the
/// same names, shapes and dtypes, or one of average's parameters belongs to an optimizer of the graph.
void update_average_(const ModuleBase& average, const ModuleBase& model, double decay,
                     Location where = Location::current());

}  // namespace utils

}  // namespace graven::nn
