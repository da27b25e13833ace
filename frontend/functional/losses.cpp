#include "graven/functional/losses.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <mutex>
#include <numbers>
#include <set>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::At;
using detail::fail;

namespace {

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

/// Differences of unsigned integers would wrap.
void require_floating(const char* function, const Operand& input, const Operand& target, Location where) {
  if (const DType d = detail::promoted(input, target, function); !ir::is_floating(d))
    fail(function, "needs floating-point numbers, got " + std::string(ir::name(d)), where);
}

/// Once for each line: a target that is broadcast against the input, [4] against [4, 1], is seldom meant. Other than
/// where one of them is a part of the other's size, which means what it says.
void warn_of_broadcast(const Tensor& result, const Operand& input, const Operand& target, Location where) {
  if (!input.is_tensor() || !target.is_tensor()) return;
  const Tensor &x = input.tensor(), &t = target.tensor();
  if (result.shape() == x.shape() || result.shape() == t.shape()) return;
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::string place = where.line == 0 ? "" : " (" + where.file_name() + ":" + std::to_string(where.line) + ")";
  const std::string text =
      fmt::format("warning: {}: the input {} and the target {} are broadcast to {}; give both one shape{}\n",
                  where.function, x.describe(), t.describe(), result.shape().to_string(), place);
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) std::fputs(text.c_str(), stderr);
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
  Tensor s = scores.tensor(function), l = labels.tensor(function);
  if (s.dim() < 1) fail(function, "expects scores of [batch, classes], got " + s.describe(), scores.where());
  if (l.dtype() != DType::i64) fail(function, "labels must be i64, got " + l.describe(), labels.where());
  if (s.dim() == 1) {
    if (l.dim() != 0)
      fail(function, "labels must be i64[] for scores " + s.describe() + ", got " + l.describe(), labels.where());
    return {s.unsqueeze(0, scores.where()), l.unsqueeze(0, scores.where()), Shape{}};
  }
  std::vector<Dim> expected{s.shape()[0]};
  for (std::size_t i = 2; i < s.shape().rank(); ++i) expected.push_back(s.shape()[i]);
  const Shape label_shape(expected);
  if (l.shape() != label_shape)
    fail(function,
         "labels must be " + ir::describe(DType::i64, label_shape) + " for scores " + s.describe() + ", got " +
             l.describe(),
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
Tensor cross_entropy_of_probabilities(const Operand& logits, const Operand& probabilities,
                                      const CrossEntropyOptions& o) {
  const At at(logits.where());
  const Tensor& x = logits.tensor();
  Tensor target = probabilities.tensor();
  Shape labels;
  for (std::size_t d = 0; d < x.shape().rank(); ++d)
    if (d != (x.dim() == 1 ? 0u : 1u)) labels.push_back(x.shape()[d]);
  if (target.shape() == labels)
    fail("cross_entropy",
         "labels that are numbers of classes must be " + ir::describe(DType::i64, labels) + ", got " +
             target.describe() + ": to(i64); probabilities, one for each class, would be " + x.describe(),
         probabilities.where());
  if (target.shape() != x.shape() || target.dtype() != x.dtype())
    fail("cross_entropy", "probabilities must be " + x.describe() + " as the logits are, got " + target.describe(),
         probabilities.where());
  const std::int64_t dim = x.dim() == 1 ? 0 : 1;
  const Dim classes = x.shape()[static_cast<std::size_t>(dim)];
  if (o.label_smoothing > 0)
    target = add(at(at.mul(target, 1 - o.label_smoothing)),
                 detail::over_size(o.label_smoothing, classes, x.dtype(), "cross_entropy", at.where()));
  Tensor terms = at.mul(target, log_softmax(at(x), dim));
  if (o.weight.defined()) {
    Shape shape;
    for (std::int64_t d = 0; d < x.dim(); ++d) shape.push_back(d == dim ? classes : Dim(1));
    terms = at.mul(terms, o.weight.reshape(shape, at.where()));
  }
  const Tensor losses = neg(at(sum(at(terms), {dim})));
  return reduce_loss(losses, o.reduction, "cross_entropy", at.where());
}

}  // namespace

Tensor cross_entropy(const Operand& logits, const Operand& target, const CrossEntropyOptions& o) {
  const Location where = logits.where();
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    fail("cross_entropy", "label_smoothing must lie in [0, 1], got " + fmt::format("{}", o.label_smoothing), where);
  if (logits.tensor().dim() >= 1) check_class_weight("cross_entropy", o.weight, logits.tensor(), where);
  if (ir::is_floating(target.tensor().dtype())) {
    if (logits.tensor().dim() < 1)
      fail("cross_entropy", "expects logits of [batch, classes], got " + logits.tensor().describe(), where);
    return cross_entropy_of_probabilities(logits, target, o);
  }
  const Rows rows = rows_of(logits, target, "cross_entropy");
  const Tensor loss = apply("cross_entropy", {rows.scores, rows.labels, o.weight},
                            {{"reduction", std::string(text(o.reduction, "cross_entropy", where))},
                             {"ignore_index", o.ignore_index},
                             {"label_smoothing", o.label_smoothing}},
                            where);
  return o.reduction == Reduction::none && loss.shape() != rows.label_shape ? loss.reshape(rows.label_shape, where)
                                                                            : loss;
}
Tensor cross_entropy(const Operand& logits, const Operand& target, Reduction reduction) {
  return cross_entropy(logits, target, CrossEntropyOptions{.reduction = reduction});
}

Tensor nll_loss(const Operand& log_probabilities, const Operand& labels, const NllLossOptions& o) {
  const At at(log_probabilities.where().in("nll_loss"));
  if (log_probabilities.tensor().dim() >= 1)
    check_class_weight("nll_loss", o.weight, log_probabilities.tensor(), at.where());
  const Rows rows = rows_of(log_probabilities, labels, "nll_loss");
  const Operand ignored(o.ignore_index, at.where()), none(0, at.where());
  const Tensor counts = ne(at(rows.labels), ignored);
  // An ignored label need not be a class: class 0 is read, and counts nothing.
  const Tensor label = graven::where(at(counts), at(rows.labels), none);
  const Tensor picked = gather(at(rows.scores), 1, label.unsqueeze(1, at.where())).squeeze(1, at.where());
  Tensor weights = o.weight.defined() ? index_select(at(o.weight), 0, label) : Tensor();
  weights = weights.defined() ? graven::where(at(counts), at(weights), Operand(0.0, at.where()))
                              : counts.to(picked.dtype(), at.where());
  const Tensor losses = neg(at(at.mul(picked, weights)));
  if (o.reduction == Reduction::mean) return div(at(sum(at(losses))), at(sum(at(weights))));
  if (o.reduction == Reduction::none)
    return losses.shape() == rows.label_shape ? losses : losses.reshape(rows.label_shape, at.where());
  return reduce_loss(losses, o.reduction, "nll_loss", at.where());
}
Tensor nll_loss(const Operand& log_probabilities, const Operand& labels, Reduction reduction) {
  return nll_loss(log_probabilities, labels, NllLossOptions{.reduction = reduction});
}

Tensor mse_loss(const Operand& input, const Operand& target, Reduction reduction) {
  const At at(input.where().in("mse_loss"));
  const Tensor d = at.sub(input, target);
  warn_of_broadcast(d, input, target, at.where());
  return reduce_loss(square(at(d)), reduction, "mse_loss", at.where());
}

Tensor l1_loss(const Operand& input, const Operand& target, Reduction reduction) {
  const At at(input.where().in("l1_loss"));
  const Tensor d = at.sub(input, target);
  warn_of_broadcast(d, input, target, at.where());
  return reduce_loss(abs(at(d)), reduction, "l1_loss", at.where());
}

Tensor smooth_l1_loss(const Operand& input, const Operand& target, Reduction reduction, double beta) {
  const At at(input.where().in("smooth_l1_loss"));
  if (!(beta >= 0)) fail("smooth_l1_loss", "beta must not be negative, got " + fmt::format("{}", beta), at.where());
  require_floating("smooth_l1_loss", input, target, at.where());
  if (beta == 0) return l1_loss(at(input), target, reduction);
  const Tensor d = at.sub(input, target), size = abs(at(d));
  warn_of_broadcast(d, input, target, at.where());
  const Tensor inside = at.mul(square(at(d)), 0.5 / beta), outside = at.add(size, -0.5 * beta);
  return reduce_loss(graven::where(at(lt(at(size), at(beta))), at(inside), at(outside)), reduction, "smooth_l1_loss",
                     at.where());
}

Tensor huber_loss(const Operand& input, const Operand& target, Reduction reduction, double delta) {
  const At at(input.where().in("huber_loss"));
  if (!(delta > 0)) fail("huber_loss", "delta must be positive, got " + fmt::format("{}", delta), at.where());
  require_floating("huber_loss", input, target, at.where());
  const Tensor d = at.sub(input, target), size = abs(at(d));
  warn_of_broadcast(d, input, target, at.where());
  const Tensor inside = at.mul(square(at(d)), 0.5), outside = at.mul(at.add(size, -0.5 * delta), delta);
  return reduce_loss(graven::where(at(le(at(size), at(delta))), at(inside), at(outside)), reduction, "huber_loss",
                     at.where());
}

Tensor binary_cross_entropy(const Operand& input, const Operand& target, const BinaryCrossEntropyOptions& o) {
  const At at(input.where().in("binary_cross_entropy"));
  if (o.pos_weight.defined())
    fail("binary_cross_entropy", "pos_weight is an option of binary_cross_entropy_with_logits", at.where());
  const Tensor &p = input.tensor(), &t = target.tensor();
  if (p.shape() != t.shape())
    fail("binary_cross_entropy", "the target must be " + p.describe() + " as the input is, got " + t.describe(),
         at.where());
  Tensor losses = apply("binary_cross_entropy", {p, t}, {}, at.where());
  if (o.weight.defined()) losses = at.mul(losses, o.weight);
  return reduce_loss(losses, o.reduction, "binary_cross_entropy", at.where());
}

Tensor binary_cross_entropy_with_logits(const Operand& input, const Operand& target,
                                        const BinaryCrossEntropyOptions& o) {
  const At at(input.where().in("binary_cross_entropy_with_logits"));
  const Tensor &x = input.tensor(), &t = target.tensor();
  if (x.shape() != t.shape())
    fail("binary_cross_entropy_with_logits",
         "the target must be " + x.describe() + " as the input is, got " + t.describe(), at.where());
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
  const At at(input.where().in("kl_div"));
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
  return mul(at(sum(at(losses))), detail::over_size(1, x.shape()[0], losses.dtype(), "kl_div", at.where()));
}

Tensor margin_ranking_loss(const Operand& input1, const Operand& input2, const Operand& target, double margin,
                           Reduction reduction) {
  const At at(input1.where().in("margin_ranking_loss"));
  const Tensor difference = at.sub(input1, input2), sign = target.tensor().to(difference.dtype(), at.where());
  return reduce_loss(clamp(at(at.add(at.mul(neg(at(sign)), difference), margin)), 0), reduction, "margin_ranking_loss",
                     at.where());
}

Tensor hinge_embedding_loss(const Operand& input, const Operand& target, double margin, Reduction reduction) {
  const At at(input.where().in("hinge_embedding_loss"));
  const Tensor far = clamp(at(at.add(neg(at(input)), margin)), 0);
  const Tensor apart = graven::where(at(ne(target, at(1))), at(far), at(0)),
               together = graven::where(at(ne(target, at(-1))), at(input), at(0));
  return reduce_loss(at.add(apart, together), reduction, "hinge_embedding_loss", at.where());
}

Tensor cosine_embedding_loss(const Operand& input1, const Operand& input2, const Operand& target, double margin,
                             Reduction reduction) {
  const At at(input1.where().in("cosine_embedding_loss"));
  const Tensor &a = input1.tensor(), &b = input2.tensor(), &t = target.tensor();
  if (a.dim() < 1 || a.dim() > 2 || a.shape() != b.shape())
    fail("cosine_embedding_loss",
         "expects two tensors of [size] or [batch, size], got " + a.describe() + " and " + b.describe(), at.where());
  const Shape expected(std::vector<Dim>(a.shape().begin(), a.shape().end() - 1));
  if (t.shape() != expected)
    fail("cosine_embedding_loss",
         "the target must be " + expected.to_string() + " for inputs " + a.describe() + ", got " + t.describe(),
         at.where());
  constexpr double kLeast = 1e-12;  // PyTorch's
  const auto square_of = [&](const Tensor& x) { return at.add(sum(at(at.mul(x, x)), {-1}), kLeast); };
  const Tensor cosine = at.div(sum(at(at.mul(a, b)), {-1}), sqrt(at(at.mul(square_of(a), square_of(b)))));
  const Tensor alike = graven::where(at(eq(target, at(1))), at(at.sub(1.0, cosine)), at(0));
  const Tensor different = graven::where(at(eq(target, at(-1))), at(clamp(at(at.add(cosine, -margin)), 0)), at(0));
  return reduce_loss(at.add(alike, different), reduction, "cosine_embedding_loss", at.where());
}

Tensor triplet_margin_loss(const Operand& anchor, const Operand& positive, const Operand& negative,
                           const TripletMarginLossOptions& o) {
  const At at(anchor.where().in("triplet_margin_loss"));
  if (!(o.margin > 0))
    fail("triplet_margin_loss", "margin must be positive, got " + fmt::format("{}", o.margin), at.where());
  const Tensor near = pairwise_distance(at(anchor), positive, o.p, o.eps);
  Tensor far = pairwise_distance(at(anchor), negative, o.p, o.eps);
  if (o.swap) far = minimum(at(far), at(pairwise_distance(at(positive.tensor()), negative, o.p, o.eps)));
  return reduce_loss(clamp(at(at.add(at.sub(near, far), o.margin)), 0), o.reduction, "triplet_margin_loss", at.where());
}

Tensor soft_margin_loss(const Operand& input, const Operand& target, Reduction reduction) {
  const At at(input.where().in("soft_margin_loss"));
  const Tensor &x = input.tensor(), sign = target.tensor().to(x.dtype(), at.where());
  if (sign.shape() != x.shape())
    fail("soft_margin_loss",
         "the target must be " + x.shape().to_string() + " as the input is, got " + sign.shape().to_string(),
         at.where());
  return reduce_loss(neg(at(logsigmoid(at(at.mul(sign, x))))), reduction, "soft_margin_loss", at.where());
}

Tensor multilabel_soft_margin_loss(const Operand& input, const Operand& target,
                                   const MultilabelSoftMarginLossOptions& o) {
  const At at(input.where().in("multilabel_soft_margin_loss"));
  const Tensor &x = input.tensor(), t = target.tensor().to(x.dtype(), at.where());
  if (x.dim() < 1 || t.shape() != x.shape())
    fail("multilabel_soft_margin_loss",
         "expects an input of [..., classes] and a target of its shape, got " + x.describe() + " and " +
             target.tensor().describe(),
         at.where());
  Tensor losses =
      neg(at(at.add(at.mul(t, logsigmoid(at(input))), at.mul(at.sub(1.0, t), logsigmoid(at(neg(at(input))))))));
  if (o.weight.defined()) losses = at.mul(losses, o.weight);
  return reduce_loss(mean(at(losses), {-1}), o.reduction, "multilabel_soft_margin_loss", at.where());
}

Tensor multi_margin_loss(const Operand& input, const Operand& target, const MultiMarginLossOptions& o) {
  const At at(input.where().in("multi_margin_loss"));
  if (o.p != 1 && o.p != 2) fail("multi_margin_loss", "p must be 1 or 2, got " + std::to_string(o.p), at.where());
  const Tensor& x = input.tensor();
  if (x.dim() < 1 || x.dim() > 2)
    fail("multi_margin_loss", "expects an input of [classes] or [batch, classes], got " + x.describe(), at.where());
  require_floating("multi_margin_loss", input, input, at.where());
  check_class_weight("multi_margin_loss", o.weight, x, at.where());
  const Rows rows = rows_of(input, target, "multi_margin_loss");
  const Dim classes = rows.scores.shape()[1];
  const Tensor column = rows.labels.unsqueeze(1, at.where());
  Tensor short_of = clamp(at(at.add(at.sub(rows.scores, gather(at(rows.scores), 1, column)), o.margin)), 0);
  if (o.p == 2) short_of = square(at(short_of));
  if (o.weight.defined())
    short_of = at.mul(short_of, index_select(at(o.weight), 0, rows.labels).unsqueeze(1, at.where()));
  // The label's own term is no loss.
  const Tensor others = scatter(at(short_of), 1, column, at(0));
  const Tensor losses =
      mul(at(sum(at(others), {1})), detail::over_size(1, classes, others.dtype(), "multi_margin_loss", at.where()));
  return reduce_loss(losses.shape() == rows.label_shape ? losses : losses.reshape(rows.label_shape, at.where()),
                     o.reduction, "multi_margin_loss", at.where());
}

Tensor poisson_nll_loss(const Operand& input, const Operand& target, const PoissonNllLossOptions& o) {
  const At at(input.where().in("poisson_nll_loss"));
  const Tensor &x = input.tensor(), t = target.tensor().to(x.dtype(), at.where());
  Tensor losses = o.log_input ? at.sub(exp(at(input)), at.mul(t, x)) : at.sub(x, at.mul(t, log(at(at.add(x, o.eps)))));
  if (o.full) {
    // Stirling's approximation of log t!; where t <= 1 the logarithm of 1 stands in for that of t, whose term counts
    // nothing.
    const Tensor counts = gt(at(t), at(1)), safe = graven::where(at(counts), at(t), at(1));
    const Tensor term =
        at.add(at.sub(at.mul(safe, log(at(safe))), safe), at.mul(log(at(at.mul(safe, 2 * std::numbers::pi))), 0.5));
    losses = at.add(losses, graven::where(at(counts), at(term), at(0)));
  }
  return reduce_loss(losses, o.reduction, "poisson_nll_loss", at.where());
}

Tensor gaussian_nll_loss(const Operand& input, const Operand& target, const Operand& var,
                         const GaussianNllLossOptions& o) {
  const At at(input.where().in("gaussian_nll_loss"));
  const Tensor& x = input.tensor();
  Tensor variance = var.tensor();
  if (!(o.eps > 0)) fail("gaussian_nll_loss", "eps must be positive, got " + fmt::format("{}", o.eps), at.where());
  // As the input, with a last dimension of 1 (one variance for a whole row), or without it.
  if (variance.shape() != x.shape()) {
    std::vector<Dim> rows(x.shape().begin(), x.shape().end());
    if (!rows.empty()) rows.back() = Dim(1);
    const Shape column(rows), without(std::vector<Dim>(rows.begin(), rows.empty() ? rows.end() : rows.end() - 1));
    if (x.dim() > 0 && variance.shape() == without)
      variance = variance.unsqueeze(-1, at.where());
    else if (x.dim() == 0 || variance.shape() != column)
      fail("gaussian_nll_loss",
           "var must be " + x.shape().to_string() + " as the input is, or one for a row, got " + variance.describe(),
           at.where());
  }
  // At least eps; the gradient goes through as if it were not held there.
  const Tensor plain = variance.detach(at.where());
  variance = at.add(variance, at.sub(clamp(at(plain), o.eps), plain));
  Tensor losses = at.mul(at.add(log(at(variance)), at.div(square(at(at.sub(input, target))), variance)), 0.5);
  if (o.full) losses = at.add(losses, 0.5 * std::log(2 * std::numbers::pi));
  return reduce_loss(losses, o.reduction, "gaussian_nll_loss", at.where());
}

}  // namespace graven
