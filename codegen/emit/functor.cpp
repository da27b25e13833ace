#include "codegen/emit/functor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/element_rule.h"
#include "ir/ops.h"
#include "ir/passes/passes.h"

namespace graven::codegen {

namespace {

/// A number as part of an identifier: 0.01 -> "0p01", -6 -> "m6", 1e-05 -> "1em05".
std::string number_name(double value) {
  std::string name;
  for (const char c : fmt::format("{}", value))
    name += c == '-' ? "m" : c == '.' ? "p" : c == '+' ? "" : std::string(1, c);
  return name;
}

std::string_view type_name(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f32:
      return "float";
    case ir::DType::f64:
      return "double";
    case ir::DType::f16:
    case ir::DType::bf16:
      return "float";
    case ir::DType::i8:
      return "std::int8_t";
    case ir::DType::i32:
      return "std::int32_t";
    case ir::DType::i64:
      return "std::int64_t";
    case ir::DType::u8:
      return "std::uint8_t";
    case ir::DType::boolean:
      return "bool";
  }
  return "float";
}

std::uint32_t wiring_digest(std::string_view text) {
  std::uint32_t hash = 2166136261u;  // FNV-1a: tells apart programs whose operators' names agree, nothing more
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

std::string input_name(int index, int count) {
  if (count <= 3) return std::string(1, "xyz"[index]);
  return fmt::format("x{}", index);
}

/// `full` has a kernel of its own; inside a program it is a literal. `cast` changes the type and nothing else.
bool is_literal(const ir::ScalarProgram::Step& step) { return step.op == ir::kFull.name; }
bool is_cast(const ir::ScalarProgram::Step& step) { return step.op == ir::kCast.name; }

bool gives_boolean(const ir::OpDef& op) { return ir::element_rule(op).gives_boolean(); }

double constant(const ir::ScalarProgram::Step& step, std::string_view name) {
  for (const auto& [key, value] : step.constants)
    if (key == name) return value;
  GRAVEN_CHECK(false, "the step '" + step.op + "' has no constant '" + std::string(name) + "'");
  return 0;
}

/// The type that T stands for: that of the last step that is not boolean. Whatever differs from it is spelled out.
ir::DType main_dtype(const ir::ScalarProgram& program) {
  for (std::size_t i = program.steps.size(); i-- > 0;)
    if (program.steps[i].dtype != ir::DType::boolean) return program.steps[i].dtype;
  return ir::DType::boolean;
}

/// Kernels compute in the common type of the inputs (T). Where a step converts, or where nothing says that an input is
/// of the type that the program computes in, as of where(mask, 0, 1), which reads a bool alone, that may be another
/// one: all types are spelled then.
enum class Types { common, converted, unread };
Types types_of(const ir::ScalarProgram& program) {
  if (program.steps.size() > 1 && std::any_of(program.steps.begin(), program.steps.end(), is_cast))
    return Types::converted;
  if (main_dtype(program) == ir::DType::boolean || std::all_of(program.steps.begin(), program.steps.end(), is_literal))
    return Types::common;
  const auto made = [&](std::int32_t argument) { return argument >= program.inputs; };
  const auto is_number = [&](std::int32_t argument) {
    return made(argument) && program.steps[ir::at(argument - program.inputs)].dtype != ir::DType::boolean;
  };
  for (const ir::ScalarProgram::Step& step : program.steps) {
    // What a comparison reads is of one type.
    const bool of_numbers =
        step.dtype != ir::DType::boolean || std::any_of(step.arguments.begin(), step.arguments.end(), is_number);
    const std::size_t first = step.op == ir::kWhere.name ? 1 : 0;  // the condition
    for (std::size_t a = first; of_numbers && a < step.arguments.size(); ++a)
      if (!made(step.arguments[a])) return Types::common;
  }
  return Types::unread;
}

/// Whether each step is fed by the step before it, by fresh inputs in order and by numbers, so that the operators'
/// names say it all.
bool is_chain(const ir::ScalarProgram& program) {
  int next_input = 0;
  int previous = -1;  // the last step that is no number
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    if (is_literal(program.steps[s])) continue;
    bool fed = previous < 0;
    bool number_behind = false;  // the name of where(x, 0, y) would be that of where(x, y, 0)
    const std::vector<std::int32_t>& arguments = program.steps[s].arguments;
    for (std::size_t a = 0; a < arguments.size(); ++a) {
      const std::int32_t argument = arguments[a];
      const bool literal = argument >= program.inputs && is_literal(program.steps[ir::at(argument - program.inputs)]);
      if (number_behind && !literal) return false;
      number_behind = number_behind || (literal && a > 0);
      if (literal) continue;
      if (argument >= program.inputs) {
        if (fed || argument - program.inputs != previous) return false;
        fed = true;
      } else if (!fed || argument != next_input++) {
        return false;
      }
    }
    if (!fed) return false;
    previous = static_cast<int>(s);
  }
  return next_input == program.inputs;
}

std::string wiring(const ir::ScalarProgram& program) {
  std::string text = fmt::format("{}", program.inputs);
  for (const auto& step : program.steps) {
    text += fmt::format(";{}:{}", step.op, ir::name(step.dtype));
    for (const auto argument : step.arguments) text += fmt::format(",{}", argument);
    for (const auto& [key, value] : step.constants) text += fmt::format("|{}={}", key, value);
  }
  return text;
}

/// What the gradient of one operator computes, as steps that follow one another. An argument is "g", the gradient that
/// comes in, "x" and "y", what the operator read and made, a number ("#": one that an attribute decides, which the name
/// then has), or "r1", "r2", ...: the pattern's own results. The last is the gradient, or where nothing comes in the
/// slope that one is multiplied by.
struct Pattern {
  struct Step {
    std::string op;
    std::vector<std::string> arguments;
    friend bool operator==(const Step&, const Step&) = default;
  };
  std::string name;
  std::vector<Step> steps;
};

/// The gradient of an operator of one input as the passes leave it, with numbers from `least` on as attributes, or with
/// their defaults: no steps where that is no single elementwise program.
std::vector<Pattern::Step> steps_of_gradient(const ir::OpDef& op, std::optional<double> least) {
  ir::Graph graph;
  const ir::TensorType type{ir::DType::f32, {2}};
  const ir::ValueId g = graph.add_input("g", type), x = graph.add_input("x", type), y = graph.add_input("y", type);
  ir::Node node{&op, {}, {x}, {y}, ir::Phase::forward, {}};
  for (const ir::AttributeSpec& a : op.attributes)
    if (a.type == ir::AttributeType::number && least) node.attributes.set(a.name, (*least)++);
  try {
    ir::infer(op, {type}, node.attributes);
    ir::GradientBuilder builder(graph, node, {g}, {true});
    op.gradient(builder);
    graph.outputs = builder.gradients();
    for (const auto pass : {ir::simplify_algebra, ir::fold_constants, ir::simplify_algebra,
                            ir::merge_common_subexpressions, ir::remove_dead_nodes, ir::fuse_elementwise})
      pass(graph, {});
  } catch (const UserError&) {
    return {};
  }
  if (graph.nodes.size() != 1 || !graph.nodes[0].is(ir::kFusedElementwise)) return {};
  const ir::Node& fused = graph.nodes[0];
  const auto& program = std::get<ir::ScalarProgram>(fused.attributes.at("program"));
  std::vector<std::string> names;
  for (const ir::ValueId v : fused.inputs) names.push_back(graph.value(v).name);
  std::vector<Pattern::Step> steps;
  for (const ir::ScalarProgram::Step& step : program.steps) {
    if (is_literal(step)) {
      names.push_back(fmt::format("{}", constant(step, "value")));
      continue;
    }
    if (is_cast(step) || !step.constants.empty()) return {};
    steps.push_back({step.op, {}});
    for (const std::int32_t argument : step.arguments) steps.back().arguments.push_back(names[ir::at(argument)]);
    names.push_back(fmt::format("r{}", steps.size()));
  }
  return steps;
}

/// The gradient's steps, a number that changes with the attributes being "#".
std::vector<Pattern::Step> general_steps(const ir::OpDef& op) {
  std::vector<Pattern::Step> steps = steps_of_gradient(op, 0.3125), others = steps_of_gradient(op, 0.4375);
  if (steps.size() != others.size()) return {};
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].op != others[s].op || steps[s].arguments.size() != others[s].arguments.size()) return {};
    for (std::size_t a = 0; a < steps[s].arguments.size(); ++a)
      if (steps[s].arguments[a] != others[s].arguments[a]) steps[s].arguments[a] = "#";
  }
  return steps;
}

/// Of every elementwise operator of one input, the longest first. Two sums or products are arithmetic like any other's.
const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> list = [] {
    std::vector<Pattern> found;
    const auto add = [&](std::string name, std::vector<Pattern::Step> steps) {
      const bool says_enough = steps.size() >= 3 || (steps.size() == 2 && steps[1].op == ir::kWhere.name);
      const bool known = std::any_of(found.begin(), found.end(), [&](const Pattern& p) { return p.steps == steps; });
      if (says_enough && !known) found.push_back({std::move(name), std::move(steps)});
    };
    for (const ir::OpDef* op : ir::all_ops()) {
      if (!op->elementwise() || op->gradient == nullptr || op->inputs.size() != 1) continue;
      // Passes leave out a factor that is 1 by default.
      for (std::vector<Pattern::Step> steps : {general_steps(*op), steps_of_gradient(*op, std::nullopt)}) {
        if (steps.empty()) continue;
        add(std::string(op->name) + "_gradient", steps);
        const Pattern::Step last = steps.back();
        steps.pop_back();
        const bool reads_g = std::any_of(steps.begin(), steps.end(), [](const Pattern::Step& s) {
          return std::find(s.arguments.begin(), s.arguments.end(), "g") != s.arguments.end();
        });
        if (last.op == ir::kMul.name && last.arguments[0] == "g" && !reads_g)
          add(std::string(op->name) + "_slope", std::move(steps));
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Pattern& a, const Pattern& b) { return a.steps.size() > b.steps.size(); });
    return found;
  }();
  return list;
}

/// Whether the steps from `first` on (of those that `counted` lists) are the pattern's, and no other step reads what
/// they make on the way; `one` is then the step that stands for them.
bool matches(const ir::ScalarProgram& program, const std::vector<std::size_t>& counted, std::size_t first,
             const Pattern& pattern, ir::ScalarProgram::Step& one) {
  const std::size_t length = pattern.steps.size();
  if (first + length > counted.size()) return false;
  for (std::size_t i = 0; i < length; ++i) {
    const auto& step = program.steps[counted[first + i]];
    const auto& wanted = pattern.steps[i];
    if (step.op != wanted.op || !step.constants.empty() || step.arguments.size() != wanted.arguments.size())
      return false;
  }
  const auto result = [&](std::size_t i) { return program.inputs + static_cast<std::int32_t>(counted[first + i]); };
  one = {pattern.name, {}, {}, program.steps[counted[first + length - 1]].dtype};
  std::int32_t g = -1, x = -1, y = -1;
  const auto is = [&](std::int32_t argument, std::string_view wanted) {
    if (const std::int32_t s = argument - program.inputs; s >= 0 && is_literal(program.steps[ir::at(s)])) {
      const double value = constant(program.steps[ir::at(s)], "value");
      if (wanted == "#") one.constants.emplace_back("number", value);
      return wanted == "#" || wanted == fmt::format("{}", value);
    }
    if (wanted[0] == 'r') return argument == result(std::stoul(std::string(wanted.substr(1))) - 1);
    if (wanted != "g" && wanted != "x" && wanted != "y") return false;
    std::int32_t& bound = wanted == "g" ? g : wanted == "x" ? x : y;
    if (bound < 0) bound = argument;
    return bound == argument;
  };
  for (std::size_t i = 0; i < length; ++i) {
    const std::vector<std::int32_t>& arguments = program.steps[counted[first + i]].arguments;
    for (std::size_t a = 0; a < arguments.size(); ++a)
      if (!is(arguments[a], pattern.steps[i].arguments[a])) return false;
  }
  for (std::size_t i = 0; i + 1 < length; ++i) {
    if (g == result(i) || x == result(i) || y == result(i)) return false;
    for (std::size_t s = counted[first + length - 1] + 1; s < program.steps.size(); ++s)
      for (const std::int32_t argument : program.steps[s].arguments)
        if (argument == result(i)) return false;
  }
  for (const std::int32_t argument : {g, x, y})
    if (argument >= 0) one.arguments.push_back(argument);
  return true;
}

/// The program as it reads in names and comments: the gradients of known operators as one step each. Steps follow one
/// another as they did, so that programs of one name are still one program.
ir::ScalarProgram in_words(const ir::ScalarProgram& program) {
  if (types_of(program) != Types::common) return program;
  std::vector<std::size_t> counted;  // steps that are no numbers
  for (std::size_t s = 0; s < program.steps.size(); ++s)
    if (!is_literal(program.steps[s])) counted.push_back(s);
  ir::ScalarProgram shorter{program.inputs, {}};
  std::vector<std::int32_t> now(program.steps.size(), -1);  // the step's place there, counted with the inputs
  auto add = [&](ir::ScalarProgram::Step step, std::size_t last) {
    for (std::int32_t& argument : step.arguments)
      if (argument >= program.inputs) argument = now[ir::at(argument - program.inputs)];
    now[last] = shorter.inputs + static_cast<std::int32_t>(shorter.steps.size());
    shorter.steps.push_back(std::move(step));
  };
  for (std::size_t s = 0; s < program.steps.size(); ++s)
    if (is_literal(program.steps[s])) add(program.steps[s], s);
  for (std::size_t c = 0; c < counted.size();) {
    ir::ScalarProgram::Step one;
    const auto found = std::find_if(patterns().begin(), patterns().end(),
                                    [&](const Pattern& p) { return matches(program, counted, c, p, one); });
    const std::size_t length = found == patterns().end() ? 1 : found->steps.size();
    add(found == patterns().end() ? program.steps[counted[c]] : one, counted[c + length - 1]);
    c += length;
  }
  return shorter;
}

/// An argument in a name: the input's letter, "r" for the result before, "r1" for the first, ...; a number as itself.
std::string argument_name(const ir::ScalarProgram& program, std::int32_t argument, std::size_t step) {
  if (argument < program.inputs) return input_name(argument, program.inputs);
  const std::size_t made = ir::at(argument - program.inputs);
  if (is_literal(program.steps[made])) return number_name(constant(program.steps[made], "value"));
  std::size_t ordinal = 0;
  for (std::size_t s = 0; s <= made; ++s) ordinal += !is_literal(program.steps[s]);
  for (std::size_t s = made + 1; s < step; ++s)
    if (!is_literal(program.steps[s])) return fmt::format("r{}", ordinal);
  return "r";
}

/// The operators with every argument spelled out: "add_x_1em05_rsqrt_r_mul_y_r". Says all that there is to say, dtypes
/// aside.
std::string spelled_name(const ir::ScalarProgram& program) {
  std::string name;
  std::vector<bool> used(ir::at(program.inputs), false);
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const auto& step = program.steps[s];
    if (is_literal(step)) continue;
    name += (name.empty() ? "" : "_") + step.op;
    for (const std::int32_t argument : step.arguments) {
      name += "_" + argument_name(program, argument, s);
      if (argument < program.inputs) used[ir::at(argument)] = true;
    }
    if (is_cast(step)) name += fmt::format("_{}", ir::name(step.dtype));
    for (const auto& [key, value] : step.constants) name += '_' + number_name(value);
  }
  if (std::find(used.begin(), used.end(), false) != used.end()) name += fmt::format("_of_{}", program.inputs);
  return name;
}

/// The program with sums and products of two inputs in the inputs' order, which changes no result: add, not add_y_x.
ir::ScalarProgram in_order(ir::ScalarProgram program) {
  for (ir::ScalarProgram::Step& step : program.steps)
    if ((step.op == ir::kAdd.name || step.op == ir::kMul.name) && step.arguments.size() == 2 &&
        step.arguments[0] < program.inputs && step.arguments[1] < step.arguments[0])
      std::swap(step.arguments[0], step.arguments[1]);
  return program;
}

/// A limit as a float, beyond whose range nothing is limited.
std::string limit_text(double value) {
  if (std::abs(value) > static_cast<double>(std::numeric_limits<float>::max()))
    return value > 0 ? "__builtin_inff()" : "-__builtin_inff()";
  const std::string text = fmt::format("{}", static_cast<float>(value));
  return text + (text.find_first_of(".e") == std::string::npos ? ".0f" : "f");
}

/// The line `limits` of a program that keeps its input, or the sum of its two, between two numbers: convolutions can do
/// that in registers (kernels/README.md). Empty for others.
std::string limits_line(const ir::ScalarProgram& program) {
  if (program.inputs < 1 || program.inputs > 2 || program.steps.size() != ir::at(program.inputs)) return {};
  const ir::ScalarProgram::Step& last = program.steps.back();
  if (is_literal(last) || is_cast(last) || last.arguments != std::vector<std::int32_t>{program.inputs == 1 ? 0 : 2})
    return {};
  if (program.inputs == 2 &&
      (program.steps[0].op != ir::kAdd.name || program.steps[0].arguments != std::vector<std::int32_t>{0, 1}))
    return {};
  const auto limits =
      ir::element_rule(ir::get_op(last.op)).limits([&](std::string_view name) { return constant(last, name); });
  if (!limits || std::isnan(limits->first) || std::isnan(limits->second)) return {};
  return fmt::format("  static constexpr float limits[] = {{{}, {}}};\n", limit_text(limits->first),
                     limit_text(limits->second));
}

/// The dtypes that the text of a program spells and the names of its operators leave open, "_f32": where a step
/// converts, those of steps that read inputs alone; elsewhere bool, of a step that passes inputs on, as the first one
/// of where(where(x, y, z), a, b) may.
std::string type_suffix(const ir::ScalarProgram& program) {
  const bool converts = types_of(program) == Types::converted;
  bool all_open = true;  // no operator says what it makes: T it is
  std::vector<ir::DType> open;
  for (const ir::ScalarProgram::Step& step : program.steps) {
    if (is_literal(step) || is_cast(step)) continue;
    if (gives_boolean(ir::get_op(step.op))) {
      all_open = false;
      continue;
    }
    // A condition is a bool whatever is chosen by it.
    const auto passed_on = std::span(step.arguments).subspan(step.op == ir::kWhere.name ? 1 : 0);
    const auto is_input = [&](std::int32_t argument) { return argument < program.inputs; };
    const bool reads = converts ? std::all_of(passed_on.begin(), passed_on.end(), is_input)
                                : std::any_of(passed_on.begin(), passed_on.end(), is_input);
    if (!reads || (!converts && step.dtype != ir::DType::boolean)) continue;
    if (std::find(open.begin(), open.end(), step.dtype) == open.end()) open.push_back(step.dtype);
  }
  if (!converts && all_open && main_dtype(program) == ir::DType::boolean) return "";
  std::string suffix;
  for (const ir::DType d : open) suffix += fmt::format("_{}", ir::name(d));
  return suffix;
}

/// Whether some of these words, one after the other, are the name of one operator: tanh of gelu is not gelu_tanh.
bool read_as_another(const std::vector<std::string>& words) {
  for (std::size_t first = 0; first < words.size(); ++first) {
    std::string text = words[first];
    for (std::size_t last = first + 1; last < words.size(); ++last) {
      text += '_' + words[last];
      if (ir::find_op(text) != nullptr ||
          std::any_of(patterns().begin(), patterns().end(), [&](const Pattern& p) { return p.name == text; }))
        return true;
    }
  }
  return false;
}

std::string name_in_words(const ir::ScalarProgram& whole) {
  const ir::ScalarProgram program = in_words(whole);
  std::string name;
  std::vector<std::string> words;
  const ir::DType main = main_dtype(program);
  bool converts = false;
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const auto& step = program.steps[s];
    if (is_literal(step)) continue;
    // A number before the operator where it is the first argument, behind it otherwise: 1_sub, sub_1.
    std::string before, behind;
    for (std::size_t a = 0; a < step.arguments.size(); ++a) {
      const std::int32_t argument = step.arguments[a] - program.inputs;
      if (argument < 0 || !is_literal(program.steps[ir::at(argument)])) continue;
      const std::string number = number_name(constant(program.steps[ir::at(argument)], "value"));
      (a == 0 ? before : behind) += a == 0 ? number + "_" : "_" + number;
    }
    if (!name.empty()) name += '_';
    if (name.empty() && !before.empty()) name = "from_";
    name += before + step.op + behind;
    words.push_back(step.op);
    if (is_cast(step) && (program.steps.size() > 1 || step.dtype == ir::DType::boolean))
      name += fmt::format("_{}", ir::name(step.dtype));
    for (const auto& [key, value] : step.constants) name += '_' + number_name(value);
    if (s + 1 < program.steps.size() && step.dtype != main && step.dtype != ir::DType::boolean) converts = true;
  }
  if (name.empty()) {  // numbers alone: the last is the result
    name = "constant_" + number_name(constant(program.steps.back(), "value"));
    return program.inputs == 0 ? name : name + fmt::format("_of_{}", program.inputs);
  }
  if (types_of(program) == Types::unread) name += fmt::format("_{}", ir::name(main));
  constexpr std::size_t kLongest = 72;
  if (!converts && is_chain(program) && name.size() <= kLongest && !read_as_another(words)) return name;
  if (std::string spelled = spelled_name(program);
      types_of(program) != Types::unread && !converts && !spelled.empty() && spelled.size() <= kLongest)
    return spelled;
  if (name.size() > 48) {
    name.resize(name.rfind('_', 48));  // behind a whole word: half a number would be another number
  }
  return name + fmt::format("_{:08x}", wiring_digest(wiring(program)));
}

bool wraps(const ir::ScalarProgram::Step& step) {
  return !is_literal(step) && !is_cast(step) && step.dtype != ir::DType::boolean && !ir::is_floating(step.dtype) &&
         ir::element_rule(ir::get_op(step.op)).wraps();
}

/// An operator's rule as an expression.
struct RuleText {
  const ir::ElementRule& rule;
  std::vector<std::string> arguments;         ///< names of the inputs
  const std::set<std::string>& bools;         ///< those of them that are declared so
  std::map<std::string, std::string> values;  ///< texts of the attributes
  ScalarStyle style = {};

  std::string text() const { return of(rule.result(), 0); }

 private:
  std::string of(std::int32_t t, int least) const {
    const ir::FormulaTerm& term = rule.term(t);
    switch (term.kind) {
      case ir::FormulaTerm::Kind::constant:
        return fmt::format("{}({})", style.type, number_text(term.value));
      case ir::FormulaTerm::Kind::attribute:
        return values.at(term.name);
      case ir::FormulaTerm::Kind::input:
        return arguments[static_cast<std::size_t>(term.value)];
      default:
        break;
    }
    if (term.kind == ir::FormulaTerm::Kind::nonzero)
      if (std::string name = of(term.arguments[0], 0); bools.count(name)) return name;
    std::string text =
        operation_text(term, [&](std::size_t i, int within) { return of(term.arguments[i], within); }, style);
    return binding(term, style.wrapping) < least ? "(" + text + ")" : text;
  }
};

std::string functor_name(const ir::ScalarProgram& program) {
  const bool integers = std::any_of(program.steps.begin(), program.steps.end(), wraps);
  return name_in_words(program) + type_suffix(program) + (integers ? "_wrapping" : "");
}

}  // namespace

ir::ScalarProgram program_of(const ir::OpDef& op, const ir::Attributes& attributes, ir::DType dtype) {
  ir::ScalarProgram program;
  program.inputs = static_cast<std::int32_t>(op.inputs.size());
  ir::ScalarProgram::Step step{std::string(op.name), {}, {}, dtype};
  for (std::int32_t i = 0; i < program.inputs; ++i) step.arguments.push_back(i);
  for (const ir::AttributeSpec& spec : op.attributes) {
    const ir::Attribute* value = attributes.find(spec.name);
    if (value == nullptr) value = spec.fallback ? &*spec.fallback : nullptr;
    GRAVEN_CHECK(value != nullptr,
                 std::string(op.name) + ": the attribute '" + std::string(spec.name) + "' is missing");
    if (const auto number = ir::number_of(*value)) step.constants.emplace_back(spec.name, *number);
  }
  program.steps.push_back(std::move(step));
  return program;
}

Functor make_functor(const ir::OpDef& op, const ir::Attributes& attributes) {
  return make_functor(program_of(op, attributes, gives_boolean(op) ? ir::DType::boolean : ir::DType::f32));
}

Functor make_functor_with_inputs(const ir::OpDef& op) {
  GRAVEN_CHECK(op.elementwise() || op == ir::kCast, std::string(op.name) + " is not elementwise");
  Functor functor;
  functor.name = op.name;
  std::vector<std::string> parameters;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    parameters.push_back(input_name(static_cast<int>(i), static_cast<int>(op.inputs.size())));
  for (const ir::AttributeSpec& spec : op.attributes) {
    if (spec.type != ir::AttributeType::boolean && spec.type != ir::AttributeType::integer &&
        spec.type != ir::AttributeType::number)
      continue;
    functor.name = std::string(op.name) + "_with";
    parameters.emplace_back(spec.name);
  }
  std::string list;
  for (const std::string& parameter : parameters)
    list += (list.empty() ? "[[maybe_unused]] T " : ", [[maybe_unused]] T ") + parameter;
  // One text for all dtypes: that of integers serves floating types as well.
  const std::set<std::string> no_bools;
  RuleText rule{ir::element_rule(op), parameters, no_bools, {}, {.wrapping = true}};
  for (const ir::AttributeSpec& spec : op.attributes) rule.values.emplace(spec.name, spec.name);
  const std::string body = rule.text();
  functor.text = fmt::format(
      "struct {} {{\n"
      "  static constexpr int inputs = {};\n"
      "  template <class T>\n"
      "  GRAVEN_DEVICE static T apply({}) {{\n"
      "    return {};\n"
      "  }}\n"
      "}};\n",
      functor.name, parameters.size(), list, gives_boolean(op) ? "T(" + body + ")" : body);
  return functor;
}

Functor make_functor(const ir::ScalarProgram& given) {
  GRAVEN_CHECK(!given.steps.empty(), "a scalar program without steps");
  const ir::ScalarProgram program = in_order(given);
  Functor functor{functor_name(program), {}};
  const ir::DType main = main_dtype(program);
  const bool spelled = types_of(program) != Types::common;

  std::vector<std::string> results;  // names of inputs, then of steps
  std::map<std::string, int> taken;
  for (int i = 0; i < program.inputs; ++i) {
    results.push_back(input_name(i, program.inputs));
    taken[results.back()] = 1;
  }
  std::vector<bool> used(ir::at(program.inputs), false);
  std::string lines;
  std::set<std::string> bools;  // results that are declared as such
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const auto& step = program.steps[s];
    const bool last = s + 1 == program.steps.size();
    const std::string type(step.dtype == main && !spelled ? "T" : type_name(step.dtype));
    for (const auto argument : step.arguments) {
      GRAVEN_CHECK(argument >= 0 && ir::at(argument) < results.size(),
                   "the step '" + step.op + "' uses a result that is not there yet");
      if (argument < program.inputs) used[ir::at(argument)] = true;
    }
    if (is_literal(step) && !last) {
      results.push_back(fmt::format("{}({})", type, number_text(constant(step, "value"))));
      continue;
    }
    std::string expression;
    if (is_literal(step)) {
      expression = fmt::format("{}({})", type, number_text(constant(step, "value")));
    } else if (is_cast(step)) {
      const std::string& argument = results[ir::at(step.arguments.at(0))];
      expression = step.dtype == ir::DType::boolean ? argument + " != 0"
                   : last && !spelled               ? argument
                                                    : fmt::format("static_cast<{}>({})", type, argument);
    } else {
      const ir::OpDef& op = ir::get_op(step.op);
      GRAVEN_CHECK(op.elementwise(), step.op + " is not elementwise");
      GRAVEN_CHECK(step.arguments.size() == op.inputs.size(),
                   "the step '" + step.op + "' has a wrong number of arguments");
      RuleText rule{ir::element_rule(op), {}, bools, {}, {.wrapping = wraps(step)}};
      // A comparison computes in the type of what it compares.
      if (type != "T" && step.dtype != ir::DType::boolean && step.op != ir::kWhere.name) rule.style.type = type;
      // Bits of bools are a bool's, whatever the program computes in: of a number that stands for one they are not.
      const bool of_bits = type == "bool" && rule.rule.term(rule.rule.result()).kind == ir::FormulaTerm::Kind::bitwise;
      if (of_bits) rule.style.type = type;
      for (const std::int32_t argument : step.arguments) {
        const std::string& name = results[ir::at(argument)];
        rule.arguments.push_back(of_bits && bools.count(name) == 0 ? "(" + name + " != 0)" : name);
      }
      for (const auto& [key, value] : step.constants)
        rule.values.emplace(key, fmt::format("{}({})", rule.style.type, number_text(value)));
      expression = rule.text();
    }
    if (last) {
      // Of bools alone, an operator that does not compare computes in T as it does of numbers, under the same name.
      const bool plain =
          main == ir::DType::boolean && !is_literal(step) && !is_cast(step) && !gives_boolean(ir::get_op(step.op));
      const bool is_bool = step.dtype == ir::DType::boolean && !spelled && !plain;
      lines += fmt::format("    return {};\n", is_bool ? "T(" + expression + ")" : expression);
      break;
    }
    const int count = ++taken[step.op];
    std::string name = count == 1 ? step.op : fmt::format("{}_{}", step.op, count);
    lines += fmt::format("    const {} {} = {};\n", type, name, expression);
    if (type == "bool") bools.insert(name);
    results.push_back(std::move(name));
  }
  std::string parameters;
  for (int i = 0; i < program.inputs; ++i)
    parameters +=
        fmt::format("{}{}T {}", i ? ", " : "", used[ir::at(i)] ? "" : "[[maybe_unused]] ", results[ir::at(i)]);
  functor.text = fmt::format(
      "struct {} {{\n"
      "  static constexpr int inputs = {};\n"
      "{}"
      "  template <class T>\n"
      "  GRAVEN_DEVICE static {} apply({}) {{\n"
      "{}"
      "  }}\n"
      "}};\n",
      functor.name, program.inputs, spelled ? "" : limits_line(program), spelled ? "auto" : "T", parameters, lines);
  return functor;
}

std::string title(const ir::ScalarProgram& whole) {
  const ir::ScalarProgram program = in_words(whole);
  std::vector<std::string_view> names;
  for (const auto& step : program.steps)
    if (!is_literal(step)) names.push_back(step.op);
  constexpr std::size_t kMost = 6;
  if (names.size() > kMost)
    return fmt::format("{} + ... + {} ({} in one)", fmt::join(names.begin(), names.begin() + 3, " + "), names.back(),
                       names.size());
  return fmt::format("{}", fmt::join(names, " + "));
}

std::string describe(const ir::ScalarProgram& program, const std::vector<std::string>& names) {
  std::vector<std::string> results = names;
  for (const auto& step : program.steps) {
    if (is_literal(step)) {
      results.push_back(fmt::format("{}", constant(step, "value")));
      continue;
    }
    std::string text = step.op + "(";
    for (std::size_t a = 0; a < step.arguments.size(); ++a)
      text += (a ? ", " : "") + results.at(ir::at(step.arguments[a]));
    for (const auto& [key, value] : step.constants)
      text += fmt::format("{}{}={}", text.back() == '(' ? "" : ", ", key, value);
    if (is_cast(step)) text += fmt::format(", {}", ir::name(step.dtype));
    results.push_back(text + ")");
  }
  return results.back();
}

}  // namespace graven::codegen
