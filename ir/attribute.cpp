#include "ir/attribute.h"

#include <algorithm>
#include <cmath>

#include "ir/diagnostic.h"

namespace graven::ir {

namespace {

template <class Items>
auto lower(Items& items, std::string_view key) {
  return std::lower_bound(items.begin(), items.end(), key,
                          [](const auto& item, std::string_view k) { return item.first < k; });
}

}  // namespace

bool same_number(double a, double b) {
  return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

bool operator==(const ScalarProgram::Step& a, const ScalarProgram::Step& b) {
  return a.op == b.op && a.arguments == b.arguments && a.dtype == b.dtype &&
         std::equal(a.constants.begin(), a.constants.end(), b.constants.begin(), b.constants.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && same_number(x.second, y.second); });
}

bool operator==(const Attributes& a, const Attributes& b) {
  return std::equal(a.items_.begin(), a.items_.end(), b.items_.begin(), b.items_.end(),
                    [](const auto& x, const auto& y) {
                      const double *m = std::get_if<double>(&x.second), *n = std::get_if<double>(&y.second);
                      return x.first == y.first && (m && n ? same_number(*m, *n) : x.second == y.second);
                    });
}

std::string_view name(AttributeType type) {
  constexpr std::string_view kNames[] = {"boolean",  "integer", "number", "text",
                                         "integers", "dtype",   "shape",  "program"};
  return kNames[static_cast<std::size_t>(type)];
}

void Attributes::set(std::string_view key, Attribute value) {
  auto it = lower(items_, key);
  if (it != items_.end() && it->first == key)
    it->second = std::move(value);
  else
    items_.emplace(it, std::string(key), std::move(value));
}

void Attributes::erase(std::string_view key) {
  auto it = lower(items_, key);
  if (it != items_.end() && it->first == key) items_.erase(it);
}

std::optional<double> number_of(const Attribute& a) {
  if (const bool* flag = std::get_if<bool>(&a)) return *flag ? 1 : 0;
  if (const std::int64_t* integer = std::get_if<std::int64_t>(&a)) return static_cast<double>(*integer);
  if (const double* number = std::get_if<double>(&a)) return *number;
  return std::nullopt;
}

const Attribute* Attributes::find(std::string_view key) const {
  auto it = lower(items_, key);
  return it != items_.end() && it->first == key ? &it->second : nullptr;
}

const Attribute& Attributes::at(std::string_view key) const {
  const Attribute* a = find(key);
  GRAVEN_CHECK(a != nullptr, "no attribute '" + std::string(key) + "'");
  return *a;
}

}  // namespace graven::ir
