// What tables of tests keep lambdas in: std::function for which a compiler has little to do. Of each lambda there are
// two functions more in the program, where std::function has fifteen. The tests have thousands of lambdas: these were a
// third of the functions of test_frontend.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace graven::test {

template <class Signature>
class Call;

/// Copies share what the lambda has captured.
template <class Result, class... Arguments>
class Call<Result(Arguments...)> {
 public:
  Call() = default;
  template <class F>
  Call(F f) {
    if constexpr (!std::is_empty_v<F> || !std::is_default_constructible_v<F>)
      captured_ = std::shared_ptr<void>(static_cast<void*>(new F(static_cast<F&&>(f))), &Call::remove<F>);
    run_ = &Call::run<F>;
  }

  Result operator()(Arguments... arguments) const {
    return run_(captured_.get(), static_cast<Arguments&&>(arguments)...);
  }
  explicit operator bool() const { return run_ != nullptr; }

 private:
  template <class F>
  static Result run(void* captured, Arguments... arguments) {
    if constexpr (!std::is_empty_v<F> || !std::is_default_constructible_v<F>)
      return static_cast<Result>((*static_cast<F*>(captured))(static_cast<Arguments&&>(arguments)...));
    else  // nothing is captured
      return static_cast<Result>(F{}(static_cast<Arguments&&>(arguments)...));
  }
  template <class F>
  static void remove(void* captured) {
    delete static_cast<F*>(captured);
  }

  std::shared_ptr<void> captured_;
  Result (*run_)(void*, Arguments...) = nullptr;
};

}  // namespace graven::test
