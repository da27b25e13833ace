// Trees of tensors: what a graph takes and returns. A leaf is a Tensor (or nothing: std::optional<Tensor>); tuples,
// pairs, vectors, arrays and string-keyed maps of trees are trees.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "graven/tensor.h"
#include "ir/graph.h"

namespace graven {

/// Type of an input that is not there yet: spec({Dim("batch", 64), 1, 28, 28}, f32, "images").
struct Spec {
  Shape shape;
  DType dtype = DType::f32;
  std::string name;  ///< of the graph's input; empty: input_<index>
  Location where = {};
};

/// `name` is what the emitted program calls the input.
inline Spec spec(Shape shape, DType dtype = DType::f32, std::string name = {}, Location where = Location::current()) {
  return {std::move(shape), dtype, std::move(name), where};
}
inline Spec spec(Shape shape, std::string name, Location where = Location::current()) {
  return {std::move(shape), DType::f32, std::move(name), where};
}

namespace nn::detail {

template <class T>
struct IsTree : std::false_type {};
template <>
struct IsTree<Tensor> : std::true_type {};
template <class T>
  requires(std::is_base_of_v<Tensor, T> && !std::is_same_v<Tensor, T>)
struct IsTree<T> : std::true_type {};
template <>
struct IsTree<Spec> : std::true_type {};
template <class T>
struct IsTree<std::optional<T>> : IsTree<std::remove_cv_t<T>> {};
template <class T>
struct IsTree<std::vector<T>> : IsTree<T> {};
template <class T, std::size_t N>
struct IsTree<std::array<T, N>> : IsTree<T> {};
template <class A, class B>
struct IsTree<std::pair<A, B>> : std::bool_constant<IsTree<A>::value && IsTree<B>::value> {};
template <class... T>
struct IsTree<std::tuple<T...>> : std::bool_constant<(IsTree<T>::value && ...)> {};
template <class T>
struct IsTree<std::map<std::string, T>> : IsTree<T> {};
template <class T>
struct IsTree<const T> : IsTree<T> {};

/// The same tree with tensors for leaves.
template <class T>
struct TensorTree {
  using type = Tensor;
};
template <class T>
struct TensorTree<std::optional<T>> {
  using type = std::optional<typename TensorTree<T>::type>;
};
template <class T>
struct TensorTree<std::vector<T>> {
  using type = std::vector<typename TensorTree<T>::type>;
};
template <class T, std::size_t N>
struct TensorTree<std::array<T, N>> {
  using type = std::array<typename TensorTree<T>::type, N>;
};
template <class A, class B>
struct TensorTree<std::pair<A, B>> {
  using type = std::pair<typename TensorTree<A>::type, typename TensorTree<B>::type>;
};
template <class... T>
struct TensorTree<std::tuple<T...>> {
  using type = std::tuple<typename TensorTree<T>::type...>;
};
template <class T>
struct TensorTree<std::map<std::string, T>> {
  using type = std::map<std::string, typename TensorTree<T>::type>;
};

/// Rebuilds a tree, leaf by leaf, in order; `path` is "1", "0.labels", "2[3]". Describes the container on the way.
template <class T, class Leaf>
typename TensorTree<std::remove_cvref_t<T>>::type map_tree(const T& value, const std::string& path, ir::Tree& tree,
                                                           Leaf&& leaf);

namespace tree {

template <class Leaf>
Tensor map(const Tensor& t, const std::string& path, ir::Tree& tree, Leaf&& leaf) {
  return leaf(t, path, tree);
}
template <class Leaf>
Tensor map(const Spec& s, const std::string& path, ir::Tree& tree, Leaf&& leaf) {
  return leaf(s, path, tree);
}
template <class T, class Leaf>
auto map(const std::optional<T>& value, const std::string& path, ir::Tree& tree, Leaf&& leaf) {
  typename TensorTree<std::optional<T>>::type result;
  if (value)
    result = map_tree(*value, path, tree, leaf);
  else
    tree.kind = ir::Tree::Kind::none;
  return result;
}
template <class T, class Leaf>
auto map(const std::vector<T>& values, const std::string& path, ir::Tree& tree, Leaf&& leaf) {
  typename TensorTree<std::vector<T>>::type result;
  tree.kind = ir::Tree::Kind::list;
  tree.children.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    result.push_back(map_tree(values[i], path + "[" + std::to_string(i) + "]", tree.children[i], leaf));
  return result;
}
template <class T, std::size_t N, class Leaf>
auto map(const std::array<T, N>& values, const std::string& path, ir::Tree& tree, Leaf&& leaf) {
  typename TensorTree<std::array<T, N>>::type result;
  tree.kind = ir::Tree::Kind::list;
  tree.children.resize(N);
  for (std::size_t i = 0; i < N; ++i)
    result[i] = map_tree(values[i], path + "[" + std::to_string(i) + "]", tree.children[i], leaf);
  return result;
}
template <class A, class B, class Leaf>
auto map(const std::pair<A, B>& value, const std::string& path, ir::Tree& tree, Leaf&& leaf) {
  tree.kind = ir::Tree::Kind::tuple;
  tree.children.resize(2);
  typename TensorTree<std::pair<A, B>>::type result;
  result.first = map_tree(value.first, path + ".0", tree.children[0], leaf);
  result.second = map_tree(value.second, path + ".1", tree.children[1], leaf);
  return result;
}
template <class... T, class Leaf, std::size_t... I>
auto map_tuple(const std::tuple<T...>& value, const std::string& path, ir::Tree& tree, Leaf&& leaf,
               std::index_sequence<I...>) {
  typename TensorTree<std::tuple<T...>>::type result;
  ((std::get<I>(result) = map_tree(std::get<I>(value), path + "." + std::to_string(I), tree.children[I], leaf)), ...);
  return result;
}
template <class... T, class Leaf>
auto map(const std::tuple<T...>& value, const std::string& path, ir::Tree& tree, Leaf&& leaf) {
  tree.kind = ir::Tree::Kind::tuple;
  tree.children.resize(sizeof...(T));
  return map_tuple(value, path, tree, leaf, std::index_sequence_for<T...>{});
}
template <class T, class Leaf>
auto map(const std::map<std::string, T>& values, const std::string& path, ir::Tree& tree, Leaf&& leaf) {
  typename TensorTree<std::map<std::string, T>>::type result;
  tree.kind = ir::Tree::Kind::map;
  tree.children.resize(values.size());
  std::size_t i = 0;
  for (const auto& [key, value] : values) {
    tree.keys.push_back(key);
    result.emplace(key, map_tree(value, path + "[\"" + key + "\"]", tree.children[i++], leaf));
  }
  return result;
}

}  // namespace tree

template <class T, class Leaf>
typename TensorTree<std::remove_cvref_t<T>>::type map_tree(const T& value, const std::string& path, ir::Tree& t,
                                                           Leaf&& leaf) {
  return tree::map(value, path, t, leaf);
}

/// Every tensor of a tree, in order.
template <class T>
void collect_tensors(const T& value, std::vector<Tensor>& tensors) {
  ir::Tree shape;
  map_tree(value, {}, shape, [&](const auto& leaf, const std::string&, ir::Tree&) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(leaf)>, Tensor>) {
      if (leaf.defined()) tensors.push_back(leaf);
      return leaf;
    } else {
      return Tensor();
    }
  });
}

}  // namespace nn::detail
}  // namespace graven
