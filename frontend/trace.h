// The state of a graph while its build() runs on this thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/tensor_impl.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace graven::nn {
struct ModuleState;
}

namespace graven::detail {

/// What a module was called with, for repr.
struct ModuleCall {
  std::vector<ir::TensorType> inputs, outputs;
};

struct Trace {
  std::uint64_t id = 0;
  ir::Graph graph;
  std::string graph_name;
  /// Registered parameters and buffers, and the value that each has now (in-place changes rebind it).
  struct Variable {
    ir::ValueId value, current;
    std::size_t losses = 0;           ///< how many went backward before it was first changed
    bool cut = false;                 ///< it was given the value without autograd: no gradient flows from what reads it
    ir::ValueId updated = ir::kNone;  ///< stands for what the update makes of it (read_updates())
  };
  std::unordered_map<const TensorImpl*, Variable> variables;
  std::vector<const TensorImpl*> assigned;  ///< variables changed in place, in order of first change
  /// Tensors from outside that belong to no module: constants of the graph, kept alive so that the address stays
  /// theirs.
  struct Captured {
    ir::ValueId value;
    std::uint64_t version;  ///< of the memory, when its bytes were taken
  };
  std::unordered_map<const TensorImpl*, Captured> captured;
  std::vector<Tensor> kept;
  /// Memory of tensors that build() made with data and then changed in place by recorded values: they are recorded ones
  /// from there on.
  std::unordered_set<const Storage*> adopted;
  /// How often each tensor that has views, and is none, was changed in place, itself or through a view.
  std::unordered_map<const TensorImpl*, std::shared_ptr<std::uint64_t>> changes;
  struct Module {
    std::string path;
    Location declared;
  };
  std::unordered_map<const nn::ModuleState*, Module> modules;  ///< all that are registered
  std::unordered_map<const nn::ModuleState*, ModuleCall> calls;
  /// Of the modules that were asked for it; finish() gives it the last one.
  std::vector<std::pair<const nn::ModuleState*, bool>> modes;
  /// The hyper values of random operators, and how many of them each module path has: calls are told apart by both.
  ir::ValueId seed = ir::kNone, step = ir::kNone;
  std::unordered_map<std::string, int> random_calls;
  /// What the optimizers update.
  std::unordered_set<const TensorImpl*> learned;
  /// Behind read_updates() the number of values that were there before, else 0: what is recorded belongs to the update
  /// phase, and reads variables as they are when parameters have been updated.
  std::size_t before_update = 0;
  Location update_was_read{};  ///< by what, and where
  /// Computed behind read_updates().
  bool is_of_update(ir::ValueId v) const {
    return before_update > 0 && graph.value(v).kind == ir::ValueKind::node && ir::at(v) >= before_update;
  }
  ir::Phase phase() const { return before_update > 0 ? ir::Phase::update : ir::Phase::forward; }
  /// What build() says from here on is done behind the optimizers' updates. A parameter that is read then is a `detach`
  /// of the update phase, of which add_optimizer_updates makes what the update gives. User error before backward().
  void read_updates(Location where);
  /// User error behind read_updates(), where it is too late for what the function does.
  /// User error where an attribute has a symbol that no input has.
  void require_known_symbols(const ir::OpDef& op, const ir::Attributes& attributes, Location where) const;
  void require_before_update(const char* function, Location where) const;
  /// User error behind read_updates() where the operator reads what belongs to the step before the update: the memory
  /// of that, and its sizes, are another phase's.
  void require_variables(const ir::OpDef& op, const std::vector<Tensor>& inputs, const std::vector<ir::ValueId>& values,
                         Location where) const;

  /// Where a parameter is read while it requires no gradient: no gradient flows to it from there.
  struct FrozenRead {
    std::size_t node, input;
    ir::ValueId parameter;
    ir::ValueId value;  ///< what it holds there
  };
  std::vector<FrozenRead> frozen_reads;
  /// By index into graph.clips.
  struct ClipCall {
    std::size_t losses;  ///< how many went backward before it
    const char* function;
    Location where;
  };
  std::vector<ClipCall> clip_calls;

  std::vector<Tensor> record(const ir::OpDef& op, const std::vector<Tensor>& inputs, ir::Attributes attributes,
                             Location where);
  Tensor wrap(ir::ValueId value);
  ir::ValueId value_of(const Tensor& t, Location where);
  /// The slices of x along dim at these positions, as a view: of a symbolic dimension, whose size decides where they
  /// are.
  Tensor view_at(const Tensor& x, std::int64_t dim, const Tensor& positions, Location where);
  /// The same elements in a tensor of their own.
  Tensor copy_of(const Tensor& t, Location where);
  /// Whether the tensor is one of this graph's: recorded here, or a registered parameter or buffer.
  bool owns(const Tensor& t) const;
  /// Makes a tensor that build() made with data a recorded one, and a view of such a one; whether it is one now.
  bool adopt(const std::shared_ptr<TensorImpl>& impl, Location where);
  /// Of the node that was recorded last: remembers which of its inputs are frozen parameters, and that the others are
  /// trained.
  void note_parameters(const std::vector<Tensor>& inputs);
  void assign(Tensor& x, const Tensor& value, const char* function, Location where);
  /// Records the view anew, of what its base is now.
  void take_again(TensorImpl& tensor, Location where);
  /// The count of the changes of what `base` is a view of, or of itself.
  std::shared_ptr<std::uint64_t> changes_of(const std::shared_ptr<TensorImpl>& base);
  /// Remembers that the module was asked whether it trains: what was recorded then is of the mode that build() left it
  /// in.
  void note_mode(const nn::ModuleState& module);
  /// Nothing before backward(): each call begins without gradients. User error behind it.
  void zero_grad(Location where) const;
  /// Clips the gradients that backward() has given these parameters so far. User error before backward(), and of what
  /// is no parameter of the graph.
  void clip(ir::Clip clip, const std::vector<Tensor>& parameters, const char* function, Location where);
  /// Records the assignments to parameters and buffers, and cuts off what parameters gave while they were frozen.
  /// Called once, after build(). User error where a backward() behind a clip gives the clipped parameters further
  /// gradients.
  void finish();
  void detach_frozen_reads();
  void check_clips() const;
  /// Whether no backward() after the first change of the variable reaches what reads its old value.
  bool changes_behind_backward(const Variable& variable) const;
};

/// The trace that runs on this thread, nullptr when none does.
Trace* active_trace();

class TraceScope {
 public:
  explicit TraceScope(Trace& trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* previous_;
};

/// The module whose forward runs, innermost; the line of user code that called it.
struct ModuleFrame {
  const nn::ModuleState* module = nullptr;
  std::string path;  ///< in the traced graph; empty eagerly
  Location where;
  Location declared;             ///< in the traced graph; line 0 eagerly
  std::uint32_t checkpoint = 0;  ///< in the traced graph: ir::Origin::checkpoint of what it records
};
std::vector<ModuleFrame>& module_frames();

/// While this lives, what the innermost module computes itself is named after what it is to it:
/// "model.attn.q.slice" rather than after the child whose result comes in; and so is what is computed of that.
class Role {
 public:
  explicit Role(std::string_view name);
  ~Role();
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;

 private:
  friend std::string name_by_role(std::string_view op);
  std::string_view name_;
  std::size_t depth_;  ///< modules that run: those that are called from here name their own
  const Role* previous_;
};
/// The name of a result of `op`; empty where no role is said.
std::string name_by_role(std::string_view op);

/// The outermost module's call on this thread, eagerly: what it may use that requires a gradient and that nobody
/// registered.
struct OutermostCall {
  std::uint64_t began = 0;                   ///< what requires a gradient since is the call's own
  std::vector<const TensorImpl*> arguments;  ///< leaves among its arguments
  bool complete = false;                     ///< they are all: an argument of a type of somebody's own may hold more
};
OutermostCall& outermost_call();
/// User error when the innermost module has another tensor in the place of this one by now.
void require_current(const TensorImpl& impl, Location where);
/// User error when one of them is a leaf that requires a gradient, belongs to no module, and came into the outermost
/// call neither as an argument nor by being made there: a parameter that somebody forgot to register would never be
/// learnt, saved or loaded.
void require_registered(const std::vector<Tensor>& inputs, Location where);
/// The innermost module, and its declaration where `where` is its call: the operator is the layer's own. Otherwise
/// `where`.
ir::Origins origins_at(Location where);
/// Adds to an error of a layer's own operator, which says where the layer is called, where it is declared.
void note_declaration(UserError& error, Location where);

/// Values, parameters among them, that losses from `first` on depend on in a differentiable way.
std::unordered_set<ir::ValueId> reached_by_losses(const ir::Graph& graph, std::size_t first);

}  // namespace graven::detail
