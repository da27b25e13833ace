// Who listens to a program's calls: it is told where a phase begins, where each of the phase's calls does, and where
// the phase ends. Calls say nothing of it:
//
//   struct Step { EachCall<Threads> threads; ... };
//   linear(threads, config::hidden, y, x, w);   // as the kernel is given its Threads, its call begins
//
// A listener is set in what kernels are called with, Threads or a CudaContext; where there is none, a call costs a look
// at a pointer.
#pragma once

namespace graven::kernels {

/// Functions and not virtual ones, for it may be of another library than the calls.
struct CallListener {
  void* self = nullptr;
  void (*begin_phase)(void* self, const char* name) = nullptr;  ///< a name of the program's: "forward"
  void (*begin_call)(void* self) = nullptr;                     ///< the one before it has returned
  void (*end_phase)(void* self) = nullptr;
  bool of_each_call = true;  ///< on a device: of each time that a call is made, so that none is recorded and replayed
};

/// What tells `listener`, which has functions of these names.
template <class Listener>
CallListener listener_of(Listener& listener) {
  return {&listener, [](void* self, const char* name) { static_cast<Listener*>(self)->begin_phase(name); },
          [](void* self) { static_cast<Listener*>(self)->begin_call(); },
          [](void* self) { static_cast<Listener*>(self)->end_phase(); }};
}

/// What calls name as their first argument.
template <class Execution>
class EachCall {
 public:
  [[gnu::always_inline]] EachCall(Execution& execution) : execution_(execution) {}
  [[gnu::always_inline]] operator Execution&() const {
    begin_call();
    return execution_;
  }
  /// For what takes no such argument.
  [[gnu::always_inline]] void begin_call() const {
    if (const CallListener* listener = execution_.listener(); __builtin_expect(listener != nullptr, false))
      listener->begin_call(listener->self);
  }
  [[gnu::always_inline]] void begin_phase(const char* name) const {
    if (const CallListener* listener = execution_.listener(); __builtin_expect(listener != nullptr, false))
      listener->begin_phase(listener->self, name);
  }
  [[gnu::always_inline]] void end_phase() const {
    if (const CallListener* listener = execution_.listener(); __builtin_expect(listener != nullptr, false))
      listener->end_phase(listener->self);
  }

 private:
  Execution& execution_;
};

}  // namespace graven::kernels
