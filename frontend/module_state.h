// What a module handle refers to.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graven/module.h"

namespace graven::nn {

struct ModuleState {
  std::string class_name;
  std::string arguments;
  std::string extra_repr;  ///< what the module's own extra_repr() said: for print alone, graphs do not have it
  /// Between the parentheses.
  std::string printed() const {
    return arguments.empty() || extra_repr.empty() ? arguments + extra_repr : arguments + ", " + extra_repr;
  }
  /// Lists and dictionaries of parameters print them, each in its way.
  enum class PrintsParameters : std::uint8_t { no, as_dtypes, as_tensors };
  PrintsParameters prints_parameters = PrintsParameters::no;
  bool training = true;
  bool activation_checkpointing = false;
  int stage = -1;  ///< of a pipeline; -1: none was set
  /// A batch norm, and whether it is one of the batches of all ranks (SyncBatchNorm::convert_sync_batchnorm()).
  bool is_batch_norm = false, is_synchronised = false;
  std::atomic<bool> registered = false;  ///< somebody's child; host threads may make graphs of one module at once
  struct Named {
    std::string name;
    Tensor tensor;
    bool is_buffer = false;
  };
  std::vector<Named> tensors;  ///< parameters and buffers, in order of registration
  struct Child {
    std::string name;
    std::shared_ptr<ModuleState> state;
    Location where;  ///< the line that registered it; none within Sequential(...): the list's own
  };
  std::vector<Child> children;
  struct Replaced {
    std::string name;
    std::weak_ptr<graven::detail::TensorImpl> tensor;
  };
  /// What was registered before another tensor was: older copies of the module have it.
  std::vector<Replaced> replaced;
};

/// How often a registered tensor was replaced by another, or a module added, anywhere: graphs look again when it has
/// changed.
std::uint64_t count_replacements();

/// "a.b" of "a" and "b"; "b" of "" and "b".
inline std::string join_path(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

/// Walks a module and everything below it, parents first; f(path, state) is called once for each module, under its
/// first path.
void walk_modules(const std::shared_ptr<ModuleState>& root, const std::string& path,
                  const std::function<void(const std::string&, const std::shared_ptr<ModuleState>&)>& f);

/// The same for each path: a module that is registered twice is visited twice.
void walk_paths(const std::shared_ptr<ModuleState>& root, const std::string& path,
                const std::function<void(const std::string&, const std::shared_ptr<ModuleState>&)>& f);

/// A tensor that is to be loaded. Entries of one `variable` need to come under one of their names.
struct LoadTarget {
  std::string name;
  ir::TensorType type;
  const void* variable = nullptr;  ///< nullptr: its own
};
/// What of `targets` and `state` has no counterpart. User error, before anything is copied, where shapes or kinds of
/// dtype differ, a name stands twice, or, when strict, anything has no counterpart. `what` begins the message.
LoadReport check_entries(const std::vector<LoadTarget>& targets, const StateDict& state, bool strict,
                         const std::string& what, Location where);

/// User error, beginning with `what`, unless the count of steps lies in [0, 2^53].
void check_step(std::int64_t step, const std::string& what, Location where);
/// The same of the train_step in `state`.
void check_train_step(const StateDict& state, const std::string& what, Location where);

/// Copies `state` into the tensors of `targets`, all or nothing. A tensor that stands under several names needs to come
/// under one of them; of several the last counts. `what` begins the message.
LoadReport load_tensors(const StateDict& targets, const StateDict& state, bool strict, const std::string& what,
                        Location where);

/// Checks a name for a child, parameter or buffer.
void check_name(const ModuleState& state, Name name, const char* kind);

/// The line that declares each module below `root`: what registered it on its first path, or else the module that holds
/// it.
void walk_declarations(const ModuleState& root, const std::function<void(const ModuleState&, Location)>& f);

}  // namespace graven::nn
