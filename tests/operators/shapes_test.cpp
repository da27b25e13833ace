#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

using indexing::Ellipsis;
using indexing::None;
using indexing::Slice;

TEST(Shapes, AgreeWithPyTorch) {
  std::map<std::string, Function> functions;
  functions["squeeze"] = one([](const Fixture& f) { return squeeze(f.tensor("x")); });
  functions["squeeze_dim"] = one([](const Fixture& f) { return squeeze(f.tensor("x"), f.integer("dim")); });
  functions["unsqueeze"] = one([](const Fixture& f) { return unsqueeze(f.tensor("x"), f.integer("dim")); });
  functions["unflatten"] =
      one([](const Fixture& f) { return unflatten(f.tensor("x"), f.integer("dim"), Shape::of(f.sizes("sizes"))); });
  functions["pixel_shuffle"] = one([](const Fixture& f) { return pixel_shuffle(f.tensor("x"), f.integer("factor")); });
  functions["pixel_unshuffle"] =
      one([](const Fixture& f) { return pixel_unshuffle(f.tensor("x"), f.integer("factor")); });
  functions["channel_shuffle"] =
      one([](const Fixture& f) { return channel_shuffle(f.tensor("x"), f.integer("groups")); });
  functions["diff"] = one([](const Fixture& f) { return diff(f.tensor("x"), f.integer("n"), f.integer("dim")); });
  functions["swapaxes"] =
      one([](const Fixture& f) { return swapaxes(f.tensor("x"), f.integer("dim0"), f.integer("dim1")); });
  functions["movedim"] =
      one([](const Fixture& f) { return movedim(f.tensor("x"), f.sizes("source"), f.sizes("destination")); });
  functions["broadcast_to"] =
      one([](const Fixture& f) { return broadcast_to(f.tensor("x"), Shape::of(f.sizes("shape"))); });
  functions["narrow"] = one([](const Fixture& f) {
    return narrow(f.tensor("x"), f.integer("dim"), f.integer("start"), f.integer("length"));
  });
  functions["select"] =
      one([](const Fixture& f) { return select(f.tensor("x"), f.integer("dim"), f.integer("index")); });
  functions["split"] = [](const Fixture& f) { return split(f.tensor("x"), f.integer("split_size"), f.integer("dim")); };
  functions["split_sizes"] = [](const Fixture& f) {
    return split(f.tensor("x"), f.sizes("split_sizes"), f.integer("dim"));
  };
  functions["chunk"] = [](const Fixture& f) { return chunk(f.tensor("x"), f.integer("chunks"), f.integer("dim")); };
  functions["unbind"] = [](const Fixture& f) { return unbind(f.tensor("x"), f.integer("dim")); };
  functions["flip"] = one([](const Fixture& f) { return flip(f.tensor("x"), f.sizes("dims")); });
  functions["roll"] = one([](const Fixture& f) { return roll(f.tensor("x"), f.sizes("shifts"), f.sizes("dims")); });
  functions["repeat"] = one([](const Fixture& f) { return repeat(f.tensor("x"), f.sizes("counts")); });
  functions["tile"] = one([](const Fixture& f) { return tile(f.tensor("x"), f.sizes("counts")); });
  functions["repeat_interleave"] = one([](const Fixture& f) {
    if (!f.has("dim")) return repeat_interleave(f.tensor("x"), f.integer("repeats"));
    return repeat_interleave(f.tensor("x"), f.integer("repeats"), f.integer("dim"));
  });
  functions["tril"] = one([](const Fixture& f) { return tril(f.tensor("x"), f.integer("diagonal")); });
  functions["triu"] = one([](const Fixture& f) { return triu(f.tensor("x"), f.integer("diagonal")); });
  functions["diagonal"] = one([](const Fixture& f) { return diagonal(f.tensor("x"), f.integer("offset")); });
  functions["diagonal_dims"] = one([](const Fixture& f) {
    return diagonal(f.tensor("x"), f.integer("offset"), f.integer("dim1"), f.integer("dim2"));
  });
  functions["masked_fill"] = one([](const Fixture& f) {
    const bool floating = ir::is_floating(f.tensor("x").dtype());
    return masked_fill(f.tensor("x"), f.tensor("mask"),
                       floating ? Operand(f.number("value")) : Operand(f.integer("value")));
  });
  functions["stack"] = one([](const Fixture& f) { return stack({f.tensor("a"), f.tensor("b")}, f.integer("dim")); });
  functions["hstack"] = one([](const Fixture& f) { return hstack({f.tensor("a"), f.tensor("b")}); });
  functions["vstack"] = one([](const Fixture& f) { return vstack({f.tensor("a"), f.tensor("b")}); });
  functions["meshgrid"] = [](const Fixture& f) { return meshgrid({f.tensor("a"), f.tensor("b")}, f.text("indexing")); };
  functions["index"] =
      one([](const Fixture& f) { return f.tensor("x").index({1, "...", Slice(1, None), None, Slice(None, None, 2)}); });
  functions["transpose"] =
      one([](const Fixture& f) { return transpose(f.tensor("x"), f.integer("dim0"), f.integer("dim1")); });
  functions["permute"] = one([](const Fixture& f) { return permute(f.tensor("x"), f.sizes("dims")); });
  functions["expand"] = one([](const Fixture& f) { return f.tensor("x").expand(Shape::of(f.sizes("shape"))); });
  functions["reshape"] = one([](const Fixture& f) { return reshape(f.tensor("x"), Shape::of(f.sizes("shape"))); });
  functions["flatten"] =
      one([](const Fixture& f) { return flatten(f.tensor("x"), f.integer("start"), f.integer("end")); });
  functions["slice"] = one([](const Fixture& f) {
    return f.tensor("x").slice(f.integer("dim"), f.integer("start"), f.integer("end"), f.integer("step"));
  });
  functions["cat"] = one([](const Fixture& f) { return cat({f.tensor("a"), f.tensor("b")}, f.integer("dim")); });
  functions["diag"] = one([](const Fixture& f) { return diag(f.tensor("x"), f.integer("diagonal")); });
  functions["unfold"] = one(
      [](const Fixture& f) { return f.tensor("x").unfold(f.integer("dim"), f.integer("size"), f.integer("step")); });
  functions["T"] = one([](const Fixture& f) { return f.tensor("x").T(); });
  expect_family("shapes", functions);
}

TEST(Shapes, IndexIsAView) {
  Tensor x = zeros({3, 4});
  x.index({Slice(1), Slice(-2, None)}).fill_(1);
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(x.index({Ellipsis, 0}).sizes(), (Sizes{3}));
  EXPECT_EQ(x.index({None, Slice(), None}).sizes(), (Sizes{1, 3, 1, 4}));
  EXPECT_THROW((void)x.index({0, 0, 0}), UserError);
  EXPECT_THROW((void)x.index({3}), UserError);
  EXPECT_THROW((void)x.index({Ellipsis, Ellipsis}), UserError);
  EXPECT_THROW((void)x.index({Slice(None, None, -1)}), UserError);
  EXPECT_THROW((void)x.index({".."}), UserError);
}

TEST(Shapes, RefuseWhatHasNoMeaning) {
  const Tensor x = zeros({2, 3});
  EXPECT_THROW(unflatten(x, 1, {2, 2}), UserError);
  EXPECT_THROW(split(x, Sizes{1, 1}, 1), UserError);
  EXPECT_THROW(repeat(x, {2}), UserError);
  EXPECT_THROW(repeat(x, {2, -1}), UserError);
  EXPECT_THROW(roll(x, {1, 2}, {0}), UserError);
  EXPECT_THROW(tril(zeros({3})), UserError);
  EXPECT_THROW(masked_fill(x, x, 1), UserError);
  EXPECT_THROW(movedim(x, {0, 0}, {0, 1}), UserError);
  EXPECT_THROW(flip(x, {2}), UserError);
  EXPECT_THROW(unbind(tensor(1.0)), UserError);
  const Tensor image = zeros({1, 4, 3, 3});
  EXPECT_THROW(pixel_shuffle(image, 0), UserError);
  EXPECT_THROW(pixel_shuffle(image, 3), UserError);
  EXPECT_THROW(pixel_shuffle(image, std::int64_t{1} << 32), UserError);
  EXPECT_THROW(pixel_unshuffle(image, 2), UserError);
  EXPECT_THROW(pixel_unshuffle(zeros({1, 0, 0}), std::int64_t{1} << 40), UserError);
  EXPECT_THROW(channel_shuffle(image, 3), UserError);
  EXPECT_THROW(channel_shuffle(x, 1), UserError);
  EXPECT_THROW(diff(x, -1), UserError);
  EXPECT_THROW(diff(tensor(1.0)), UserError);
}

}  // namespace
}  // namespace graven::tests
