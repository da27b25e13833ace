// Layouts over ranks, the processes that have the tensors of one model in parts: what each of them has of a tensor, as
// users mark it (GraphBase::enable_tensor_parallel).
//
//   fc.weight.set_layout(layout::split(0));     // rows of the weight: a part of the features that the layer gives
//   proj.weight.set_layout(layout::split(1));   // columns: the same parts of what it reads
#pragma once

#include <cstdint>
#include <string>

namespace graven {

/// A layout; see layout::split() and its neighbours.
class Layout {
 public:
  enum class Kind : std::uint8_t { broadcast, split, partial_sum };
  explicit Layout(Kind kind, std::int64_t dim = 0) : kind_(kind), dim_(dim) {}
  Kind kind() const { return kind_; }
  std::int64_t dim() const { return dim_; }
  /// "split(0)", "broadcast", "partial_sum".
  std::string to_string() const;
  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  Kind kind_;
  std::int64_t dim_;
};

namespace layout {

/// Each rank has a part along this dimension, which is counted from the end when it is negative.
inline Layout split(std::int64_t dim) { return Layout(Layout::Kind::split, dim); }
/// Each rank has all of it.
inline Layout broadcast() { return Layout(Layout::Kind::broadcast); }
/// Each rank has a term, a tensor of the whole shape; the sum of them is the tensor.
inline Layout partial_sum() { return Layout(Layout::Kind::partial_sum); }

}  // namespace layout

}  // namespace graven
