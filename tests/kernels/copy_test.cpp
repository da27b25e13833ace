#include <sys/mman.h>

#include "kernels/cpu/concat.h"
#include "kernels/cpu/release.h"
#include "kernels/cpu/strided_copy.h"
#include "kernels/reference/concat.h"
#include "kernels/reference/strided_copy.h"
#include "support.h"

namespace graven::kernels::test {
namespace {

const struct {
  const char* what;
  strided_copy_config config;
  std::int64_t strided_size;
} kCases[] = {
    {"scalar", {0, {}, {}, 0}, 1},
    {"empty", {2, {3, 0}, {1, 1}, 0}, 1},
    {"plain copy", {3, {10, 40, 50}, {2000, 50, 1}, 0}, 20000},
    {"transpose", {2, {300, 200}, {1, 300}, 0}, 60000},
    {"small transpose", {2, {3, 5}, {1, 3}, 0}, 15},
    {"odd transpose", {2, {37, 21}, {1, 37}, 0}, 777},
    {"NCHW to NHWC", {4, {3, 28, 28, 6}, {4704, 28, 1, 784}, 0}, 14112},
    {"NHWC to NCHW", {4, {3, 6, 28, 28}, {4704, 1, 168, 6}, 0}, 14112},
    {"heads", {4, {2, 12, 20, 64}, {15360, 64, 768, 1}, 0}, 30720},
    {"last two dimensions", {3, {5, 40, 60}, {2400, 1, 40}, 0}, 12000},
    {"three columns", {3, {4, 10007, 3}, {3 * 10007, 1, 10007}, 0}, 4 * 10007 * 3},
    {"two columns apart", {3, {100, 5, 2}, {1, 200, 100}, 0}, 1000},
    {"tall transpose", {2, {5, 20000}, {1, 5}, 0}, 100000},
    {"slice with step", {2, {7, 9}, {60, 3}, 5}, 500},
    {"flip", {2, {40, 500}, {-500, -1}, 19999}, 20000},
    {"expand rows", {2, {100, 300}, {0, 1}, 0}, 300},
    {"expand columns", {2, {300, 100}, {1, 0}, 0}, 300},
    {"expand inside", {3, {20, 30, 40}, {40, 0, 1}, 0}, 800},
    {"rank 8", {8, {2, 3, 2, 3, 2, 3, 2, 3}, {1, 2, 6, 12, 36, 72, 216, 432}, 0}, 1296},
    {"ones", {5, {1, 4, 1, 7, 1}, {99, 7, 99, 1, 99}, 0}, 28},
    {"overlapping windows", {2, {50, 8}, {3, 1}, 0}, 200},
};

template <class T>
void check_copy() {
  for (const auto& s : kCases) {
    std::int64_t n = 1;
    for (std::int64_t d = 0; d < s.config.rank; ++d) n *= s.config.shape[d];
    const auto x = random_tensor<T>(s.strided_size, 1, -100, 100);
    std::vector<T> want(static_cast<std::size_t>(n));
    reference::strided_copy(s.config, want.data(), x.data());
    expect_same_bits(with_every_pool(s.what,
                                     [&](Threads& threads) {
                                       Guarded<T> y(n);
                                       strided_copy(threads, s.config, y.data(), x.data());
                                       y.expect_untouched_around(s.what);
                                       return y.values();
                                     }),
                     want, s.what);
  }
}

TEST(StridedCopy, AgreesWithReference) {
  check_copy<float>();
  check_copy<double>();
  check_copy<half>();
  check_copy<i8>();
  check_copy<i64>();
}

TEST(StridedAdd, AgreesWithReference) {
  for (const auto& s : kCases) {
    std::int64_t n = 1;
    for (std::int64_t d = 0; d < s.config.rank; ++d) n *= s.config.shape[d];
    const auto x = random_tensor<float>(n, 2), start = random_tensor<float>(s.strided_size, 3);
    const auto xd = converted<double>(x);
    auto want = converted<double>(start);
    reference::strided_add(s.config, want.data(), xd.data());
    expect_close(with_every_pool(s.what,
                                 [&](Threads& threads) {
                                   Guarded<float> y(start);
                                   strided_add(threads, s.config, y.data(), x.data());
                                   y.expect_untouched_around(s.what);
                                   return y.values();
                                 }),
                 want, 2e-5, s.what);
  }
}

TEST(Concat, AgreesWithReference) {
  const struct {
    concat_config config;
    std::vector<std::int64_t> sizes;
  } cases[] = {
      {{1, 1}, {3}},           {{1, 1}, {3, 0, 5}},  {{4, 7}, {1, 2, 3}}, {{64, 49}, {16, 32}}, {{1, 30000}, {1, 2}},
      {{3, 20000}, {1, 1, 1}}, {{20000, 1}, {1, 2}}, {{0, 5}, {1, 2}},    {{5, 0}, {1, 2}},     {{2, 3}, {}}};
  for (const auto& s : cases) {
    std::vector<std::vector<float>> tensors;
    std::vector<const float*> pointers;
    std::int64_t n = 0;
    for (std::size_t i = 0; i < s.sizes.size(); ++i) {
      tensors.push_back(random_tensor<float>(s.config.outer * s.sizes[i] * s.config.inner, static_cast<unsigned>(i)));
      n += static_cast<std::int64_t>(tensors.back().size());
    }
    for (const auto& t : tensors) pointers.push_back(t.data());
    const auto count = static_cast<std::int64_t>(s.sizes.size());
    std::vector<float> want(static_cast<std::size_t>(n));
    reference::concat(s.config, want.data(), count, pointers.data(), s.sizes.data());
    expect_same_bits(with_every_pool("concat",
                                     [&](Threads& threads) {
                                       Guarded<float> y(n);
                                       concat(threads, s.config, y.data(), count, pointers.data(), s.sizes.data());
                                       y.expect_untouched_around("concat");
                                       return y.values();
                                     }),
                     want, "concat");
  }
}

TEST(Release, GivesUpWholePagesAlone) {
  const std::int64_t page = ::sysconf(_SC_PAGESIZE) / 4, count = 8 * page;  // floats
  const struct {
    std::int64_t begin, count, lost_begin, lost_end;
  } cases[] = {{0, count, 0, count},
               {page, page, page, 2 * page},
               {1, 2 * page, page, 2 * page},
               {page - 1, page + 2, page, 2 * page},
               {1, 2 * page - 2, page, page},
               {5, page - 5, 0, 0},
               {0, 0, 0, 0},
               {page, 0, 0, 0},
               {3 * page, 5 * page, 3 * page, 8 * page}};
  for (const auto& s : cases) {
    void* const memory = ::mmap(nullptr, static_cast<std::size_t>(count) * 4, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    float* const data = static_cast<float*>(memory);
    for (std::int64_t i = 0; i < count; ++i) data[i] = 1;
    release(data + s.begin, s.count);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) wrong += data[i] != (i >= s.lost_begin && i < s.lost_end ? 0.0F : 1.0F);
    EXPECT_EQ(wrong, 0) << s.begin << " " << s.count;
    ::munmap(memory, static_cast<std::size_t>(count) * 4);
  }
}

}  // namespace
}  // namespace graven::kernels::test
