#include "graven/functional/products.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::fail;

Tensor linear(const Operand& x, const Tensor& weight, const Tensor& bias) {
  return apply("linear", {x.tensor(), weight, bias}, {}, x.where());
}

Tensor matmul(const Operand& a, const Operand& b) {
  if (a.tensor().dtype() != b.tensor().dtype())
    fail("matmul", "both must have one dtype, got " + a.tensor().describe() + " and " + b.tensor().describe(),
         a.where());
  return apply("matmul", {a.tensor(), b.tensor()}, {}, a.where());
}

namespace {

void require_ranks(const Operand& a, const Operand& b, std::int64_t rank_a, std::int64_t rank_b, const char* function) {
  const Tensor &x = a.tensor(function), &y = b.tensor(function);
  if (x.dim() != rank_a || y.dim() != rank_b)
    fail(function,
         fmt::format("expects tensors of {} and {} dimensions, got {} and {}", rank_a, rank_b, x.describe(),
                     y.describe()),
         a.where());
}

Tensor product(const Operand& a, const Operand& b, const char* function) {
  return matmul(Operand(a.tensor(), a.where().in(function)), b);
}

Tensor weighted_sum(const Operand& given, const Tensor& product, double beta, double alpha, const char* function) {
  const Operand input(given.tensor(function), given.where().in(function));
  const Operand unscaled(product, input.where());
  const DType dtype = detail::promoted(input, unscaled);
  const Operand scaled = alpha == 1 ? unscaled : detail::scaled(unscaled, alpha, dtype, function);
  if (beta == 0) {  // whatever input holds, NaN too
    if (!is_grad_enabled() || !input.is_tensor() || !input.tensor().requires_grad()) return scaled.tensor();
    // -0, which changes no number, with a slope of 0 as PyTorch has it.
    const Operand nothing(where(Operand(false, input.where()), input, Operand(-0.0, input.where())), input.where());
    return add(nothing, scaled);
  }
  return add(beta == 1 ? input : detail::scaled(input, beta, dtype, function), scaled);
}

}  // namespace

Tensor mm(const Operand& a, const Operand& b) {
  require_ranks(a, b, 2, 2, "mm");
  return product(a, b, "mm");
}
Tensor bmm(const Operand& a, const Operand& b) {
  require_ranks(a, b, 3, 3, "bmm");
  if (a.tensor().shape()[0] != b.tensor().shape()[0])
    fail("bmm", "the batches differ: " + a.tensor().describe() + " and " + b.tensor().describe(), a.where());
  return product(a, b, "bmm");
}
Tensor mv(const Operand& a, const Operand& b) {
  require_ranks(a, b, 2, 1, "mv");
  return product(a, b, "mv");
}
Tensor dot(const Operand& a, const Operand& b) {
  require_ranks(a, b, 1, 1, "dot");
  return product(a, b, "dot");
}
Tensor outer(const Operand& a, const Operand& b) {
  require_ranks(a, b, 1, 1, "outer");
  const Location at = a.where().in("outer");
  return mul(Operand(a.tensor().unsqueeze(1, at), at), b);
}
Tensor kron(const Operand& a, const Operand& b) {
  const detail::At at(a.where().in("kron"));
  const Tensor &x = a.tensor("kron"), &y = b.tensor("kron");
  // Each dimension of the result is one of a's and one of b's, side by side; the shorter shape begins with ones.
  const auto rank = static_cast<std::size_t>(std::max(x.dim(), y.dim()));
  std::vector<Dim> of_x, of_y, joined;
  for (std::size_t d = 0; d < rank; ++d) {
    const auto size = [&](const Tensor& t) {
      const std::size_t missing = rank - t.shape().rank();
      return d < missing ? Dim(1) : t.shape()[d - missing];
    };
    for (const Dim& dim : {size(x), Dim(1)}) of_x.push_back(dim);
    for (const Dim& dim : {Dim(1), size(y)}) of_y.push_back(dim);
    joined.push_back(size(x) * size(y));
  }
  return at.mul(x.reshape(Shape(of_x), at.where()), y.reshape(Shape(of_y), at.where()))
      .reshape(Shape(joined), at.where());
}

Tensor tensordot(const Operand& a, const Operand& b, std::int64_t dims) {
  const Location at = a.where().in("tensordot");
  const std::int64_t most = std::min(a.tensor("tensordot").dim(), b.tensor("tensordot").dim());
  if (dims < 0 || dims > most) fail("tensordot", fmt::format("dims must lie in [0, {}], got {}", most, dims), at);
  Sizes of_a, of_b;
  for (std::int64_t d = 0; d < dims; ++d) {
    of_a.push_back(a.tensor().dim() - dims + d);
    of_b.push_back(d);
  }
  return tensordot(Operand(a.tensor(), at), Operand(b.tensor(), at), of_a, of_b);
}

Tensor tensordot(const Operand& a, const Operand& b, const Sizes& dims_a, const Sizes& dims_b) {
  const Location at = a.where().in("tensordot");
  const Tensor &x = a.tensor("tensordot"), &y = b.tensor("tensordot");
  if (dims_a.size() != dims_b.size())
    fail("tensordot", fmt::format("takes as many dimensions of both, got {} and {}", dims_a.size(), dims_b.size()), at);
  /// The dimensions that stay, then those that are summed over.
  const auto split = [&](const Tensor& t, const Sizes& dims) {
    std::pair<Sizes, Sizes> parts;
    for (const std::int64_t dim : dims) parts.second.push_back(detail::normalize_dim(dim, t.dim(), "tensordot", at));
    for (std::int64_t d = 0; d < t.dim(); ++d) {
      const auto times = std::count(parts.second.begin(), parts.second.end(), d);
      if (times > 1) fail("tensordot", fmt::format("dimension {} is named {} times", d, times), at);
      if (times == 0) parts.first.push_back(d);
    }
    return parts;
  };
  const auto [free_a, summed_a] = split(x, dims_a);
  const auto [free_b, summed_b] = split(y, dims_b);
  std::vector<Dim> result;
  const auto product_of = [](const Tensor& t, const Sizes& dims) {
    Dim product = 1;
    for (const std::int64_t d : dims) product = product * t.shape()[static_cast<std::size_t>(d)];
    return product;
  };
  for (const std::int64_t d : free_a) result.push_back(x.shape()[static_cast<std::size_t>(d)]);
  for (const std::int64_t d : free_b) result.push_back(y.shape()[static_cast<std::size_t>(d)]);
  for (std::size_t i = 0; i < summed_a.size(); ++i) {
    const Dim &of_a = x.shape()[static_cast<std::size_t>(summed_a[i])],
              &of_b = y.shape()[static_cast<std::size_t>(summed_b[i])];
    if (of_a != of_b)
      fail("tensordot",
           fmt::format("dimensions {} and {} are summed over together, and have sizes {} and {}: {}, {}", summed_a[i],
                       summed_b[i], of_a.to_string(), of_b.to_string(), x.describe(), y.describe()),
           at);
  }
  Sizes order_a = free_a, order_b = summed_b;
  order_a.insert(order_a.end(), summed_a.begin(), summed_a.end());
  order_b.insert(order_b.end(), free_b.begin(), free_b.end());
  const Tensor left = x.permute(order_a, at).reshape({product_of(x, free_a), product_of(x, summed_a)}, at),
               right = y.permute(order_b, at).reshape({product_of(y, summed_b), product_of(y, free_b)}, at);
  return matmul(Operand(left, at), Operand(right, at)).reshape(Shape(result), at);
}

Tensor addmm(const Operand& input, const Operand& a, const Operand& b, double beta, double alpha) {
  require_ranks(a, b, 2, 2, "addmm");
  return weighted_sum(input, product(a, b, "addmm"), beta, alpha, "addmm");
}
Tensor baddbmm(const Operand& input, const Operand& a, const Operand& b, double beta, double alpha) {
  require_ranks(a, b, 3, 3, "baddbmm");
  return weighted_sum(input, product(a, b, "baddbmm"), beta, alpha, "baddbmm");
}

// ---- einsum ---------------------------------------------------------------------------------------------------------

namespace {

/// A letter, or -k for the k-th dimension from the right that an ellipsis stands for.
using Label = int;
using Labels = std::vector<Label>;

bool contains(const Labels& labels, Label l) { return std::find(labels.begin(), labels.end(), l) != labels.end(); }

/// A tensor whose dimensions have labels, each once.
struct Term {
  Tensor tensor;
  Labels labels;

  std::size_t place(Label l) const {
    return static_cast<std::size_t>(std::find(labels.begin(), labels.end(), l) - labels.begin());
  }
  Dim size(Label l) const { return tensor.shape()[place(l)]; }
};

class Einsum {
 public:
  Einsum(std::string_view equation, const std::vector<Tensor>& operands, Location where)
      : at_(where), equation_(equation) {
    parse(operands);
  }

  Tensor run() {
    Term left = terms_.at(0);
    for (std::size_t i = 1; i < terms_.size(); ++i) {
      Labels later = output_;
      for (std::size_t j = i + 1; j < terms_.size(); ++j)
        later.insert(later.end(), terms_[j].labels.begin(), terms_[j].labels.end());
      left = contract(std::move(left), terms_[i], later);
    }
    left = summed(std::move(left), output_);
    return ordered(left, output_).tensor;
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    fail("einsum", message + " in '" + std::string(equation_) + "'", at_);
  }

  /// The labels of one operand's part of the equation; `rank` of its tensor, -1 for the result.
  Labels labels_of(std::string_view text, std::int64_t rank, std::int64_t ellipsis) {
    Labels labels;
    bool dots = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == ' ') continue;
      if (c == '.') {
        if (dots || text.substr(i, 3) != "...") refuse("'.' is for one ellipsis '...' a part");
        dots = true;
        i += 2;
        std::int64_t count = ellipsis;
        if (rank >= 0) {
          const std::int64_t letters =
              std::count_if(text.begin(), text.end(), [](char l) { return l != ' ' && l != '.'; });
          count = rank - letters;
          if (count < 0) refuse(fmt::format("more letters than the {} dimensions of an operand", rank));
        }
        for (std::int64_t k = count; k > 0; --k) labels.push_back(static_cast<Label>(-k));
        continue;
      }
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) refuse(fmt::format("'{}' is no letter", c));
      labels.push_back(c);
    }
    return labels;
  }

  void parse(const std::vector<Tensor>& operands) {
    const std::size_t arrow = equation_.find("->");
    const std::string_view inputs = equation_.substr(0, arrow);
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0;;) {
      const std::size_t comma = inputs.find(',', begin);
      parts.push_back(inputs.substr(begin, comma == std::string_view::npos ? comma : comma - begin));
      if (comma == std::string_view::npos) break;
      begin = comma + 1;
    }
    if (operands.empty() || parts.size() != operands.size())
      refuse(fmt::format("{} operands are named, {} given,", parts.size(), operands.size()));
    std::array<int, 128> seen{};
    std::int64_t ellipsis = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Labels labels = labels_of(parts[i], operands[i].dim(), 0);
      if (static_cast<std::int64_t>(labels.size()) != operands[i].dim())
        refuse(fmt::format("'{}' has {} letters for {}", parts[i], labels.size(), operands[i].describe()));
      for (const Label l : labels) {
        if (l > 0) ++seen[static_cast<std::size_t>(l)];
        ellipsis = std::max<std::int64_t>(ellipsis, -l);
      }
      terms_.push_back(diagonal({operands[i], std::move(labels)}));
    }
    if (arrow != std::string_view::npos) {
      output_ = labels_of(equation_.substr(arrow + 2), -1, ellipsis);
    } else {
      for (std::int64_t k = ellipsis; k > 0; --k) output_.push_back(static_cast<Label>(-k));
      for (int c = 0; c < 128; ++c)
        if (seen[static_cast<std::size_t>(c)] == 1) output_.push_back(c);
    }
    for (std::size_t i = 0; i < output_.size(); ++i) {
      if (std::count(output_.begin(), output_.end(), output_[i]) > 1) refuse("the result names a dimension twice");
      if (std::none_of(terms_.begin(), terms_.end(), [&](const Term& t) { return contains(t.labels, output_[i]); }))
        refuse("the result names a dimension that no operand has");
    }
    check_sizes();
  }

  void check_sizes() const {
    for (const Term& a : terms_)
      for (const Term& b : terms_)
        for (const Label l : a.labels) {
          if (!contains(b.labels, l) || a.size(l) == b.size(l) || a.size(l) == Dim(1) || b.size(l) == Dim(1)) continue;
          refuse(fmt::format("one dimension is {} in {} and {} in {}", a.size(l).to_string(), a.tensor.describe(),
                             b.size(l).to_string(), b.tensor.describe()));
        }
  }

  /// A label that stands twice takes the diagonal: of n * n elements every (n + 1)-th.
  Term diagonal(Term t) const {
    for (std::size_t i = 0; i < t.labels.size(); ++i)
      for (std::size_t j = i + 1; j < t.labels.size(); ++j) {
        if (t.labels[i] != t.labels[j]) continue;
        const std::int64_t n = detail::fixed_size(t.tensor, static_cast<std::int64_t>(i), "einsum", at_);
        if (detail::fixed_size(t.tensor, static_cast<std::int64_t>(j), "einsum", at_) != n)
          refuse("a repeated letter has two sizes in " + t.tensor.describe());
        Sizes order;
        Labels labels;
        for (std::size_t d = 0; d < t.labels.size(); ++d)
          if (d != i && d != j) order.push_back(static_cast<std::int64_t>(d)), labels.push_back(t.labels[d]);
        order.push_back(static_cast<std::int64_t>(i));
        order.push_back(static_cast<std::int64_t>(j));
        labels.push_back(t.labels[i]);
        const Tensor last = t.tensor.permute(order, at_);
        std::vector<Dim> flat(last.shape().begin(), last.shape().end() - 2);
        flat.emplace_back(n * n);
        const auto dim = static_cast<std::int64_t>(flat.size()) - 1;
        return diagonal({last.reshape(Shape(flat), at_).slice(dim, 0, n * n, n + 1, at_), std::move(labels)});
      }
    return t;
  }

  /// Without the labels that are not among `kept`.
  Term summed(Term t, const Labels& kept) const {
    Sizes dims;
    Labels labels;
    for (std::size_t d = 0; d < t.labels.size(); ++d) {
      if (contains(kept, t.labels[d]))
        labels.push_back(t.labels[d]);
      else
        dims.push_back(static_cast<std::int64_t>(d));
    }
    if (dims.empty()) return t;
    return {sum(Operand(t.tensor, at_), dims), std::move(labels)};
  }

  Term ordered(const Term& t, const Labels& labels) const {
    if (t.labels == labels) return t;
    Sizes order;
    for (const Label l : labels) order.push_back(static_cast<std::int64_t>(t.place(l)));
    return {t.tensor.permute(order, at_), labels};
  }

  /// Where this one's dimension is 1 and the other's is not, it is broadcast: without it the rest is the same.
  Term without_ones(const Term& t, const Term& other) const {
    std::vector<Dim> shape;
    Labels labels;
    for (std::size_t d = 0; d < t.labels.size(); ++d) {
      const Label l = t.labels[d];
      if (t.tensor.shape()[d] == Dim(1) && contains(other.labels, l) && other.size(l) != Dim(1)) continue;
      shape.push_back(t.tensor.shape()[d]);
      labels.push_back(l);
    }
    return labels.size() == t.labels.size() ? t : Term{t.tensor.reshape(Shape(shape), at_), labels};
  }

  static Dim product(const Term& t, const Labels& labels) {
    Dim n = 1;
    for (const Label l : labels) n = n * t.size(l);
    return n;
  }
  static Labels joined(Labels a, const Labels& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  /// The product of both, summed over the labels that nobody needs later.
  Term contract(Term a, Term b, const Labels& later) const {
    const Term narrow_a = without_ones(a, b), narrow_b = without_ones(b, a);
    a = summed(narrow_a, joined(later, narrow_b.labels));
    b = summed(narrow_b, joined(later, narrow_a.labels));
    Labels batch, inner, own_a, own_b;
    for (const Label l : a.labels) (contains(b.labels, l) ? (contains(later, l) ? batch : inner) : own_a).push_back(l);
    for (const Label l : b.labels)
      if (!contains(a.labels, l)) own_b.push_back(l);
    const Labels result = joined(joined(batch, own_a), own_b);
    if (inner.empty()) {
      // Nothing is summed: an elementwise product of what is broadcast.
      Term x = ordered(a, joined(batch, own_a)), y = ordered(b, joined(batch, own_b));
      std::vector<Dim> wide_x = x.tensor.shape().dims(),
                       wide_y(y.tensor.shape().begin(),
                              y.tensor.shape().begin() + static_cast<std::ptrdiff_t>(batch.size()));
      wide_x.insert(wide_x.end(), own_b.size(), Dim(1));
      wide_y.insert(wide_y.end(), own_a.size(), Dim(1));
      for (const Label l : own_b) wide_y.push_back(y.size(l));
      const Tensor left = own_b.empty() ? x.tensor : x.tensor.reshape(Shape(wide_x), at_);
      const Tensor right = own_a.empty() ? y.tensor : y.tensor.reshape(Shape(wide_y), at_);
      return {mul(Operand(left, at_), Operand(right, at_)), result};
    }
    const Term x = ordered(a, joined(joined(batch, own_a), inner)), y = ordered(b, joined(joined(batch, inner), own_b));
    std::vector<Dim> shape_x, shape_y, shape;
    for (const Label l : batch) shape_x.push_back(x.size(l));
    shape = shape_y = shape_x;
    shape_x.push_back(product(x, own_a));
    shape_x.push_back(product(x, inner));
    shape_y.push_back(product(y, inner));
    shape_y.push_back(product(y, own_b));
    for (const Label l : own_a) shape.push_back(x.size(l));
    for (const Label l : own_b) shape.push_back(y.size(l));
    const Tensor z = matmul(Operand(x.tensor.reshape(Shape(shape_x), at_), at_),
                            Operand(y.tensor.reshape(Shape(shape_y), at_), at_));
    return {z.reshape(Shape(shape), at_), result};
  }

  Location at_;
  std::string_view equation_;
  std::vector<Term> terms_;
  Labels output_;
};

}  // namespace

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands, Location where) {
  if (operands.empty()) fail("einsum", "needs at least one tensor", where);
  detail::require_defined(operands, "einsum", where);
  return Einsum(equation, operands, where.in("einsum")).run();
}

Tensor bilinear(const Operand& x1, const Operand& x2, const Tensor& weight, const Tensor& bias) {
  const Location at = x1.where().in("bilinear");
  const Tensor &a = x1.tensor(), &b = x2.tensor();
  detail::require_defined(weight, "bilinear", at, "weight");
  if (weight.dim() != 3) fail("bilinear", "the weight must be [out, in1, in2], got " + weight.describe(), at);
  const bool alike =
      a.dim() >= 1 && a.dim() == b.dim() && std::equal(a.shape().begin(), a.shape().end() - 1, b.shape().begin());
  if (!alike || a.shape().back() != weight.shape()[1] || b.shape().back() != weight.shape()[2])
    fail("bilinear",
         "expects [..., " + weight.shape()[1].to_string() + "] and [..., " + weight.shape()[2].to_string() +
             "] for weight " + weight.describe() + ", got " + a.describe() + " and " + b.describe(),
         at);
  const Tensor y = einsum("...i,oij,...j->...o", {a, weight, b}, at);
  return bias.defined() ? add(Operand(y, at), Operand(bias, at)) : y;
}

Tensor trace(const Operand& x) {
  if (x.tensor().dim() != 2) fail("trace", "expects a matrix, got " + x.tensor().describe(), x.where());
  const Location at = x.where().in("trace");
  return sum(Operand(diagonal(Operand(x.tensor(), at)), at));
}

Tensor cross(const Operand& a, const Operand& b, std::int64_t dim) {
  const Location at = a.where().in("cross");
  const Tensor &x = a.tensor(), &y = b.tensor();
  if (x.dim() == 0 || x.dim() != y.dim())
    fail("cross", "expects tensors of as many dimensions, got " + x.describe() + " and " + y.describe(), at);
  const std::int64_t axis = detail::normalize_dim(dim, x.dim(), "cross", at);
  if (x.shape()[static_cast<std::size_t>(axis)] != Dim(3) || y.shape()[static_cast<std::size_t>(axis)] != Dim(3))
    fail("cross",
         "dimension " + std::to_string(axis) + " must have 3 elements, got " + x.describe() + " and " + y.describe(),
         at);
  // (1, 2, 0) and (2, 0, 1) of each.
  const auto turned = [&](const Tensor& t, std::int64_t by) {
    return Operand(roll(Operand(t, at), {-by}, {axis}), at);
  };
  return sub(Operand(mul(turned(x, 1), turned(y, 2)), at), Operand(mul(turned(x, 2), turned(y, 1)), at));
}

}  // namespace graven
