#include "codegen/emit/functor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven::codegen {

namespace {

bool is_identifier_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_identifier_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Replaces whole identifiers of `body`. Qualified names (math::exp) and numbers (1e5) are left alone.
std::string substitute(std::string_view body, const std::map<std::string, std::string, std::less<>>& replacements) {
  std::string text;
  for (std::size_t i = 0; i < body.size();) {
    if (is_identifier_start(body[i])) {
      std::size_t end = i;
      while (end < body.size() && is_identifier_part(body[end])) ++end;
      const std::string_view word = body.substr(i, end - i);
      const bool qualified = i >= 2 && body[i - 1] == ':' && body[i - 2] == ':';
      const auto found = replacements.find(word);
      text += found == replacements.end() || qualified ? word : std::string_view(found->second);
      i = end;
    } else if (std::isdigit(static_cast<unsigned char>(body[i]))) {
      while (i < body.size() && (is_identifier_part(body[i]) || body[i] == '.')) text += body[i++];
    } else {
      text += body[i++];
    }
  }
  return text;
}

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

/// A body asks whether its argument is zero; of a bool it asks no more than the bool: "gt != T(0) ? x : y" becomes "gt
/// ? x : y".
void read_bool(std::string& expression, const std::string& name) {
  const std::string question = name + " != T(0)";
  for (std::size_t at = 0; (at = expression.find(question, at)) != std::string::npos;) {
    if (at > 0 && is_identifier_part(expression[at - 1])) {
      at += question.size();
      continue;
    }
    expression.replace(at, question.size(), name);
    at += name.size();
  }
}

/// `full` has a kernel of its own; inside a program it is a literal. `cast` changes the type and nothing else.
bool is_literal(const ir::ScalarProgram::Step& step) { return step.op == ir::kFull.name; }
bool is_cast(const ir::ScalarProgram::Step& step) { return step.op == ir::kCast.name; }

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

/// Programs with a name of their own, by what they compute: gradients whose operators' names would not say it.
std::string_view known_name(const ir::ScalarProgram& program) {
  static constexpr std::pair<std::string_view, std::string_view> kKnown[] = {
      {"where(gt(y, 0), x, 0)", "relu_gradient"},            // x: the gradient that comes in, y: relu's result
      {"where(gt(x, 0), y, 0)", "relu_gradient_of_result"},  // the other way round
  };
  if (program.inputs != 2 || program.steps.size() > 4) return {};
  const std::string text = describe(program, {"x", "y"});
  for (const auto& [expression, name] : kKnown)
    if (text == expression) return name;
  return {};
}

/// What the gradient of one operator computes, as steps that follow one another. An argument is "g", the gradient that
/// comes in, "y", what the operator read or made, a number ("#": any, which the name then has), or "r1", "r2", ...: the
/// pattern's own results. The last is the gradient, or where nothing comes in the slope that one is multiplied by.
struct Pattern {
  struct Step {
    std::string_view op;
    std::vector<std::string_view> arguments;
  };
  std::string_view name;
  std::vector<Step> steps;
};
const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> list{
      {"sigmoid_gradient", {{"sub", {"1", "y"}}, {"mul", {"y", "r1"}}, {"mul", {"g", "r2"}}}},
      {"tanh_gradient", {{"mul", {"y", "y"}}, {"sub", {"1", "r1"}}, {"mul", {"g", "r2"}}}},
      {"hardtanh_gradient",
       {{"gt", {"y", "#"}}, {"lt", {"y", "#"}}, {"logical_and", {"r1", "r2"}}, {"where", {"r3", "g", "0"}}}},
      {"leaky_relu_gradient", {{"mul", {"g", "#"}}, {"gt", {"y", "0"}}, {"where", {"r2", "g", "r1"}}}},
      {"hardswish_gradient",
       {{"le", {"y", "-3"}},
        {"lt", {"y", "3"}},
        {"mul", {"y", "0.3333333333333333"}},
        {"add", {"r3", "0.5"}},
        {"mul", {"g", "r4"}},
        {"where", {"r2", "r5", "g"}},
        {"where", {"r1", "0", "r6"}}}},
      {"silu_slope",
       {{"sigmoid", {"y"}}, {"sub", {"1", "r1"}}, {"mul", {"y", "r2"}}, {"add", {"r3", "1"}}, {"mul", {"r1", "r4"}}}},
      {"gelu_slope",
       {{"mul", {"y", "0.7071067811865476"}},
        {"erf", {"r1"}},
        {"add", {"r2", "1"}},
        {"mul", {"r3", "0.5"}},
        {"mul", {"y", "y"}},
        {"mul", {"r5", "-0.5"}},
        {"exp", {"r6"}},
        {"mul", {"r7", "0.3989422804014327"}},
        {"mul", {"y", "r8"}},
        {"add", {"r4", "r9"}}}},
      {"gelu_tanh_slope",
       {{"mul", {"y", "y"}},
        {"mul", {"r1", "0.044715"}},
        {"add", {"r2", "1"}},
        {"mul", {"y", "r3"}},
        {"mul", {"r4", "0.7978845608028654"}},
        {"tanh", {"r5"}},
        {"mul", {"r1", "0.134145"}},
        {"add", {"r7", "1"}},
        {"mul", {"r8", "0.7978845608028654"}},
        {"mul", {"r6", "r6"}},
        {"sub", {"1", "r10"}},
        {"mul", {"y", "0.5"}},
        {"mul", {"r12", "r11"}},
        {"mul", {"r13", "r9"}},
        {"add", {"r6", "1"}},
        {"mul", {"r15", "0.5"}},
        {"add", {"r16", "r14"}}}},
  };
  return list;
}

/// Whether the steps from `first` on (of those that `counted` lists) are the pattern's, and no other step reads what
/// they make on the way; `one` is then the step that stands for them.
bool matches(const ir::ScalarProgram& program, const std::vector<std::size_t>& counted, std::size_t first,
             const Pattern& pattern, ir::ScalarProgram::Step& one) {
  const std::size_t length = pattern.steps.size();
  if (first + length > counted.size()) return false;
  const auto result = [&](std::size_t i) { return program.inputs + static_cast<std::int32_t>(counted[first + i]); };
  one = {std::string(pattern.name), {}, {}, program.steps[counted[first + length - 1]].dtype};
  std::int32_t g = -1, y = -1;
  const auto is = [&](std::int32_t argument, std::string_view wanted) {
    if (const std::int32_t s = argument - program.inputs; s >= 0 && is_literal(program.steps[ir::at(s)])) {
      const double value = constant(program.steps[ir::at(s)], "value");
      if (wanted == "#") one.constants.emplace_back("number", value);
      return wanted == "#" || wanted == fmt::format("{}", value);
    }
    if (wanted[0] == 'r') return argument == result(std::stoul(std::string(wanted.substr(1))) - 1);
    if (wanted != "g" && wanted != "y") return false;
    std::int32_t& bound = wanted == "g" ? g : y;
    if (bound < 0) bound = argument;
    return bound == argument;
  };
  for (std::size_t i = 0; i < length; ++i) {
    const auto& step = program.steps[counted[first + i]];
    const auto& wanted = pattern.steps[i];
    if (step.op != wanted.op || !step.constants.empty() || step.arguments.size() != wanted.arguments.size())
      return false;
    for (std::size_t a = 0; a < step.arguments.size(); ++a)
      if (!is(step.arguments[a], wanted.arguments[a])) return false;
  }
  for (std::size_t i = 0; i + 1 < length; ++i) {
    if (g == result(i) || y == result(i)) return false;
    for (std::size_t s = counted[first + length - 1] + 1; s < program.steps.size(); ++s)
      for (const std::int32_t argument : program.steps[s].arguments)
        if (argument == result(i)) return false;
  }
  for (const std::int32_t argument : {g, y})
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
  const ir::ScalarBody& scalar = ir::get_op(last.op).scalar;
  if (scalar.least.empty()) return {};
  const auto number = [&](std::string_view limit) {
    double value = 0;
    const auto [end, error] = std::from_chars(limit.data(), limit.data() + limit.size(), value);
    return error == std::errc{} && end == limit.data() + limit.size() ? value : constant(last, limit);
  };
  const double least = number(scalar.least), most = number(scalar.most);
  if (std::isnan(least) || std::isnan(most)) return {};
  return fmt::format("  static constexpr float limits[] = {{{}, {}}};\n", limit_text(least), limit_text(most));
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
    if (ir::get_op(step.op).scalar.result_boolean) {
      all_open = false;
      continue;
    }
    const auto first = step.arguments.begin() + (step.op == ir::kWhere.name ? 1 : 0);
    const auto is_input = [&](std::int32_t argument) { return argument < program.inputs; };
    const bool reads = converts ? std::all_of(first, step.arguments.end(), is_input)
                                : std::any_of(first, step.arguments.end(), is_input);
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
  if (const std::string_view known = known_name(whole); !known.empty()) return std::string(known);
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
         !ir::get_op(step.op).scalar.integer_body.empty();
}

std::string_view body_of(const ir::ScalarProgram::Step& step) {
  const ir::ScalarBody& scalar = ir::get_op(step.op).scalar;
  return wraps(step) ? scalar.integer_body : scalar.body;
}

std::string functor_name(const ir::ScalarProgram& program) {
  const bool integers = std::any_of(program.steps.begin(), program.steps.end(), wraps);
  return name_in_words(program) + type_suffix(program) + (integers ? "_wrapping" : "");
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "__builtin_nan(\"\")";
  if (std::isinf(value)) return value > 0 ? "__builtin_inf()" : "-__builtin_inf()";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0";
  std::string text = fmt::format("{}", value);
  // A whole number that no integer literal holds must read as a double.
  if (std::abs(value) >= 9e18 && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

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
    if (const bool* b = std::get_if<bool>(value)) step.constants.emplace_back(spec.name, *b ? 1.0 : 0.0);
    if (const std::int64_t* i = std::get_if<std::int64_t>(value))
      step.constants.emplace_back(spec.name, static_cast<double>(*i));
    if (const double* d = std::get_if<double>(value)) step.constants.emplace_back(spec.name, *d);
  }
  program.steps.push_back(std::move(step));
  return program;
}

Functor make_functor(const ir::OpDef& op, const ir::Attributes& attributes) {
  return make_functor(program_of(op, attributes, op.scalar.result_boolean ? ir::DType::boolean : ir::DType::f32));
}

Functor make_functor_with_inputs(const ir::OpDef& op) {
  GRAVEN_CHECK(op.elementwise() || op == ir::kCast, std::string(op.name) + " has no scalar body");
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
  const std::string body(op == ir::kCast && op.scalar.body.empty() ? "x"
                         : op.scalar.integer_body.empty()          ? op.scalar.body
                                                                   : op.scalar.integer_body);
  functor.text = fmt::format(
      "struct {} {{\n"
      "  static constexpr int inputs = {};\n"
      "  template <class T>\n"
      "  GRAVEN_DEVICE static T apply({}) {{\n"
      "    return {};\n"
      "  }}\n"
      "}};\n",
      functor.name, parameters.size(), list, op.scalar.result_boolean ? "T(" + body + ")" : body);
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
      GRAVEN_CHECK(op.elementwise(), step.op + " has no scalar body");
      GRAVEN_CHECK(step.arguments.size() == op.inputs.size(),
                   "the step '" + step.op + "' has a wrong number of arguments");
      // A comparison computes in the type of what it compares, and yields a bool; T in where's body is the condition's.
      std::map<std::string, std::string, std::less<>> replacements;
      if (type != "T" && step.dtype != ir::DType::boolean && step.op != ir::kWhere.name) replacements["T"] = type;
      for (std::size_t a = 0; a < step.arguments.size(); ++a)
        replacements[std::string(1, "xyz"[a])] = results[ir::at(step.arguments[a])];
      for (const auto& [key, value] : step.constants) replacements[key] = fmt::format("T({})", number_text(value));
      expression = substitute(body_of(step), replacements);
      for (const auto argument : step.arguments)
        if (bools.count(results[ir::at(argument)])) read_bool(expression, results[ir::at(argument)]);
    }
    if (last) {
      // Of bools alone, an operator that does not compare computes in T as it does of numbers, under the same name.
      const bool plain = main == ir::DType::boolean && !is_literal(step) && !is_cast(step) &&
                         !ir::get_op(step.op).scalar.result_boolean;
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
  if (const std::string_view known = known_name(whole); !known.empty()) return std::string(known);
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
