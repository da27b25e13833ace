#include <gtest/gtest.h>

#include <cmath>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

BinaryCrossEntropyOptions binary(const Fixture& f) {
  return {.weight = f.tensor("weight"), .reduction = f.reduction(), .pos_weight = f.tensor("pos_weight")};
}

TEST(Losses, AgreeWithPyTorch) {
  const auto input = [](const Fixture& f) { return f.tensor("input"); };
  const auto target = [](const Fixture& f) { return f.tensor("target"); };
  expect_family(
      "losses",
      {
          {"mse_loss", one([=](const Fixture& f) { return mse_loss(input(f), target(f), f.reduction()); })},
          {"l1_loss", one([=](const Fixture& f) { return l1_loss(input(f), target(f), f.reduction()); })},
          {"smooth_l1_loss", one([=](const Fixture& f) {
             return smooth_l1_loss(input(f), target(f), f.reduction(), f.number("beta", 1));
           })},
          {"huber_loss",
           one([=](const Fixture& f) { return huber_loss(input(f), target(f), f.reduction(), f.number("delta", 1)); })},
          {"binary_cross_entropy",
           one([=](const Fixture& f) { return binary_cross_entropy(input(f), target(f), binary(f)); })},
          {"binary_cross_entropy_with_logits",
           one([=](const Fixture& f) { return binary_cross_entropy_with_logits(input(f), target(f), binary(f)); })},
          {"kl_div", one([=](const Fixture& f) {
             return kl_div(input(f), target(f), {.reduction = f.reduction(), .log_target = f.flag("log_target")});
           })},
          {"cross_entropy", one([=](const Fixture& f) {
             return cross_entropy(input(f), target(f),
                                  {.weight = f.tensor("weight"),
                                   .ignore_index = f.integer("ignore_index", -100),
                                   .reduction = f.reduction(),
                                   .label_smoothing = f.number("label_smoothing")});
           })},
          {"nll_loss", one([=](const Fixture& f) {
             return nll_loss(input(f), target(f),
                             {.weight = f.tensor("weight"),
                              .ignore_index = f.integer("ignore_index", -100),
                              .reduction = f.reduction()});
           })},
          {"margin_ranking_loss", one([=](const Fixture& f) {
             return margin_ranking_loss(f.tensor("input1"), f.tensor("input2"), target(f), f.number("margin"),
                                        f.reduction());
           })},
          {"hinge_embedding_loss", one([=](const Fixture& f) {
             return hinge_embedding_loss(input(f), target(f), f.number("margin", 1), f.reduction());
           })},
          {"cosine_embedding_loss", one([=](const Fixture& f) {
             return cosine_embedding_loss(f.tensor("input1"), f.tensor("input2"), target(f), f.number("margin"),
                                          f.reduction());
           })},
          {"triplet_margin_loss", one([](const Fixture& f) {
             return triplet_margin_loss(f.tensor("anchor"), f.tensor("positive"), f.tensor("negative"),
                                        {.margin = f.number("margin", 1),
                                         .p = f.number("p", 2),
                                         .eps = f.number("eps", 1e-6),
                                         .swap = f.flag("swap"),
                                         .reduction = f.reduction()});
           })},
          {"soft_margin_loss",
           one([=](const Fixture& f) { return soft_margin_loss(input(f), target(f), f.reduction()); })},
          {"multilabel_soft_margin_loss", one([=](const Fixture& f) {
             return multilabel_soft_margin_loss(input(f), target(f),
                                                {.weight = f.tensor("weight"), .reduction = f.reduction()});
           })},
          {"multi_margin_loss", one([=](const Fixture& f) {
             return multi_margin_loss(input(f), target(f),
                                      {.p = f.integer("p", 1),
                                       .margin = f.number("margin", 1),
                                       .weight = f.tensor("weight"),
                                       .reduction = f.reduction()});
           })},
          {"poisson_nll_loss", one([=](const Fixture& f) {
             return poisson_nll_loss(input(f), target(f),
                                     {.log_input = f.flag("log_input", true),
                                      .full = f.flag("full"),
                                      .eps = f.number("eps", 1e-8),
                                      .reduction = f.reduction()});
           })},
          {"gaussian_nll_loss", one([=](const Fixture& f) {
             return gaussian_nll_loss(
                 input(f), target(f), f.tensor("var"),
                 {.full = f.flag("full"), .eps = f.number("eps", 1e-6), .reduction = f.reduction()});
           })},
      });
}

TEST(Losses, SayWhatIsWrong) {
  const auto error_of = [](const auto& call) -> std::string {
    try {
      (void)call();
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  const Tensor scores = zeros({2, 3}), labels = tensor({0, 3});
  const struct {
    std::string wanted, found;
  } cases[] = {
      {"cross_entropy: label 3 at position 1 is outside [0, 3)",
       error_of([&] { return cross_entropy(scores, labels); })},
      {"nll_loss: index 3 at position 1 is outside [0, 3)", error_of([&] { return nll_loss(scores, labels); })},
      {"labels must be i64[2] for scores f32[2,3], got i64[3]",
       error_of([&] { return cross_entropy(scores, tensor({0, 1, 2})); })},
      {"weight must be f32[3], got f32[2]",
       error_of([&] { return cross_entropy(scores, tensor({0, 1}), {.weight = ones({2})}); })},
      {"label_smoothing must lie in [0, 1]",
       error_of([&] { return cross_entropy(scores, tensor({0, 1}), {.label_smoothing = 1.5}); })},
      {"binary_cross_entropy: input 1.5 at position 1 is outside [0, 1]",
       error_of([&] { return binary_cross_entropy(tensor({0.5, 1.5}), tensor({0.0, 1.0})); })},
      {"binary_cross_entropy: input nan at position 0 is outside [0, 1]",
       error_of([&] { return binary_cross_entropy(tensor({std::nan("")}), tensor({1.0})); })},
      {"BCELoss (binary_cross_entropy): target -1 at position 0 is outside [0, 1]",
       error_of([&] { return nn::BCELoss()(tensor({0.5, 0.5}), tensor({-1.0, 1.0})); })},
      {"batchmean is kl_div's", error_of([&] { return mse_loss(scores, scores, Reduction::batchmean); })},
      {"the target must be [2] for inputs f32[2,3], got f32[3]",
       error_of([&] { return cosine_embedding_loss(scores, scores, ones({3})); })},
      {"margin must be positive, got 0",
       error_of([&] { return triplet_margin_loss(scores, scores, scores, {.margin = 0}); })},
      {"p must be 1 or 2, got 3", error_of([&] { return multi_margin_loss(scores, tensor({0, 1}), {.p = 3}); })},
      {"var must be [2,3] as the input is, or one for a row, got f32[3]",
       error_of([&] { return gaussian_nll_loss(scores, scores, ones({3})); })},
      {"delta must be positive", error_of([&] { return huber_loss(scores, scores, Reduction::mean, 0); })},
  };
  for (const auto& c : cases) EXPECT_NE(c.found.find(c.wanted), std::string::npos) << c.wanted << "\n" << c.found;
  // Once, whether the operator or its kernel says it.
  EXPECT_EQ(cases[0].found.find("error: cross_entropy: label 3"), 0u) << cases[0].found;
  EXPECT_EQ(error_of([&] { return index_select(scores, 0, labels); }).find("error: index_select: index 3 at"), 0u);
}

TEST(Losses, WarnOnceOfShapesThatAreBroadcastAgainstEachOther) {
  const Tensor column = zeros({4, 1}), row = ones({4});
  const auto said = [](const auto& call) {
    testing::internal::CaptureStderr();
    call();
    return testing::internal::GetCapturedStderr();
  };
  const struct {
    const char* name;
    Tensor (*loss)(const Tensor& x, const Tensor& y);
  } cases[] = {
      {"mse_loss", [](const Tensor& x, const Tensor& y) { return mse_loss(x, y); }},
      {"l1_loss", [](const Tensor& x, const Tensor& y) { return l1_loss(x, y); }},
      {"smooth_l1_loss", [](const Tensor& x, const Tensor& y) { return smooth_l1_loss(x, y); }},
      {"huber_loss", [](const Tensor& x, const Tensor& y) { return huber_loss(x, y); }},
  };
  for (const auto& c : cases) {
    const std::string text = said([&] {
      c.loss(column, row);
      c.loss(column, row);
    });
    EXPECT_EQ(
        text.find(
            "warning: " + std::string(c.name) +
            ": the input f32[4,1] and the target f32[4] are broadcast to [4,4]; give both one shape (losses_test.cpp:"),
        0u)
        << text;
    EXPECT_EQ(text.find("warning", 1), std::string::npos) << text;
    EXPECT_EQ(said([&] {
                c.loss(column, column);
                c.loss(column, tensor(1.0));
                c.loss(zeros({2, 4}), row);
              }),
              "");
  }
}

}  // namespace
}  // namespace graven::tests
