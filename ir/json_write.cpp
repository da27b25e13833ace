#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/op.h"
#include "ir/verify.h"

namespace graven::ir {

namespace {

/// Appends JSON; everything that stands on one line.
class Line {
 public:
  explicit Line(std::string& out) : out_(out) {}

  void raw(std::string_view text) { out_ += text; }
  void text(std::string_view s) {
    const bool plain =
        std::all_of(s.begin(), s.end(), [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
    if (plain) {
      out_ += '"';
      out_ += s;
      out_ += '"';
    } else {
      try {
        out_ += nlohmann::json(std::string(s)).dump();
      } catch (const nlohmann::json::exception&) {
        throw UserError("a text of the graph is not valid UTF-8")
            .note("it begins " + nlohmann::json(std::string(s.substr(0, 40)))
                                     .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
      }
    }
  }
  void integer(std::int64_t v) {
    char buffer[24];
    const auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
    out_.append(buffer, r.ptr);
  }
  /// An f32 is written by its own shortest text, as long as the reader's way through a double gives its bits back.
  void number(float v) {
    char buffer[40];
    double back = 0;
    const auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
    if (std::isfinite(v) && v != 0) std::from_chars(buffer, r.ptr, back);
    if (back != 0 && static_cast<float>(back) == v)
      raw({buffer, static_cast<std::size_t>(r.ptr - buffer)});
    else
      number(static_cast<double>(v));
  }
  void number(double v) {
    if (std::isnan(v)) return raw("\"nan\"");
    if (std::isinf(v)) return raw(v > 0 ? "\"inf\"" : "\"-inf\"");
    if (v == 0 && std::signbit(v)) return raw("-0.0");  // "-0" would be read as an integer
    char buffer[40];
    const auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
    const std::string_view s(buffer, static_cast<std::size_t>(r.ptr - buffer));
    // A whole number beyond 2^63 must not look like an integer.
    out_ += s;
    if (std::abs(v) >= 9e15 && s.find_first_of(".e") == std::string_view::npos) out_ += ".0";
  }
  void boolean(bool v) { raw(v ? "true" : "false"); }
  /// `"key": `, preceded by ", " unless it is the first.
  void key(std::string_view k, bool first = false) {
    if (!first) out_ += ", ";
    text(k);
    out_ += ": ";
  }
  template <class List, class Write>
  void list(const List& items, Write write) {
    out_ += '[';
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ", ";
      first = false;
      write(item);
    }
    out_ += ']';
  }
  template <class Map, class Write>
  void map(const Map& items, Write write) {
    out_ += '{';
    bool first = true;
    for (const auto& [k, v] : items) {
      key(k, first);
      first = false;
      write(v);
    }
    out_ += '}';
  }

 private:
  std::string& out_;
};

class Writer {
 public:
  Writer(const Graph& graph, std::string_view saved) : graph_(graph), saved_(saved), line_(out_) {}

  std::string write() {
    out_.reserve(1024 + 320 * graph_.nodes.size());
    out_ += "{\n";
    begin("format");
    line_.text("graven.graph");
    begin("version");
    line_.integer(kGraphFormatVersion);
    if (!saved_.empty()) {
      begin("saved");
      line_.text(saved_);
    }
    begin("name");
    line_.text(graph_.name);
    begin("stage");
    line_.text(graph_.stage);
    begin("training");
    line_.boolean(graph_.training);
    begin("config");
    line_.map(graph_.config, [&](const Attribute& a) { tagged(a); });
    begin("symbols");
    std::map<std::string, Symbol> symbols;
    for (const Symbol& s : all_symbols(graph_)) symbols.emplace(s.name, s);
    line_.map(symbols, [&](const Symbol& s) {
      if (s.least == 1)
        line_.integer(s.most);
      else
        line_.list(std::vector{s.least, s.most}, [&](std::int64_t bound) { line_.integer(bound); });
    });

    section("modules", graph_.modules, [&](const ModuleInfo& m) {
      line_.raw("{");
      line_.key("path", true);
      line_.text(m.path);
      line_.key("class");
      line_.text(m.class_name);
      line_.key("arguments");
      line_.text(m.arguments);
      line_.raw("}");
    });
    if (!graph_.checkpoints.empty())
      section("checkpoints", graph_.checkpoints, [&](const Checkpoint& c) {
        line_.raw("{");
        line_.key("module", true);
        line_.text(c.module);
        line_.key("within");
        line_.integer(c.within);
        line_.raw("}");
      });
    section("inputs", graph_.inputs, [&](ValueId v) { value(v); });
    begin("input_tree");
    tree(graph_.input_tree);
    section("parameters", graph_.parameters, [&](ValueId v) { value(v); });
    section("states", graph_.states, [&](ValueId v) { value(v); });
    std::vector<ValueId> hypers, sums, constants;
    for (std::size_t i = 0; i < graph_.values.size(); ++i) {
      if (graph_.values[i].kind == ValueKind::sum) sums.push_back(static_cast<ValueId>(i));
      if (graph_.values[i].kind == ValueKind::hyper) hypers.push_back(static_cast<ValueId>(i));
      if (graph_.values[i].kind == ValueKind::constant) constants.push_back(static_cast<ValueId>(i));
    }
    section("hypers", hypers, [&](ValueId v) { value(v); });
    if (!sums.empty()) section("sums", sums, [&](ValueId v) { value(v); });
    section("constants", constants, [&](ValueId v) { constant(v); });
    section("nodes", graph_.nodes, [&](const Node& n) { node(n); });
    begin("outputs");
    names(graph_.outputs);
    begin("output_tree");
    tree(graph_.output_tree);
    section("losses", graph_.losses, [&](const Loss& l) {
      line_.raw("{");
      line_.key("value", true);
      reference(l.value);
      line_.key("gradient");
      reference(l.gradient);
      line_.raw("}");
    });
    section("gradients", graph_.gradients, [&](const Gradient& g) {
      line_.raw("{");
      line_.key("parameter", true);
      reference(g.parameter);
      line_.key("value");
      reference(g.value);
      if (g.sum != kNone) {
        line_.key("sum");
        line_.text(graph_.value(g.sum).name);
      }
      line_.raw("}");
    });
    if (!graph_.donations.empty())
      section("donations", graph_.donations, [&](const Donation& d) {
        line_.raw("{");
        line_.key("variable", true);
        reference(d.variable);
        line_.key("value");
        reference(d.value);
        if (d.behind_backward) {
          line_.key("behind_backward");
          line_.raw("true");
        }
        line_.raw("}");
      });
    if (!graph_.clips.empty())
      section("clips", graph_.clips, [&](const Clip& c) {
        line_.raw("{");
        line_.key("kind", true);
        line_.text(c.kind == Clip::Kind::norm ? "norm" : "value");
        line_.key("limit");
        line_.number(c.limit);
        line_.key("norm_type");
        line_.number(c.norm_type);
        line_.key("parameters");
        names(c.parameters);
        line_.raw("}");
      });
    section("optimizers", graph_.optimizers, [&](const Optimizer& o) { optimizer(o); });
    out_ += "\n}\n";
    return std::move(out_);
  }

 private:
  void begin(std::string_view key) {
    if (out_.size() > 2) out_ += ",\n";
    line_.key(key, true);
  }
  /// A list with one item a line.
  template <class List, class Write>
  void section(std::string_view key, const List& items, Write write) {
    begin(key);
    out_ += '[';
    bool first = true;
    for (const auto& item : items) {
      out_ += first ? "\n" : ",\n";
      first = false;
      write(item);
    }
    out_ += first ? "]" : "\n]";
  }

  void reference(ValueId v) {
    if (v == kNone)
      line_.raw("null");
    else
      line_.text(graph_.value(v).name);
  }
  void names(const std::vector<ValueId>& list) {
    line_.list(list, [&](ValueId v) { reference(v); });
  }
  void type(const TensorType& t) { line_.text(t.to_string()); }
  void value(ValueId id) {
    const Value& v = graph_.value(id);
    line_.raw("{");
    line_.key("name", true);
    line_.text(v.name);
    line_.key("type");
    type(v.type);
    if (v.kind == ValueKind::parameter || v.kind == ValueKind::buffer) {
      line_.key("kind");
      line_.text(v.kind == ValueKind::parameter ? "parameter" : "buffer");
      line_.key("trainable");
      line_.boolean(v.trainable);
    }
    line_.raw("}");
  }
  void constant(ValueId id) {
    const Value& v = graph_.value(id);
    line_.raw("{");
    line_.key("name", true);
    line_.text(v.name);
    line_.key("type");
    type(v.type);
    const auto found = graph_.constants.find(id);
    GRAVEN_CHECK(found != graph_.constants.end(), "the constant '" + v.name + "' has no data");
    if (found->second->bytes.size() <= kInlineConstantBytes) {
      line_.key("data");
      data(*found->second);
    }
    line_.raw("}");
  }
  template <class T, class Write>
  void elements(const TensorData& d, Write write) {
    line_.raw("[");
    for (std::size_t i = 0; i + sizeof(T) <= d.bytes.size(); i += sizeof(T)) {
      T x;
      std::memcpy(&x, d.bytes.data() + i, sizeof x);
      if (i) line_.raw(", ");
      write(x);
    }
    line_.raw("]");
  }
  void data(const TensorData& d) {
    const auto integer = [&](auto x) { line_.integer(x); };
    switch (d.type.dtype) {
      case DType::f32:
        return elements<float>(d, [&](float x) { line_.number(x); });
      case DType::f64:
        return elements<double>(d, [&](double x) { line_.number(x); });
      case DType::f16:
      case DType::bf16:
        return elements<std::uint16_t>(d, integer);  // bit patterns
      case DType::i8:
        return elements<std::int8_t>(d, integer);
      case DType::i32:
        return elements<std::int32_t>(d, integer);
      case DType::i64:
        return elements<std::int64_t>(d, integer);
      case DType::u8:
        return elements<std::uint8_t>(d, integer);
      case DType::boolean:
        return elements<std::uint8_t>(d, [&](std::uint8_t x) { line_.boolean(x != 0); });
    }
  }

  void shape(const Shape& s) {
    line_.list(s, [&](const Dim& d) {
      if (d.is_static())
        line_.integer(d.value());
      else
        line_.text(d.to_string());
    });
  }
  void attribute(const Attribute& a) {
    switch (type_of(a)) {
      case AttributeType::boolean:
        return line_.boolean(std::get<bool>(a));
      case AttributeType::integer:
        return line_.integer(std::get<std::int64_t>(a));
      case AttributeType::number:
        return line_.number(std::get<double>(a));
      case AttributeType::text:
        return line_.text(std::get<std::string>(a));
      case AttributeType::integers:
        return line_.list(std::get<Ints>(a), [&](std::int64_t i) { line_.integer(i); });
      case AttributeType::dtype:
        return line_.text(ir::name(std::get<DType>(a)));
      case AttributeType::shape:
        return shape(std::get<Shape>(a));
      case AttributeType::program:
        return program(std::get<ScalarProgram>(a));
    }
  }
  /// Where no declaration says the type, its name stands beside the value.
  void tagged(const Attribute& a) {
    line_.raw("{");
    line_.key(ir::name(type_of(a)), true);
    attribute(a);
    line_.raw("}");
  }
  void program(const ScalarProgram& p) {
    line_.raw("{");
    line_.key("inputs", true);
    line_.integer(p.inputs);
    line_.key("steps");
    line_.list(p.steps, [&](const ScalarProgram::Step& s) {
      line_.raw("{");
      line_.key("op", true);
      line_.text(s.op);
      line_.key("arguments");
      line_.list(s.arguments, [&](std::int32_t a) { line_.integer(a); });
      line_.key("constants");
      line_.map(s.constants, [&](double c) { line_.number(c); });
      line_.key("dtype");
      line_.text(ir::name(s.dtype));
      line_.raw("}");
    });
    line_.raw("}");
  }

  void node(const Node& n) {
    line_.raw("{");
    line_.key("outputs", true);
    line_.list(n.outputs, [&](ValueId v) {
      line_.raw("[");
      line_.text(graph_.value(v).name);
      line_.raw(", ");
      type(graph_.type(v));
      line_.raw("]");
    });
    line_.key("op");
    line_.text(n.op->name);
    line_.key("inputs");
    names(n.inputs);
    line_.key("attributes");
    line_.map(n.attributes, [&](const Attribute& a) { attribute(a); });
    line_.key("phase");
    line_.text(ir::name(n.phase));
    line_.key("origins");
    line_.list(n.origins, [&](const Origin& o) {
      line_.raw("[");
      line_.text(o.module);
      line_.raw(", ");
      line_.text(o.file);
      line_.raw(", ");
      line_.integer(o.line);
      if (o.checkpoint != 0) {
        line_.raw(", ");
        line_.integer(o.checkpoint);
      }
      line_.raw("]");
    });
    if (n.recomputes) {
      line_.key("recomputes");
      line_.boolean(true);
    }
    line_.raw("}");
  }

  void tree(const Tree& t) {
    switch (t.kind) {
      case Tree::Kind::leaf:
        return line_.integer(t.index);
      case Tree::Kind::none:
        return line_.raw("null");
      case Tree::Kind::tuple:
      case Tree::Kind::list:
        line_.raw("{");
        line_.key(t.kind == Tree::Kind::tuple ? "tuple" : "list", true);
        line_.list(t.children, [&](const Tree& c) { tree(c); });
        return line_.raw("}");
      case Tree::Kind::map:
        line_.raw("{");
        line_.key("map", true);
        line_.raw("{");
        for (std::size_t i = 0; i < t.children.size(); ++i) {
          line_.key(t.keys[i], i == 0);
          tree(t.children[i]);
        }
        return line_.raw("}}");
    }
  }

  void options(const std::map<std::string, double>& m) {
    line_.map(m, [&](double v) { line_.number(v); });
  }
  void optimizer(const Optimizer& o) {
    line_.raw("{");
    line_.key("kind", true);
    line_.text(o.kind);
    line_.key("groups");
    line_.list(o.groups, [&](const ParameterGroup& g) {
      line_.raw("\n{");
      line_.key("options", true);
      options(g.options);
      line_.key("parameters");
      names(g.parameters);
      line_.raw("}");
    });
    line_.key("schedule");
    schedule(o.schedule);
    if (!o.plateau.empty()) {
      line_.key("plateau");
      options(o.plateau);
    }
    line_.raw("}");
  }
  void schedule(const Schedule& s) {
    line_.raw("{");
    line_.key("kind", true);
    line_.text(s.kind);
    line_.key("options");
    options(s.options);
    line_.key("milestones");
    line_.list(s.milestones, [&](double m) { line_.number(m); });
    if (!s.factors.empty()) {
      line_.key("factors");
      line_.list(s.factors, [&](double f) { line_.number(f); });
    }
    if (!s.parts.empty()) {
      line_.key("parts");
      line_.list(s.parts, [&](const Schedule& part) { schedule(part); });
    }
    line_.raw("}");
  }

  const Graph& graph_;
  std::string_view saved_;
  std::string out_;
  Line line_;
};

}  // namespace

std::string to_json(const Graph& graph, std::string_view saved) { return Writer(graph, saved).write(); }

bool has_large_constants(const Graph& graph) {
  return std::any_of(graph.constants.begin(), graph.constants.end(),
                     [](const auto& c) { return c.second->bytes.size() > kInlineConstantBytes; });
}

}  // namespace graven::ir
