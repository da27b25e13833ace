// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#include "frontend/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "frontend/dispatch.h"
#include "frontend/eager/executor.h"
#include "frontend/tensor_impl.h"
#include "frontend/trace.h"
#include "graven/functional.h"

namespace graven {

namespace detail {

std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t counter) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * c[0], b = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void Generator::seed(std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  seed_ = value;
  counter_ = 0;
}

Generator::Stream Generator::take(std::uint64_t blocks) {
  const std::lock_guard lock(mutex_);
  const Stream stream{seed_, counter_};
  counter_ += blocks;
  return stream;
}

std::uint64_t Generator::initial_seed() {
  const std::lock_guard lock(mutex_);
  return seed_;
}

namespace {
/// FNV-1a, of which the operators take 62 bits.
std::int64_t stream_of(const std::string& text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return static_cast<std::int64_t>((h ^ (h >> 62)) & ((std::uint64_t{1} << 62) - 1));
}
}  // namespace

RandomSource random_source() {
  if (!active_trace()) {
    const Generator::Stream s = default_generator().take(1);
    return {tensor(static_cast<std::int64_t>(s.seed), DType::i64),
            tensor(static_cast<std::int64_t>(s.counter), DType::i64), stream_of("eager")};
  }
  Trace& trace = *active_trace();
  const auto hyper = [&trace](ir::ValueId& value, std::string_view name) {
    if (value == ir::kNone) {
      if (trace.graph.find(name) != ir::kNone)
        throw UserError("the name '" + std::string(name) + "' is the random operators': no input of " +
                        trace.graph_name + " may be called so");
      value = trace.graph.add_value(std::string(name), ir::ValueKind::hyper, {DType::i64, {}});
    }
    return trace.wrap(value);
  };
  const auto& frames = module_frames();
  const std::string path = frames.empty() ? std::string() : frames.back().path;
  const int call = trace.random_calls[path]++;
  return {hyper(trace.seed, ir::kSeedName), hyper(trace.step, ir::kStepName),
          stream_of(path + "#" + std::to_string(call))};
}

namespace {
/// 53 random bits in [0, 1).
double unit(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((static_cast<std::uint64_t>(high) << 21) ^ (low >> 11)) * 0x1p-53;
}
}  // namespace

namespace {

enum class Distribution : std::uint8_t { uniform, normal };

/// Draws n numbers in pieces, on all threads; use(first, values, count) gets each piece once. A number's counter
/// depends on its place alone, so the threads do not show in the result.
template <class Use>
void draw_pieces(Distribution distribution, std::uint64_t n, const Use& use) {
  constexpr std::uint64_t kPiece = 4096;  // even: counters give pairs
  const Generator::Stream s = default_generator().take((n + 1) / 2);
  eager::run_pieces(static_cast<std::int64_t>((n + kPiece - 1) / kPiece), [&](std::int64_t piece) {
    const std::uint64_t first = static_cast<std::uint64_t>(piece) * kPiece, count = std::min(kPiece, n - first);
    double values[kPiece];
    for (std::uint64_t i = 0; i < count; i += 2) {
      const auto r = philox(s.seed, s.counter + (first + i) / 2);
      const double u = unit(r[0], r[1]), v = unit(r[2], r[3]);
      if (distribution == Distribution::uniform) {
        values[i] = u;
        values[i + 1] = v;
      } else {
        const double radius = std::sqrt(-2 * std::log(1 - u)),
                     angle = 2 * std::numbers::pi * v;  // Box and Muller 1958; 1 - u lies in (0, 1]
        values[i] = radius * std::cos(angle);
        values[i + 1] = radius * std::sin(angle);
      }
    }
    use(first, values, count);
  });
}

std::vector<double> draw(Distribution distribution, std::int64_t n) {
  std::vector<double> all(static_cast<std::size_t>(n));
  draw_pieces(distribution, all.size(), [&](std::uint64_t first, const double* values, std::uint64_t count) {
    std::copy(values, values + count, all.begin() + static_cast<std::ptrdiff_t>(first));
  });
  return all;
}

/// A tensor of numbers, each after `finish`.
template <class Finish>
Tensor drawn(Distribution distribution, const Shape& shape, TensorOptions options, const Finish& finish,
             const char* function, Location where) {
  Tensor t = made_by(function, where, [&] { return make_tensor(options.dtype, shape); });
  std::byte* const data = t.impl()->data();
  draw_pieces(distribution, static_cast<std::uint64_t>(t.numel()),
              [&](std::uint64_t first, double* values, std::uint64_t count) {
                for (std::uint64_t i = 0; i < count; ++i) values[i] = finish(values[i]);
                convert_buffer(DType::f64, values, options.dtype, data + first * ir::size_of(options.dtype),
                               static_cast<std::int64_t>(count));
              });
  return with_options(std::move(t), options, where);
}

}  // namespace

std::vector<double> draw_uniform(std::int64_t n) { return draw(Distribution::uniform, n); }

std::vector<double> draw_normal(std::int64_t n) { return draw(Distribution::normal, n); }

std::vector<std::int64_t> draw_integers(std::int64_t low, std::int64_t high, std::int64_t n) {
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const Generator::Stream s = default_generator().take((static_cast<std::uint64_t>(n) + 1) / 2);
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto r = philox(s.seed, s.counter + i / 2);
    const std::uint64_t bits = (static_cast<std::uint64_t>(r[i % 2 * 2]) << 32) | r[i % 2 * 2 + 1];
    // The high half of bits * range: uniform up to range / 2^64.
    const auto scaled = static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * range) >> 64);
    values[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + scaled);
  }
  return values;
}

Tensor from_numbers(const Shape& shape, const std::vector<double>& values, TensorOptions options) {
  Tensor t = make_tensor(options.dtype, shape);
  convert_buffer(DType::f64, values.data(), options.dtype, t.impl()->data(), static_cast<std::int64_t>(values.size()));
  return with_options(std::move(t), options, Location::current());
}

void require_floating(const char* function, DType dtype, Location where) {
  if (!ir::is_floating(dtype))
    fail(function, "needs a floating-point dtype, got " + std::string(ir::name(dtype)), where);
}

namespace {

/// While a graph is being recorded, what PyTorch would draw anew in every step is drawn by its program: an operator, in
/// the place of numbers that would be the same in every step.
Tensor record_draw(const char* op, const Shape& shape, DType dtype, Location where) {
  const RandomSource source = random_source();
  return apply(op, {source.seed, source.step},
               {{"shape", shape}, {"dtype", dtype == DType::f64 ? dtype : DType::f32}, {"stream", source.stream}},
               where);
}
Tensor finished(Tensor t, const TensorOptions& options, Location where) {
  t = t.to(options.dtype, where);
  if (options.requires_grad) t.requires_grad_(true, where);
  return t;
}

/// The largest value of the dtype below `end`: rounding must not carry a number of [start, end) to end.
double below(double end, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return std::nextafter(static_cast<float>(end), -INFINITY);
    case DType::f16:
      return end - std::abs(end) * 0x1p-11;
    case DType::bf16:
      return end - std::abs(end) * 0x1p-8;
    default:
      return std::nextafter(end, -INFINITY);
  }
}
}  // namespace

}  // namespace detail

void manual_seed(std::uint64_t seed, Location where) {
  if (detail::active_trace())
    detail::fail_at("manual_seed: build() runs once, and would seed no step of the graph; seed outside of it", where);
  detail::default_generator().seed(seed);
}

Tensor rand(const Shape& shape, TensorOptions options, Location where) {
  detail::require_floating("rand", options.dtype, where);
  detail::require_recording(shape, "rand", where);
  if (detail::active_trace()) {
    Tensor u = detail::record_draw("random_uniform", shape, options.dtype, where);
    if (u.dtype() != options.dtype) u = u.clamp(0, detail::below(1, options.dtype), where);
    return detail::finished(u, options, where);
  }
  const double limit = detail::below(1, options.dtype);
  return detail::drawn(
      detail::Distribution::uniform, shape, options, [&](double u) { return std::min(u, limit); }, "rand", where);
}

Tensor randn(const Shape& shape, TensorOptions options, Location where) {
  detail::require_floating("randn", options.dtype, where);
  detail::require_recording(shape, "randn", where);
  if (detail::active_trace())
    return detail::finished(detail::record_draw("random_normal", shape, options.dtype, where), options, where);
  return detail::drawn(detail::Distribution::normal, shape, options, [](double v) { return v; }, "randn", where);
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, TensorOptions options, Location where) {
  detail::require_recording(shape, "randint", where);
  if (low >= high)
    detail::fail("randint", "low must be less than high, got " + std::to_string(low) + " and " + std::to_string(high),
                 where);
  if (detail::active_trace()) {
    // As many steps as a uniform number has.
    constexpr double kMost = 0x1p24;
    const double range = static_cast<double>(high) - static_cast<double>(low);
    if (range > kMost)
      detail::fail("randint", "within a graph high - low must be at most 2^24, got " + std::to_string(high - low),
                   where);
    const Tensor u = detail::record_draw("random_uniform", shape, DType::f64, where);
    const Tensor scaled = floor(Operand(mul(Operand(u, where), Operand(range, where)), where)).to(DType::i64, where);
    return detail::finished(add(Operand(scaled, where), Operand(low, where)), options, where);
  }
  Tensor t = detail::made_by("randint", where, [&] { return detail::make_tensor(options.dtype, shape); });
  const std::vector<std::int64_t> values = detail::draw_integers(low, high, t.numel());
  detail::convert_buffer(DType::i64, values.data(), options.dtype, t.impl()->data(),
                         static_cast<std::int64_t>(values.size()));
  return detail::with_options(std::move(t), options, where);
}

Tensor randperm(std::int64_t n, Location where) {
  if (detail::active_trace())
    return detail::record_draw("random_uniform", {n}, DType::f64, where).argsort(0, false, where);
  Tensor t = arange(n);
  std::int64_t* p = t.data<std::int64_t>();
  if (n < 2) return t;
  const std::vector<double> u = detail::draw_uniform(n);  // Fisher and Yates
  for (std::int64_t i = n - 1; i > 0; --i)
    std::swap(p[i], p[static_cast<std::int64_t>(u[static_cast<std::size_t>(i)] * static_cast<double>(i + 1))]);
  return t;
}

Tensor& Tensor::uniform_(double from, double to, Location where) {
  detail::require_defined(*this, "uniform_", where);
  detail::require_floating("uniform_", dtype(), where);
  if (!(from <= to)) detail::fail("uniform_", "from must not be greater than to", where);
  if (detail::active_trace()) {
    const Tensor u = detail::record_draw("random_uniform", shape(), dtype(), where);
    const Tensor scaled =
        graven::add(Operand(graven::mul(Operand(u, where), Operand(to - from, where)), where), Operand(from, where));
    return copy_(scaled.clamp(from, from < to ? detail::below(to, dtype()) : to, where), where);
  }
  const double limit = from < to ? detail::below(to, dtype()) : to;
  return copy_(detail::drawn(
                   detail::Distribution::uniform, shape(), {dtype()},
                   [&](double u) { return std::min(from + (to - from) * u, limit); }, "uniform_", where),
               where);
}

Tensor& Tensor::normal_(double mean, double std, Location where) {
  detail::require_defined(*this, "normal_", where);
  detail::require_floating("normal_", dtype(), where);
  if (!(std >= 0)) detail::fail("normal_", "the standard deviation must not be negative", where);
  if (detail::active_trace()) {
    const Tensor normal = detail::record_draw("random_normal", shape(), dtype(), where);
    return copy_(
        graven::add(Operand(graven::mul(Operand(normal, where), Operand(std, where)), where), Operand(mean, where)),
        where);
  }
  return copy_(
      detail::drawn(
          detail::Distribution::normal, shape(), {dtype()}, [&](double v) { return mean + std * v; }, "normal_", where),
      where);
}

}  // namespace graven
