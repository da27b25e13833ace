// Padding layers: pads for all sides, or {left, right, top, bottom, front, back} as far as the dimension goes.
//
//   nn::ReflectionPad2d(1)               // [n, c, h, w] -> [n, c, h + 2, w + 2]
//   nn::ZeroPad2d({1, 1, 2, 0})
#pragma once

#include <cstdint>
#include <initializer_list>

#include "graven/functional.h"
#include "graven/module.h"

namespace graven::nn {

/// `Count` pads: one number for all, or each.
template <std::size_t Count>
struct Pads {
  Sizes values;
  Pads(std::int64_t all) : values(Count, all) {}                   // NOLINT: ReflectionPad2d(1)
  Pads(int all) : values(Count, all) {}                            // NOLINT
  Pads(std::initializer_list<std::int64_t> each) : values(each) {  // NOLINT: ReflectionPad2d({1, 1, 2, 2})
    if (values.size() != Count)
      throw UserError("padding: expected 1 or " + std::to_string(Count) + " numbers, got " +
                      std::to_string(values.size()));
  }
};

/// The mirror image around, without the border itself: pads of at most size - 1.
class ReflectionPad1d : public Module<ReflectionPad1d> {
 public:
  explicit ReflectionPad1d(Pads<2> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};
class ReflectionPad2d : public Module<ReflectionPad2d> {
 public:
  explicit ReflectionPad2d(Pads<4> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};
class ReflectionPad3d : public Module<ReflectionPad3d> {
 public:
  explicit ReflectionPad3d(Pads<6> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};

/// The elements at the border around.
class ReplicationPad1d : public Module<ReplicationPad1d> {
 public:
  explicit ReplicationPad1d(Pads<2> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};
class ReplicationPad2d : public Module<ReplicationPad2d> {
 public:
  explicit ReplicationPad2d(Pads<4> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};
class ReplicationPad3d : public Module<ReplicationPad3d> {
 public:
  explicit ReplicationPad3d(Pads<6> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};

/// The other end around: pads of at most the size.
class CircularPad1d : public Module<CircularPad1d> {
 public:
  explicit CircularPad1d(Pads<2> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};
class CircularPad2d : public Module<CircularPad2d> {
 public:
  explicit CircularPad2d(Pads<4> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};
class CircularPad3d : public Module<CircularPad3d> {
 public:
  explicit CircularPad3d(Pads<6> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};

/// Zeros around.
class ZeroPad1d : public Module<ZeroPad1d> {
 public:
  explicit ZeroPad1d(Pads<2> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};
class ZeroPad2d : public Module<ZeroPad2d> {
 public:
  explicit ZeroPad2d(Pads<4> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};
class ZeroPad3d : public Module<ZeroPad3d> {
 public:
  explicit ZeroPad3d(Pads<6> padding);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
};

/// `value` around.
class ConstantPad1d : public Module<ConstantPad1d> {
 public:
  explicit ConstantPad1d(Pads<2> padding, double value);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
  double value_;
};
class ConstantPad2d : public Module<ConstantPad2d> {
 public:
  explicit ConstantPad2d(Pads<4> padding, double value);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
  double value_;
};
class ConstantPad3d : public Module<ConstantPad3d> {
 public:
  explicit ConstantPad3d(Pads<6> padding, double value);
  Tensor forward(Tensor x);

 private:
  Sizes padding_;
  double value_;
};

}  // namespace graven::nn
