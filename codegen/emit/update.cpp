#include "codegen/emit/update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "codegen/emit/scalar_text.h"
#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

/// A comment of lines that fit.
std::string doc_comment(std::string_view text) {
  constexpr std::size_t kWidth = 116;
  std::istringstream words{std::string(text)};
  std::string lines, line, word;
  while (words >> word) {
    if (!line.empty() && line.size() + word.size() >= kWidth) lines += "/// " + line + "\n", line.clear();
    line += (line.empty() ? "" : " ") + word;
  }
  return lines + "/// " + line + "\n";
}

class UpdatePrinter {
 public:
  explicit UpdatePrinter(const ir::UpdateRule& rule) : rule_(rule), terms_(rule.terms()) {
    for (const auto& [state, term] : rule.new_states()) {
      new_state_.emplace_back(term);
      depends_on_norms_.push_back(reaches(term, Kind::norm));
    }
    with_norms_ = !rule.norms().empty();
  }

  std::string functor() {
    const std::string apply = with_norms_ ? apply_behind_norms() : apply_in_one();
    std::string measure;
    if (with_norms_) measure = this->measure();
    std::string text = doc_comment(rule_.op().doc) + "struct " + rule_.name() + " {\n";
    if (with_norms_) text += fmt::format("  static constexpr int norms = {};\n", rule_.norms().size());
    text += "  /// What a step computes once.\n  template <class C>\n  struct numbers {\n" + members() + "  };\n";
    text += at_step();
    if (with_norms_) text += at_tensor() + measure;
    return text + apply + "};\n";
  }

 private:
  using Kind = ir::FormulaTerm::Kind;
  using Level = ir::FormulaTerm::Level;

  const ir::FormulaTerm& term(std::int32_t t) const { return terms_[ir::at(t)]; }

  bool reaches(std::int32_t t, Kind kind) const {
    return term(t).kind == kind || std::any_of(term(t).arguments.begin(), term(t).arguments.end(),
                                               [&](std::int32_t a) { return reaches(a, kind); });
  }

  // ---- numbers: what an element reads of the step and the tensor ----

  /// "k.lr", which becomes a member.
  std::string number(std::int32_t t) {
    const ir::FormulaTerm& x = term(t);
    const std::string& name = x.label.empty() ? x.name : x.label;
    GRAVEN_CHECK(!name.empty() && (x.arguments.empty() || !x.label.empty()),
                 std::string(rule_.op().name) + ": an element reads a number of the step that has no name");
    const auto known = std::find_if(numbers_.begin(), numbers_.end(), [&](const auto& n) { return n.first == name; });
    if (known == numbers_.end()) numbers_.emplace_back(name, t);
    return "k." + name;
  }

  std::string members() const {
    std::string reals, booleans;
    for (const auto& [name, t] : numbers_) {
      std::string& list = term(t).boolean ? booleans : reals;
      list += (list.empty() ? "" : ", ") + name;
    }
    return (reals.empty() ? "" : "    C " + reals + ";\n") + (booleans.empty() ? "" : "    bool " + booleans + ";\n");
  }

  // ---- expressions ----

  /// `in_element`: of a number of type C, else of a double.
  std::string expression(std::int32_t t, bool in_element, int least = 0) {
    const ir::FormulaTerm& x = term(t);
    if (const auto local = locals_.find(t); local != locals_.end()) return local->second;
    if (in_element && x.kind != Kind::negate && (x.level == Level::step || x.level == Level::tensor)) return number(t);
    std::string text = bare(x, in_element);
    return binding(x) < least ? "(" + text + ")" : text;
  }

  std::string bare(const ir::FormulaTerm& x, bool in_element) {
    const auto argument = [&](std::size_t i, int least) { return expression(x.arguments[i], in_element, least); };
    switch (x.kind) {
      case Kind::constant:
        return in_element ? "C(" + number_text(x.value) + ")" : number_text(x.value);
      case Kind::attribute:
        return "config." + x.name;
      case Kind::rate:
        return "lr";
      case Kind::step:
        return "static_cast<double>(step)";
      case Kind::is_first_step:
        return "step == 1";
      case Kind::parameter:
        return "p";
      case Kind::gradient:
        return "grad";
      case Kind::state:
        GRAVEN_CHECK(!overwritten(x.name),
                     std::string(rule_.op().name) + ": " + x.name + " is read behind the norms as it was before");
        return x.name;
      case Kind::power_of_step: {
        std::string list;
        for (std::size_t i = 0; i < x.arguments.size(); ++i) list += argument(i, 0) + ", ";
        return "math::" + x.name + "(" + list + "step)";
      }
      case Kind::norm:
        GRAVEN_CHECK(false, std::string(rule_.op().name) + ": an element reads a norm");
        return {};
      default:
        return operation_text(x, argument, {.zero = in_element ? "C(0)" : "0"});
    }
  }

  /// Lines for the named terms that `wanted` depend on, and makes them known by their names.
  std::string locals(const std::vector<std::int32_t>& wanted, bool in_element) {
    std::string lines;
    for (const std::int32_t t : wanted) add_locals(t, in_element, lines);
    return lines;
  }
  void add_locals(std::int32_t t, bool in_element, std::string& lines) {
    const ir::FormulaTerm& x = term(t);
    if (locals_.count(t) != 0 || (in_element && x.level < Level::element && x.level != Level::constant)) return;
    for (const std::int32_t a : x.arguments) add_locals(a, in_element, lines);
    if (x.label.empty() || x.kind == Kind::norm) return;
    lines += fmt::format("    const {} {} = {};\n",
                         x.boolean    ? "bool"
                         : in_element ? "C"
                                      : "double",
                         x.label, expression(t, in_element));
    locals_.emplace(t, x.label);
  }

  /// Whether a state is already new: behind the norms.
  bool overwritten(const std::string& state) const {
    for (std::size_t s = 0; s < new_state_.size(); ++s)
      if (rule_.new_states()[s].first == state) return behind_norms_ && !depends_on_norms_[s];
    return false;
  }

  // ---- functions ----

  std::string at_step() {
    locals_.clear();
    std::vector<std::int32_t> wanted;
    for (const auto& [name, t] : numbers_)
      if (term(t).level == Level::step) wanted.push_back(t);
    const std::string lines = locals(wanted, false);
    std::string members;
    for (const bool boolean : {false, true})  // in the order of members()
      for (const auto& [name, t] : numbers_)
        if (term(t).boolean == boolean)
          members += fmt::format(fmt::runtime(boolean ? "{}.{} = {}" : "{}.{} = static_cast<C>({})"),
                                 members.empty() ? "" : ",\n            ", name,
                                 term(t).level == Level::step ? expression(t, false) : "0");
    const std::string body = lines + "    return {" + members + "};\n";
    return fmt::format(
        "  template <class C, class Config>\n"
        "  GRAVEN_DEVICE static numbers<C> at_step(const Config& {}, double {}, std::int64_t {}) {{\n{}  }}\n",
        used("config", body), used("lr", body), used("step", body), body);
  }

  std::string at_tensor() {
    locals_.clear();
    std::vector<std::int32_t> wanted;
    const std::vector<std::int32_t> norms = rule_.norms();
    for (const auto& [name, t] : numbers_)
      if (term(t).level == Level::tensor) wanted.push_back(t);
    std::string body;
    for (std::size_t n = 0; n < norms.size(); ++n) {
      body += fmt::format("    const double {} = norms[{}];\n", term(norms[n]).label, n);
      locals_.emplace(norms[n], term(norms[n]).label);
    }
    body += locals(wanted, false);
    for (const auto& [name, t] : numbers_)
      if (term(t).level == Level::tensor)
        body += fmt::format("    k.{} = static_cast<C>({});\n", name, expression(t, false));
    return fmt::format(
        "  /// What depends on norms of a whole tensor.\n"
        "  template <class C, class Config>\n"
        "  GRAVEN_DEVICE static void at_tensor(numbers<C>& k, const Config& {}, double {}, std::int64_t {},\n"
        "                                      const double* norms) {{\n{}  }}\n",
        used("config", body), used("lr", body), used("step", body), body);
  }

  /// New states that no norm decides, and what norms are of.
  std::string measure() {
    locals_.clear();
    std::vector<std::int32_t> wanted;
    for (std::size_t s = 0; s < new_state_.size(); ++s)
      if (!depends_on_norms_[s]) wanted.push_back(new_state_[s]);
    for (const std::int32_t n : rule_.norms()) wanted.push_back(term(n).arguments[0]);
    std::string body = locals(wanted, true);
    for (std::size_t n = 0; n < rule_.norms().size(); ++n)
      body += fmt::format("    measured[{}] = {};\n", n, expression(term(rule_.norms()[n]).arguments[0], true));
    body += new_states(false);
    return function("  /// Of an element: its new states, and what the norms are of.\n", "measure", false, body,
                    ", C (&measured)[norms]");
  }

  /// What measure() has made anew is read, not made again.
  std::string apply_behind_norms() {
    locals_.clear();
    behind_norms_ = true;
    for (std::size_t s = 0; s < new_state_.size(); ++s)
      if (!depends_on_norms_[s]) locals_.emplace(new_state_[s], rule_.new_states()[s].first);
    std::vector<std::int32_t> wanted{rule_.new_parameter()};
    for (std::size_t s = 0; s < new_state_.size(); ++s)
      if (depends_on_norms_[s]) wanted.push_back(new_state_[s]);
    std::string body = locals(wanted, true);
    for (std::size_t s = 0; s < new_state_.size(); ++s) body += keep(s);
    body += "    p = " + expression(rule_.new_parameter(), true) + ";\n" + new_states(true);
    behind_norms_ = false;
    return function("", "apply", true, body, "");
  }

  std::string apply_in_one() {
    locals_.clear();
    std::vector<std::int32_t> wanted = new_state_;
    wanted.push_back(rule_.new_parameter());
    std::string body = locals(wanted, true);
    for (std::size_t s = 0; s < new_state_.size(); ++s) body += keep(s);
    body += "    p = " + expression(rule_.new_parameter(), true) + ";\n" + new_states(false);
    return function("", "apply", true, body, "");
  }

  /// A line that computes a state which has no name of its own before others are overwritten.
  std::string keep(std::size_t s) {
    if (locals_.count(new_state_[s]) != 0) return {};
    const std::string name = "new_" + rule_.new_states()[s].first;
    std::string line = fmt::format("    const C {} = {};\n", name, expression(new_state_[s], true));
    locals_.emplace(new_state_[s], name);
    return line;
  }

  std::string new_states(bool decided_by_norms) {
    std::string lines;
    for (std::size_t s = 0; s < new_state_.size(); ++s)
      if (depends_on_norms_[s] == decided_by_norms)
        lines += fmt::format("    {} = {};\n", rule_.new_states()[s].first, expression(new_state_[s], true));
    return lines;
  }

  std::string function(const std::string& about, const std::string& name, bool writes_parameter,
                       const std::string& body, const std::string& more) {
    std::string parameters = fmt::format("const numbers<C>& {}, {} {}, C {}", used("k", body),
                                         writes_parameter ? "C&" : "C", used("p", body), used("grad", body));
    for (const auto& [state, t] : rule_.new_states()) parameters += ", C& " + used(state, body);
    return about + fmt::format("  template <class C>\n  GRAVEN_DEVICE static void {}({}{}) {{\n{}  }}\n", name,
                               parameters, more, body);
  }

  /// A parameter's name, which says so where the body does without it.
  static std::string used(const std::string& name, const std::string& body) {
    const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    for (std::size_t from = body.find(name); from != std::string::npos; from = body.find(name, from + 1)) {
      const bool begins = from == 0 || (!is_word(body[from - 1]) && body[from - 1] != '.');
      if (begins && !is_word(body[from + name.size()])) return name;
    }
    return "/*" + name + "*/";
  }

  const ir::UpdateRule& rule_;
  const std::vector<ir::FormulaTerm>& terms_;
  bool with_norms_ = false, behind_norms_ = false;
  std::vector<std::int32_t> new_state_;  ///< terms
  std::vector<bool> depends_on_norms_;   ///< by state
  std::vector<std::pair<std::string, std::int32_t>> numbers_;
  std::map<std::int32_t, std::string> locals_;  ///< what the function at hand calls terms
};

}  // namespace

UpdateText print_update(const ir::UpdateRule& rule) {
  UpdateText text{{rule.name(), UpdatePrinter(rule).functor()}, rule.name() + "_config", {}};
  text.config = "/// The options of " + rule.name() + ".\nstruct " + text.config_type + " {\n";
  if (ir::updates_parameter(rule.op()))
    text.config +=
        "  std::int64_t m, n, k;    ///< dy is [m, n], x [m, k] and the parameter [n, k, taps]\n"
        "  std::int64_t taps, tap;  ///< which of the taps has the gradient; those of the others are 0\n";
  for (const ir::AttributeSpec* a : rule.attributes())
    text.config +=
        fmt::format("  {} {};  ///< {}\n", a->type == ir::AttributeType::boolean ? "bool" : "double", a->name, a->doc);
  text.config += "};\n";
  return text;
}

}  // namespace graven::codegen
