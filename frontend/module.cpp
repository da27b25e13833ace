#include "graven/module.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <ostream>
#include <set>
#include <unordered_set>

#include "frontend/dispatch.h"
#include "frontend/module_state.h"
#include "frontend/trace.h"

namespace graven::nn {

using graven::detail::fail_at;

using graven::detail::module_frames;
using graven::detail::ModuleFrame;

// ---- registration ---------------------------------------------------------------------------------------------------

ModuleBase::ModuleBase(std::string class_name) : state_(std::make_shared<ModuleState>()) {
  state_->class_name = std::move(class_name);
}

namespace {

bool contains(const ModuleState& tree, const ModuleState* wanted) {
  if (&tree == wanted) return true;
  return std::any_of(tree.children.begin(), tree.children.end(),
                     [&](const auto& c) { return contains(*c.state, wanted); });
}

}  // namespace

void check_name(const ModuleState& state, Name wanted, const char* kind) {
  const std::string_view name = wanted.text();
  const Location where = wanted.where();
  const std::string quoted = std::string(kind) + " '" + std::string(name) + "' of " + state.class_name;
  if (name.empty()) fail_at("a " + std::string(kind) + " of " + state.class_name + " has an empty name", where);
  if (std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    fail_at("a " + std::string(kind) + " of " + state.class_name + " has a control character in its name", where);
  if (name.find('.') != std::string_view::npos) fail_at("the " + quoted + " has a dot in its name", where);
  const bool taken =
      std::any_of(state.tensors.begin(), state.tensors.end(), [&](const auto& t) { return t.name == name; }) ||
      std::any_of(state.children.begin(), state.children.end(), [&](const auto& c) { return c.name == name; });
  if (taken) fail_at("the " + quoted + " has a name that is taken", where);
}

namespace {

/// What a parameter that is made of `init` is: the tensor itself where it can be one.
Tensor as_parameter(Tensor init, const ModuleState& state, const std::string& name, Location where) {
  if (!ir::is_floating(init.dtype()))
    fail_at("the parameter '" + name + "' of " + state.class_name + " must be floating-point, got " + init.describe(),
            where);
  if (init.is_traced())
    fail_at("the parameter '" + name + "' of " + state.class_name + " is made within a graph's build()", where);
  if (init.impl()->is_parameter) return init;
  init = init.is_contiguous() && !init.is_view() && init.is_leaf() ? init : init.detach().clone();
  init.requires_grad_();
  init.impl()->is_parameter = true;
  init.impl()->owner = state.class_name + "." + name;
  return init;
}

Tensor as_buffer(Tensor init, const ModuleState& state, const std::string& name, Location where) {
  if (init.is_traced())
    fail_at("the buffer '" + name + "' of " + state.class_name + " is made within a graph's build()", where);
  if (!init.is_contiguous() || init.is_view() || init.requires_grad()) init = init.detach().clone();
  if (init.impl()->owner.empty()) init.impl()->owner = state.class_name + "." + name;
  return init;
}

std::atomic<std::uint64_t> replacements{0};

}  // namespace

std::uint64_t count_replacements() { return replacements.load(std::memory_order_relaxed); }

Registration ModuleBase::parameter(Name wanted, Tensor init) {
  check_name(*state_, wanted, "parameter");
  const std::string name(wanted.text());
  if (init.defined()) {
    init = as_parameter(std::move(init), *state_, name, wanted.where());
    state_->tensors.push_back({name, init, false});
  }
  return {std::move(init), state_, name, false};
}

Registration ModuleBase::buffer(Name wanted, Tensor init) {
  check_name(*state_, wanted, "buffer");
  const std::string name(wanted.text());
  if (init.defined()) {
    init = as_buffer(std::move(init), *state_, name, wanted.where());
    state_->tensors.push_back({name, init, true});
  }
  return {std::move(init), state_, name, true};
}

Tensor detail::replace_registered(const std::weak_ptr<ModuleState>& module, const std::string& name, bool is_buffer,
                                  const Tensor& own, const Tensor& given) {
  const std::shared_ptr<ModuleState> state = module.lock();
  if (!state) {
    if (!given.defined() && !own.defined()) return {};
    throw UserError(
        "a tensor is assigned to a member that its module did not register, as the bias of a layer that was made "
        "without one")
        .note("registered are parameter(\"name\", ...) and buffer(\"name\", ...)");
  }
  const std::string quoted = "'" + name + "' of " + state->class_name;
  const auto entry =
      std::find_if(state->tensors.begin(), state->tensors.end(), [&](const auto& t) { return t.name == name; });
  const bool has_entry = entry != state->tensors.end();
  if (given.is_same(own) && (!has_entry || entry->tensor.is_same(given))) return given;
  if (!module_frames().empty() || graven::detail::active_trace())
    throw UserError("another tensor is assigned to " + quoted + " within forward() or build()")
        .note(
            "a local copy is a Tensor: write Tensor, not auto; what is in the memory of a parameter is changed by "
            "copy_()");
  if (given.defined() && !given.is_leaf())
    throw UserError("the result of an operator, " + given.describe() + ", is assigned to " + quoted)
        .note("detach() makes a parameter of it; a local copy is a Tensor: write Tensor, not auto");
  Tensor next = given;
  if (next.defined())
    next = is_buffer ? as_buffer(std::move(next), *state, name, {}) : as_parameter(std::move(next), *state, name, {});
  if (has_entry) {
    const std::shared_ptr<graven::detail::TensorImpl> old = entry->tensor.impl();
    old->is_replaced = true;
    if (next.defined())
      entry->tensor = next;
    else
      state->tensors.erase(entry);
    if (std::none_of(state->tensors.begin(), state->tensors.end(),
                     [&](const auto& t) { return t.tensor.impl() == old; }))
      state->replaced.push_back({name, old});
  } else if (next.defined()) {
    state->tensors.push_back({name, next, is_buffer});
  }
  std::erase_if(state->replaced, [&](const auto& r) {
    const auto impl = r.tensor.lock();
    return !impl || (next.defined() && impl == next.impl());
  });
  replacements.fetch_add(1, std::memory_order_relaxed);
  return next;
}

void ModuleBase::register_child(Name name, const ModuleBase& module) {
  check_name(*state_, name, "child");
  if (contains(*module.state_, state_.get()))
    fail_at("the child '" + std::string(name.text()) + "' of " + state_->class_name + " contains its parent",
            name.where());
  module.state_->registered = true;
  replacements.fetch_add(1, std::memory_order_relaxed);
  state_->children.push_back({std::string(name.text()), module.state_, name.where()});
}

void ModuleBase::set_arguments(std::string arguments) { state_->arguments = std::move(arguments); }

void ModuleBase::require_registered() const {
  const auto& frames = module_frames();
  if (frames.empty() || state_->registered || frames.back().module == state_.get()) return;
  UserError error("the " + class_name() + " is used within forward() of " + frames.back().module->class_name +
                  ", but is not registered");
  error.note("register it where it is declared: child(\"name\", " + class_name() + "(...))");
  error.at(frames.back().where.file_name(), frames.back().where.line);
  throw error;
}

void ModuleBase::require_entry(std::size_t index, std::size_t size) const {
  require_registered();
  if (index < size) return;
  const Location where = call_location();
  fail_at(class_name() + ": index " + std::to_string(index) + " is out of range, it has " + std::to_string(size) +
              (size == 1 ? " entry" : " entries"),
          where);
}

Location ModuleBase::call_location() { return module_frames().empty() ? Location{} : module_frames().back().where; }

const std::string& ModuleBase::class_name() const { return state_->class_name; }

// ---- the tree of modules --------------------------------------------------------------------------------------------

namespace {

void walk(const std::shared_ptr<ModuleState>& state, const std::string& path,
          std::unordered_set<const ModuleState*>& seen,
          const std::function<void(const std::string&, const std::shared_ptr<ModuleState>&)>& f) {
  if (!seen.insert(state.get()).second) return;
  f(path, state);
  for (const auto& c : state->children) walk(c.state, join_path(path, c.name), seen, f);
}

}  // namespace

void walk_modules(const std::shared_ptr<ModuleState>& root, const std::string& path,
                  const std::function<void(const std::string&, const std::shared_ptr<ModuleState>&)>& f) {
  std::unordered_set<const ModuleState*> seen;
  walk(root, path, seen, f);
}

void walk_paths(const std::shared_ptr<ModuleState>& root, const std::string& path,
                const std::function<void(const std::string&, const std::shared_ptr<ModuleState>&)>& f) {
  f(path, root);
  for (const auto& c : root->children) walk_paths(c.state, join_path(path, c.name), f);
}

namespace {
void walk_declarations(const ModuleState& parent, Location declared, std::unordered_set<const ModuleState*>& seen,
                       const std::function<void(const ModuleState&, Location)>& f) {
  for (const auto& c : parent.children) {
    if (!seen.insert(c.state.get()).second) continue;
    const Location own = c.where.line != 0 ? c.where : declared;
    f(*c.state, own);
    walk_declarations(*c.state, own, seen, f);
  }
}
}  // namespace

void walk_declarations(const ModuleState& root, const std::function<void(const ModuleState&, Location)>& f) {
  std::unordered_set<const ModuleState*> seen{&root};
  walk_declarations(root, {}, seen, f);
}

namespace {
NamedTensors tensors_of(const std::shared_ptr<ModuleState>& root, bool parameters, bool buffers, bool once) {
  NamedTensors result;
  std::unordered_set<const graven::detail::TensorImpl*> seen;
  const auto take = [&](const std::string& path, const std::shared_ptr<ModuleState>& state) {
    for (const auto& t : state->tensors)
      if ((t.is_buffer ? buffers : parameters) && (!once || seen.insert(t.tensor.impl().get()).second))
        result.emplace_back(join_path(path, t.name), t.tensor);
  };
  if (once)
    walk_modules(root, {}, take);
  else
    walk_paths(root, {}, take);
  return result;
}
}  // namespace

NamedTensors ModuleBase::named_parameters() const { return tensors_of(state_, true, false, true); }
NamedTensors ModuleBase::named_buffers() const { return tensors_of(state_, false, true, true); }
StateDict ModuleBase::state_dict() const { return tensors_of(state_, true, true, false); }

std::vector<Tensor> ModuleBase::parameters() const {
  std::vector<Tensor> result;
  for (auto& [name, t] : named_parameters()) result.push_back(t);
  return result;
}

std::vector<std::pair<std::string, ModuleBase>> ModuleBase::named_modules() const {
  std::vector<std::pair<std::string, ModuleBase>> result;
  walk_modules(state_, {}, [&](const std::string& path, const std::shared_ptr<ModuleState>& state) {
    result.emplace_back(path, ModuleBase(state));
  });
  return result;
}

std::vector<ModuleBase> ModuleBase::modules() const {
  std::vector<ModuleBase> result;
  for (auto& [name, m] : named_modules()) result.push_back(m);
  return result;
}

std::vector<std::pair<std::string, ModuleBase>> ModuleBase::children() const {
  std::vector<std::pair<std::string, ModuleBase>> result;
  for (const auto& c : state_->children) result.emplace_back(c.name, ModuleBase(c.state));
  return result;
}

Tensor ModuleBase::named(std::string_view name) const {
  for (const auto& t : state_->tensors)
    if (t.name == name) return t.tensor;
  return {};
}

namespace {

/// What all of `longer` begin with, and without which they are all of `shorter`, but for what graphs alone have. Empty:
/// nothing.
std::string prefix_between(const std::vector<std::string>& longer, const std::vector<std::string>& shorter) {
  if (longer.empty() || shorter.empty()) return {};
  const std::set<std::string> known(longer.begin(), longer.end());
  for (std::size_t dot = longer[0].find('.'); dot != std::string::npos; dot = longer[0].find('.', dot + 1)) {
    const std::string prefix = longer[0].substr(0, dot + 1);
    const auto fits = [&](const std::string& name) { return known.count(prefix + name) != 0; };
    const auto has_prefix = [&](const std::string& name) {
      return name.find('.') == std::string::npos || name.compare(0, prefix.size(), prefix) == 0;
    };
    if (std::all_of(shorter.begin(), shorter.end(), fits) && std::all_of(longer.begin(), longer.end(), has_prefix))
      return prefix;
  }
  return {};
}

}  // namespace

LoadReport check_entries(const std::vector<LoadTarget>& targets, const StateDict& state, bool strict,
                         const std::string& what, Location where) {
  std::map<std::string, Tensor> given;
  std::vector<std::string> problems;
  for (const auto& [name, t] : state)
    if (!given.emplace(name, t).second) problems.push_back("twice       " + name);
  LoadReport report;
  std::set<std::string> known;
  std::set<const void*> found;  // a shared parameter may come under any of its names
  for (const LoadTarget& target : targets)
    if (target.variable && given.count(target.name)) found.insert(target.variable);
  for (const auto& [name, type, variable] : targets) {
    known.insert(name);
    const auto it = given.find(name);
    if (it == given.end()) {
      if (variable && found.count(variable)) continue;
      report.missing.push_back(name);
      if (strict) problems.push_back("missing     " + name + "  " + type.to_string());
      continue;
    }
    const auto kind = [](DType d) { return d == DType::boolean ? 0 : ir::is_floating(d) ? 2 : 1; };
    if (!it->second.defined())
      problems.push_back("mismatch    " + name + "  expected " + type.to_string() + ", got an undefined tensor");
    else if (it->second.shape() != type.shape || kind(it->second.dtype()) != kind(type.dtype))
      problems.push_back("mismatch    " + name + "  expected " + type.to_string() + ", got " + it->second.describe());
  }
  for (const auto& [name, t] : state)
    if (!known.count(name)) {
      report.unexpected.push_back(name);
      if (strict)
        problems.push_back("unexpected  " + name + "  " + (t.defined() ? t.describe() : "an undefined tensor"));
    }
  if (!problems.empty()) {
    UserError error(what + ": " + std::to_string(problems.size()) +
                    (problems.size() == 1 ? " entry does" : " entries do") + " not fit; nothing was loaded");
    if (const std::string prefix = prefix_between(report.unexpected, report.missing); !prefix.empty())
      error.note("the names of what is loaded begin with '" + prefix +
                 "', as a graph's do, and those here do not: load it into the graph or "
                 "module that has them, or take '" +
                 prefix + "' from the names");
    else if (const std::string other = prefix_between(report.missing, report.unexpected); !other.empty())
      error.note("the names here begin with '" + other +
                 "', as a graph's do, and those of what is loaded do not: load it into " + "that module, graph." +
                 other + "load_state_dict()");
    constexpr std::size_t kMost = 20;
    for (std::size_t i = 0; i < problems.size() && i < kMost; ++i) error.note(problems[i]);
    if (problems.size() > kMost) error.note("... and " + std::to_string(problems.size() - kMost) + " more");
    error.at(where.file_name(), where.line);
    throw error;
  }
  return report;
}

void check_step(std::int64_t step, const std::string& what, Location where) {
  if (step < 0) graven::detail::fail_at(what + " must not be negative, got " + std::to_string(step), where);
  // As many as a double counts: rates and corrections are computed of it. Checkpoints of programs have this limit, too.
  if (step > std::int64_t{1} << 53)
    graven::detail::fail_at(what + " must be at most 2^53, got " + std::to_string(step), where);
}

void check_train_step(const StateDict& state, const std::string& what, Location where) {
  for (const auto& [name, t] : state)
    if (name == "train_step" && t.defined() && t.numel() == 1 && !ir::is_floating(t.dtype()))
      check_step(t.item<std::int64_t>(), what + ": train_step", where);
}

LoadReport load_tensors(const StateDict& targets, const StateDict& state, bool strict, const std::string& what,
                        Location where) {
  std::vector<LoadTarget> expected;
  for (const auto& [name, target] : targets)
    expected.push_back({name, {target.dtype(), target.shape()}, target.impl().get()});
  LoadReport report = check_entries(expected, state, strict, what, where);
  std::map<std::string, Tensor> given(state.begin(), state.end());
  NoGradGuard no_grad;
  for (const auto& [name, target] : targets)
    if (const auto it = given.find(name); it != given.end()) Tensor(target).copy_(it->second, where);
  return report;
}

LoadReport ModuleBase::load_state_dict(const StateDict& state, bool strict, Location where) {
  return load_tensors(state_dict(), state, strict, "load_state_dict of " + class_name(), where);
}

void ModuleBase::train(bool mode) {
  walk_modules(state_, {}, [mode](const std::string&, const std::shared_ptr<ModuleState>& s) { s->training = mode; });
}
bool ModuleBase::is_training() const {
  if (graven::detail::Trace* trace = graven::detail::active_trace()) trace->note_mode(*state_);
  return state_->training;
}
void ModuleBase::requires_grad_(bool value) {
  for (Tensor& t : parameters()) t.requires_grad_(value);
}
void ModuleBase::activation_checkpointing(bool on) const { state_->activation_checkpointing = on; }
void ModuleBase::set_stage(int id, Location where) const {
  if (id < 0) fail_at("set_stage: stages are counted from 0, got " + std::to_string(id), where);
  state_->stage = id;
}
void ModuleBase::zero_grad(Location where) {
  if (graven::detail::Trace* trace = graven::detail::active_trace()) return trace->zero_grad(where);
  for (Tensor& t : parameters()) t.set_grad({});
}

void ModuleBase::to(DType dtype) {
  if (!ir::is_floating(dtype))
    throw UserError("to: a module is converted to floating-point dtypes only, got " + std::string(ir::name(dtype)));
  for (auto& [name, t] : state_dict()) {
    if (!ir::is_floating(t.dtype()) || t.dtype() == dtype) continue;
    const Tensor converted = t.detach().to(dtype);  // on its device
    graven::detail::TensorImpl& impl = *t.impl();
    impl.dtype = dtype;
    impl.strides = converted.strides();
    impl.offset = 0;
    impl.storage = converted.impl()->storage;
    impl.grad.reset();
  }
}

void ModuleBase::to(const Device& device, Location where) {
  graven::detail::located(where, [&] {
    ir::require_device(device);
    for (auto& [name, t] : state_dict()) graven::detail::move_to(*t.impl(), device);
  });
}

void ModuleBase::apply(const std::function<void(ModuleBase&)>& f) {
  for (auto& [name, c] : children()) c.apply(f);
  f(*this);
}

// ---- print ----------------------------------------------------------------------------------------------------------

namespace {

/// PyTorch's names: "torch.float32" in a list, "torch.FloatTensor" in a dictionary.
std::string printed_dtype(DType dtype, bool as_tensor) {
  switch (dtype) {
    case DType::f64:
      return as_tensor ? "torch.DoubleTensor" : "torch.float64";
    case DType::f16:
      return as_tensor ? "torch.HalfTensor" : "torch.float16";
    case DType::bf16:
      return as_tensor ? "torch.BFloat16Tensor" : "torch.bfloat16";
    default:
      return as_tensor ? "torch.FloatTensor" : "torch.float32";
  }
}

/// The entries of a list or dictionary of parameters, as PyTorch's print has them: one of them in the line, several
/// below it.
std::string printed_entries(const ModuleState& state) {
  const bool as_tensor = state.prints_parameters == ModuleState::PrintsParameters::as_tensors;
  std::string text;
  const bool several = state.tensors.size() > 1;
  for (const auto& t : state.tensors) {
    std::string sizes;
    for (const Dim& d : t.tensor.shape()) sizes += (sizes.empty() ? "" : "x") + d.to_string();
    text += (several ? "\n    (" : "  (") + t.name + "): Parameter containing: [" +
            printed_dtype(t.tensor.dtype(), as_tensor) + " of size " + sizes + "]";
  }
  return several ? text + "\n" : text;
}

std::string repr_of(const ModuleState& state) {
  std::string text = state.class_name + "(" + state.printed();
  if (state.prints_parameters != ModuleState::PrintsParameters::no) text += printed_entries(state);
  if (state.children.empty()) return text + ")";
  std::string lines;
  for (const auto& c : state.children) lines += "(" + c.name + "): " + repr_of(*c.state) + "\n";
  std::string indented;
  bool start = true;
  for (char ch : lines) {
    if (start) indented += "  ";
    start = ch == '\n';
    indented += ch;
  }
  return text + "\n" + indented + ")";
}
}  // namespace

std::string ModuleBase::repr() const { return repr_of(*state_); }
std::ostream& operator<<(std::ostream& out, const ModuleBase& module) { return out << module.repr(); }

void detail::require_function(bool is_there) {
  if (!is_there) throw UserError("Lambda: the function that a Sequential or a list is to call is empty");
}

void detail::set_extra_repr(const ModuleBase& module, std::string text) {
  module.state()->extra_repr = std::move(text);
}

// ---- calls ----------------------------------------------------------------------------------------------------------

namespace detail {

std::string short_type_name(std::string_view pretty) {
  // "... class_name_of() [with T = graven::nn::Linear; std::string = ...]" (g++), "... class_name_of() [T =
  // graven::nn::Linear]" (clang++)
  const std::size_t begin = pretty.find("T = ");
  if (begin == std::string_view::npos) return "Module";
  std::string_view type = pretty.substr(begin + 4);
  int depth = 0;
  std::size_t end = 0, last = 0, arguments = std::string_view::npos;
  for (; end < type.size(); ++end) {
    const char c = type[end];
    if (depth == 0 && (c == ';' || c == ']')) break;
    // "(anonymous namespace)::Net", "{anonymous}::Net", "test()::Net", "main()::<lambda()>::Net", "Net<int>"
    if (depth == 0 && c == '<' && arguments == std::string_view::npos) arguments = end;
    if (c == '(' || c == '{' || c == '<') ++depth;
    if (c == ')' || c == '}' || c == '>') --depth;
    if (depth == 0 && c == ':') last = end + 1, arguments = std::string_view::npos;
  }
  return std::string(type.substr(last, std::min(end, arguments) - last));
}

CallScope::CallScope(const ModuleBase& module, Location where) {
  auto& frames = module_frames();
  const ModuleState* state = module.state().get();
  std::string path;
  Location declared;
  std::uint32_t checkpoint = frames.empty() ? 0 : frames.back().checkpoint;
  if (graven::detail::Trace* trace = graven::detail::active_trace()) {
    const auto it = trace->modules.find(state);
    if (it == trace->modules.end()) {
      UserError error("the module " + module.class_name() + " is called in build() of " + trace->graph_name +
                      ", but is not registered");
      if (!frames.empty() && !frames.back().path.empty()) error.note("called by " + frames.back().path);
      error.note("register it where it is declared: child(\"name\", " + module.class_name() + "(...))");
      error.at(where.file_name(), where.line);
      throw error;
    }
    path = it->second.path;
    declared = it->second.declared;
    observed_ = true;
    if (state->activation_checkpointing) {
      trace->graph.checkpoints.push_back({path, checkpoint});
      checkpoint = static_cast<std::uint32_t>(trace->graph.checkpoints.size());
    }
  } else if (!frames.empty() && !state->registered) {
    UserError error("the module " + module.class_name() + " is called within forward() of " +
                    frames.back().module->class_name + ", but is not registered");
    error.note("register it where it is declared: child(\"name\", " + module.class_name() + "(...))");
    error.at(where.file_name(), where.line);
    throw error;
  }
  // Within a graph's build() nothing comes from outside but what the graph reports itself.
  outermost_ = frames.empty();
  if (frames.size() > 1000) fail_at("modules call each other more than 1000 deep", where);
  frames.push_back({state, std::move(path), where, declared, checkpoint});
}

CallScope::~CallScope() { module_frames().pop_back(); }

namespace {
std::vector<ir::TensorType> types_of(const std::vector<Tensor>& tensors) {
  std::vector<ir::TensorType> types;
  for (const Tensor& t : tensors) types.push_back({t.dtype(), t.shape()});
  return types;
}
}  // namespace

void CallScope::inputs(std::vector<Tensor> tensors, bool all) {
  const ModuleFrame& frame = module_frames().back();
  if (observed_) graven::detail::active_trace()->calls[frame.module].inputs = types_of(tensors);
  if (!outermost_) return;
  graven::detail::OutermostCall& call = graven::detail::outermost_call();
  call.began = graven::detail::next_moment();
  call.complete = all;
  call.arguments.clear();
  for (const Tensor& t : tensors)
    if (t.requires_grad() && t.is_leaf()) call.arguments.push_back(t.impl().get());
}
void CallScope::outputs(std::vector<Tensor> tensors) {
  const ModuleFrame& frame = module_frames().back();
  graven::detail::active_trace()->calls[frame.module].outputs = types_of(tensors);
}

}  // namespace detail

// ---- Sequential -----------------------------------------------------------------------------------------------------

Tensor Lambda::forward(Tensor x) { return function_(x, call_location()); }

Sequential& Sequential::push_back(AnyModule module, Location where) {
  return push_back({std::to_string(modules_->size()), where}, std::move(module));
}
Sequential& Sequential::push_back(Name name, AnyModule module) {
  register_child(name, module);
  modules_->push_back(std::move(module));
  return *this;
}
std::size_t Sequential::size() const { return modules_->size(); }
const AnyModule& Sequential::operator[](std::size_t index) const {
  if (index >= modules_->size())
    throw UserError("Sequential: index " + std::to_string(index) + " is out of range, it has " +
                    std::to_string(modules_->size()) + " modules");
  return (*modules_)[index];
}
Tensor Sequential::forward(Tensor x) {
  const Location where = call_location();
  for (const AnyModule& m : *modules_) x = m(x, where);
  return x;
}

}  // namespace graven::nn
