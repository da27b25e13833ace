#include "ir/text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/op.h"

namespace graven::ir {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kColumns = 120;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_plain(char c) { return is_letter(c) || c == '.' || c == '*' || c == '/' || c == '-' || c == '+'; }

const Json& no_schedule() {
  static const Json none = {{"kind", ""}, {"options", Json::object()}, {"milestones", Json::array()}};
  return none;
}

// ---- writing ----

/// Whether the text may stand without quotes, as a word that no number and no other literal looks like.
bool stands_bare(std::string_view s) {
  int open = 0;
  for (const char c : s) {
    if (c == '(') ++open;
    if (c == ')' && --open < 0) return false;
    if (!is_plain(c) && c != '(' && c != ')') return false;
  }
  return !s.empty() && open == 0 && s[0] != '-' && s[0] != '+' && s[0] != '(';
}
std::string word(const Json& text) {
  const std::string& s = text.get_ref<const std::string&>();
  return stands_bare(s) ? s : text.dump();
}
/// A value of an attribute or an option: words where JSON has strings, but for those that read as something else.
std::string literal(const Json& value) {
  if (value.is_array()) {
    std::string items;
    for (const Json& item : value) items += (items.empty() ? "" : ", ") + literal(item);
    return "[" + items + "]";
  }
  if (!value.is_string()) return value.dump();
  const std::string& s = value.get_ref<const std::string&>();
  const bool is_something_else =
      s == "true" || s == "false" || s == "null" || (!s.empty() && !is_letter(s[0])) || Json::accept(s);
  return is_something_else ? value.dump() : word(value);
}

/// Broken behind a comma or semicolon within brackets, where the line is too long.
std::string wrapped(const std::string& text) {
  std::string out;
  std::size_t column = 0, last_break = 0;  // the position in `out` of a blank that may become a line's end
  int open = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    if (!quoted && (c == '(' || c == '[' || c == '{')) ++open;
    if (!quoted && (c == ')' || c == ']' || c == '}')) --open;
    if (!quoted && c == ' ' && open > 0 && i > 0 && (text[i - 1] == ',' || text[i - 1] == ';')) last_break = out.size();
    out += c;
    if (++column > kColumns && last_break > 0) {
      const std::string rest = out.substr(last_break + 1);
      out.resize(last_break);
      out += "\n      " + rest;
      column = 6 + rest.size();
      last_break = 0;
    }
  }
  return out + "\n";
}

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph), json_(Json::parse(to_json(graph))) {}

  std::string write() {
    const bool training = json_["training"].get<bool>();
    say("graph " + word(json_["name"]) + " (" + word(json_["stage"]) + (training ? ", training)" : ")"));
    for (const auto& [key, value] : json_["config"].items()) say("config " + word(key) + " = " + value.dump());
    for (const auto& [symbol, maximum] : json_["symbols"].items()) say("symbol " + symbol + " " + maximum.dump());
    for (const Json& m : json_["modules"])
      say("module " + word(m["path"]) + " " + word(m["class"]) + " " + m["arguments"].dump());
    if (json_.contains("checkpoints"))
      for (const Json& c : json_["checkpoints"])
        say("checkpoint " + word(c["module"]) + (c["within"] == 0 ? "" : " within " + c["within"].dump()));
    for (const Json& v : json_["inputs"]) say("input " + value(v));
    if (json_["input_tree"] != 0) say("input_tree " + json_["input_tree"].dump());
    for (const Json& v : json_["parameters"]) {
      const bool is_parameter = v["kind"] == "parameter", trainable = v["trainable"].get<bool>();
      const char* unusual = is_parameter == trainable ? "" : trainable ? " trainable" : " frozen";
      say((is_parameter ? "parameter " : "buffer ") + value(v) + unusual);
    }
    for (const Json& v : json_["states"]) say("state " + value(v));
    for (const Json& v : json_["hypers"]) say("hyper " + value(v));
    if (json_.contains("sums"))
      for (const Json& v : json_["sums"]) say("sum " + value(v));
    for (const Json& v : json_["constants"])
      say("constant " + value(v) + (v.contains("data") ? " = " + literal(v["data"]) : ""));
    nodes();
    for (const Json& v : json_["outputs"]) say("output " + word(v));
    if (json_["output_tree"] != 0) say("output_tree " + json_["output_tree"].dump());
    for (const Json& l : json_["losses"])
      say("loss " + word(l["value"]) + (l["gradient"].is_null() ? "" : " from " + word(l["gradient"])));
    for (const Json& g : json_["gradients"])
      say("gradient " + word(g["parameter"]) + " = " + word(g["value"]) +
          (g.contains("sum") ? " in " + word(g["sum"]) : ""));
    if (json_.contains("donations"))
      for (const Json& d : json_["donations"])
        say("donation " + word(d["variable"]) + " = " + word(d["value"]) +
            (d.value("behind_backward", false) ? " (behind_backward)" : ""));
    if (json_.contains("clips"))
      for (const Json& c : json_["clips"])
        say("clip " + word(c["kind"]) + " limit=" + literal(c["limit"]) + ", norm_type=" + literal(c["norm_type"]) +
            " " + names(c["parameters"]));
    for (const Json& o : json_["optimizers"]) {
      say("optimizer " + word(o["kind"]));
      for (const Json& g : o["groups"]) say("  group " + options(g["options"]) + " " + names(g["parameters"]));
      if (o["schedule"] != no_schedule()) say("  schedule " + o["schedule"].dump());
      if (o.contains("plateau")) say("  plateau " + o["plateau"].dump());
    }
    return std::move(out_);
  }

 private:
  void say(const std::string& text) { out_ += wrapped(text); }

  static std::string value(const Json& v) { return word(v["name"]) + " " + v["type"].get<std::string>(); }
  static std::string names(const Json& list) {
    std::string items;
    for (const Json& name : list) items += (items.empty() ? "" : ", ") + (name.is_null() ? "-" : word(name));
    return "(" + items + ")";
  }
  static std::string options(const Json& map) {
    std::string items;
    for (const auto& [key, value] : map.items()) items += (items.empty() ? "" : ", ") + key + "=" + literal(value);
    return items;
  }
  static std::string program(const Json& p) {
    const auto number = [](std::int64_t n) { return "%" + std::to_string(n); };
    std::int64_t next = p["inputs"].get<std::int64_t>();
    std::string text = "{";
    for (std::int64_t i = 0; i < next; ++i) text += (i > 0 ? ", " : "") + number(i);
    text += ":";
    for (const Json& step : p["steps"]) {
      std::string arguments;
      for (const Json& a : step["arguments"])
        arguments += (arguments.empty() ? "" : ", ") + number(a.get<std::int64_t>());
      if (!step["constants"].empty()) arguments += (arguments.empty() ? "" : "; ") + options(step["constants"]);
      text += (text.back() == ':' ? " " : "; ") + number(next++) + " = " + step["op"].get<std::string>() + "(" +
              arguments + ") " + step["dtype"].get<std::string>();
    }
    return text + "}";
  }

  void nodes() {
    std::string phase;
    std::size_t i = 0;
    for (const Json& n : json_["nodes"]) {
      if (n["phase"] != phase) say(phase = n["phase"].get<std::string>());
      const Node& node = graph_.nodes[i++];
      std::string results, attributes, origins;
      for (const Json& o : n["outputs"])
        results += (results.empty() ? "" : ", ") + word(o[0]) + " " + o[1].get<std::string>();
      for (const auto& [key, value] : n["attributes"].items()) {
        const AttributeSpec* const spec = node.op->find_attribute(key);
        if (spec->fallback && Attributes{{key, *spec->fallback}} == Attributes{{key, node.attributes.at(key)}})
          continue;
        attributes +=
            (attributes.empty() ? "" : ", ") + key + "=" + (value.is_object() ? program(value) : literal(value));
      }
      for (const Json& o : n["origins"]) {
        const std::string module = o[0] == "" ? "-" : word(o[0]);
        origins += (origins.empty() ? " @ " : ", ") + module;
        if (o[1] != "" || o[2] != 0) origins += " " + word(o[1]) + ":" + o[2].dump();
        if (o.size() > 3) origins += " [" + o[3].dump() + "]";
      }
      std::string arguments = names(n["inputs"]);
      arguments.pop_back();
      if (!attributes.empty()) arguments += (n["inputs"].empty() ? "" : "; ") + attributes;
      if (n["outputs"].size() != 1) results = "(" + results + ")";
      say("  " + results + " = " + std::string(node.op->name) + arguments + ")" +
          (node.recomputes ? " recomputes" : "") + origins);
    }
  }

  const Graph& graph_;
  Json json_;
  std::string out_;
};

// ---- reading ----

/// Spells the text as JSON, which from_json() then checks: this looks at the form of statements alone.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {
    json_ = {
        {"format", "graven.graph"}, {"version", kGraphFormatVersion}, {"name", ""}, {"stage", ""}, {"training", false},
        {"config", Json::object()}, {"symbols", Json::object()}};
    for (const char* section : {"modules", "checkpoints", "inputs", "parameters", "states", "hypers", "constants",
                                "nodes", "outputs", "losses", "gradients", "donations", "clips", "optimizers"})
      json_[section] = Json::array();
    json_["input_tree"] = json_["output_tree"] = 0;
  }

  Graph read(const ConstantLoader& load_constant) {
    bool begun = false;
    while (next_statement()) {
      const bool indented = at_ > 0 && text_[at_ - 1] == ' ';
      if (begun)
        indented ? part() : statement(keyword());
      else if (const std::string what = indented ? "" : keyword(); what == "graph")
        header();
      else
        fail_before(what, "'graph NAME (STAGE)' first");
      begun = true;
      end_of_statement();
    }
    if (!begun) fail("'graph NAME (STAGE)'");
    try {
      return from_json(json_.dump(), file_, load_constant);
    } catch (UserError& e) {
      for (const auto& [section, lines] : lines_) {
        const std::size_t found = e.message().find(": " + section + "[");
        if (found == std::string::npos) continue;
        std::size_t index = 0;
        const char* digits = e.message().data() + found + section.size() + 3;
        std::from_chars(digits, e.message().data() + e.message().size(), index);
        if (index < lines.size()) e.at(file_, lines[index]);
      }
      throw;
    } catch (const nlohmann::json::exception&) {
      throw UserError(file_ + ": expected text that is valid UTF-8, found other bytes");
    }
  }

 private:
  // ---- characters ----
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  std::uint32_t line() const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(at_);
    if (counted_ <= at_)
      line_ += static_cast<std::uint32_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_), end, '\n'));
    else
      line_ = 1 + static_cast<std::uint32_t>(std::count(text_.begin(), end, '\n'));
    counted_ = at_;
    return line_;
  }
  [[noreturn]] void fail(const std::string& expected) const {
    const std::string_view rest = text_.substr(at_, text_.find('\n', at_) - at_);
    const std::string found =
        rest.empty()
            ? "the end of the line"
            : Json(std::string(rest.substr(0, 40))).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    UserError error(file_ + ": expected " + expected + ", found " + found);
    error.at(file_, line());
    throw error;
  }
  /// Of what was read last.
  [[noreturn]] void fail_before(const std::string& read, const std::string& expected) {
    at_ -= read.size();
    fail(expected);
  }
  /// Past blanks and comments, and past the ends of lines where a bracket is open.
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (text_[at_] == ' ' || (open_ > 0 && text_[at_] == '\n'))
        ++at_;
      else
        return;
    }
  }
  bool accept(char c) {
    skip();
    if (peek() != c) return false;
    ++at_;
    if ((c == '(' || c == '[' || c == '{') && ++open_ > kMaximumNesting) fail("fewer brackets within brackets");
    if (c == ')' || c == ']' || c == '}') --open_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "'");
  }
  bool next_statement() {
    do skip();
    while (peek() == '\n' && ++at_);
    return at_ < text_.size();
  }
  void end_of_statement() {
    skip();
    if (at_ < text_.size() && peek() != '\n') fail("the end of the line");
  }

  // ---- words ----
  std::string keyword() {
    skip();
    const std::size_t begin = at_;
    while (is_letter(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string identifier(const char* what) {
    std::string s = keyword();
    if (s.empty()) fail(what);
    return s;
  }
  std::string quoted() {
    const std::size_t begin = at_++;
    while (at_ < text_.size() && peek() != '"' && peek() != '\n') at_ += peek() == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    const Json text = Json::parse(text_.substr(begin, at_ + 1 - begin), nullptr, false);
    if (!text.is_string()) {
      at_ = begin;
      fail("a text in quotes as JSON has it");
    }
    ++at_;
    return text.get<std::string>();
  }
  /// Characters that need no quotes; parentheses belong to them as long as they pair up.
  std::string plain(const char* what) {
    skip();
    const std::size_t begin = at_;
    for (int open = 0; is_plain(peek()) || peek() == '(' || (peek() == ')' && open > 0); ++at_)
      open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
    if (at_ == begin) fail(what);
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string name(const char* what = "a name") {
    skip();
    return peek() == '"' ? quoted() : plain(what);
  }
  /// A name, null for an absent one.
  Json reference() {
    skip();
    if (peek() == '"') return quoted();
    std::string s = plain("the name of a value, or -");
    return s == "-" ? Json() : Json(std::move(s));
  }
  std::string type() {
    skip();
    const std::size_t begin = at_;
    while (is_letter(peek())) ++at_;
    const std::size_t end = std::min(text_.find(']', at_), text_.find('\n', at_));
    if (at_ == begin || peek() != '[' || end >= text_.size() || text_[end] != ']') {
      at_ = begin;
      fail("a type such as f32[64,10]");
    }
    at_ = end + 1;
    return std::string(text_.substr(begin, at_ - begin));
  }
  /// The rest of the line.
  Json json(const char* what) {
    skip();
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    bool deep = false;  // deeper than what reads the JSON would take, and than what writes it may recurse
    const auto bound = [&](int depth, Json::parse_event_t, Json&) {
      deep |= depth > static_cast<int>(kMaximumNesting);
      return !deep;
    };
    Json value = Json::parse(text_.substr(at_, end - at_), bound, false);
    if (deep || value.is_discarded()) fail(what);
    at_ = end;
    return value;
  }
  Json literal() {
    skip();
    if (peek() == '"') return quoted();
    if (peek() == '{') return program();
    if (accept('[')) {
      Json items = Json::array();
      if (accept(']')) return items;
      do items.push_back(literal());
      while (accept(','));
      expect(']');
      return items;
    }
    const std::string s = plain("a number, a word, a text, a list or a program");
    Json value = Json::parse(s, nullptr, false);
    return value.is_discarded() ? Json(s) : value;
  }
  Json options(char end) {
    Json map = Json::object();
    skip();
    if (peek() == end) return map;
    do {
      const std::string key = identifier("the name of an option");
      expect('=');
      if (map.contains(key)) fail_before(key + "=", "each option once");
      map[key] = literal();
    } while (accept(','));
    return map;
  }
  /// What stands in an operator's parentheses: (a, b; key=value), (a, b) or (key=value).
  template <class Item>
  Json list_before_options(const Item& item) {
    Json list = Json::array();
    skip();
    const std::size_t begin = at_;
    const bool has_list = peek() != ')' && (keyword().empty() || (skip(), peek() != '='));
    at_ = begin;
    if (!has_list) return list;
    do list.push_back(item());
    while (accept(','));
    skip();
    if (peek() != ')') expect(';');
    return list;
  }
  Json names() {
    Json list = Json::array();
    expect('(');
    if (accept(')')) return list;
    do list.push_back(reference());
    while (accept(','));
    expect(')');
    return list;
  }
  std::int64_t numbered() {
    expect('%');
    const std::string digits = identifier("a number behind %");
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    if (error != std::errc() || end != digits.data() + digits.size()) fail_before(digits, "a number behind %");
    return n;
  }
  Json program() {
    expect('{');
    std::int64_t next = 0;
    const auto count = [&] {
      if (numbered() != next) fail("%" + std::to_string(next) + " in its turn");
      ++next;
    };
    while (!accept(':')) {
      if (next > 0) expect(',');
      count();
    }
    Json steps = Json::array();
    const std::int64_t inputs = next;
    while (!accept('}')) {
      if (!steps.empty()) expect(';');
      count();
      expect('=');
      Json step = {{"op", identifier("an operator")}};
      expect('(');
      step["arguments"] = list_before_options([&] { return Json(numbered()); });
      step["constants"] = options(')');
      expect(')');
      step["dtype"] = identifier("a dtype");
      steps.push_back(step);
    }
    return {{"inputs", inputs}, {"steps", steps}};
  }

  // ---- statements ----
  void add(const std::string& section, Json item) {
    lines_[section].push_back(line());
    json_[section].push_back(std::move(item));
  }
  void header() {
    json_["name"] = name();
    expect('(');
    json_["stage"] = name("the last pass that ran, or trace");
    if (accept(',')) {
      if (keyword() != "training") fail("'training'");
      json_["training"] = true;
    }
    expect(')');
  }
  /// One that begins at the margin.
  void statement(const std::string& what) {
    in_optimizer_ = what == "optimizer";
    if (what == "prepare" || what == "forward" || what == "backward" || what == "update") {
      phase_ = what;
    } else if (what == "config") {
      const std::string key = name("a key");
      expect('=');
      if (json_["config"].contains(key)) fail("each key once");
      json_["config"][key] = json("an object of a type and a value");
    } else if (what == "symbol") {
      const std::string symbol = name("a symbol");
      if (json_["symbols"].contains(symbol)) fail("each symbol once");
      json_["symbols"][symbol] = literal();
    } else if (what == "module") {
      Json module = {{"path", name()}};
      module["class"] = name("a class");
      module["arguments"] = name("the arguments, in quotes");
      add("modules", module);
    } else if (what == "checkpoint") {
      Json checkpoint = {{"module", name()}, {"within", 0}};
      if (const std::string next = keyword(); next == "within")
        checkpoint["within"] = literal();
      else if (!next.empty())
        fail_before(next, "'within', or the end of the line");
      add("checkpoints", checkpoint);
    } else if (what == "input" || what == "state" || what == "hyper" || what == "sum") {
      Json value = {{"name", name()}};
      value["type"] = type();
      if (what == "sum" && !json_.contains("sums")) json_["sums"] = Json::array();
      add(what + "s", value);
    } else if (what == "parameter" || what == "buffer") {
      Json value = {{"name", name()}};
      value["type"] = type();
      value["kind"] = what;
      const std::string unusual = keyword();
      if (unusual != "" && unusual != (what == "parameter" ? "frozen" : "trainable"))
        fail_before(unusual, "the end of the line");
      value["trainable"] = (what == "parameter") == unusual.empty();
      add("parameters", value);
    } else if (what == "constant") {
      Json value = {{"name", name()}};
      value["type"] = type();
      if (accept('=')) value["data"] = literal();
      add("constants", value);
    } else if (what == "input_tree" || what == "output_tree") {
      json_[what] = json("the index of a leaf, or a tree as JSON");
    } else if (what == "output") {
      add("outputs", reference());
    } else if (what == "loss") {
      Json loss = {{"value", reference()}};
      const bool seeded = keyword() == "from";
      loss["gradient"] = seeded ? reference() : Json();
      add("losses", loss);
    } else if (what == "gradient") {
      Json gradient = {{"parameter", reference()}};
      expect('=');
      gradient["value"] = reference();
      if (keyword() == "in") gradient["sum"] = reference();
      add("gradients", gradient);
    } else if (what == "donation") {
      Json donation = {{"variable", reference()}};
      expect('=');
      donation["value"] = reference();
      if (accept('(')) {
        if (keyword() != "behind_backward") fail("'behind_backward'");
        donation["behind_backward"] = true;
        expect(')');
      }
      add("donations", donation);
    } else if (what == "clip") {
      Json clip = {{"kind", identifier("norm or value")}};
      clip.update(options('('));
      clip["parameters"] = names();
      add("clips", clip);
    } else if (what == "optimizer") {
      Json optimizer = {{"kind", name("a kind")}};
      optimizer["groups"] = Json::array();
      optimizer["schedule"] = no_schedule();
      add("optimizers", optimizer);
    } else {
      fail_before(
          what,
          "a statement: graph, config, symbol, module, checkpoint, input, parameter, buffer, state, hyper, sum, "
          "constant, a phase, output, loss, gradient, donation, clip or optimizer; nodes are indented");
    }
  }
  /// An indented one: a part of an optimizer, or a node.
  void part() {
    if (in_optimizer_) {
      Json& optimizer = json_["optimizers"].back();
      const std::string what = keyword();
      if (what == "group") {
        Json group = {{"options", options('(')}};
        group["parameters"] = names();
        optimizer["groups"].push_back(group);
      } else if (what == "schedule") {
        optimizer["schedule"] = json("a schedule as JSON");
      } else if (what == "plateau") {
        optimizer["plateau"] = json("the options of a plateau as JSON");
      } else {
        fail_before(what, "group, schedule or plateau");
      }
      return;
    }
    if (phase_.empty()) fail("a phase before its nodes: prepare, forward, backward or update");
    const std::uint32_t first_line = line();
    Json results = Json::array();
    const bool has_list = accept('(');  // of several results, or none
    if (!has_list || !accept(')')) {
      do {
        Json result = Json::array({name()});
        result.push_back(type());
        results.push_back(result);
      } while (has_list && accept(','));
      if (has_list) expect(')');
    }
    Json node = {{"outputs", results}};
    expect('=');
    node["op"] = identifier("an operator");
    expect('(');
    node["inputs"] = list_before_options([&] { return reference(); });
    node["attributes"] = options(')');
    expect(')');
    node["phase"] = phase_;
    if (const std::string what = keyword(); what == "recomputes")
      node["recomputes"] = true;
    else if (!what.empty())
      fail_before(what, "'recomputes', '@' or the end of the line");
    Json origins = Json::array();
    if (accept('@')) {
      do {
        const Json module = reference();
        Json origin = Json::array({module.is_null() ? Json("") : module, "", 0});
        skip();
        if (peek() == '"' || is_plain(peek())) {
          origin[1] = name("a file");
          expect(':');
          origin[2] = literal();
        }
        if (accept('[')) {
          origin.push_back(literal());
          expect(']');
        }
        origins.push_back(origin);
      } while (accept(','));
    }
    node["origins"] = origins;
    add("nodes", node);
    lines_["nodes"].back() = first_line;
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  mutable std::size_t counted_ = 0;  // up to here, which stands in line_
  mutable std::uint32_t line_ = 1;
  std::size_t open_ = 0;  // brackets
  bool in_optimizer_ = false;
  std::string phase_;
  Json json_;
  std::map<std::string, std::vector<std::uint32_t>> lines_;  // where the items of a section stand
};

}  // namespace

std::string to_text(const Graph& graph) { return Writer(graph).write(); }

Graph from_text(std::string_view text, const std::string& file, const ConstantLoader& load_constant) {
  return Reader(text, file).read(load_constant);
}

}  // namespace graven::ir
