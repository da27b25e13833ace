#include "codegen/emit/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <unordered_set>

#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

constexpr std::size_t kMaximumLength = 120;

const std::unordered_set<std::string_view>& reserved() {
  // Keywords of C++20 (C for the C interface is a subset), alternative tokens, lower-case macros that compilers
  // predefine, and names that emitted code uses where values' names stand.
  static const std::unordered_set<std::string_view> words{
      "alignas",     "alignof",   "and",        "and_eq",    "asm",       "auto",         "bitand",
      "bitor",       "bool",      "break",      "case",      "catch",     "char",         "char8_t",
      "char16_t",    "char32_t",  "class",      "compl",     "concept",   "const",        "consteval",
      "constexpr",   "constinit", "const_cast", "continue",  "co_await",  "co_return",    "co_yield",
      "decltype",    "default",   "delete",     "do",        "double",    "dynamic_cast", "else",
      "enum",        "explicit",  "export",     "extern",    "false",     "float",        "for",
      "friend",      "goto",      "if",         "inline",    "int",       "long",         "mutable",
      "namespace",   "new",       "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
      "or",          "or_eq",     "private",    "protected", "public",    "register",     "reinterpret_cast",
      "requires",    "return",    "short",      "signed",    "sizeof",    "static",       "static_assert",
      "static_cast", "struct",    "switch",     "template",  "this",      "thread_local", "throw",
      "true",        "try",       "typedef",    "typeid",    "typename",  "union",        "unsigned",
      "using",       "virtual",   "void",       "volatile",  "wchar_t",   "while",        "xor",
      "xor_eq",      "linux",     "unix",       "i386",      "errno",     "assert",       "stdin",
      "stdout",      "stderr",    "main",       "std",       "graven",    "restrict",     "threads",
      "config",      "param",     "grad",       "state",     "buf",       "hyper",        "constant",
      "prepared",    "f32",       "f64",        "f16",       "bf16",      "i8",           "i32",
      "i64",         "u8",        "boolean",    "kernels",   "reference", "runtime",      "model",
      "void_t",      "evaluation"};
  return words;
}

std::uint64_t digest(std::string_view text, std::uint64_t hash = 14695981039346656037u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash ^ (hash >> 29);
}

/// "matmul_2" -> "matmul": what stands before the number that tells apart the results of one operator.
std::string_view without_number(std::string_view name) {
  std::size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  return end < name.size() && end > 1 && name[end - 1] == '_' ? name.substr(0, end - 1) : name;
}

/// The operator of the forward pass is named once: "grad(model.hidden.linear).linear_backward_input" ->
/// "model.hidden.linear_backward_input", "grad(model.scores.matmul_3).matmul_2" -> "model.scores.matmul_3_backward_2",
/// "grad(model.hidden.linear).mul" -> "model.hidden.linear.backward.mul".
std::string unwrap_gradient(std::string_view path) {
  if (path.substr(0, 5) != "grad(") return std::string(path);
  std::size_t depth = 1, end = 5;
  while (end < path.size() && depth > 0) {
    depth += path[end] == '(';
    depth -= path[end] == ')';
    ++end;
  }
  if (depth != 0) return std::string(path);
  const std::string inner = unwrap_gradient(path.substr(5, end - 6));
  const std::string_view rest = path.substr(end);
  if (rest.empty() || rest[0] == '_') return inner + ".gradient" + std::string(rest);
  const std::string_view op = without_number(std::string_view(inner).substr(inner.rfind('.') + 1));
  if (!op.empty() && rest[0] == '.' && rest.substr(1, op.size()) == op) {
    const std::string_view behind = rest.substr(1 + op.size());
    if (behind.substr(0, 9) == "_backward") return inner + std::string(behind);
    if (without_number(rest.substr(1)) == op) return inner + ".backward" + std::string(behind);
  }
  return inner + ".backward" + std::string(rest);
}

/// A longer name for a gradient: "grad(h.linear).mul" -> "gradient_of_h_linear_mul". Empty for other paths.
std::string spelled_out(const std::string& path, std::string_view root) {
  if (path.rfind("grad(", 0) != 0) return {};
  std::string_view inner = std::string_view(path).substr(5);
  if (!root.empty() && inner.size() > root.size() && inner.substr(0, root.size()) == root && inner[root.size()] == '.')
    inner.remove_prefix(root.size() + 1);
  return identifier("gradient.of." + std::string(inner), root);
}

}  // namespace

std::string identifier(std::string_view path, std::string_view root, std::span<const std::string_view> taken) {
  const std::string plain = unwrap_gradient(path);
  std::string_view text = plain;
  if (!root.empty() && text.size() > root.size() + 1 && text.substr(0, root.size()) == root && text[root.size()] == '.')
    text.remove_prefix(root.size() + 1);
  std::string name;
  for (const char c : text) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (u < 0x80 && std::isalnum(u))
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.empty()) name = "unnamed";
  if (std::isdigit(static_cast<unsigned char>(name[0]))) name = "layer_" + name;
  if (name.size() > kMaximumLength) {
    name.resize(kMaximumLength - 17);
    while (name.back() == '_') name.pop_back();
    name += fmt::format("_{:016x}", digest(path));
  }
  const bool lower = std::any_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (!lower || reserved().count(name) || std::find(taken.begin(), taken.end(), name) != taken.end()) name += '_';
  return name;
}

Names::Names(const std::vector<std::string>& paths, std::string_view root, std::span<const std::string_view> words) {
  std::unordered_map<std::string, int> wanted;
  std::unordered_set<std::string_view> seen;
  std::vector<std::pair<const std::string*, std::string>> each;
  for (const std::string& path : paths) {
    if (!seen.insert(path).second) continue;
    each.emplace_back(&path, identifier(path, root, words));
    ++wanted[each.back().second];
  }
  std::unordered_set<std::string> taken;
  std::map<std::string, std::vector<const std::string*>> groups;  // paths that want one name
  for (auto& [path, name] : each) {
    if (wanted[name] > 1) {
      groups[name].push_back(path);
    } else {
      taken.insert(name);
      names_.emplace(*path, name);
    }
  }
  // Ordinary paths clash where a gradient reads like a value of the forward pass. Where all but one of them can be
  // spelled otherwise, that is done.
  std::vector<std::pair<const std::string*, std::string>> clashing;
  for (const auto& [name, paths] : groups) {
    std::vector<std::pair<const std::string*, std::string>> spelled;
    const std::string* plain = nullptr;
    std::unordered_set<std::string> fresh{name};
    bool solved = true;
    for (const std::string* path : paths) {
      std::string longer = spelled_out(*path, root);
      if (longer.empty()) {
        solved = solved && plain == nullptr;
        plain = path;
        continue;
      }
      solved = solved && !wanted.count(longer) && !taken.count(longer) && fresh.insert(longer).second;
      spelled.emplace_back(path, std::move(longer));
    }
    if (!solved) {
      for (const std::string* path : paths) clashing.emplace_back(path, name);
      continue;
    }
    if (plain != nullptr) spelled.emplace_back(plain, name);
    for (auto& [path, longer] : spelled) {
      taken.insert(longer);
      names_.emplace(*path, std::move(longer));
    }
  }
  for (const auto& [path, name] : clashing) {
    std::string base = name;
    while (base.back() == '_') base.pop_back();
    if (base.size() > kMaximumLength - 17) base.resize(kMaximumLength - 17);
    std::string full = fmt::format("{}_{:08x}", base, digest(*path) & 0xffffffffu);
    // A name that happens to look like this one: more of the digest, then the digest of more.
    for (std::uint64_t salt = digest(*path); !taken.insert(full).second; salt = digest(*path, salt))
      full = fmt::format("{}_{:016x}", base, salt);
    names_.emplace(*path, full);
  }
}

const std::string& Names::operator[](const std::string& path) const {
  const auto it = names_.find(path);
  GRAVEN_CHECK(it != names_.end(), "no identifier was made for '" + path + "'");
  return it->second;
}

std::string snake_case(const std::string& given) {
  std::string name;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(given[i]);
    if (std::isupper(c) && i > 0 &&
        (std::islower(static_cast<unsigned char>(given[i - 1])) ||
         std::isdigit(static_cast<unsigned char>(given[i - 1]))))
      name += '_';
    name += static_cast<char>(std::tolower(c));
  }
  return name;
}

Nesting::Place Nesting::operator()(const std::string& whole) const {
  for (std::size_t at = whole.find('_'); !blocks_.empty() && at != std::string::npos; at = whole.find('_', at + 1)) {
    const auto block = blocks_.find(whole.substr(0, at));
    if (block == blocks_.end()) continue;
    // What is no identifier by itself ("0_weight", "class") stays where it is.
    if (std::string rest = whole.substr(at + 1); !rest.empty() && identifier(rest) == rest)
      return {*block, std::move(rest)};
  }
  return {{}, whole};
}

std::string common_root(const std::vector<std::string>& paths) {
  std::string root;
  for (const std::string& path : paths) {
    const std::size_t dot = path.find('.');
    if (dot == std::string::npos) return {};
    if (root.empty()) root = path.substr(0, dot);
    if (path.compare(0, dot, root) != 0 || root.size() != dot) return {};
  }
  return root;
}

std::string comment_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (out.size() > 200) return out + "...";
    const bool comment_mark =
        (c == '/' && i > 0 && (text[i - 1] == '*' || text[i - 1] == '/')) || (c == '*' && i > 0 && text[i - 1] == '/');
    if (c < 0x20 || c >= 0x7f || comment_mark || c == '\\' || (c == '?' && i > 0 && text[i - 1] == '?'))
      out += fmt::format("<{:02x}>", c);
    else
      out += static_cast<char>(c);
  }
  return out;
}

std::string string_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || c == '?')
      out += '\\', out += c;
    else if (u < 0x20 || u >= 0x7f)
      out += fmt::format("\\{:03o}", u);
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace graven::codegen
