#include "graven/functional/losses.h"

#include "frontend/dispatch.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

/// Arithmetic that keeps the line of the call.
class At {
 public:
  explicit At(Location where) : where_(where) {}
  Operand operator()(const Tensor& t) const { return {t, where_}; }
  Operand operator()(double number) const { return {number, where_}; }
  Tensor add(const Tensor& a, const Tensor& b) const { return graven::add((*this)(a), (*this)(b)); }
  Tensor sub(const Tensor& a, const Tensor& b) const { return graven::sub((*this)(a), (*this)(b)); }
  Tensor mul(const Tensor& a, const Tensor& b) const { return graven::mul((*this)(a), (*this)(b)); }
  Tensor mul(const Tensor& a, double b) const { return graven::mul((*this)(a), (*this)(b)); }
  Tensor add(const Tensor& a, double b) const { return graven::add((*this)(a), (*this)(b)); }
  Location where() const { return where_; }

 private:
  Location where_;
};

const char* text(Reduction reduction, const char* function, Location where) {
  switch (reduction) {
    case Reduction::none:
      return "none";
    case Reduction::mean:
      return "mean";
    case Reduction::sum:
      return "sum";
    case Reduction::batchmean:
      break;
  }
  fail(function, "the reduction batchmean is kl_div's", where);
}

Tensor reduce_loss(const Tensor& losses, Reduction reduction, const char* function, Location where) {
  switch (reduction) {
    case Reduction::none:
      return losses;
    case Reduction::mean:
      return mean(Operand(losses, where));
    case Reduction::sum:
      return sum(Operand(losses, where));
    case Reduction::batchmean:
      break;
  }
  fail(function, "the reduction batchmean is kl_div's", where);
}

Dim product(const Shape& shape, std::size_t begin, std::size_t end) {
  Dim n = 1;
  for (std::size_t i = begin; i < end; ++i) n = n * shape[i];
  return n;
}

/// [batch, classes, d1, ...] as [batch * d1 * ..., classes]; labels as [batch * d1 * ...].
struct Rows {
  Tensor scores, labels;
  Shape label_shape;
};
Rows rows_of(const Operand& scores, const Operand& labels, const char* function) {
  Tensor s = scores.tensor(), l = labels.tensor();
  if (s.dim() < 1) fail(function, "expects scores of [batch, classes], got " + s.describe(), scores.where());
  if (l.dtype() != DType::i64) fail(function, "labels must be i64, got " + l.describe(), labels.where());
  if (s.dim() == 1) {
    if (l.dim() != 0) fail(function, "labels must be i64[] for scores " + s.describe() + ", got " + l.describe(), labels.where());
    return {s.unsqueeze(0, scores.where()), l.unsqueeze(0, scores.where()), Shape{}};
  }
  std::vector<Dim> expected{s.shape()[0]};
  for (std::size_t i = 2; i < s.shape().rank(); ++i) expected.push_back(s.shape()[i]);
  const Shape label_shape(expected);
  if (l.shape() != label_shape)
    fail(function, "labels must be " + ir::describe(DType::i64, label_shape) + " for scores " + s.describe() + ", got " + l.describe(),
         labels.where());
  if (s.dim() > 2) {
    Sizes dims{0};
    for (std::int64_t d = 2; d < s.dim(); ++d) dims.push_back(d);
    dims.push_back(1);
    const Dim rows = product(label_shape, 0, label_shape.rank());
    s = s.permute(dims, scores.where()).reshape({rows, s.shape()[1]}, scores.where());
    l = l.reshape({rows}, scores.where());
  }
  return {s, l, label_shape};
}

void check_class_weight(const char* function, const Tensor& weight, const Tensor& scores, Location where) {
  if (!weight.defined()) return;
  const Dim classes = scores.shape()[scores.dim() == 1 ? 0 : 1];
  if (weight.shape() != Shape{classes} || weight.dtype() != scores.dtype())
    fail(function, "weight must be " + ir::describe(scores.dtype(), {classes}) + ", got " + weight.describe(), where);
}

/// Of targets that are probabilities: -the sum over classes of weight target log softmax(logits).
Tensor cross_entropy_of_probabilities(const Operand& logits, const Operand& probabilities, const CrossEntropyOptions& o) {
  const At at(logits.where());
  const Tensor& x = logits.tensor();
  Tensor target = probabilities.tensor();
  if (target.shape() != x.shape() || target.dtype() != x.dtype())
    fail("cross_entropy", "probabilities must be " + x.describe() + " as the logits are, got " + target.describe(), probabilities.where());
  const std::int64_t dim = x.dim() == 1 ? 0 : 1, classes = x.size(dim);
  if (o.label_smoothing > 0) target = at.add(at.mul(target, 1 - o.label_smoothing), o.label_smoothing / static_cast<double>(classes));
  Tensor terms = at.mul(target, log_softmax(at(x), dim));
  if (o.weight.defined()) {
    Shape shape;
    for (std::int64_t d = 0; d < x.dim(); ++d) shape.push_back(d == dim ? Dim(classes) : Dim(1));
    terms = at.mul(terms, o.weight.reshape(shape, at.where()));
  }
  const Tensor losses = neg(at(sum(at(terms), {dim})));
  return reduce_loss(losses, o.reduction, "cross_entropy", at.where());
}

}  // namespace

Tensor cross_entropy(const Operand& logits, const Operand& target, const CrossEntropyOptions& o) {
  const Location where = logits.where();
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    fail("cross_entropy", "label_smoothing must lie in [0, 1], got " + std::to_string(o.label_smoothing), where);
  if (logits.tensor().dim() >= 1) check_class_weight("cross_entropy", o.weight, logits.tensor(), where);
  if (ir::is_floating(target.tensor().dtype())) {
    if (logits.tensor().dim() < 1) fail("cross_entropy", "expects logits of [batch, classes], got " + logits.tensor().describe(), where);
    return cross_entropy_of_probabilities(logits, target, o);
  }
  const Rows rows = rows_of(logits, target, "cross_entropy");
  const Tensor loss = apply("cross_entropy", {rows.scores, rows.labels, o.weight},
                            {{"reduction", std::string(text(o.reduction, "cross_entropy", where))},
                             {"ignore_index", o.ignore_index},
                             {"label_smoothing", o.label_smoothing}},
                            where);
  return o.reduction == Reduction::none && loss.shape() != rows.label_shape ? loss.reshape(rows.label_shape, where) : loss;
}
Tensor cross_entropy(const Operand& logits, const Operand& target, Reduction reduction) {
  return cross_entropy(logits, target, CrossEntropyOptions{.reduction = reduction});
}

Tensor nll_loss(const Operand& log_probabilities, const Operand& labels, const NllLossOptions& o) {
  const At at(log_probabilities.where());
  if (log_probabilities.tensor().dim() >= 1) check_class_weight("nll_loss", o.weight, log_probabilities.tensor(), at.where());
  const Rows rows = rows_of(log_probabilities, labels, "nll_loss");
  const Operand ignored(o.ignore_index, at.where()), none(0, at.where());
  const Tensor counts = ne(at(rows.labels), ignored);
  // An ignored label need not be a class: class 0 is read, and counts nothing.
  const Tensor label = graven::where(at(counts), at(rows.labels), none);
  const Tensor picked = gather(at(rows.scores), 1, label.unsqueeze(1, at.where())).squeeze(1, at.where());
  Tensor weights = o.weight.defined() ? index_select(at(o.weight), 0, label) : Tensor();
  weights = weights.defined() ? graven::where(at(counts), at(weights), Operand(0.0, at.where())) : counts.to(picked.dtype(), at.where());
  const Tensor losses = neg(at(at.mul(picked, weights)));
  if (o.reduction == Reduction::mean) return div(at(sum(at(losses))), at(sum(at(weights))));
  if (o.reduction == Reduction::none) return losses.shape() == rows.label_shape ? losses : losses.reshape(rows.label_shape, at.where());
  return reduce_loss(losses, o.reduction, "nll_loss", at.where());
}
Tensor nll_loss(const Operand& log_probabilities, const Operand& labels, Reduction reduction) {
  return nll_loss(log_probabilities, labels, NllLossOptions{.reduction = reduction});
}

Tensor mse_loss(const Operand& input, const Operand& target, Reduction reduction) {
  const Location at = input.where();
  return reduce_loss(square(Operand(sub(input, target), at)), reduction, "mse_loss", at);
}

Tensor l1_loss(const Operand& input, const Operand& target, Reduction reduction) {
  const Location at = input.where();
  return reduce_loss(abs(Operand(sub(input, target), at)), reduction, "l1_loss", at);
}

Tensor smooth_l1_loss(const Operand& input, const Operand& target, Reduction reduction, double beta) {
  const At at(input.where());
  if (!(beta >= 0)) fail("smooth_l1_loss", "beta must not be negative, got " + std::to_string(beta), at.where());
  if (beta == 0) return l1_loss(input, target, reduction);
  const Tensor d = sub(input, target), size = abs(at(d));
  const Tensor inside = at.mul(square(at(d)), 0.5 / beta), outside = at.add(size, -0.5 * beta);
  return reduce_loss(graven::where(at(lt(at(size), at(beta))), at(inside), at(outside)), reduction, "smooth_l1_loss", at.where());
}

Tensor huber_loss(const Operand& input, const Operand& target, Reduction reduction, double delta) {
  const At at(input.where());
  if (!(delta > 0)) fail("huber_loss", "delta must be positive, got " + std::to_string(delta), at.where());
  const Tensor d = sub(input, target), size = abs(at(d));
  const Tensor inside = at.mul(square(at(d)), 0.5), outside = at.mul(at.add(size, -0.5 * delta), delta);
  return reduce_loss(graven::where(at(le(at(size), at(delta))), at(inside), at(outside)), reduction, "huber_loss", at.where());
}

Tensor binary_cross_entropy(const Operand& input, const Operand& target, const BinaryCrossEntropyOptions& o) {
  const At at(input.where());
  if (o.pos_weight.defined()) fail("binary_cross_entropy", "pos_weight is an option of binary_cross_entropy_with_logits", at.where());
  const Tensor &p = input.tensor(), &t = target.tensor();
  if (p.shape() != t.shape())
    fail("binary_cross_entropy", "the target must be " + p.describe() + " as the input is, got " + t.describe(), at.where());
  Tensor losses = apply("binary_cross_entropy", {p, t}, {}, at.where());
  if (o.weight.defined()) losses = at.mul(losses, o.weight);
  return reduce_loss(losses, o.reduction, "binary_cross_entropy", at.where());
}

Tensor binary_cross_entropy_with_logits(const Operand& input, const Operand& target, const BinaryCrossEntropyOptions& o) {
  const At at(input.where());
  const Tensor &x = input.tensor(), &t = target.tensor();
  if (x.shape() != t.shape())
    fail("binary_cross_entropy_with_logits", "the target must be " + x.describe() + " as the input is, got " + t.describe(), at.where());
  Tensor log_part = softplus(at(neg(at(x))));
  if (o.pos_weight.defined()) log_part = at.mul(at.add(at.mul(t, at.add(o.pos_weight, -1)), 1), log_part);
  Tensor losses = at.add(at.mul(at.add(neg(at(t)), 1), x), log_part);
  if (o.weight.defined()) losses = at.mul(losses, o.weight);
  return reduce_loss(losses, o.reduction, "binary_cross_entropy_with_logits", at.where());
}
Tensor binary_cross_entropy_with_logits(const Operand& input, const Operand& target, Reduction reduction) {
  return binary_cross_entropy_with_logits(input, target, BinaryCrossEntropyOptions{.reduction = reduction});
}

Tensor kl_div(const Operand& input, const Operand& target, const KLDivOptions& o) {
  const At at(input.where());
  const Tensor &x = input.tensor(), &t = target.tensor();
  Tensor losses;
  if (o.log_target) {
    losses = at.mul(exp(at(t)), at.sub(t, x));
  } else {
    // t log t is 0 at 0.
    const Tensor positive = gt(at(t), at(0));
    losses = at.sub(at.mul(t, log(at(graven::where(at(positive), at(t), at(1))))), at.mul(t, x));
  }
  if (o.reduction != Reduction::batchmean) return reduce_loss(losses, o.reduction, "kl_div", at.where());
  if (x.dim() < 1) fail("kl_div", "the reduction batchmean needs a dimension 0, got " + x.describe(), at.where());
  return at.mul(sum(at(losses)), 1 / static_cast<double>(x.size(0)));
}

}  // namespace graven
