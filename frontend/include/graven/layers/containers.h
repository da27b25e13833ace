// Modules and parameters under keys, and parameters one after another; ModuleList and Sequential are in
// graven/module.h.
//
//   nn::ModuleDict<nn::Linear> heads = child(
//       "heads", nn::ModuleDict<nn::Linear>{{"mask", nn::Linear(64, 1)}, {"label", nn::Linear(64, 10)}});
//   nn::ParameterList scales = child("scales", nn::ParameterList{ones({64}), zeros({64})});
//   ... heads["mask"](x * scales[0] + scales[1]) ...
//
// Paths are PyTorch's: "heads.mask.weight", "scales.0". Handles, as all modules are. An entry can be used within
// forward() only when the container is registered, as a child like any other: an error says what was forgotten.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graven/module.h"

namespace graven::nn {

namespace detail {
[[noreturn]] void fail_missing_key(const ModuleBase& container, std::string_view key,
                                   const std::vector<std::string>& keys);

/// Entries in the order in which they were inserted.
template <class T>
using Entries = std::vector<std::pair<const std::string, T>>;

template <class T>
T* find_entry(Entries<T>& entries, std::string_view key) {
  for (auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}
template <class T>
std::vector<std::string> keys_of(const Entries<T>& entries) {
  std::vector<std::string> keys;
  for (const auto& [name, value] : entries) keys.push_back(name);
  return keys;
}
}  // namespace detail

/// Modules under keys, in the order in which they were inserted: `for (auto& [key, head] : heads)`.
template <class M = AnyModule>
class ModuleDict : public Module<ModuleDict<M>> {
 public:
  ModuleDict() = default;
  ModuleDict(std::initializer_list<std::pair<std::string, M>> modules) {
    for (const auto& [key, m] : modules) insert({std::string_view(key), Location{}}, m);
  }
  explicit ModuleDict(const std::vector<std::pair<std::string, M>>& modules) {
    for (const auto& [key, m] : modules) insert({std::string_view(key), Location{}}, m);
  }
  /// The key must be new, not empty, and without dots.
  ModuleDict& insert(Name key, M module) {
    this->register_child(key, module);
    detail::note_extra_repr(module);
    modules_->emplace_back(std::string(key.text()), std::move(module));
    return *this;
  }
  bool contains(std::string_view key) const { return detail::find_entry(*modules_, key) != nullptr; }
  std::vector<std::string> keys() const { return detail::keys_of(*modules_); }
  std::size_t size() const { return modules_->size(); }
  M& operator[](std::string_view key) const {
    this->require_registered();
    M* found = detail::find_entry(*modules_, key);
    if (!found) detail::fail_missing_key(*this, key, keys());
    return *found;
  }
  auto begin() const {
    this->require_registered();
    return modules_->begin();
  }
  auto end() const { return modules_->end(); }

 private:
  std::shared_ptr<detail::Entries<M>> modules_ = std::make_shared<detail::Entries<M>>();
};

/// Parameters "0", "1", ...: `for (const Tensor& scale : scales)`. What is assigned to an entry is registered in its
/// place, as with the parameters of layers: `scales[0] = other.weight` ties the two.
class ParameterList : public Module<ParameterList> {
 public:
  ParameterList();
  ParameterList(std::initializer_list<Tensor> parameters);
  explicit ParameterList(const std::vector<Tensor>& parameters);
  ParameterList& push_back(Tensor init, Location where = Location::current());
  std::size_t size() const { return parameters_->size(); }
  Registered<ParameterList>& operator[](std::size_t index) const;
  std::vector<Registered<ParameterList>>::const_iterator begin() const;
  std::vector<Registered<ParameterList>>::const_iterator end() const;

 private:
  std::shared_ptr<std::vector<Registered<ParameterList>>> parameters_ =
      std::make_shared<std::vector<Registered<ParameterList>>>();
};

/// Parameters under keys, in the order in which they were inserted: `for (const auto& [key, scale] : scales)`. (PyTorch
/// sorts those of a plain dict.)
class ParameterDict : public Module<ParameterDict> {
 public:
  ParameterDict();
  ParameterDict(std::initializer_list<std::pair<std::string, Tensor>> parameters);
  explicit ParameterDict(const std::vector<std::pair<std::string, Tensor>>& parameters);
  /// The key must be new, not empty, and without dots.
  ParameterDict& insert(Name key, Tensor init);
  bool contains(std::string_view key) const { return detail::find_entry(*parameters_, key) != nullptr; }
  std::vector<std::string> keys() const { return detail::keys_of(*parameters_); }
  std::size_t size() const { return parameters_->size(); }
  Registered<ParameterDict>& operator[](std::string_view key) const;
  detail::Entries<Registered<ParameterDict>>::const_iterator begin() const;
  detail::Entries<Registered<ParameterDict>>::const_iterator end() const;

 private:
  std::shared_ptr<detail::Entries<Registered<ParameterDict>>> parameters_ =
      std::make_shared<detail::Entries<Registered<ParameterDict>>>();
};

/// What comes in.
class Identity : public Module<Identity> {
 public:
  Tensor forward(Tensor x) { return x; }
};

}  // namespace graven::nn
