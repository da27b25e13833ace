// Modules: parameters, buffers and children under names, and a forward().
//
//   struct Mlp : nn::Module<Mlp> {
//     nn::Linear hidden = child("hidden", nn::Linear(784, 256));
//     nn::Linear logits = child("logits", nn::Linear(256, 10));
//     Tensor forward(Tensor images) { return logits(relu(hidden(flatten(images, 1)))); }
//   };
//
//   Mlp model;
//   Tensor scores = model(images);          // calls forward() within the module's scope
//   for (Tensor& p : model.parameters()) ...
//   std::cout << model;
//
// Weights are tied by assigning one to another, `head.weight = embedding.weight;`: a layer's parameters are Registered,
// and assigning to them registers what is assigned in their place.
//
// Modules and parameters in lists and under keys: ModuleList below, and graven/layers/containers.h.
//
// A module is a handle: copies share parameters, buffers, children and the training flag. child(), parameter() and
// buffer() register and return what they are given, so the member that forward() uses is the one that is registered.
// Calling a module that nobody registered from within another module's forward() is an error that names its type and
// the line; so is using a tensor that requires a gradient, and that nobody registered, within forward() or a graph's
// build(). What forward() makes itself, and arguments of the call, may require gradients as they like.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "graven/state_dict.h"
#include "graven/tensor.h"
#include "graven/tree.h"

namespace graven::nn {

struct ModuleState;

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The name that something is registered under, and the line that registers it. Of a literal that is the literal's own
/// line, where the compiler tells it: a defaulted location within a member's initializer, where modules are mostly
/// declared, would be the line of the constructor or of the class with all compilers, and is with newer ones (CWG 2631:
/// g++ 14, clang++ 16).
class Name {
 public:
  template <std::size_t N>
  consteval Name(const char (&text)[N], const char* file = __builtin_FILE(),
                 std::uint32_t line = __builtin_LINE())  // NOLINT: child("hidden", ...)
      : text_(text, N - 1), where_{file, line} {}
  /// Names made while the program runs.
  template <class T>
    requires(std::is_convertible_v<const T&, std::string_view> && !std::is_array_v<T>)
  Name(const T& text, Location where = Location::current()) : text_(text), where_(where) {}  // NOLINT
  /// Without a line, what is registered counts as declared with the module that holds it.
  Name(std::string_view text, Location where) : text_(text), where_(where) {}

  std::string_view text() const { return text_; }
  Location where() const { return where_; }

 private:
  std::string_view text_;
  Location where_;
};

/// A tensor, and where parameter() or buffer() registered it.
class Registration : public Tensor {
 public:
  Registration(Tensor tensor, std::weak_ptr<ModuleState> module, std::string name, bool is_buffer)
      : Tensor(std::move(tensor)), module_(std::move(module)), name_(std::move(name)), is_buffer_(is_buffer) {}

 private:
  template <class Owner>
  friend class Registered;
  std::weak_ptr<ModuleState> module_;
  std::string name_;
  bool is_buffer_;
};

namespace detail {
/// Registers `given` in the place of `own`, and returns what was registered; nothing at all when it is undefined.
Tensor replace_registered(const std::weak_ptr<ModuleState>& module, const std::string& name, bool is_buffer,
                          const Tensor& own, const Tensor& given);
}  // namespace detail

/// A registered tensor as a member of its module: `Registered<Head> weight = parameter("weight", ...)`. Assigning
/// another tensor to it registers that one in its place: shared where it is another module's parameter, a parameter
/// from now on otherwise, and no longer registered when it is undefined. User error within forward(), for the result of
/// an operator, and where nothing was registered (a bias of a layer made without one). A member that is a plain Tensor
/// stays registered as it was.
///
/// Copies that were made of the module before still have the old tensor; using it in their forward() is a user error.
template <class Owner>
class Registered : public Tensor {
 public:
  Registered() = default;
  Registered(const Registered&) = default;
  Registered(Registered&&) noexcept = default;
  Registered(const Registration& r)
      : Tensor(r), module_(r.module_), name_(r.name_), is_buffer_(r.is_buffer_) {}  // NOLINT
  ~Registered() = default;

  Registered& operator=(const Registration& r) { return *this = Registered(r); }
  Registered& operator=(const Tensor& tensor) {
    Tensor::operator=(detail::replace_registered(module_, name_, is_buffer_, *this, tensor));
    return *this;
  }
  Registered& operator=(Registered& other) { return *this = static_cast<const Tensor&>(other); }

 private:
  // Of the whole module, handle to handle.
  friend Owner;
  Registered& operator=(const Registered&) = default;
  Registered& operator=(Registered&&) noexcept = default;

  std::weak_ptr<ModuleState> module_;
  std::string name_;
  bool is_buffer_ = false;
};

/// Everything about a module but its forward(). A handle, like Tensor.
class ModuleBase {
 public:
  explicit ModuleBase(std::string class_name);
  explicit ModuleBase(std::shared_ptr<ModuleState> state) : state_(std::move(state)) {}
  // What was moved from is still a handle of the module.
  ModuleBase(const ModuleBase&) = default;
  ModuleBase& operator=(const ModuleBase&) = default;

  /// Including children's, each once, under their paths: "hidden.weight".
  std::vector<Tensor> parameters() const;
  NamedTensors named_parameters() const;
  NamedTensors named_buffers() const;
  /// This module and everything below it, each once; this module's own name is empty.
  std::vector<ModuleBase> modules() const;
  std::vector<std::pair<std::string, ModuleBase>> named_modules() const;
  std::vector<std::pair<std::string, ModuleBase>> children() const;

  /// Parameters and buffers, shared ones under each of their paths. The tensors share memory with the module.
  StateDict state_dict() const;
  /// Copies into this module's tensors. All or nothing: when anything has the wrong shape, or strict and anything is
  /// missing or unexpected, a user error lists all of it and nothing is changed. Shared parameters need to come under
  /// one of their paths only, as safetensors files have them; under several, the last counts.
  LoadReport load_state_dict(const StateDict& state, bool strict = true, Location where = Location::current());

  void train(bool mode = true);
  void eval() { train(false); }
  bool is_training() const;
  void requires_grad_(bool value = true);
  /// Of the graphs that record this module from here on: what backward needs of its forward() is computed again, in
  /// the backward pass, from what it was called with, instead of being kept until then; random numbers are the same
  /// ones again, running statistics advance once, and every result is, bit for bit, that without. Each call is for
  /// itself; of a call within another such call, backward computes the outer one again first, keeping no more of the
  /// inner one than what it is called with. What it returns is kept where others need it. Eagerly it changes nothing,
  /// nor in graphs that have no backward. Copies share it, as all of a module.
  void activation_checkpointing(bool on = true) const;
  /// Of the graphs that record this module from here on: it is part of stage `id` of a pipeline, and so is all that it
  /// has in it, but for modules with a stage of their own. Stages are 0, 1, ... without gaps, and values flow from one
  /// to a later one, backward to an earlier one. What belongs to no stage is computed where the last of its inputs is.
  /// A graph with stages that trains has steps of several parts, as with set_gradient_accumulation_steps(); its project
  /// keeps the calls of a stage in a file, stage_0.cpp, and several processes train it, each a stage, one part of a
  /// step behind another (docs/emitted_project.md). Within one process, as here, nothing else changes, nor eagerly, nor
  /// in graphs that do not train. Copies share it, as all of a module. A user error where it is negative.
  void set_stage(int id, Location where = Location::current()) const;
  /// Within build() nothing before backward(), where each call begins without gradients anyway, and a user error behind
  /// it.
  void zero_grad(Location where = Location::current());
  /// Converts floating-point parameters and buffers, where they are.
  void to(DType dtype);
  /// Moves parameters, with their gradients, and buffers to the device, where they are: handles and optimizers have
  /// them there. Graphs that the module is part of run there from the next call on.
  void to(const Device& device, Location where = Location::current());
  void cpu(Location where = Location::current()) { to(Device(), where); }
  void cuda(int index = 0, Location where = Location::current()) { to(Device(Device::Kind::cuda, index), where); }
  /// Calls f for this module and everything below it, children first, as PyTorch does.
  void apply(const std::function<void(ModuleBase&)>& f);

  const std::string& class_name() const;
  /// One of this module's own parameters or buffers; undefined when there is none of the name.
  Tensor named(std::string_view name) const;
  /// PyTorch's print: Mlp(
  ///                    (hidden): Linear(in_features=784, out_features=256, bias=True)
  ///                  )
  std::string repr() const;

  const std::shared_ptr<ModuleState>& state() const { return state_; }

  // For the module itself, and public all the same: clang++ from 17 on takes the initialisers of members in `Net{}` for
  // code of who writes `Net{}`.
  /// Registers a tensor as a parameter, or nothing when it is undefined. A tensor that is a parameter already is
  /// shared. The name must be new in this module, not empty, and without dots.
  Registration parameter(Name name, Tensor init);
  /// Registers a tensor that belongs to the module's state but is not learnt.
  Registration buffer(Name name, Tensor init);
  void register_child(Name name, const ModuleBase& module);

 protected:
  /// What repr() prints between the parentheses.
  void set_arguments(std::string arguments);
  /// For containers, whose entries are used without a call of their own. User error within another module's forward()
  /// when nobody registered this one: what is in it would not be trained.
  void require_registered() const;
  /// The same, and user error when there is no entry `index` of `size`.
  void require_entry(std::size_t index, std::size_t size) const;
  /// The line of user code that called the innermost module. Operators that are given this line are the layer's own:
  /// what is recorded of them is the line that registered the layer, or else the module that holds it.
  static Location call_location();

 private:
  std::shared_ptr<ModuleState> state_;
};

std::ostream& operator<<(std::ostream& out, const ModuleBase& module);

namespace detail {

template <class F>
struct MayBeEmpty : std::is_pointer<F> {};
template <class R, class... A>
struct MayBeEmpty<std::function<R(A...)>> : std::true_type {};
/// User error for a function that is none.
void require_function(bool is_there);

template <class M>
concept HasExtraRepr = requires(const M& module) {
  { module.extra_repr() } -> std::convertible_to<std::string>;
};
void set_extra_repr(const ModuleBase& module, std::string text);
/// What a module says of itself where it is printed. Asked for where its type is known: where it is registered, and
/// where it is printed itself.
template <class M>
void note_extra_repr(const M& module) {
  if constexpr (HasExtraRepr<M>) set_extra_repr(module, module.extra_repr());
}

/// "Mlp" of graven::Mlp, "Block" of (anonymous namespace)::Block<3>.
std::string short_type_name(std::string_view pretty);

template <class T>
std::string class_name_of() {
#if defined(__clang__) || defined(__GNUC__)
  return short_type_name(__PRETTY_FUNCTION__);
#else
#error "unknown compiler"
#endif
}

/// Enters a module's scope for the length of a call.
class CallScope {
 public:
  CallScope(const ModuleBase& module, Location where);
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  /// Whether somebody wants to know what goes in and out: the repr of a traced graph, and eagerly the outermost call,
  /// whose arguments may be leaves that are no parameters. `all`: there are no tensors beside these.
  bool wants_inputs() const { return observed_ || outermost_; }
  bool wants_outputs() const { return observed_; }
  void inputs(std::vector<Tensor> tensors, bool all);
  void outputs(std::vector<Tensor> tensors);

 private:
  bool observed_ = false, outermost_ = false;
};

/// Every tensor in an argument or result; things that are no tensors have none.
template <class T>
void collect_any(const T& value, std::vector<Tensor>& tensors) {
  if constexpr (IsTree<T>::value) collect_tensors(value, tensors);
}

/// Types whose tensors collect_any() finds, all of them: trees, and what cannot hold any. A structure of somebody's own
/// may.
template <class T>
struct IsTransparent : std::bool_constant<IsTree<T>::value || std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                                          std::is_base_of_v<ModuleBase, T> || std::is_same_v<T, std::nullopt_t> ||
                                          std::is_convertible_v<T, std::string_view>> {};
template <class T>
  requires(!IsTree<T>::value)
struct IsTransparent<std::vector<T>> : IsTransparent<T> {};
template <class T>
  requires(!IsTree<T>::value)
struct IsTransparent<std::optional<T>> : IsTransparent<T> {};

template <class... Arguments>
inline constexpr bool kEndsWithLocation =
    std::is_same_v<std::remove_cvref_t<std::tuple_element_t<sizeof...(Arguments) - 1, std::tuple<Arguments...>>>,
                   Location>;

}  // namespace detail

/// The base of every module: `struct Net : nn::Module<Net>`. Derived has `forward(...)`, and may have `std::string
/// extra_repr() const`, which is printed between the parentheses: as it was when the module was registered as a child,
/// or, of the module that is printed itself, as it is now.
template <class Derived>
class Module : public ModuleBase {
 public:
  Module() : ModuleBase(detail::class_name_of<Derived>()) {}

  std::string repr() const {
    detail::note_extra_repr(static_cast<const Derived&>(*this));
    return ModuleBase::repr();
  }
  friend std::ostream& operator<<(std::ostream& out, const Module& module) {
    detail::note_extra_repr(static_cast<const Derived&>(module));
    return out << static_cast<const ModuleBase&>(module);
  }

  auto operator()(Location where = Location::current()) const { return call_forward(where); }
  template <class A>
  auto operator()(A&& a, Location where = Location::current()) const {
    return call_forward(where, std::forward<A>(a));
  }
  template <class A, class B>
  auto operator()(A&& a, B&& b, Location where = Location::current()) const {
    return call_forward(where, std::forward<A>(a), std::forward<B>(b));
  }
  template <class A, class B, class C>
  auto operator()(A&& a, B&& b, C&& c, Location where = Location::current()) const {
    return call_forward(where, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c));
  }
  template <class A, class B, class C, class D>
  auto operator()(A&& a, B&& b, C&& c, D&& d, Location where = Location::current()) const {
    return call_forward(where, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d));
  }
  template <class A, class B, class C, class D, class E>
  auto operator()(A&& a, B&& b, C&& c, D&& d, E&& e, Location where = Location::current()) const {
    return call_forward(where, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d),
                        std::forward<E>(e));
  }
  template <class A, class B, class C, class D, class E, class F>
  auto operator()(A&& a, B&& b, C&& c, D&& d, E&& e, F&& f, Location where = Location::current()) const {
    return call_forward(where, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d),
                        std::forward<E>(e), std::forward<F>(f));
  }
  template <class A, class B, class C, class D, class E, class F, class G>
  auto operator()(A&& a, B&& b, C&& c, D&& d, E&& e, F&& f, G&& g, Location where = Location::current()) const {
    return call_forward(where, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d),
                        std::forward<E>(e), std::forward<F>(f), std::forward<G>(g));
  }
  template <class A, class B, class C, class D, class E, class F, class G, class H>
  auto operator()(A&& a, B&& b, C&& c, D&& d, E&& e, F&& f, G&& g, H&& h, Location where = Location::current()) const {
    return call_forward(where, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c), std::forward<D>(d),
                        std::forward<E>(e), std::forward<F>(f), std::forward<G>(g), std::forward<H>(h));
  }
  template <class... Arguments>
    requires(sizeof...(Arguments) > 9 || (sizeof...(Arguments) == 9 && !detail::kEndsWithLocation<Arguments...>))
  Tensor operator()(Arguments&&...) const {
    static_assert(
        sizeof...(Arguments) == 0,
        "a module is called with at most eight arguments; put some of them into a tuple, a vector or a struct");
    return {};
  }

  /// Registers a child under a name and returns it: `nn::Linear hidden = child("hidden", nn::Linear(784, 256));`
  template <class M>
  M child(Name name, M module) {
    constexpr bool is_module = std::is_base_of_v<ModuleBase, M>;
    static_assert(is_module, "a child must be a module");
    if constexpr (is_module) {
      register_child(name, module);
      detail::note_extra_repr(module);
    }
    return module;
  }

 private:
  template <class D, class... Arguments>
  static constexpr bool forward_takes() {
    return requires { std::declval<D&>().forward(std::declval<Arguments>()...); };
  }
  template <class... Arguments>
  auto call_forward(Location where, Arguments&&... arguments) const {
    constexpr bool takes_them = forward_takes<Derived, Arguments...>();
    static_assert(takes_them, "the module has no public forward() that takes these arguments");
    if constexpr (takes_them)
      return call_checked(where, std::forward<Arguments>(arguments)...);
    else
      return Tensor();  // one error is enough
  }
  template <class... Arguments>
  auto call_checked(Location where, Arguments&&... arguments) const {
    detail::CallScope scope(*this, where);
    if (scope.wants_inputs()) {
      std::vector<Tensor> tensors;
      (detail::collect_any(arguments, tensors), ...);
      scope.inputs(std::move(tensors), (detail::IsTransparent<std::remove_cvref_t<Arguments>>::value && ...));
    }
    // A handle's constness says nothing about what it refers to.
    auto& self = const_cast<Derived&>(static_cast<const Derived&>(*this));
    if constexpr (std::is_void_v<decltype(self.forward(std::forward<Arguments>(arguments)...))>) {
      self.forward(std::forward<Arguments>(arguments)...);
    } else {
      auto result = self.forward(std::forward<Arguments>(arguments)...);
      if (scope.wants_outputs()) {
        std::vector<Tensor> tensors;
        detail::collect_any(result, tensors);
        scope.outputs(std::move(tensors));
      }
      return result;
    }
  }
};

/// A function from one tensor to one tensor as a module without parameters: what a Sequential or a list makes of
/// `[](Tensor x) { return x.relu(); }`, and of the name of a function, `relu`. What it captures belongs to somebody
/// else: layers with parameters are modules of their own.
class Lambda : public Module<Lambda> {
 public:
  template <class F>
    requires(!std::is_base_of_v<ModuleBase, std::remove_cvref_t<F>> &&
             std::is_invocable_r_v<Tensor, std::decay_t<F>&, Tensor>)
  explicit Lambda(F&& function) {
    if constexpr (detail::MayBeEmpty<std::decay_t<F>>::value) {
      const std::decay_t<F>& given = function;
      detail::require_function(static_cast<bool>(given));
    }
    if constexpr (std::is_same_v<std::decay_t<F>, Tensor (*)(const Operand&)>)
      function_ = [function](const Tensor& x, Location where) { return function(Operand(x, where)); };
    else
      function_ = [own = std::decay_t<F>(std::forward<F>(function))](const Tensor& x, Location) mutable -> Tensor {
        return own(x);
      };
  }
  Tensor forward(Tensor x);

 private:
  std::function<Tensor(const Tensor&, Location)> function_;
};

/// Any module from one tensor to one tensor.
class AnyModule : public ModuleBase {
 public:
  template <class M>
    requires(std::is_base_of_v<ModuleBase, M> && !std::is_same_v<M, AnyModule>)
  AnyModule(M module)  // NOLINT: implicit, so that Sequential(Linear(1, 2), ReLU()) works
      : ModuleBase(module) {
    detail::note_extra_repr(module);
    constexpr bool maps_tensor =
        requires(M m, Tensor x) { requires std::is_convertible_v<decltype(m.forward(x)), Tensor>; };
    static_assert(maps_tensor,
                  "a module of a Sequential or a list has a forward() from one tensor to one tensor; call others from "
                  "a forward()");
    if constexpr (maps_tensor) forward_ = [module](const Tensor& x, Location where) { return module(x, where); };
  }

  template <class F>
    requires(!std::is_base_of_v<ModuleBase, std::remove_cvref_t<F>> && std::is_constructible_v<Lambda, F>)
  AnyModule(F&& function) : AnyModule(Lambda(std::forward<F>(function))) {}  // NOLINT: Sequential(Linear(1, 2), relu)

  Tensor operator()(const Tensor& x, Location where = Location::current()) const { return forward_(x, where); }

 private:
  std::function<Tensor(const Tensor&, Location)> forward_;
};

/// Modules, and functions of one tensor, one after another; children are named "0", "1", ...
///
///   nn::Sequential net(nn::Linear(4, 8), relu, nn::Linear(8, 1), [](Tensor x) { return x.squeeze(-1); });
///
/// Sequential(another) is a copy as of all modules: the same layers, not a Sequential within one, which
/// push_back(another) makes.
class Sequential : public Module<Sequential> {
 public:
  Sequential() = default;
  template <class... Modules>
    requires(sizeof...(Modules) > 0 &&
             !(sizeof...(Modules) == 1 && (std::is_same_v<std::remove_cvref_t<Modules>, Sequential> && ...)))
  explicit Sequential(Modules&&... modules) {
    constexpr bool are_modules =
        ((std::is_base_of_v<ModuleBase, std::remove_cvref_t<Modules>> || std::is_constructible_v<Lambda, Modules>) &&
         ...);
    static_assert(are_modules,
                  "Sequential(...) takes modules, such as nn::Linear(4, 3), and functions of one tensor that give one");
    if constexpr (are_modules) (push_back(AnyModule(std::forward<Modules>(modules)), Location{}), ...);
  }
  Sequential& push_back(AnyModule module, Location where = Location::current());
  /// Under a name of its own.
  Sequential& push_back(Name name, AnyModule module);

  std::size_t size() const;
  const AnyModule& operator[](std::size_t index) const;
  Tensor forward(Tensor x);

 private:
  std::shared_ptr<std::vector<AnyModule>> modules_ = std::make_shared<std::vector<AnyModule>>();
};

/// A registered list: `nn::ModuleList<Block> blocks = child("blocks", nn::ModuleList<Block>{Block(1), Block(2)});` `for
/// (Block& b : blocks) x = b(x);`
template <class M = AnyModule>
class ModuleList : public Module<ModuleList<M>> {
 public:
  ModuleList() = default;
  ModuleList(std::initializer_list<M> modules) {
    for (const M& m : modules) push_back(m, Location{});
  }
  explicit ModuleList(const std::vector<M>& modules) {
    for (const M& m : modules) push_back(m, Location{});
  }
  ModuleList& push_back(M module, Location where = Location::current()) {
    this->register_child({std::to_string(modules_->size()), where}, module);
    detail::note_extra_repr(module);
    modules_->push_back(std::move(module));
    return *this;
  }
  std::size_t size() const { return modules_->size(); }
  M& operator[](std::size_t index) const {
    this->require_entry(index, size());
    return (*modules_)[index];
  }
  auto begin() const {
    this->require_registered();
    return modules_->begin();
  }
  auto end() const { return modules_->end(); }

 private:
  std::shared_ptr<std::vector<M>> modules_ = std::make_shared<std::vector<M>>();
};

}  // namespace graven::nn
