#include "ir/tensor_value.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace graven::ir {

namespace {

constexpr double kWhole = 9007199254740992.0;  // 2^53: beyond it not every whole number is a double

/// To `bits` bits of significand (with the hidden one) and exponents from `least`, ties to even.
double round_significand(double value, int bits, int least, double largest) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // value = m * 2^exponent, m in [0.5, 1)
  const int unit = std::max(exponent - bits, least);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

std::uint16_t f16_bits(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double x = std::abs(round_significand(value, 11, -24, 65504.0));
  if (std::isnan(x)) return sign | 0x7e00;
  if (std::isinf(x)) return sign | 0x7c00;
  if (x < 6.103515625e-05)
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::ldexp(x, 24)));  // subnormal
  int exponent = 0;
  const double m = std::frexp(x, &exponent);
  return static_cast<std::uint16_t>(sign | ((exponent + 14) << 10) |
                                    static_cast<std::uint16_t>(std::ldexp(m, 11) - 1024));
}
double f16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude =
      exponent == 31  ? (fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity())
      : exponent == 0 ? std::ldexp(fraction, -24)
                      : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}
std::uint16_t bf16_bits(double value) {
  const float x = static_cast<float>(round_significand(value, 8, -133, 3.3895313892515355e38));
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}
double bf16_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float x = 0;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}

}  // namespace

bool can_hold(DType dtype, double value) {
  auto within = [&](double low, double high) { return value >= low && value <= high; };
  switch (dtype) {
    case DType::i8:
      return within(-128, 127);
    case DType::u8:
      return within(0, 255);
    case DType::i32:
      return within(-2147483648.0, 2147483647.0);
    case DType::i64:
      return within(1 - kWhole, kWhole - 1);  // 2^53 may be what 2^53 + 1 was rounded to
    default:
      return true;
  }
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return value;
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::f16:
      return f16_value(f16_bits(value));
    case DType::bf16:
      return bf16_value(bf16_bits(value));
    case DType::boolean:
      return value != 0 ? 1 : 0;
    default:
      return std::trunc(value) + 0.0;  // integers have one zero
  }
}

std::optional<std::vector<double>> elements_of(const TensorData& data) {
  std::vector<double> elements;
  auto read = [&](auto like, auto convert) {
    elements.reserve(data.bytes.size() / sizeof like);
    for (std::size_t i = 0; i + sizeof like <= data.bytes.size(); i += sizeof like) {
      std::memcpy(&like, data.bytes.data() + i, sizeof like);
      elements.push_back(convert(like));
    }
  };
  auto plain = [](auto x) { return static_cast<double>(x); };
  switch (data.type.dtype) {
    case DType::f32:
      read(float{}, plain);
      break;
    case DType::f64:
      read(double{}, plain);
      break;
    case DType::f16:
      read(std::uint16_t{}, f16_value);
      break;
    case DType::bf16:
      read(std::uint16_t{}, bf16_value);
      break;
    case DType::i8:
      read(std::int8_t{}, plain);
      break;
    case DType::i32:
      read(std::int32_t{}, plain);
      break;
    case DType::i64:
      read(std::int64_t{}, plain);
      break;
    case DType::u8:
      read(std::uint8_t{}, plain);
      break;
    case DType::boolean:
      read(std::uint8_t{}, [](std::uint8_t x) { return x ? 1.0 : 0.0; });
      break;
  }
  if (data.type.dtype == DType::i64)
    for (double e : elements)
      if (std::abs(e) >= kWhole) return std::nullopt;
  return elements;
}

std::shared_ptr<const TensorData> tensor_data(const TensorType& type, const std::vector<double>& elements) {
  auto data = std::make_shared<TensorData>();
  data->type = type;
  data->bytes.reserve(elements.size() * size_of(type.dtype));
  auto append = [&](auto x) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&x);
    data->bytes.insert(data->bytes.end(), bytes, bytes + sizeof x);
  };
  for (double e : elements) switch (type.dtype) {
      case DType::f32:
        append(static_cast<float>(e));
        break;
      case DType::f64:
        append(e);
        break;
      case DType::f16:
        append(f16_bits(e));
        break;
      case DType::bf16:
        append(bf16_bits(e));
        break;
      case DType::i8:
        append(static_cast<std::int8_t>(e));
        break;
      case DType::i32:
        append(static_cast<std::int32_t>(e));
        break;
      case DType::i64:
        append(static_cast<std::int64_t>(e));
        break;
      case DType::u8:
        append(static_cast<std::uint8_t>(e));
        break;
      case DType::boolean:
        append(static_cast<std::uint8_t>(e != 0));
        break;
    }
  return data;
}

}  // namespace graven::ir
