#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/call.h"
#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

TEST(Linalg, AgreesWithPyTorch) {
  std::map<std::string, Function> functions;
  functions["vector_norm"] = one([](const Fixture& f) {
    return linalg::vector_norm(f.tensor("x"), f.number("ord"), f.sizes("dim"), f.flag("keepdim"));
  });
  functions["matrix_norm"] = one([](const Fixture& f) {
    return linalg::matrix_norm(f.tensor("x"), f.number("ord"), f.sizes("dim"), f.flag("keepdim"));
  });
  functions["matrix_norm_fro"] = one([](const Fixture& f) {
    return linalg::matrix_norm(f.tensor("x"), f.text("ord"), f.sizes("dim"), f.flag("keepdim"));
  });
  functions["solve"] = one([](const Fixture& f) { return linalg::solve(f.tensor("A"), f.tensor("B")); });
  functions["inv"] = one([](const Fixture& f) { return linalg::inv(f.tensor("A")); });
  functions["det"] = one([](const Fixture& f) { return linalg::det(f.tensor("A")); });
  functions["cholesky"] = one([](const Fixture& f) { return linalg::cholesky(f.tensor("A")); });
  // Of several operators one after another, as layers are.
  expect_family("linalg", functions, tolerance::layers, tolerance::layer_gradients);
}

TEST(Linalg, OfNothing) {
  EXPECT_EQ(linalg::det(zeros({0, 0})).item<double>(), 1);
  EXPECT_EQ(linalg::inv(zeros({2, 0, 0})).sizes(), (Sizes{2, 0, 0}));
  EXPECT_EQ(linalg::cholesky(zeros({0, 0})).sizes(), (Sizes{0, 0}));
  EXPECT_EQ(linalg::solve(zeros({0, 0}), zeros({0, 3})).sizes(), (Sizes{0, 3}));
}

TEST(Linalg, RefusesWhatIsNoMatrix) {
  const Tensor square = zeros({2, 2}), wide = zeros({2, 3});
  const struct {
    const char* error;
    test::Call<Tensor()> call;
  } cases[] = {
      {"inv: the matrices must be square, got f32[2,3]", [&] { return linalg::inv(wide); }},
      {"det: expects floating-point matrices [..., n, m], got f32[2]", [&] { return linalg::det(zeros({2})); }},
      {"cholesky: expects floating-point matrices [..., n, m], got i64[2,2]",
       [&] { return linalg::cholesky(square.to(i64)); }},
      {"solve: b must be [..., n] or [..., n, k] of the dtype of a[..., n, n], got f32[2,2] and f32[3]",
       [&] { return linalg::solve(square, zeros({3})); }},
      {"solve: b must be [..., n] or [..., n, k] of the dtype of a[..., n, n], got f32[2,2] and f64[2]",
       [&] { return linalg::solve(square, zeros({2}, f64)); }},
      {"matrix_norm: the order must be 'fro', 1, -1 or an infinity, got 2",
       [&] { return linalg::matrix_norm(square, 2); }},
      {"matrix_norm: the order must be 'fro', 1, -1 or an infinity, got 'nuc'",
       [&] { return linalg::matrix_norm(square, "nuc"); }},
      {"matrix_norm: dim must be two dimensions, got 1", [&] { return linalg::matrix_norm(square, 1, 0); }},
      {"matrix_norm: the two dimensions must differ", [&] { return linalg::matrix_norm(square, 1, {0, -2}); }},
  };
  for (const auto& c : cases) {
    try {
      (void)c.call();
      ADD_FAILURE() << "no error, expected " << c.error;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(c.error), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace graven::tests
