#include "ir/dim.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <limits>
#include <numeric>
#include <ostream>

#include "ir/diagnostic.h"

namespace graven::ir {

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
/// A shape of eight dimensions with two terms each has no more elements than this has terms.
constexpr std::size_t kMaximumTerms = 256;
/// Of factors in a term, and of quotients in each other.
constexpr std::size_t kMaximumDegree = 32;

[[noreturn]] void too_large(const std::string& a, const char* operation, const std::string& b) {
  throw UserError("a size is too large: " + a + " " + operation + " " + b + " does not fit in 63 bits");
}

std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return a > 0 ? kMost : kLeast;
  return sum;
}
std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return (a > 0) == (b > 0) ? kMost : kLeast;
  return product;
}

std::int64_t floor_of(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

struct SizeRange {
  std::int64_t least = 0, most = 0;
  friend SizeRange operator+(const SizeRange& a, const SizeRange& b) {
    return {saturating_add(a.least, b.least), saturating_add(a.most, b.most)};
  }
  friend SizeRange operator*(const SizeRange& a, const SizeRange& b) {
    const auto [least, most] = std::minmax({saturating_multiply(a.least, b.least), saturating_multiply(a.least, b.most),
                                            saturating_multiply(a.most, b.least), saturating_multiply(a.most, b.most)});
    return {least, most};
  }
};

/// A symbol, or a quotient rounded down, whose numerator is not static.
struct Factor {
  Symbol symbol{};
  Dim numerator{};
  std::int64_t divisor = 0;  ///< 0: a symbol
  SizeRange range{};
  std::string text{};  ///< "batch", "(height+1)/2"
  std::size_t depth = 0;

  bool is_symbol() const { return divisor == 0; }
};
using Factors = std::vector<std::shared_ptr<const Factor>>;

namespace {

/// By text, then by what it does not say.
std::strong_ordering compare(const Factor& a, const Factor& b) {
  if (const auto order = a.text <=> b.text; order != 0) return order;
  if (const auto order = a.range.least <=> b.range.least; order != 0) return order;
  return a.range.most <=> b.range.most;
}
bool same(const Factor& a, const Factor& b) {
  return a.text == b.text && a.is_symbol() == b.is_symbol() &&
         (a.is_symbol() ? a.symbol == b.symbol : a.divisor == b.divisor && a.numerator == b.numerator);
}
/// The order of terms: a product with more factors stands first, then the one that comes first by its factors' texts.
/// It is one that products keep, as the division of polynomials needs.
std::strong_ordering compare(const Factors& a, const Factors& b) {
  if (const auto order = b.size() <=> a.size(); order != 0) return order;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (const auto order = compare(*a[i], *b[i]); order != 0) return order;
  return std::strong_ordering::equal;
}

}  // namespace

struct Dim::Expression {
  struct Term {
    std::int64_t coefficient;
    Factors factors;  ///< sorted
  };
  std::vector<Term> terms{};  ///< sorted, no coefficient is 0
  SizeRange range{};          ///< with the constant
};

using Term = Dim::Expression::Term;

namespace {

/// Sorted, those of one product together, without zeros.
std::vector<Term> collected(std::vector<Term> terms) {
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& a, const Term& b) { return compare(a.factors, b.factors) < 0; });
  std::vector<Term> result;
  for (Term& t : terms) {
    if (!result.empty() && compare(result.back().factors, t.factors) == 0) {
      if (__builtin_add_overflow(result.back().coefficient, t.coefficient, &result.back().coefficient))
        throw UserError("a size is too large: a coefficient does not fit in 63 bits");
    } else {
      result.push_back(std::move(t));
    }
  }
  std::erase_if(result, [](const Term& t) { return t.coefficient == 0; });
  if (result.size() > kMaximumTerms)
    throw UserError("a size has too many terms: the most are " + std::to_string(kMaximumTerms));
  return result;
}

Factors product(const Factors& a, const Factors& b) {
  Factors all;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all),
             [](const auto& x, const auto& y) { return compare(*x, *y) < 0; });
  if (all.size() > kMaximumDegree)
    throw UserError("a size is the product of too many symbols: the most are " + std::to_string(kMaximumDegree));
  return all;
}

bool is_plain_symbol(const Dim& d) {
  const std::optional<Dim::Linear> linear = d.linear();
  return linear && linear->is_symbol();
}

/// The range of a sum of terms that its factors' ranges allow. Term by term, batch*length - batch seems to have values
/// below 0 where length is 2 or more. But where more of a factor always means more of the sum, or always less, the ends
/// of the sum are at ends of the factor; so they are, whatever the others are, of one that no term has twice.
class RangeOfSum {
 public:
  SizeRange of(const std::vector<Term>& terms, std::int64_t constant) {
    const SizeRange by_terms = interval(terms, constant);
    bool is_positive = false, is_negative = false;
    std::int64_t largest = constant < 0 ? saturating_multiply(constant, -1) : constant;
    for (const Term& t : terms) {
      const SizeRange r = range_of(t);
      is_positive = is_positive || r.most > 0;
      is_negative = is_negative || r.least < 0;
      largest = saturating_add(largest, std::max(r.most, saturating_multiply(r.least, -1)));
    }
    // Nothing is gained where all terms have one sign, and numbers that do not fit are not compared.
    if (!is_positive || !is_negative || largest == kMost) return by_terms;
    const std::optional<SizeRange> exact = at_ends(terms, constant);
    return exact ? SizeRange{std::max(exact->least, by_terms.least), std::min(exact->most, by_terms.most)} : by_terms;
  }

 private:
  static SizeRange range_of(const Term& t) {
    SizeRange range{t.coefficient, t.coefficient};
    for (const auto& factor : t.factors) range = range * factor->range;
    return range;
  }
  static SizeRange interval(const std::vector<Term>& terms, std::int64_t constant) {
    SizeRange sum{constant, constant};
    for (const Term& t : terms) sum = sum + range_of(t);
    return sum;
  }
  static std::int64_t count(const Term& t, const Factor& factor) {
    return std::count_if(t.factors.begin(), t.factors.end(), [&](const auto& f) { return same(*f, factor); });
  }

  /// Nothing where it takes too many steps.
  std::optional<SizeRange> at_ends(const std::vector<Term>& terms, std::int64_t constant) {
    if (terms.empty()) return SizeRange{constant, constant};
    if (++steps_ > kMostSteps) return std::nullopt;
    const std::shared_ptr<const Factor> factor = terms.front().factors.front();
    std::int64_t degree = 0;
    for (const Term& t : terms) degree = std::max(degree, count(t, *factor));
    if (degree > 1) {
      const auto [slope, slope_constant] = derivative(terms, *factor);
      const std::optional<SizeRange> slopes = at_ends(slope, slope_constant);
      if (!slopes || (slopes->least < 0 && slopes->most > 0)) return std::nullopt;
    }
    const auto [low, low_constant] = at(terms, constant, *factor, factor->range.least);
    const auto [high, high_constant] = at(terms, constant, *factor, factor->range.most);
    const std::optional<SizeRange> a = at_ends(low, low_constant), b = at_ends(high, high_constant);
    if (!a || !b) return std::nullopt;
    return SizeRange{std::min(a->least, b->least), std::max(a->most, b->most)};
  }

  using Sum = std::pair<std::vector<Term>, std::int64_t>;
  static Sum summed(std::vector<Term> terms, std::int64_t constant) {
    std::erase_if(terms, [&](const Term& t) {
      if (t.factors.empty()) constant = saturating_add(constant, t.coefficient);
      return t.factors.empty();
    });
    return {collected(std::move(terms)), constant};
  }
  /// With `value` in the place of the factor.
  static Sum at(std::vector<Term> terms, std::int64_t constant, const Factor& factor, std::int64_t value) {
    for (Term& t : terms)
      std::erase_if(t.factors, [&](const auto& f) {
        if (!same(*f, factor)) return false;
        t.coefficient = saturating_multiply(t.coefficient, value);
        return true;
      });
    return summed(std::move(terms), constant);
  }
  static Sum derivative(std::vector<Term> terms, const Factor& factor) {
    std::erase_if(terms, [&](const Term& t) { return count(t, factor) == 0; });
    for (Term& t : terms) {
      t.coefficient = saturating_multiply(t.coefficient, count(t, factor));
      t.factors.erase(
          std::find_if(t.factors.begin(), t.factors.end(), [&](const auto& f) { return same(*f, factor); }));
    }
    return summed(std::move(terms), 0);
  }

  static constexpr int kMostSteps = 256;
  int steps_ = 0;
};

/// a without the factors of b, where it has them all.
std::optional<Factors> without(const Factors& a, const Factors& b) {
  Factors rest = a;
  for (const auto& factor : b) {
    const auto found = std::find_if(rest.begin(), rest.end(), [&](const auto& f) { return same(*f, *factor); });
    if (found == rest.end()) return std::nullopt;
    rest.erase(found);
  }
  return rest;
}

}  // namespace

std::string Symbol::range() const { return "[" + std::to_string(least) + ", " + std::to_string(most) + "]"; }

Dim::Dim(std::string symbol, std::int64_t least, std::int64_t most) {
  auto factor = std::make_shared<Factor>();
  factor->text = symbol;
  factor->range = {least, most};
  factor->symbol = {std::move(symbol), least, most};
  *this = Dim(0, Expression{{{1, {std::move(factor)}}}, {}});
}

Dim::Dim(std::int64_t constant, Expression expression) : constant_(constant) {
  if (expression.terms.empty()) return;
  expression.range = RangeOfSum().of(expression.terms, constant);
  symbolic_ = std::make_shared<const Expression>(std::move(expression));
}

std::int64_t Dim::value() const {
  GRAVEN_CHECK(is_static(), "the dimension '" + to_string() + "' has no fixed value");
  return constant_;
}
std::int64_t Dim::minimum() const { return is_static() ? constant_ : symbolic_->range.least; }
std::int64_t Dim::maximum() const { return is_static() ? constant_ : symbolic_->range.most; }

Dim Dim::with(const std::function<Dim(const Symbol&)>& replacement) const {
  if (is_static()) return *this;
  Dim sum = constant_;
  for (const Term& t : symbolic_->terms) {
    Dim term = t.coefficient;
    for (const auto& factor : t.factors)
      term = term * (factor->is_symbol() ? replacement(factor->symbol)
                                         : floor_divide(factor->numerator.with(replacement), factor->divisor));
    sum = sum + term;
  }
  return sum;
}

std::int64_t Dim::at(const SymbolSizes& sizes) const {
  return with([&](const Symbol& s) {
           const auto found = sizes.find(s.name);
           return Dim(found == sizes.end() ? s.most : found->second);
         })
      .value();
}

std::vector<Symbol> Dim::symbols() const {
  std::vector<Symbol> found;
  if (is_static()) return found;
  const auto add = [&](const Symbol& s) {
    const auto place = std::lower_bound(found.begin(), found.end(), s,
                                        [](const Symbol& a, const Symbol& b) { return a.name < b.name; });
    if (place == found.end() || place->name != s.name) found.insert(place, s);
  };
  for (const Term& t : symbolic_->terms)
    for (const auto& factor : t.factors) {
      if (factor->is_symbol()) {
        add(factor->symbol);
      } else {
        for (const Symbol& s : factor->numerator.symbols()) add(s);
      }
    }
  return found;
}

bool Dim::depends_on(std::string_view symbol) const {
  if (is_static()) return false;
  return std::any_of(symbolic_->terms.begin(), symbolic_->terms.end(), [&](const Term& t) {
    return std::any_of(t.factors.begin(), t.factors.end(), [&](const auto& factor) {
      return factor->is_symbol() ? factor->symbol.name == symbol : factor->numerator.depends_on(symbol);
    });
  });
}

std::optional<std::int64_t> Dim::Linear::symbol_at(std::int64_t size) const {
  std::int64_t multiple = 0;
  if (__builtin_sub_overflow(size, offset, &multiple) || multiple % coefficient != 0) return std::nullopt;
  return multiple / coefficient;
}

std::optional<Dim::Linear> Dim::linear() const {
  if (is_static() || symbolic_->terms.size() != 1) return std::nullopt;
  const Term& t = symbolic_->terms[0];
  if (t.factors.size() != 1 || !t.factors[0]->is_symbol()) return std::nullopt;
  return Linear{t.factors[0]->symbol, t.coefficient, constant_};
}

Dim operator+(const Dim& a, const Dim& b) {
  std::int64_t constant = 0;
  if (__builtin_add_overflow(a.constant_, b.constant_, &constant)) too_large(a.to_string(), "plus", b.to_string());
  if (a.is_static() && b.is_static()) return constant;
  std::vector<Term> terms;
  for (const Dim* d : {&a, &b})
    if (!d->is_static()) terms.insert(terms.end(), d->symbolic_->terms.begin(), d->symbolic_->terms.end());
  return Dim(constant, Dim::Expression{collected(std::move(terms)), {}});
}

Dim operator-(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) {
    std::int64_t constant = 0;
    if (__builtin_sub_overflow(a.constant_, b.constant_, &constant)) too_large(a.to_string(), "minus", b.to_string());
    return constant;
  }
  return a + Dim(-1) * b;
}

Dim operator*(const Dim& a, const Dim& b) {
  const auto multiply = [&](std::int64_t x, std::int64_t y) {
    std::int64_t result = 0;
    if (__builtin_mul_overflow(x, y, &result)) too_large(a.to_string(), "times", b.to_string());
    return result;
  };
  const std::int64_t constant = multiply(a.constant_, b.constant_);
  if (a.is_static() && b.is_static()) return constant;
  if (a == Dim(1)) return b;
  if (b == Dim(1)) return a;
  const auto terms_of = [](const Dim& d) {
    std::vector<Term> terms = d.is_static() ? std::vector<Term>() : d.symbolic_->terms;
    if (d.constant_ != 0) terms.push_back({d.constant_, {}});
    return terms;
  };
  const std::vector<Term> of_a = terms_of(a), of_b = terms_of(b);
  std::vector<Term> terms;
  for (const Term& x : of_a)
    for (const Term& y : of_b)
      if (!x.factors.empty() || !y.factors.empty())
        terms.push_back({multiply(x.coefficient, y.coefficient), product(x.factors, y.factors)});
  return Dim(constant, Dim::Expression{collected(std::move(terms)), {}});
}

std::optional<Dim> divide(const Dim& a, const Dim& b) {
  if (b == Dim(0)) return std::nullopt;
  if (a.is_static() && b.is_static()) {
    if (b.constant_ == -1) return Dim(0) - a;
    if (a.constant_ % b.constant_ != 0) return std::nullopt;
    return Dim(a.constant_ / b.constant_);
  }
  // Polynomials: the leading terms, again and again.
  const Term constant{b.constant_, {}};
  const Term& leading = b.is_static() ? constant : b.symbolic_->terms[0];
  Dim quotient, rest = a;
  while (rest != Dim(0)) {
    const Term last{rest.constant_, {}};
    const Term& first = rest.is_static() ? last : rest.symbolic_->terms[0];
    if (first.coefficient == kLeast || first.coefficient % leading.coefficient != 0) return std::nullopt;
    std::optional<Factors> factors = without(first.factors, leading.factors);
    if (!factors) return std::nullopt;
    const std::int64_t coefficient = first.coefficient / leading.coefficient;
    const Dim part =
        factors->empty() ? Dim(coefficient) : Dim(0, Dim::Expression{{{coefficient, std::move(*factors)}}, {}});
    quotient = quotient + part;
    rest = rest - part * b;
  }
  return quotient;
}

Dim operator/(const Dim& a, const Dim& b) {
  std::optional<Dim> quotient = divide(a, b);
  if (!quotient) throw UserError("the dimension " + a.to_string() + " cannot be divided by " + b.to_string());
  return *std::move(quotient);
}

Dim floor_divide(const Dim& a, std::int64_t b) {
  GRAVEN_CHECK(b > 0, "a size is divided by " + std::to_string(b));
  if (a.is_static()) return floor_of(a.constant_, b);
  if (b == 1) return a;
  // What b divides stands beside the quotient: (4 * h + 7) / 2 is 2 * h + 3 and 1 / 2.
  std::int64_t outside = floor_of(a.constant_, b), constant = a.constant_ - outside * b, divisor = b;
  std::vector<Term> whole, rest;
  for (const Term& t : a.symbolic_->terms) {
    if (t.coefficient % b == 0)
      whole.push_back({t.coefficient / b, t.factors});
    else
      rest.push_back(t);
  }
  const Dim beside(outside, Dim::Expression{std::move(whole), {}});
  if (rest.empty()) return beside;
  // A quotient alone is divided once: ((h + 1) / 2 + 1) / 2 is (h + 3) / 4.
  if (rest.size() == 1 && rest[0].coefficient == 1 && rest[0].factors.size() == 1 && !rest[0].factors[0]->is_symbol()) {
    const Factor& inner = *rest[0].factors[0];
    std::int64_t both = 0;
    if (!__builtin_mul_overflow(inner.divisor, b, &both))
      return beside + floor_divide(inner.numerator + Dim(constant) * Dim(inner.divisor), both);
  }
  // What divides all terms and b: (2 * h + 1) / 4 is h / 2.
  std::int64_t common = divisor;
  for (const Term& t : rest) common = std::gcd(common, t.coefficient);
  divisor /= common, constant = floor_of(constant, common);
  for (Term& t : rest) t.coefficient /= common;
  auto factor = std::make_shared<Factor>();
  factor->numerator = Dim(constant, Dim::Expression{std::move(rest), {}});
  factor->divisor = divisor;
  if (divisor == 1) return beside + factor->numerator;
  factor->range = {floor_of(factor->numerator.minimum(), divisor), floor_of(factor->numerator.maximum(), divisor)};
  for (const Term& t : factor->numerator.symbolic_->terms)
    for (const auto& f : t.factors) factor->depth = std::max(factor->depth, f->depth + 1);
  if (factor->depth > kMaximumDegree)
    throw UserError("a size has too many quotients in each other: the most are " + std::to_string(kMaximumDegree));
  const bool plain = is_plain_symbol(factor->numerator);
  factor->text = (plain ? "" : "(") + factor->numerator.to_string() + (plain ? "/" : ")/") + std::to_string(divisor);
  return beside + Dim(0, Dim::Expression{{{1, {std::move(factor)}}}, {}});
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.constant_ != b.constant_ || a.is_static() != b.is_static()) return false;
  if (a.symbolic_ == b.symbolic_) return true;
  const std::vector<Term>&x = a.symbolic_->terms, &y = b.symbolic_->terms;
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const Term& s, const Term& t) {
    return s.coefficient == t.coefficient &&
           std::equal(s.factors.begin(), s.factors.end(), t.factors.begin(), t.factors.end(),
                      [](const auto& f, const auto& g) { return f == g || same(*f, *g); });
  });
}

/// What is written between the parts of an expression.
struct Dim::Spelling {
  const char *times, *plus, *minus, *over;
  std::function<std::string(const Symbol&)> name;
};

std::string Dim::spelled(const Spelling& spelling) const {
  if (is_static()) return std::to_string(constant_);
  std::string text;
  const auto add = [&](bool negative, const std::string& part) {
    if (text.empty())
      text = (negative ? "-" : "") + part;
    else
      text += (negative ? spelling.minus : spelling.plus) + part;
  };
  const auto digits = [](std::int64_t number) {
    return std::to_string(number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number));
  };
  for (const Term& t : symbolic_->terms) {
    const bool is_one = t.coefficient == 1 || t.coefficient == -1;
    std::string part = is_one ? std::string() : digits(t.coefficient);
    for (const auto& factor : t.factors) {
      if (!part.empty()) part += spelling.times;
      if (factor->is_symbol()) {
        part += spelling.name(factor->symbol);
        continue;
      }
      const std::string numerator = factor->numerator.spelled(spelling);
      const std::string quotient = (is_plain_symbol(factor->numerator) ? numerator : "(" + numerator + ")") +
                                   spelling.over + std::to_string(factor->divisor);
      part += is_one && t.factors.size() == 1 ? quotient : "(" + quotient + ")";
    }
    add(t.coefficient < 0, part);
  }
  if (constant_ != 0) add(constant_ < 0, digits(constant_));
  return text;
}

std::ostream& operator<<(std::ostream& out, const Dim& dim) { return out << dim.to_string(); }

std::string Dim::to_string() const {
  return spelled({"*", "+", "-", "/", [](const Symbol& s) { return s.name; }});
}

std::string Dim::to_code(const std::function<std::string(const Symbol&)>& name) const {
  return spelled({" * ", " + ", " - ", " / ", name});
}

namespace {

/// sum: term (("+" | "-") term)*; term: factor ("*" factor | "/" number)*; factor: number, symbol, "(" sum ")".
class DimReader {
 public:
  DimReader(std::string_view text, const std::function<std::optional<Symbol>(std::string_view)>& find, bool& overflow)
      : rest_(text), find_(find), overflow_(overflow) {}

  std::optional<Dim> read() {
    std::optional<Dim> dim = sum(0);
    if (!dim || !rest_.empty()) return std::nullopt;
    return dim;
  }

 private:
  bool take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<Dim> sum(std::size_t depth) {
    const bool negative = take('-');
    std::optional<Dim> total = term(depth);
    if (!total) return std::nullopt;
    if (negative) total = Dim(0) - *total;
    while (!rest_.empty() && (rest_[0] == '+' || rest_[0] == '-')) {
      const bool minus = rest_[0] == '-';
      rest_.remove_prefix(1);
      const std::optional<Dim> next = term(depth);
      if (!next) return std::nullopt;
      total = minus ? *total - *next : *total + *next;
    }
    return total;
  }

  std::optional<Dim> term(std::size_t depth) {
    std::optional<Dim> product = factor(depth);
    while (product && !rest_.empty() && (rest_[0] == '*' || rest_[0] == '/')) {
      const bool over = rest_[0] == '/';
      rest_.remove_prefix(1);
      const std::optional<Dim> next = over ? number() : factor(depth);
      if (!next || (over && next->value() < 1)) return std::nullopt;
      product = over ? floor_divide(*product, next->value()) : *product * *next;
    }
    return product;
  }

  std::optional<Dim> number() {
    std::int64_t value = 0;
    if (rest_.empty() || rest_[0] < '0' || rest_[0] > '9') return std::nullopt;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (overflow_ = error != std::errc(); overflow_) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return Dim(value);
  }

  std::optional<Dim> factor(std::size_t depth) {
    if (take('(')) {
      if (depth == kMaximumDegree) return std::nullopt;
      const std::optional<Dim> inner = sum(depth + 1);
      if (!inner || !take(')')) return std::nullopt;
      return inner;
    }
    if (std::optional<Dim> value = number()) return value;
    std::size_t end = 0;
    while (end < rest_.size() && std::string_view("+-*/()").find(rest_[end]) == std::string_view::npos) ++end;
    const std::optional<Symbol> symbol = find_(rest_.substr(0, end));
    if (!symbol) return std::nullopt;
    rest_.remove_prefix(end);
    return Dim(symbol->name, symbol->least, symbol->most);
  }

  std::string_view rest_;
  const std::function<std::optional<Symbol>(std::string_view)>& find_;
  bool& overflow_;
};

}  // namespace

std::optional<Dim> parse_dim(std::string_view text, const std::function<std::optional<Symbol>(std::string_view)>& find,
                             bool* too_large) {
  bool overflow = false;
  std::optional<Dim> dim;
  try {
    dim = DimReader(text, find, overflow).read();
  } catch (const UserError&) {
    overflow = true;
  }
  if (too_large != nullptr) *too_large = overflow;
  return dim;
}

}  // namespace graven::ir
