#include "frontend/trace.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "frontend/autograd.h"
#include "frontend/dispatch.h"
#include "frontend/module_state.h"
#include "ir/analysis.h"
#include "ir/ops.h"

namespace graven::detail {

namespace {
thread_local Trace* current_trace = nullptr;
}

Trace* active_trace() { return current_trace; }
TraceScope::TraceScope(Trace& trace) : previous_(current_trace) { current_trace = &trace; }
TraceScope::~TraceScope() { current_trace = previous_; }

std::vector<ModuleFrame>& module_frames() {
  thread_local std::vector<ModuleFrame> frames;
  return frames;
}

namespace {
thread_local const Role* current_role = nullptr;
}

Role::Role(std::string_view name) : name_(name), depth_(module_frames().size()), previous_(current_role) {
  current_role = this;
}
Role::~Role() { current_role = previous_; }
std::string name_by_role(std::string_view op) {
  const auto& frames = module_frames();
  if (current_role == nullptr || current_role->depth_ != frames.size()) return {};
  std::string name = frames.empty() || frames.back().path.empty() ? std::string() : frames.back().path + ".";
  return name.append(current_role->name_).append(".").append(op);
}

OutermostCall& outermost_call() {
  thread_local OutermostCall call;
  return call;
}

namespace {

[[noreturn]] void fail_unregistered(const Tensor& t, const std::string& place, const char* otherwise, Location where) {
  UserError error("the tensor " + t.describe() + " requires a gradient and is used in " + place +
                  ", but is no registered parameter");
  error.note(std::string("register it in a module: parameter(\"name\", ...); ") + otherwise +
             "or detach() it, to make it a constant");
  error.at(where.file_name(), where.line);
  throw error;
}

}  // namespace

void require_current(const TensorImpl& impl, Location where) {
  const auto& frames = module_frames();
  if (!impl.is_replaced || frames.empty()) return;
  const nn::ModuleState& module = *frames.back().module;
  for (const auto& [name, tensor] : module.replaced) {
    if (tensor.lock().get() != &impl) continue;
    UserError error("this copy of " + module.class_name + " has a '" + name +
                    "' that was replaced: another tensor was assigned to it in another copy");
    error.note("assign before the layer is copied, into a Sequential or a member, or to the copy that is called");
    error.at(where.file_name(), where.line);
    throw error;
  }
}

void require_registered(const std::vector<Tensor>& inputs, Location where) {
  const auto& frames = module_frames();
  for (const Tensor& t : inputs)
    if (t.defined()) require_current(*t.impl(), where);
  if (frames.empty() || !outermost_call().complete) return;
  for (const Tensor& t : inputs) {
    if (!t.defined()) continue;
    const TensorImpl& impl = *t.impl();
    if (!impl.requires_grad || impl.grad_fn || !impl.owner.empty() || impl.trace_id != 0) continue;
    const OutermostCall& call = outermost_call();
    if (impl.leaf_since > call.began ||
        std::find(call.arguments.begin(), call.arguments.end(), &impl) != call.arguments.end())
      continue;
    fail_unregistered(t, "forward() of " + frames.back().module->class_name,
                      "pass it to the outermost module as an argument; ", where);
  }
}

namespace {

bool same_line(Location a, Location b) { return a.line == b.line && std::strcmp(a.file, b.file) == 0; }

ir::Origins at_line(Location where) {
  const auto& frames = module_frames();
  if (frames.empty()) return {{std::string(), where.file_name(), where.line}};
  return {{frames.back().path, where.file_name(), where.line, frames.back().checkpoint}};
}

/// The line that declares the innermost module; line 0 when it is not known.
Location declaration() {
  const auto& frames = module_frames();
  if (active_trace()) return frames.back().declared;
  // Eagerly nobody has gone through the tree of modules before: the modules that call say what they registered.
  Location known;
  for (std::size_t i = 1; i < frames.size(); ++i) {
    const auto& children = frames[i - 1].module->children;
    const auto found = std::find_if(children.begin(), children.end(),
                                    [&](const auto& c) { return c.state.get() == frames[i].module; });
    if (found == children.end())
      known = {};
    else if (found->where.line != 0)
      known = found->where;
  }
  return known;
}

}  // namespace

ir::Origins origins_at(Location where) {
  const auto& frames = module_frames();
  const bool own = !frames.empty() && frames.back().declared.line != 0 && same_line(where, frames.back().where);
  return at_line(own ? frames.back().declared : where);
}

void note_declaration(UserError& error, Location where) {
  const auto& frames = module_frames();
  if (frames.empty() || !same_line(where, frames.back().where)) return;
  const Location declared = declaration();
  if (declared.line == 0 || same_line(declared, where)) return;
  error.note("the " + frames.back().module->class_name + " is declared at " + declared.file_name() + ":" +
             std::to_string(declared.line));
}

bool Trace::owns(const Tensor& t) const {
  const TensorImpl* impl = t.impl().get();
  return impl->trace_id == id ||
         (impl->trace_id == 0 && (variables.count(impl) || impl->is_parameter || adopted.count(impl->storage.get())));
}

Tensor Trace::wrap(ir::ValueId value) {
  auto impl = std::make_shared<TensorImpl>();
  const ir::TensorType& type = graph.type(value);
  impl->dtype = type.dtype;
  impl->shape = type.shape;
  impl->sizes = type.shape.maxima();
  impl->strides = contiguous_strides(impl->sizes);
  impl->trace_id = id;
  impl->value = value;
  impl->owner = graph.value(value).name;
  return Tensor(std::move(impl));
}

ir::ValueId Trace::value_of(const Tensor& t, Location where) {
  if (!t.defined()) return ir::kNone;
  TensorImpl* impl = t.impl().get();
  if (impl->trace_id == id) {
    std::vector<TensorImpl*> outdated;
    for (TensorImpl* at = impl; at->view && at->trace_id == id && at->view->seen != *at->view->changes;
         at = at->view->base.get())
      outdated.push_back(at);
    for (; !outdated.empty(); outdated.pop_back()) take_again(*outdated.back(), where);
    return impl->value;
  }
  if (impl->trace_id != 0)
    fail("build", "the tensor " + t.describe() + " was recorded by another graph's build()", where);
  if (adopted.count(impl->storage.get())) {
    if (adopt(t.impl(), where)) return value_of(t, where);
    fail("build",
         "the tensor " + t.describe() +
             " shares the memory of one that was changed in place by a recorded value, and was taken by detach() or "
             "under " +
             "NoGradGuard; take it after the change",
         where);
  }
  require_current(*impl, where);
  if (const auto it = variables.find(impl); it != variables.end()) {
    Variable& variable = it->second;
    if (std::exchange(variable.cut, false))
      variable.current = graph.add_node(ir::kDetach, {variable.current}, {}, origins_at(where), phase()).at(0);
    if (before_update == 0 || learned.count(impl) == 0) return variable.current;
    if (variable.updated == ir::kNone)
      variable.updated = graph.add_node(ir::kDetach, {variable.current}, {}, origins_at(where), phase()).at(0);
    return variable.updated;
  }
  if (impl->is_parameter) {
    UserError error("the parameter " + t.describe() + " of " + impl->owner + " is used in build() of " + graph_name +
                    ", but no module that is registered in the graph has it");
    error.note("register its module where it is declared: child(\"name\", ...)");
    error.at(where.file_name(), where.line);
    throw error;
  }
  if (impl->requires_grad) fail_unregistered(t, "build() of " + graph_name, "", where);
  const std::uint64_t version = impl->storage->version.load(std::memory_order_relaxed);
  if (const auto it = captured.find(impl); it != captured.end() && it->second.version == version)
    return it->second.value;
  auto data = std::make_shared<ir::TensorData>();
  data->type = {impl->dtype, impl->shape};
  const Tensor rows = contiguous_copy(t);
  data->bytes.resize(static_cast<std::size_t>(impl->numel()) * ir::size_of(impl->dtype));
  if (!data->bytes.empty()) std::memcpy(data->bytes.data(), rows.impl()->data(), data->bytes.size());
  const auto& frames = module_frames();
  const std::string path = frames.empty() || frames.back().path.empty() ? std::string() : frames.back().path + ".";
  const ir::ValueId value = graph.add_constant(path + "constant", std::move(data));
  captured[impl] = {value, version};
  kept.push_back(t);
  return value;
}

std::vector<Tensor> Trace::record(const ir::OpDef& op, const std::vector<Tensor>& inputs, ir::Attributes attributes,
                                  Location where) {
  std::vector<ir::ValueId> values;
  values.reserve(inputs.size());
  bool requires_grad = false;
  for (const Tensor& t : inputs) {
    values.push_back(value_of(t, where));
    requires_grad = requires_grad || (t.defined() && t.impl()->requires_grad);
  }
  if (before_update > 0) require_variables(op, inputs, values, where);
  require_known_symbols(op, attributes, where);
  while (!values.empty() && values.back() == ir::kNone) values.pop_back();  // optional inputs at the end are left out
  // An error is about the call; what was recorded well belongs to the layer.
  std::vector<ir::ValueId> results;
  try {
    results = graph.add_node(op, std::move(values), std::move(attributes), at_line(where), phase(),
                             name_by_role(op.name), where.function == nullptr ? std::string_view() : where.function);
  } catch (UserError& e) {
    note_conversion(e);
    note_symbols(e);
    note_declaration(e, where);
    throw;
  }
  graph.nodes.back().origins = origins_at(where);
  note_parameters(inputs);
  for (ir::ValueId v : results) {
    if (!has_countable_bytes(graph.type(v)))
      fail(std::string(op.name),
           "the result " + graph.type(v).to_string() + " is too large: its bytes do not fit in 63 bits", where);
  }
  std::vector<Tensor> outputs;
  outputs.reserve(results.size());
  for (ir::ValueId v : results) {
    outputs.push_back(wrap(v));
    outputs.back().impl()->requires_grad =
        requires_grad && op.gradient != nullptr && ir::is_floating(outputs.back().dtype());
  }
  if (op.alias || op == ir::kPermute || op == ir::kExpand || op == ir::kSlice) {
    const std::shared_ptr<TensorImpl>& base = inputs.at(0).impl();
    const ir::Attributes& taken = graph.nodes.back().attributes;
    TensorImpl& result = *outputs[0].impl();
    // A reshape that strides cannot express is a copy, eagerly and therefore here.
    if (auto strides = strides_of_view(*base, op, taken, result.sizes)) {
      result.strides = std::move(*strides);
      result.view = std::make_shared<RecordedView>(base, op, taken, changes_of(base));
    }
  }
  return outputs;
}

Tensor Trace::view_at(const Tensor& x, std::int64_t dim, const Tensor& positions, Location where) {
  const ir::Attributes attributes{{"dim", dim}};
  const ir::OpDef& op = ir::kIndexSelect;
  Tensor part = record(op, {x, positions}, attributes, where).at(0);
  part.impl()->strides = x.impl()->strides;
  part.impl()->view = std::make_shared<RecordedView>(x.impl(), op, attributes, changes_of(x.impl()), positions);
  return part;
}

Tensor Trace::copy_of(const Tensor& t, Location where) {
  Tensor copy = wrap(value_of(t, where));
  copy.impl()->requires_grad = t.impl()->requires_grad;
  return copy;
}

std::shared_ptr<std::uint64_t> Trace::changes_of(const std::shared_ptr<TensorImpl>& base) {
  if (base->trace_id == id && base->view) return base->view->changes;
  auto& count = changes[base.get()];
  if (!count) count = std::make_shared<std::uint64_t>(0);
  return count;
}

void Trace::take_again(TensorImpl& tensor, Location where) {
  RecordedView& view = *tensor.view;
  std::vector<ir::ValueId> inputs{value_of(Tensor(view.base), where)};
  if (view.positions.defined()) inputs.push_back(value_of(view.positions, where));
  tensor.value = graph.add_node(*view.op, std::move(inputs), view.attributes, origins_at(where), phase()).at(0);
  note_parameters({Tensor(view.base)});
  tensor.requires_grad = view.base->requires_grad && view.op->gradient != nullptr;
  view.seen = *view.changes;
}

namespace {

/// Whether nobody but the view holds what it is a view of.
bool is_all_that_is_left(const TensorImpl& view) {
  for (const RecordedView* v = view.view.get(); v != nullptr; v = v->base->view.get())
    if (v->base.use_count() > 1) return false;
  return true;
}

}  // namespace

bool Trace::adopt(const std::shared_ptr<TensorImpl>& impl, Location where) {
  if (impl->trace_id != 0) return impl->trace_id == id;
  std::vector<TensorImpl*> views;
  TensorImpl* bottom = impl.get();
  for (; bottom->trace_id == 0 && bottom->view; bottom = bottom->view->base.get()) views.push_back(bottom);
  if (bottom->trace_id == 0) {
    if (bottom->is_view || bottom->storage->made_in != id || bottom->is_parameter || bottom->requires_grad ||
        variables.count(bottom))
      return false;
    bottom->value = value_of(Tensor(views.empty() ? impl : views.back()->view->base), where);
    bottom->trace_id = id;
    adopted.insert(bottom->storage.get());
  }
  if (bottom->trace_id != id) return false;
  for (; !views.empty(); views.pop_back()) {
    TensorImpl& view = *views.back();
    view.grad_fn = nullptr;
    view.trace_id = id;
    view.view->changes = changes_of(view.view->base);
    take_again(view, where);
  }
  return true;
}

void Trace::assign(Tensor& x, const Tensor& value, const char* function, Location where) {
  (void)adopt(x.impl(), where);
  // Innermost view first: what it, and what it is a view of, become. Their values are asked for before any of them
  // changes.
  struct Written {
    Tensor tensor, becomes;
    ir::ValueId value;
    ir::ValueId before;  ///< where autograd does not see the change: what the tensor was
  };
  const auto before = [&](const Tensor& t) {
    const bool unseen = !grad_enabled() && t.impl()->trace_id == id && t.impl()->requires_grad;
    return unseen ? value_of(t, where) : ir::kNone;
  };
  std::vector<Written> written{{x, value, value_of(value, where), before(x)}};
  for (;;) {
    TensorImpl& target = *written.back().tensor.impl();
    if (target.trace_id != id || !target.view) break;
    if (is_all_that_is_left(target)) {
      changes[&target] = target.view->changes;
      target.view.reset();
      break;
    }
    const Tensor becomes = written_through(target, written.back().becomes, function, where);
    const Tensor base(target.view->base);
    written.push_back({base, becomes, value_of(becomes, where), before(base)});
  }
  const TensorImpl& bottom = *written.back().tensor.impl();
  if (bottom.trace_id != id && bottom.requires_grad && grad_enabled())
    fail(function,
         std::string(written.size() == 1 ? "a leaf" : "a view of a leaf") +
             " that requires a gradient is changed in place; use NoGradGuard, or a new tensor",
         where);
  if (const auto counted = changes.find(&bottom); counted != changes.end()) ++*counted->second;
  for (const Written& w : written) {
    TensorImpl& target = *w.tensor.impl();
    if (target.trace_id != id) continue;
    if (w.before != ir::kNone) {
      // Gradients go on, eagerly, to what the tensor was made of.
      target.value = graph.add_node(ir::kStraightThrough, {w.value, w.before}, {}, origins_at(where), phase()).at(0);
    } else if (!grad_enabled() && w.becomes.impl()->requires_grad) {
      target.value = graph.add_node(ir::kDetach, {w.value}, {}, origins_at(where), phase()).at(0);
    } else {
      target.value = w.value;
      target.requires_grad = w.becomes.impl()->requires_grad;
    }
    if (target.view) target.view->seen = *target.view->changes;
  }
  if (bottom.trace_id == id) return;
  const auto it = variables.find(&bottom);
  if (it != variables.end()) {
    if (before_update > 0 && learned.count(&bottom))
      fail(function,
           "the parameter " + graph.value(it->second.value).name +
               " is what the graph's update gives; change it at the beginning of build(), before what reads it",
           where);
    if (std::find(assigned.begin(), assigned.end(), &bottom) == assigned.end()) {
      assigned.push_back(&bottom);
      it->second.losses = graph.losses.size();
    }
    ir::ValueId held = written.back().value;
    // Eagerly it stays a leaf: what is read from here on adds to the parameter's gradient.
    if (before_update == 0 && bottom.is_parameter && bottom.requires_grad)
      held = graph.add_node(ir::kStraightThrough, {held, it->second.value}, {}, origins_at(where)).at(0);
    else
      it->second.cut = !grad_enabled() && written.back().becomes.impl()->requires_grad;
    it->second.current = held;
    return;
  }
  if (bottom.is_parameter)
    (void)value_of(written.back().tensor, where);  // reports the parameter that nobody registered
  fail(function,
       "the tensor " + x.describe() +
           " from outside of build() is changed in place by a recorded value; register it as a buffer of a module",
       where);
}

void Trace::note_parameters(const std::vector<Tensor>& inputs) {
  if (before_update > 0) return;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto it = inputs[i].defined() ? variables.find(inputs[i].impl().get()) : variables.end();
    if (it == variables.end()) continue;
    ir::Value& parameter = graph.value(it->second.value);
    if (parameter.kind != ir::ValueKind::parameter) continue;
    if (inputs[i].impl()->requires_grad)
      parameter.trainable = true;
    else
      frozen_reads.push_back({graph.nodes.size() - 1, i, it->second.value, it->second.current});
  }
}

void Trace::note_mode(const nn::ModuleState& module) {
  if (modules.count(&module) &&
      std::none_of(modes.begin(), modes.end(), [&](const auto& m) { return m.first == &module; }))
    modes.emplace_back(&module, module.training);
}

void Trace::read_updates(Location where) {
  if (graph.losses.empty())
    fail_at("what is said of the updated parameters stands behind backward(), and build() has called it on no loss",
            where);
  if (before_update > 0) return;
  before_update = graph.values.size();
  update_was_read = where;
  // Views that were taken before are taken again, of what there is then.
  for (auto& [tensor, count] : changes)
    if (variables.count(tensor)) ++*count;
}

void Trace::require_before_update(const char* function, Location where) const {
  if (before_update > 0)
    fail_at(std::string(function) +
                " stands behind what reads the updated parameters, where gradients are used up: say it before that",
            where);
}

void Trace::require_variables(const ir::OpDef& op, const std::vector<Tensor>& inputs,
                              const std::vector<ir::ValueId>& values, Location where) const {
  if (op.random) fail(std::string(op.name), "nothing random is drawn behind the update", where);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (values[i] == ir::kNone || variables.count(inputs[i].impl().get())) continue;
    const ir::Value& value = graph.value(values[i]);
    if (value.kind != ir::ValueKind::input && (value.kind != ir::ValueKind::node || is_of_update(values[i]))) continue;
    UserError error("'" + value.name + "' " + value.type.to_string() +
                    " was there before the update; behind it expected parameters, buffers and what is computed of them "
                    "there");
    error.note(fmt::format("what stands behind {} ({}:{}) is done behind the update: say this before it",
                           update_was_read.function ? update_was_read.function : "AfterUpdate",
                           update_was_read.file_name(), update_was_read.line));
    throw_at(error, std::string(op.name), where);
  }
}

void Trace::require_known_symbols(const ir::OpDef& op, const ir::Attributes& attributes, Location where) const {
  for (const auto& [name, attribute] : attributes) {
    const Shape* const shape = std::get_if<Shape>(&attribute);
    if (shape == nullptr || shape->is_static()) continue;
    const std::vector<ir::Symbol> known = graph.symbols();
    for (const Dim& dim : *shape)
      for (const ir::Symbol& symbol : dim.symbols()) {
        if (std::find(known.begin(), known.end(), symbol) != known.end()) continue;
        std::string names;
        for (const ir::Symbol& k : known) names += (names.empty() ? "" : ", ") + k.name + " in " + k.range();
        fail(std::string(op.name),
             "the size " + symbol.name + " in " + symbol.range() + " is none of the graph's inputs', " +
                 (names.empty() ? "which are all fixed" : "which are " + names) +
                 ": take it from an input's shape(), or declare an input with it",
             where);
      }
  }
}

void Trace::zero_grad(Location where) const {
  if (!graph.losses.empty())
    fail_at(
        "zero_grad() behind backward() within build() would leave nothing to update with; leave it out: each call "
        "begins without gradients",
        where);
}

void Trace::clip(ir::Clip clip, const std::vector<Tensor>& parameters, const char* function, Location where) {
  require_before_update(function, where);
  if (graph.losses.empty())
    fail_at(
        std::string(function) + ": there are no gradients before backward(); in a graph each call begins without any",
        where);
  for (const Tensor& p : parameters) {
    const ir::ValueId value =
        owns(p) && variables.count(p.impl().get()) ? variables.at(p.impl().get()).value : value_of(p, where);
    if (graph.value(value).kind != ir::ValueKind::parameter)
      fail_at(
          std::string(function) + ": expected parameters of modules of the graph, got another tensor " + p.describe(),
          where);
    clip.parameters.push_back(value);
  }
  graph.clips.push_back(std::move(clip));
  clip_calls.push_back({graph.losses.size(), function, where});
}

std::unordered_set<ir::ValueId> reached_by_losses(const ir::Graph& graph, std::size_t first) {
  std::unordered_set<ir::ValueId> reached;
  for (std::size_t l = first; l < graph.losses.size(); ++l) reached.insert(graph.losses[l].value);
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const ir::Node& node = graph.nodes[n];
    if (node.is(ir::kDetach)) continue;
    if (std::any_of(node.outputs.begin(), node.outputs.end(), [&](ir::ValueId v) { return reached.count(v) != 0; }))
      for (std::size_t i = node.is(ir::kStraightThrough) ? 1 : 0; i < node.inputs.size(); ++i)
        if (const ir::ValueId v = node.inputs[i]; v != ir::kNone && ir::is_floating(graph.type(v).dtype))
          reached.insert(v);
  }
  return reached;
}

/// Where a frozen parameter was read that is trained elsewhere, what was read has no gradient.
void Trace::detach_frozen_reads() {
  // One detached value for each that the parameter has had, before the first node that reads it.
  std::unordered_map<ir::ValueId, ir::ValueId> detached;
  std::map<std::size_t, std::vector<ir::Node>> before;
  for (const FrozenRead& read : frozen_reads) {
    if (!graph.value(read.parameter).trainable) continue;
    const auto [it, is_new] = detached.emplace(read.value, ir::kNone);
    if (is_new) {
      it->second = graph.add_node(ir::kDetach, {read.value}, {}, graph.nodes[read.node].origins, ir::Phase::forward,
                                  graph.value(read.parameter).name + ".detach")[0];
      before[read.node].push_back(std::move(graph.nodes.back()));
      graph.nodes.pop_back();
    }
    graph.nodes[read.node].inputs[read.input] = it->second;
  }
  std::vector<ir::Node> nodes;
  nodes.reserve(graph.nodes.size() + detached.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (const auto it = before.find(n); it != before.end())
      std::move(it->second.begin(), it->second.end(), std::back_inserter(nodes));
    nodes.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(nodes);
}

/// User error where a gradient grows behind the call that clips it.
void Trace::check_clips() const {
  for (std::size_t c = 0; c < clip_calls.size(); ++c) {
    if (clip_calls[c].losses == graph.losses.size()) continue;
    const auto reached = reached_by_losses(graph, clip_calls[c].losses);
    for (const ir::ValueId p : graph.clips[c].parameters)
      if (graph.value(p).trainable && reached.count(p))
        fail_at(std::string(clip_calls[c].function) + ": a later backward() adds to the gradient of " +
                    graph.value(p).name + "; clip behind the last backward() that reaches it",
                clip_calls[c].where);
  }
}

bool Trace::changes_behind_backward(const Variable& variable) const {
  if (variable.losses == 0) return false;
  if (variable.losses == graph.losses.size()) return true;
  const std::unordered_set<ir::ValueId> reached = reached_by_losses(graph, variable.losses);
  const std::vector<ir::ValueId> memory = ir::memory_roots(graph);
  const auto is_old = [&](ir::ValueId v) {
    return v != ir::kNone && memory[static_cast<std::size_t>(v)] == variable.value;
  };
  return std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const ir::Node& node) {
    return !node.op->alias && std::any_of(node.inputs.begin(), node.inputs.end(), is_old) &&
           std::any_of(node.outputs.begin(), node.outputs.end(), [&](ir::ValueId v) { return reached.count(v) != 0; });
  });
}

void Trace::finish() {
  for (auto& [module, training] : modes) training = module->training;
  for (auto& [impl, taken] : captured) taken.version = impl->storage->version.load(std::memory_order_relaxed);
  detach_frozen_reads();
  check_clips();
  for (const TensorImpl* impl : assigned) {
    const Variable& v = variables.at(impl);
    if (v.current != v.value) graph.donations.push_back({v.value, v.current, changes_behind_backward(v)});
  }
}

}  // namespace graven::detail
