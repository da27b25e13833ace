// What ranks with tensors in parts compute: convert_layout, index_on_rank, dropout and attention of a rank's own part,
// and predictions, against what the definition of a layout says, in every order of threads and blocks.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "kernel_harness.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/convert_layout.cuh"
#include "kernels/cuda/index_on_rank.cuh"
#include "kernels/cuda/predictions.cuh"
#include "kernels/cuda/random.cuh"

namespace graven::kernels {
namespace {

using namespace testing_on_device;

/// What ranks have sent each other, message by message, a row of bytes for each of them.
struct Post {
  std::vector<std::vector<std::vector<char>>> messages;  // by message, by rank
};

/// One of the ranks, which are run one after the other, again and again: each run knows one message more.
class ReplayedTeam final : public Team {
 public:
  ReplayedTeam(CudaContext& context, Post& post, std::size_t known, int rank, int size)
      : context_(context), post_(post), known_(known), rank_(rank), size_(size) {
    context.set_ranks(nullptr, nullptr, this);
  }
  ~ReplayedTeam() { context_.set_ranks(nullptr, nullptr, nullptr); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void exchange(const void* rows, void* received, std::int64_t bytes) override {
    deliver(rows, size_ * bytes, received, bytes, rank_ * bytes);
  }
  void gather(const void* own, void* rows, std::int64_t bytes) override { deliver(own, bytes, rows, bytes, 0); }

 private:
  /// `offset`: of what is this rank's in what another one sends.
  void deliver(const void* sent, std::int64_t length, void* to, std::int64_t bytes, std::int64_t offset) {
    const std::size_t number = next_++;
    if (number > known_) return;
    std::vector<char> own(static_cast<std::size_t>(length));
    copy(own.data(), sent, own.size(), cudaMemcpyDeviceToHost);
    if (post_.messages.size() == number) post_.messages.emplace_back(static_cast<std::size_t>(size_));
    std::vector<std::vector<char>>& message = post_.messages[number];
    if (number == known_) {
      message[static_cast<std::size_t>(rank_)] = own;
      return;
    }
    std::vector<char> rows;
    for (const std::vector<char>& of : message)
      rows.insert(rows.end(), of.begin() + offset, of.begin() + offset + bytes);
    copy(to, rows.data(), rows.size(), cudaMemcpyHostToDevice);
  }
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    GRAVEN_CUDA(cudaMemcpyAsync(to, from, bytes, kind, context_.stream()));
    context_.synchronize();
  }

  CudaContext& context_;
  Post& post_;
  const std::size_t known_;
  const int rank_, size_;
  std::size_t next_ = 0;
};

/// The results of each rank.
std::vector<std::vector<std::vector<double>>> on_ranks(int ranks, bool is_large,
                                                       const std::function<void(int, CudaContext&, Memory&)>& f) {
  Post post;
  std::vector<std::vector<std::vector<double>>> results;
  for (std::size_t known = 0; known <= post.messages.size(); ++known) {
    results.clear();
    for (int r = 0; r < ranks; ++r)
      results.push_back(everywhere(
          [&](CudaContext& context, Memory& memory) {
            const ReplayedTeam team(context, post, known, r, ranks);
            f(r, context, memory);
            context.synchronize();
          },
          is_large));
    if (known < post.messages.size()) continue;
    break;
  }
  return results;
}

// ---- conversions ----------------------------------------------------------------------------------------------------

/// By the definition: what rank r has of a tensor whose elements lie in runs; of terms it is another matter.
template <class T>
std::vector<T> part_of(const std::vector<T>& whole, std::int64_t run, std::int64_t ranks, std::int64_t rank) {
  if (run == 0) return whole;
  std::vector<T> own;
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (static_cast<std::int64_t>(i) / run % ranks == rank) own.push_back(whole[i]);
  return own;
}

template <class T>
void expect_conversion(std::int64_t n, int ranks, std::int64_t from, std::int64_t to, std::size_t offset = 0) {
  SCOPED_TRACE(std::to_string(n) + " elements of " + std::to_string(ranks) + " ranks, from " + std::to_string(from) +
               " to " + std::to_string(to));
  std::vector<std::vector<T>> of_rank;  // terms
  for (int r = 0; r < ranks; ++r) of_rank.push_back(numbers<T>(n, static_cast<std::uint64_t>(r + 1), -2, 2));
  std::vector<T> whole = of_rank[0];
  if constexpr (static_cast<T>(0.5) == 0.5)
    if (from < 0)
      for (std::size_t i = 0; i < whole.size(); ++i) {
        compute_t<T> sum = static_cast<compute_t<T>>(whole[i]);
        for (int r = 1; r < ranks; ++r) sum += static_cast<compute_t<T>>(of_rank[static_cast<std::size_t>(r)][i]);
        whole[i] = static_cast<T>(sum);
      }
  const std::int64_t part = n / ranks;
  const auto found = on_ranks(ranks, n > 5000, [&](int r, CudaContext& context, Memory& memory) {
    const std::vector<T> x = from < 0 ? of_rank[static_cast<std::size_t>(r)] : part_of(whole, from, ranks, r);
    const std::int64_t count = to > 0 ? part : n;
    T* const y = memory.out<T>(count, offset);
    convert_layout(context, convert_layout_config{.n = n, .ranks = ranks, .from = from, .to = to}, y,
                   memory.in(x, offset));
    context.synchronize();
    memory.result(y, count);
  });
  std::vector<double> sum(whole.size());
  for (int r = 0; r < ranks; ++r) {
    const std::vector<double>& own = found[static_cast<std::size_t>(r)][0];
    if (to < 0 && from >= 0)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    else
      ASSERT_EQ(own, wide(from < 0 && to < 0 ? of_rank[static_cast<std::size_t>(r)] : part_of(whole, to, ranks, r)))
          << "rank " << r;
  }
  if (to < 0 && from >= 0) {
    ASSERT_EQ(sum, wide(whole));
  }
}

TEST(CudaConvertLayout, OfEachLayoutToEachOther) {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::int64_t n = 48 * ranks * ranks;
    // All, terms, rows of the tensor, and runs of which some divide others, and some do not.
    const std::int64_t layouts[] = {0, -1, n / ranks, 24, 12, 8, 3, 1};
    for (const std::int64_t from : layouts)
      for (const std::int64_t to : layouts)
        if (n % (std::max<std::int64_t>(from, 1) * ranks) == 0 && n % (std::max<std::int64_t>(to, 1) * ranks) == 0)
          expect_conversion<float>(n, ranks, from, to);
  }
}

TEST(CudaConvertLayout, OfEachType) {
  for (const std::int64_t run : {96, 8, 3}) {
    for (const std::int64_t to : {std::int64_t{0}, std::int64_t{24}}) {
      expect_conversion<bool>(192, 2, run, to);
      expect_conversion<std::uint8_t>(192, 2, run, to, 1);
      expect_conversion<std::int64_t>(192, 2, run, to);
      expect_conversion<bfloat16>(192, 2, run, to);
      expect_conversion<half>(192, 2, run, to, 1);
    }
    expect_conversion<bfloat16>(192, 2, -1, run);
    expect_conversion<half>(192, 2, -1, run);
    expect_conversion<double>(192, 2, -1, run, 1);
  }
  for (const std::int64_t to : {0, -1}) {
    expect_conversion<bfloat16>(192, 3, -1, to);
    expect_conversion<float>(1, 3, -1, to);
    expect_conversion<float>(0, 2, -1, to);
  }
}

/// Of so much that each rank adds up a part of it, whether ranks divide it or not.
TEST(CudaConvertLayout, SumsOfMuch) {
  expect_conversion<float>(24000, 2, -1, 0);
  expect_conversion<float>(20001, 2, -1, 0);
  expect_conversion<half>(24001, 3, -1, 0, 1);
  expect_conversion<float>(24000, 3, -1, 4000);
}

/// A process that runs alone is the first rank, and the others have zeros.
TEST(CudaConvertLayout, Alone) {
  const std::int64_t n = 48, layouts[] = {0, -1, 24, 12, 4, 1};
  const std::vector<float> whole = numbers<float>(n, 3);
  for (const std::int64_t from : layouts)
    for (const std::int64_t to : layouts) {
      const std::vector<float> x = part_of(whole, std::max<std::int64_t>(from, 0), 2, 0);
      std::vector<float> zeroed(whole.size());
      for (std::size_t i = 0; i < whole.size(); ++i)
        zeroed[i] = from <= 0 || static_cast<std::int64_t>(i) / from % 2 == 0 ? whole[i] : 0;
      const std::vector<float> expected = part_of(zeroed, std::max<std::int64_t>(to, 0), 2, 0);
      const auto found = everywhere([&](CudaContext& context, Memory& memory) {
        float* const y = memory.out<float>(std::ssize(expected));
        convert_layout(context, convert_layout_config{.n = n, .ranks = 2, .from = from, .to = to}, y, memory.in(x));
        context.synchronize();
        memory.result(y, std::ssize(expected));
      });
      EXPECT_EQ(found[0], wide(expected)) << from << " to " << to;
    }
}

// ---- by rank --------------------------------------------------------------------------------------------------------

TEST(CudaIndexOnRank, WhoseAnEntryIs) {
  const std::vector<std::int64_t> index = {0, 3, 4, 7, 8, 11, -100, 5};
  for (const bool ignores : {true, false}) {
    const index_on_rank_config config{.n = ignores ? 8 : 6, .size = 4, .ranks = 3, .ignores = ignores, .ignored = -100};
    const auto found = on_ranks(3, false, [&](int, CudaContext& context, Memory& memory) {
      std::int64_t* const own = memory.out<std::int64_t>(config.n);
      bool* const mine = memory.out<bool>(config.n);
      index_on_rank(context, config, own, mine, memory.in(index), "table");
      finish_calls(context);
      memory.result(own, config.n);
      memory.result(mine, config.n);
    });
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t i = 0; i < static_cast<std::size_t>(config.n); ++i) {
        const bool is_own = index[i] >= 0 && index[i] / 4 == static_cast<std::int64_t>(r);
        EXPECT_EQ(found[r][1][i], is_own ? 1 : 0) << "rank " << r << ", " << i;
        EXPECT_EQ(found[r][0][i], is_own ? static_cast<double>(index[i] % 4) : 0) << "rank " << r << ", " << i;
      }
  }
  for (const std::int64_t wrong : {12, -1}) {
    CudaContext context;
    Memory memory;
    std::int64_t* const own = memory.out<std::int64_t>(2);
    index_on_rank(context, {.n = 2, .size = 4, .ranks = 3, .ignores = true, .ignored = -100}, own, memory.out<bool>(2),
                  memory.in(std::vector<std::int64_t>{1, wrong}), "table");
    try {
      finish_calls(context);
      ADD_FAILURE() << "nobody tells of " << wrong;
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find(std::to_string(wrong) + " at position 1 is outside [0, 12)"),
                std::string::npos)
          << e.what();
    }
  }
}

const std::vector<std::int64_t> kSeedAndStep{std::int64_t{123456789012}, 9};

/// What one process drops, each rank drops of its part.
TEST(CudaDropout, OfARanksPart) {
  for (const int ranks : {2, 3})
    for (const std::int64_t run : {1, 3, 8, 24}) {
      const std::int64_t n = 24 * ranks, part = 24;
      const std::vector<float> x(static_cast<std::size_t>(n), 1.0f);
      const auto dropped = [&](CudaContext& context, Memory& memory, std::int64_t count, std::int64_t of, bool offset) {
        float* const y = memory.out<float>(count, offset ? 1 : 0);
        const std::int64_t* const numbers_of_step = memory.in(kSeedAndStep);
        dropout(context, dropout_config{.n = count, .p = 0.4, .stream = 5, .ranks = of, .run = run}, y, memory.in(x),
                numbers_of_step, numbers_of_step + 1);
        context.synchronize();
        memory.result(y, count);
      };
      const auto whole =
          everywhere([&](CudaContext& context, Memory& memory) { dropped(context, memory, n, 1, false); });
      EXPECT_NE(std::count(whole[0].begin(), whole[0].end(), 0.0), 0);
      for (const bool offset : {false, true}) {
        const auto found = on_ranks(ranks, false, [&](int, CudaContext& context, Memory& memory) {
          dropped(context, memory, part, ranks, offset);
        });
        for (int r = 0; r < ranks; ++r)
          EXPECT_EQ(found[static_cast<std::size_t>(r)][0], part_of(whole[0], run, ranks, r))
              << "rank " << r << " of " << ranks << ", runs of " << run;
      }
    }
}

/// Heads of each batch in parts: forward and backward compute for them what one process does.
TEST(CudaAttention, OfARanksHeads) {
  constexpr std::int64_t kHeads = 4, kBatch = 2, kSize = 8;
  for (const std::int64_t keys : {8, 7}) {
    const std::int64_t matrix = keys * kSize, n = kBatch * kHeads * matrix;
    const std::vector<float> q = numbers<float>(n, 1), k = numbers<float>(n, 2), v = numbers<float>(n, 3),
                             dy = numbers<float>(n, 4);
    const auto run = [&](CudaContext& context, Memory& memory, std::int64_t ranks, int rank) {
      // Of each batch a rank has kHeads / ranks heads, which lie in a row.
      const auto own = [&](const std::vector<float>& of) {
        return ranks == 1 ? of : part_of(of, kHeads / ranks * matrix, ranks, rank);
      };
      const attention_config c{.matrices = kBatch * kHeads / ranks,
                               .queries = keys,
                               .keys = keys,
                               .size = kSize,
                               .scale = 0.3,
                               .causal = true,
                               .p = 0.3,
                               .stream = 7,
                               .ranks = ranks,
                               .run = kHeads / ranks * keys * keys};
      const std::int64_t count = n / ranks;
      const float *of_q = memory.in(own(q)), *of_k = memory.in(own(k)), *of_v = memory.in(own(v)),
                  *of_dy = memory.in(own(dy));
      const std::int64_t* const numbers_of_step = memory.in(kSeedAndStep);
      float *y = memory.out<float>(count), *lse = memory.out<float>(c.matrices * keys), *dq = memory.out<float>(count),
            *dk = memory.out<float>(count), *dv = memory.out<float>(count);
      attention(context, c, y, lse, of_q, of_k, of_v, nullptr, numbers_of_step, numbers_of_step + 1);
      attention_backward(context, c, dq, dk, dv, of_dy, of_q, of_k, of_v, nullptr, y, lse, numbers_of_step,
                         numbers_of_step + 1);
      context.synchronize();
      for (const float* result : {y, dq, dk, dv}) memory.result(result, count);
    };
    const auto whole = everywhere([&](CudaContext& context, Memory& memory) { run(context, memory, 1, 0); });
    const auto found =
        on_ranks(2, false, [&](int r, CudaContext& context, Memory& memory) { run(context, memory, 2, r); });
    for (int r = 0; r < 2; ++r)
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_EQ(found[static_cast<std::size_t>(r)][i], part_of(whole[i], kHeads / 2 * matrix, 2, r))
            << "rank " << r << ", result " << i << ", " << keys << " keys";
  }
}

TEST(CudaPredictions, OfTheClassesOfAllRanks) {
  constexpr std::int64_t kRows = 5, kClasses = 4;
  const float nan = std::nanf("");
  std::vector<float> scores = numbers<float>(kRows * 2 * kClasses, 8);  // [rows, ranks, classes]
  for (std::size_t c = 0; c < 8; ++c) scores[8 + c] = 1;                // all alike: the first
  scores[16 + 6] = nan, scores[16 + 7] = nan;                           // the first of these
  scores[24 + 1] = nan, scores[24 + 5] = nan;
  scores[32 + 5] = 3;
  const double last = static_cast<double>(std::max_element(scores.begin(), scores.begin() + 8) - scores.begin());
  const auto found = on_ranks(2, false, [&](int r, CudaContext& context, Memory& memory) {
    std::int64_t* const best = memory.out<std::int64_t>(kRows);
    argmax_of_team(context, reduce_config{.outer = kRows, .size = kClasses, .inner = 1}, best,
                   memory.in(part_of(scores, kClasses, 2, r)));
    context.synchronize();
    memory.result(best, kRows);
  });
  for (const auto& of_rank : found) EXPECT_EQ(of_rank[0], (std::vector<double>{last, 0, 6, 1, 5}));
}

}  // namespace
}  // namespace graven::kernels
