// Tensors of more than 2^31 elements, of which kernels read a few: positions are 64 bits wide. The memory is mapped,
// and hardly any of it touched.
#include <sys/mman.h>

#include "kernels/cpu/index.h"
#include "kernels/cpu/strided_copy.h"
#include "kernels/reference/index.h"
#include "kernels/reference/strided_copy.h"
#include "support.h"

namespace graven::kernels::test {
namespace {

constexpr std::int64_t kHalf = (std::int64_t{1} << 31) + 4096, kElements = 2 * kHalf;

/// Zeros but for what is written: pages come as they are needed.
struct Sparse {
  float* data = static_cast<float*>(mmap(nullptr, kElements * sizeof(float), PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ~Sparse() {
    if (exists()) munmap(data, kElements * sizeof(float));
  }
  bool exists() const { return data != MAP_FAILED; }
};

TEST(FarElements, AreReadAndWritten) {
  const Sparse x;
  if (!x.exists()) GTEST_SKIP() << "this machine maps no 16 GiB, used or not";
  Threads threads(2);
  const std::vector<float> want = {1, 2, 3, 4, 5, 6};
  for (std::int64_t i = 0; i < 3; ++i) x.data[i + 7] = want[i], x.data[kHalf + i + 7] = want[i + 3];
  const strided_copy_config rows{2, {2, 3}, {kHalf, 1}, 7}, last{1, {3}, {1}, kHalf + 7};
  for (const auto& [config, expected] : {std::pair(rows, want), std::pair(last, std::vector<float>{4, 5, 6})}) {
    std::vector<float> y(expected.size()), z = y;
    strided_copy(threads, config, y.data(), x.data);
    EXPECT_EQ(y, expected);
    reference::strided_copy(config, z.data(), x.data);
    EXPECT_EQ(z, expected);
  }
  strided_add(threads, rows, x.data, want.data());
  EXPECT_EQ(x.data[7], 2);
  EXPECT_EQ(x.data[kHalf + 9], 12);

  const index_select_config table{.outer = 1, .size = kElements / 4096, .inner = 4096, .count = 2};
  const std::int64_t index[] = {kHalf / 4096, kElements / 4096 - 1};
  x.data[kElements - 1] = 8;
  std::vector<float> y(2 * 4096), z = y;
  index_select<float>(threads, table, y.data(), x.data, index, "");
  reference::index_select<float>(table, z.data(), x.data, index, "");
  EXPECT_EQ(y, z);
  EXPECT_EQ(y[9], 12);
  EXPECT_EQ(y.back(), 8);
}

}  // namespace
}  // namespace graven::kernels::test
