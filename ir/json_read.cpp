#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/json_document.h"
#include "ir/ops.h"
#include "ir/optimizer_kind.h"
#include "ir/schedule.h"
#include "ir/verify.h"

namespace graven::ir {

namespace {

using json::Item;
using json::Kind;

class Reader {
  /// Where the reader is: "nodes[3].inputs[0]". Lives on the stack; spelled out only when something is wrong.
  struct Place {
    const Place* parent = nullptr;
    std::string_view key = {};
    std::ptrdiff_t index = -1;

    Place at(std::string_view k) const { return {this, k, -1}; }
    Place at(std::size_t i) const { return {this, {}, static_cast<std::ptrdiff_t>(i)}; }
    std::string to_string() const {
      std::string s = parent ? parent->to_string() : std::string();
      if (index >= 0) return s + "[" + std::to_string(index) + "]";
      if (key.empty()) return s;
      if (!s.empty()) s += '.';
      for (char c : key.substr(0, 100))  // keys are the file's: a terminal must survive them
        s += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
      return s;
    }
  };

 public:
  Reader(std::string_view text, const std::string& file, const ConstantLoader& load_constant)
      : file_(file), load_constant_(load_constant), document_(text, file, kMaximumNesting) {}

  Graph read(std::string* saved_with) {
    const Place top;
    Item format = document_.root(), version = format, saved = format, name = format, stage = format, training = format,
         config = format, symbols = format, modules = format, inputs = format, input_tree = format, parameters = format,
         states = format, hypers = format, constants = format, nodes = format, outputs = format, output_tree = format,
         losses = format, sums = format, gradients = format, donations = format, clips = format, optimizers = format;
    // The version decides what else may stand here, so it is looked at first.
    expect(document_.root(), Kind::object, top);
    check_version(document_.root(), top);
    Item checkpoints = format;
    bool has_saved = false, has_checkpoints = false, has_sums = false, has_donations = false, has_clips = false;
    fields(document_.root(), top,
           {{"format", &format},
            {"version", &version},
            {"saved", &saved, &has_saved},
            {"name", &name},
            {"stage", &stage},
            {"training", &training},
            {"config", &config},
            {"symbols", &symbols},
            {"modules", &modules},
            {"checkpoints", &checkpoints, &has_checkpoints},
            {"inputs", &inputs},
            {"input_tree", &input_tree},
            {"parameters", &parameters},
            {"states", &states},
            {"hypers", &hypers},
            {"constants", &constants},
            {"nodes", &nodes},
            {"outputs", &outputs},
            {"output_tree", &output_tree},
            {"losses", &losses},
            {"gradients", &gradients},
            {"sums", &sums, &has_sums},
            {"donations", &donations, &has_donations},
            {"clips", &clips, &has_clips},
            {"optimizers", &optimizers}});
    if (has_saved) {
      std::string digest = label(saved, top.at("saved"));
      if (saved_with) *saved_with = std::move(digest);
    }
    graph_.name = label(name, top.at("name"));
    graph_.stage = label(stage, top.at("stage"));
    graph_.training = boolean(training, top.at("training"));
    read_symbols(symbols, top.at("symbols"));
    read_config(config, top.at("config"));
    each(modules, top.at("modules"), [&](Item item, const Place& place) { read_module(item, place); });
    if (has_checkpoints)
      each(checkpoints, top.at("checkpoints"), [&](Item item, const Place& place) {
        Item module = item, within = item;
        fields(item, place, {{"module", &module}, {"within", &within}});
        std::string path = label(module, place.at("module"));
        graph_.checkpoints.push_back({std::move(path), checkpoint(within, place.at("within"))});
      });
    each(inputs, top.at("inputs"), [&](Item item, const Place& place) { read_plain(item, place, ValueKind::input); });
    each(parameters, top.at("parameters"), [&](Item item, const Place& place) { read_parameter(item, place); });
    each(states, top.at("states"), [&](Item item, const Place& place) { read_plain(item, place, ValueKind::state); });
    each(hypers, top.at("hypers"), [&](Item item, const Place& place) { read_plain(item, place, ValueKind::hyper); });
    if (has_sums)
      each(sums, top.at("sums"), [&](Item item, const Place& place) { read_plain(item, place, ValueKind::sum); });
    each(constants, top.at("constants"), [&](Item item, const Place& place) { read_constant(item, place); });
    expect(nodes, Kind::array, top.at("nodes"));
    nodes_ = nodes;
    graph_.nodes.reserve(nodes.size());
    each(nodes, top.at("nodes"), [&](Item item, const Place& place) { read_node(item, place); });
    each(outputs, top.at("outputs"),
         [&](Item item, const Place& place) { graph_.outputs.push_back(reference(item, place)); });
    graph_.input_tree = tree(input_tree, top.at("input_tree"), graph_.inputs.size());
    graph_.output_tree = tree(output_tree, top.at("output_tree"), graph_.outputs.size());
    each(losses, top.at("losses"), [&](Item item, const Place& place) { read_loss(item, place); });
    each(gradients, top.at("gradients"), [&](Item item, const Place& place) {
      Item parameter = item, value = item, sum = item;
      bool has_sum = false;
      fields(item, place, {{"parameter", &parameter}, {"value", &value}, {"sum", &sum, &has_sum}});
      graph_.gradients.push_back({reference(parameter, place.at("parameter")), reference(value, place.at("value")),
                                  has_sum ? reference(sum, place.at("sum")) : kNone});
    });
    if (has_donations)
      each(donations, top.at("donations"), [&](Item item, const Place& place) {
        Item variable = item, value = item, behind = item;
        bool says_behind = false;
        fields(item, place, {{"variable", &variable}, {"value", &value}, {"behind_backward", &behind, &says_behind}});
        graph_.donations.push_back({reference(variable, place.at("variable")), reference(value, place.at("value")),
                                    says_behind && boolean(behind, place.at("behind_backward"))});
      });
    if (has_clips) each(clips, top.at("clips"), [&](Item item, const Place& place) { read_clip(item, place); });
    each(optimizers, top.at("optimizers"), [&](Item item, const Place& place) { read_optimizer(item, place); });
    if (const auto violation = find_violation(graph_, {.infer = false})) throw UserError(file_ + ": " + *violation);
    return std::move(graph_);
  }

 private:
  // ---- errors ----
  [[noreturn]] void fail(const Place& place, const std::string& expected, const std::string& found) const {
    const std::string where = place.to_string();
    throw UserError(file_ + ": " + (where.empty() ? "" : where + ": ") + "expected " + expected + ", found " + found);
  }
  void expect(Item item, Kind kind, const Place& place) const {
    if (item.kind() != kind) fail(place, std::string(json::describe(kind)), item.quote());
  }

  /// What `f` gives; where that is a user error, it is this place's.
  template <class F>
  decltype(auto) located(const Place& place, F&& f) const {
    try {
      return f();
    } catch (const UserError& e) {
      UserError here(file_ + ": " + place.to_string() + ": " + e.message());
      for (const std::string& note : e.notes()) here.note(note);
      throw here;
    }
  }

  // ---- building blocks ----
  struct Field {
    std::string_view name;
    Item* item;
    bool* found = nullptr;  ///< of a key that may be left out: whether it is there
  };
  /// An object with exactly these keys.
  void fields(Item object, const Place& place, std::initializer_list<Field> wanted) const {
    expect(object, Kind::object, place);
    std::uint64_t seen = 0;
    for (auto it = object.begin(); it != object.end(); ++it) {
      const Item key = *it;
      ++it;
      std::size_t i = 0;
      for (const Field& f : wanted) {
        if (f.name == key.text()) break;
        ++i;
      }
      if (i == wanted.size()) {
        std::string names;
        for (const Field& f : wanted) names += (names.empty() ? "" : ", ") + std::string(f.name);
        fail(place, "the keys " + names, "the key " + key.quote().substr(std::strlen("the string ")));
      }
      if (seen >> i & 1) fail(place, "each key once", "the key '" + std::string(key.text()) + "' twice");
      seen |= std::uint64_t{1} << i;
      *wanted.begin()[i].item = *it;
    }
    std::size_t i = 0;
    for (const Field& f : wanted) {
      const bool found = seen >> i++ & 1;
      if (f.found)
        *f.found = found;
      else if (!found)
        fail(place, "the key '" + std::string(f.name) + "'", "none");
    }
  }
  template <class Read>
  void each(Item array, const Place& place, Read read) const {
    expect(array, Kind::array, place);
    std::size_t i = 0;
    for (Item item : array) read(item, place.at(i++));
  }
  template <class Read>
  void each_pair(Item object, const Place& place, Read read) const {
    expect(object, Kind::object, place);
    for (auto it = object.begin(); it != object.end(); ++it) {
      const Item key = *it;
      ++it;
      read(label(key.text(), key, place), *it, place.at(key.text()));
    }
  }
  bool boolean(Item item, const Place& place) const {
    expect(item, Kind::boolean, place);
    return item.boolean();
  }
  std::int64_t integer(Item item, const Place& place, std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) const {
    expect(item, Kind::integer, place);
    if (item.integer() < low || item.integer() > high)
      fail(place, "an integer from " + std::to_string(low) + " to " + std::to_string(high), item.quote());
    return item.integer();
  }
  double number(Item item, const Place& place) const {
    if (item.kind() == Kind::integer || item.kind() == Kind::number) return item.number();
    if (item.kind() == Kind::text) {
      if (item.text() == "inf") return std::numeric_limits<double>::infinity();
      if (item.text() == "-inf") return -std::numeric_limits<double>::infinity();
      if (item.text() == "nan") return std::numeric_limits<double>::quiet_NaN();
    }
    fail(place, "a number, or \"inf\", \"-inf\" or \"nan\"", item.quote());
  }
  /// Text that may stand in generated comments and messages: of bounded length, without control characters.
  std::string label(Item item, const Place& place) const {
    expect(item, Kind::text, place);
    return label(item.text(), item, place);
  }
  std::string label(std::string_view s, Item item, const Place& place) const {
    if (s.size() > kMaximumNameLength)
      fail(place, "a text of at most " + std::to_string(kMaximumNameLength) + " bytes",
           std::to_string(s.size()) + " bytes");
    if (std::any_of(s.begin(), s.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
      fail(place, "a text without control characters", item.quote());
    return std::string(s);
  }
  DType dtype(Item item, const Place& place) const {
    expect(item, Kind::text, place);
    return dtype(item.text(), place, item);
  }
  DType dtype(std::string_view text, const Place& place, Item item) const {
    if (const auto d = dtype_from_name(text)) return *d;
    std::string known;
    for (DType d : kAllDTypes) known += (known.empty() ? "" : ", ") + std::string(ir::name(d));
    fail(place, "a dtype (" + known + ")", item.quote());
  }
  /// "64", "batch" or "784*batch+1".
  Dim dim(std::string_view text, const Place& place, Item item) const {
    bool unknown = false, too_large = false;
    const auto dim = parse_dim(
        text,
        [&](std::string_view name) -> std::optional<Symbol> {
          const auto found = symbols_.find(name);
          if (found != symbols_.end()) return found->second;
          unknown |= is_symbol_name(name);
          return std::nullopt;
        },
        &too_large);
    if (unknown) fail(place, "dimensions that are integers or symbols with a maximum under \"symbols\"", item.quote());
    too_large |= dim && !dim->is_static() && dim->maximum() == std::numeric_limits<std::int64_t>::max();
    if (too_large) fail(place, "a dimension of at most 63 bits", item.quote());
    if (!dim) fail(place, "a dimension such as 64, batch or 784*batch", item.quote());
    if (dim->minimum() < 0) fail(place, "a dimension that is never negative", item.quote());
    return *dim;
  }
  void check_rank(std::size_t rank, const Place& place) const {
    if (rank > kMaximumRank)
      fail(place, "a rank of at most " + std::to_string(kMaximumRank), "rank " + std::to_string(rank));
  }
  /// "f32[64,784*batch]"
  TensorType type(Item item, const Place& place) const {
    expect(item, Kind::text, place);
    const std::string_view s = item.text();
    const std::size_t open = s.find('[');
    if (open == std::string_view::npos || s.back() != ']') fail(place, "a type such as \"f32[64,10]\"", item.quote());
    TensorType t;
    t.dtype = dtype(s.substr(0, open), place, item);
    std::string_view rest = s.substr(open + 1, s.size() - open - 2);
    if (rest.empty()) return t;
    check_rank(1 + static_cast<std::size_t>(std::count(rest.begin(), rest.end(), ',')), place);
    while (true) {
      const std::size_t comma = rest.find(',');
      t.shape.push_back(dim(rest.substr(0, comma), place, item));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    check_size(t, place);
    return t;
  }
  void check_size(const TensorType& t, const Place& place) const {
    std::int64_t bytes = static_cast<std::int64_t>(size_of(t.dtype));
    bool overflow = false, zero = false;
    for (const Dim& d : t.shape) {
      overflow |= __builtin_mul_overflow(bytes, std::max<std::int64_t>(d.maximum(), 1), &bytes);
      zero |= d.maximum() == 0;
    }
    if (overflow && !zero) fail(place, "a tensor of at most 2^63 - 1 bytes", t.to_string());
  }
  Shape shape(Item item, const Place& place) const {
    expect(item, Kind::array, place);
    check_rank(item.size(), place);
    Shape s;
    each(item, place, [&](Item d, const Place& at) {
      if (d.kind() == Kind::integer)
        s.push_back(Dim(integer(d, at, 0)));
      else if (d.kind() == Kind::text)
        s.push_back(dim(d.text(), at, d));
      else
        fail(at, "a dimension", d.quote());
    });
    return s;
  }
  /// The name of a value that stands earlier in the file; null where `optional`.
  ValueId reference(Item item, const Place& place, bool optional = false) const {
    if (optional && item.kind() == Kind::null) return kNone;
    expect(item, Kind::text, place);
    const ValueId v = graph_.find(item.text());
    if (v != kNone) return v;
    fail(place, "the name of a value that stands before", item.quote() + describe_undefined(item.text()));
  }
  std::string describe_undefined(std::string_view wanted) const {
    // Told apart for the message only: a name that a later node makes, and a name that nothing makes.
    if (nodes_.kind() != Kind::array) return ", which nothing makes";
    std::unordered_map<std::string_view, std::size_t> makers;
    std::vector<std::vector<std::string_view>> reads;
    std::size_t n = 0;
    for (Item node : nodes_) {
      if (node.kind() != Kind::object) return ", which nothing makes";
      reads.emplace_back();
      for (auto it = node.begin(); it != node.end(); ++it) {
        const Item key = *it;
        ++it;
        if ((*it).kind() != Kind::array) continue;
        for (Item item : *it) {
          if (key.text() == "inputs" && item.kind() == Kind::text) reads.back().push_back(item.text());
          if (key.text() == "outputs" && item.kind() == Kind::array && item.size() > 0 &&
              (*item.begin()).kind() == Kind::text)
            makers.emplace((*item.begin()).text(), n);
        }
      }
      ++n;
    }
    const auto maker = makers.find(wanted);
    if (maker == makers.end()) return ", which nothing makes";
    const std::size_t reader = graph_.nodes.size();  // the node being read
    std::vector<bool> visited(n, false);
    std::vector<std::size_t> stack{maker->second};
    while (!stack.empty()) {
      const std::size_t at = stack.back();
      stack.pop_back();
      if (at == reader) return ", which depends on this node: a cycle";
      if (visited[at]) continue;
      visited[at] = true;
      for (std::string_view name : reads[at])
        if (const auto m = makers.find(name); m != makers.end()) stack.push_back(m->second);
    }
    return ", which only node " + std::to_string(maker->second) + " makes: nodes stand in the order of execution";
  }

  // ---- sections ----
  void check_version(Item root, const Place& top) const {
    bool format_seen = false, version_seen = false;
    for (auto it = root.begin(); it != root.end(); ++it) {
      const Item key = *it;
      ++it;
      const Item item = *it;
      if (key.text() == "format") {
        format_seen = true;
        if (item.kind() != Kind::text || item.text() != "graven.graph")
          fail(top.at("format"), "\"graven.graph\"", item.quote());
      } else if (key.text() == "version") {
        version_seen = true;
        if (item.kind() != Kind::integer || item.integer() != kGraphFormatVersion)
          fail(top.at("version"), "version " + std::to_string(kGraphFormatVersion), item.quote());
      }
    }
    if (!format_seen) fail(top, "the key 'format' with \"graven.graph\"", "none");
    if (!version_seen) fail(top, "the key 'version'", "none");
  }
  void read_symbols(Item item, const Place& place) {
    each_pair(item, place, [&](const std::string& name, Item maximum, const Place& at) {
      if (!is_symbol_name(name)) fail(at, "a symbol of letters, digits and underscores", "another name");
      Symbol symbol{name, 1, 1};
      if (maximum.kind() == Kind::array) {
        if (maximum.size() != 2) fail(at, "a maximum, or a minimum and a maximum", maximum.quote());
        bool first = true;
        each(maximum, at, [&](Item bound, const Place& of_bound) {
          (first ? symbol.least : symbol.most) = integer(bound, of_bound, first ? 1 : symbol.least);
          first = false;
        });
      } else {
        symbol.most = integer(maximum, at, 1);
      }
      if (!symbols_.emplace(name, symbol).second) fail(place, "each symbol once", "'" + name + "' twice");
    });
  }
  void read_config(Item item, const Place& place) {
    each_pair(item, place, [&](const std::string& key, Item tagged, const Place& at) {
      expect(tagged, Kind::object, at);
      if (tagged.size() != 1) fail(at, "an object with one key, the type", tagged.quote());
      auto it = tagged.begin();
      const std::string_view type_name = (*it).text();
      ++it;
      for (std::size_t t = 0; t < std::variant_size_v<Attribute>; ++t) {
        if (ir::name(static_cast<AttributeType>(t)) != type_name) continue;
        if (!graph_.config.emplace(key, attribute(*it, static_cast<AttributeType>(t), at)).second)
          fail(place, "each key once", "'" + key + "' twice");
        return;
      }
      fail(at, "the type of an attribute", (*tagged.begin()).quote());
    });
  }
  void read_module(Item item, const Place& place) {
    Item path = item, class_name = item, arguments = item;
    fields(item, place, {{"path", &path}, {"class", &class_name}, {"arguments", &arguments}});
    graph_.modules.push_back(
        {label(path, place.at("path")), label(class_name, place.at("class")), label(arguments, place.at("arguments"))});
  }
  /// A name that no value has yet.
  std::string fresh_name(Item item, const Place& place) const {
    std::string name = label(item, place);
    if (name.empty()) fail(place, "a name", "an empty text");
    if (graph_.find(name) != kNone) fail(place, "a name that no other value has", item.quote());
    return name;
  }
  void read_plain(Item item, const Place& place, ValueKind kind) {
    Item name = item, type_item = item;
    fields(item, place, {{"name", &name}, {"type", &type_item}});
    const ValueId v = graph_.add_value(fresh_name(name, place.at("name")), kind, type(type_item, place.at("type")));
    if (kind == ValueKind::input) graph_.inputs.push_back(v);
    if (kind == ValueKind::state) graph_.states.push_back(v);
  }
  void read_parameter(Item item, const Place& place) {
    Item name = item, type_item = item, kind = item, trainable = item;
    fields(item, place, {{"name", &name}, {"type", &type_item}, {"kind", &kind}, {"trainable", &trainable}});
    expect(kind, Kind::text, place.at("kind"));
    if (kind.text() != "parameter" && kind.text() != "buffer")
      fail(place.at("kind"), "\"parameter\" or \"buffer\"", kind.quote());
    const ValueId v = graph_.add_value(fresh_name(name, place.at("name")),
                                       kind.text() == "parameter" ? ValueKind::parameter : ValueKind::buffer,
                                       type(type_item, place.at("type")));
    graph_.value(v).trainable = boolean(trainable, place.at("trainable"));
    graph_.parameters.push_back(v);
  }
  void read_constant(Item item, const Place& place) {
    Item name = item, type_item = item, data = item;
    const bool is_inline = item.kind() == Kind::object && item.size() == 3;
    if (is_inline)
      fields(item, place, {{"name", &name}, {"type", &type_item}, {"data", &data}});
    else
      fields(item, place, {{"name", &name}, {"type", &type_item}});
    std::string text = fresh_name(name, place.at("name"));
    TensorType t = type(type_item, place.at("type"));
    if (!t.shape.is_static()) fail(place.at("type"), "a constant of static shape", t.to_string());
    std::shared_ptr<const TensorData> contents;
    if (is_inline) {
      contents = elements(data, t, place.at("data"));
    } else {
      if (load_constant_) contents = load_constant_(text, t);
      if (!contents)
        fail(place, "\"data\", or a safetensors file beside the graph that holds the tensor '" + text + "'", "neither");
      if (contents->type != t)
        fail(place.at("type"), t.to_string() + " in the safetensors file, too", contents->type.to_string());
    }
    graph_.add_constant(std::move(text), std::move(contents));
  }
  std::shared_ptr<const TensorData> elements(Item item, const TensorType& t, const Place& place) const {
    expect(item, Kind::array, place);
    const std::int64_t count = t.shape.numel().value();
    if (static_cast<std::int64_t>(item.size()) != count)
      fail(place, std::to_string(count) + " elements", std::to_string(item.size()));
    auto data = std::make_shared<TensorData>();
    data->type = t;
    data->bytes.reserve(static_cast<std::size_t>(count) * size_of(t.dtype));
    auto append = [&](auto x) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&x);
      data->bytes.insert(data->bytes.end(), bytes, bytes + sizeof x);
    };
    each(item, place, [&](Item e, const Place& at) {
      switch (t.dtype) {
        case DType::f32:
          return append(to_float(number(e, at), e, at));
        case DType::f64:
          return append(number(e, at));
        case DType::f16:
        case DType::bf16:
          return append(static_cast<std::uint16_t>(integer(e, at, 0, 0xffff)));
        case DType::i8:
          return append(static_cast<std::int8_t>(integer(e, at, -128, 127)));
        case DType::i32:
          return append(static_cast<std::int32_t>(
              integer(e, at, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max())));
        case DType::i64:
          return append(integer(e, at));
        case DType::u8:
          return append(static_cast<std::uint8_t>(integer(e, at, 0, 255)));
        case DType::boolean:
          return append(static_cast<std::uint8_t>(boolean(e, at)));
      }
    });
    return data;
  }
  float to_float(double value, Item item, const Place& place) const {
    const float rounded = static_cast<float>(value);  // to infinity where it is too large
    if (std::isfinite(value) && !std::isfinite(rounded)) fail(place, "a number in the range of f32", item.quote());
    return rounded;
  }

  Attribute attribute(Item item, AttributeType type, const Place& place) const {
    switch (type) {
      case AttributeType::boolean:
        return boolean(item, place);
      case AttributeType::integer:
        return integer(item, place);
      case AttributeType::number:
        return number(item, place);
      case AttributeType::text:
        return label(item, place);
      case AttributeType::integers: {
        Ints list;
        expect(item, Kind::array, place);
        list.reserve(item.size());
        each(item, place, [&](Item i, const Place& at) { list.push_back(integer(i, at)); });
        return list;
      }
      case AttributeType::dtype:
        return dtype(item, place);
      case AttributeType::shape:
        return shape(item, place);
      case AttributeType::program:
        return program(item, place);
    }
    fail(place, "an attribute", item.quote());
  }
  ScalarProgram program(Item item, const Place& place) const {
    Item inputs = item, steps = item;
    fields(item, place, {{"inputs", &inputs}, {"steps", &steps}});
    ScalarProgram p;
    p.inputs = static_cast<std::int32_t>(integer(inputs, place.at("inputs"), 0, 64));
    each(steps, place.at("steps"), [&](Item step, const Place& at) {
      Item op = step, arguments = step, constants = step, type = step;
      fields(step, at, {{"op", &op}, {"arguments", &arguments}, {"constants", &constants}, {"dtype", &type}});
      ScalarProgram::Step s;
      expect(op, Kind::text, at.at("op"));
      s.op = op.text();
      const OpDef* def = find_op(s.op);
      if (!def || !(def->elementwise() || def == &kFull)) fail(at.at("op"), "an elementwise operator", op.quote());
      const std::int64_t known = p.inputs + static_cast<std::int64_t>(p.steps.size());
      each(arguments, at.at("arguments"), [&](Item a, const Place& where) {
        s.arguments.push_back(static_cast<std::int32_t>(integer(a, where, 0, known - 1)));
      });
      if (s.arguments.size() != def->inputs.size())
        fail(at.at("arguments"), std::to_string(def->inputs.size()) + " arguments of '" + s.op + "'",
             std::to_string(s.arguments.size()));
      each_pair(constants, at.at("constants"), [&](const std::string& key, Item value, const Place& where) {
        if (def->find_attribute(key) == nullptr) fail(where, "an attribute of '" + s.op + "'", "another name");
        for (const auto& [k, v] : s.constants)
          if (k == key) fail(where, "each constant once", "it twice");
        s.constants.emplace_back(key, number(value, where));
      });
      s.dtype = dtype(type, at.at("dtype"));
      p.steps.push_back(std::move(s));
    });
    return p;
  }

  /// Products and convolutions once said themselves what only lowered operators say now: the type of such an attribute.
  static std::optional<AttributeType> type_of_former(const OpDef& op, const std::string& key) {
    const OpDef& twin = lowered(op);
    if (&twin == &op) return std::nullopt;
    if (key == "in_features" || key == "out_features") return AttributeType::integer;
    const AttributeSpec* const spec = twin.find_attribute(key);
    return spec == nullptr ? std::nullopt : std::optional(spec->type);
  }
  /// Where they say anything, the node is a lowered operator's.
  static void take_former(Node& node, const Attributes& former) {
    const Attribute* const epilogue = former.find("epilogue");
    const bool packed = former.flag_or("packed", false);
    if (!packed && (epilogue == nullptr || std::get<ScalarProgram>(*epilogue).empty())) return;
    node.op = &lowered(*node.op);
    for (const auto& [key, value] : former)
      if (node.op->find_attribute(key) != nullptr) node.attributes.set(key, value);
    if (packed && former.find("out_features") != nullptr)
      node.attributes.set("weight_shape", Ints{former.integer("out_features"), former.integer("in_features")});
  }
  /// A donation that is spelt as a node, assign(variable, value).
  void read_assignment(Item inputs, const Place& place) {
    std::vector<ValueId> values;
    each(inputs, place, [&](Item name, const Place& at) { values.push_back(reference(name, at)); });
    if (values.size() != 2) fail(place, "a variable and a value", inputs.quote());
    graph_.donations.push_back({values[0], values[1]});
  }
  /// The place of one of the checkpoints that stand before, from 1; 0: none.
  std::uint32_t checkpoint(Item item, const Place& place) const {
    return static_cast<std::uint32_t>(integer(item, place, 0, static_cast<std::int64_t>(graph_.checkpoints.size())));
  }
  void read_node(Item item, const Place& place) {
    Item outputs = item, op = item, inputs = item, attributes = item, phase = item, origins = item, recomputes = item;
    bool says_recomputes = false;
    fields(item, place,
           {{"outputs", &outputs},
            {"op", &op},
            {"inputs", &inputs},
            {"attributes", &attributes},
            {"phase", &phase},
            {"origins", &origins},
            {"recomputes", &recomputes, &says_recomputes}});
    const std::string operator_name = label(op, place.at("op"));
    if (operator_name == "assign") {
      each(outputs, place.at("outputs"), [&](Item result, const Place& at) { fail(at, "no result", result.quote()); });
      return read_assignment(inputs, place.at("inputs"));
    }
    Node node;
    node.op = find_op(operator_name);
    if (!node.op) node.op = located(place.at("op"), [&] { return &get_op(operator_name); });
    std::vector<std::optional<TensorType>> types;
    types.reserve(inputs.kind() == Kind::array ? inputs.size() : 0);
    each(inputs, place.at("inputs"), [&](Item name, const Place& at) {
      node.inputs.push_back(reference(name, at, true));
      if (node.inputs.back() == kNone)
        types.emplace_back();
      else
        types.emplace_back(graph_.type(node.inputs.back()));
    });
    Attributes former;
    each_pair(attributes, place.at("attributes"), [&](const std::string& key, Item value, const Place& at) {
      const AttributeSpec* const spec = node.op->find_attribute(key);
      if (spec == nullptr) {
        if (const std::optional<AttributeType> type = type_of_former(*node.op, key)) {
          former.set(key, attribute(value, *type, at));
          return;
        }
      }
      if (spec == nullptr) fail(at, "an attribute of '" + std::string(node.op->name) + "'", "another name");
      if (node.attributes.find(key)) fail(at, "each attribute once", "it twice");
      node.attributes.set(key, attribute(value, spec->type, at));
    });
    if (former.begin() != former.end()) take_former(node, former);
    expect(phase, Kind::text, place.at("phase"));
    bool known_phase = false;
    for (Phase p : {Phase::prepare, Phase::forward, Phase::backward, Phase::update})
      if (ir::name(p) == phase.text()) node.phase = p, known_phase = true;
    if (!known_phase) fail(place.at("phase"), "prepare, forward, backward or update", phase.quote());
    each(origins, place.at("origins"), [&](Item origin, const Place& at) {
      expect(origin, Kind::array, at);
      if (origin.size() != 3 && origin.size() != 4)
        fail(at, "[module, file, line] or [module, file, line, checkpoint]", origin.quote());
      auto it = origin.begin();
      Origin o;
      o.module = label(*it, at.at(0));
      ++it;
      o.file = label(*it, at.at(1));
      ++it;
      o.line = static_cast<std::uint32_t>(integer(*it, at.at(2), 0, std::numeric_limits<std::uint32_t>::max()));
      if (origin.size() == 4) o.checkpoint = checkpoint(*++it, at.at(3));
      node.origins.push_back(std::move(o));
    });
    node.recomputes = says_recomputes && boolean(recomputes, place.at("recomputes"));
    std::vector<TensorType> results;
    try {
      results = infer(*node.op, types, node.attributes);
    } catch (const UserError& e) {
      UserError located(file_ + ": " + place.to_string() + " (" + std::string(node.op->name) + "): " + e.message());
      for (std::size_t i = 0; i < types.size(); ++i)
        if (types[i])
          located.note("input " + std::to_string(i) + "  " + types[i]->to_string() + " from " +
                       graph_.value(node.inputs[i]).name);
      throw located;
    }
    expect(outputs, Kind::array, place.at("outputs"));
    if (outputs.size() != results.size())
      fail(place.at("outputs"), std::to_string(results.size()) + " results of '" + std::string(node.op->name) + "'",
           std::to_string(outputs.size()));
    std::size_t i = 0;
    each(outputs, place.at("outputs"), [&](Item output, const Place& at) {
      expect(output, Kind::array, at);
      if (output.size() != 2) fail(at, "[name, type]", output.quote());
      auto it = output.begin();
      std::string name = fresh_name(*it, at.at(0));
      ++it;
      const TensorType declared = type(*it, at.at(1));
      if (declared != results[i])
        fail(at.at(1), results[i].to_string() + ", which '" + std::string(node.op->name) + "' gives",
             declared.to_string());
      node.outputs.push_back(graph_.add_value(std::move(name), ValueKind::node, std::move(results[i++])));
    });
    graph_.nodes.push_back(std::move(node));
  }

  Tree tree(Item item, const Place& place, std::size_t leaves) const {
    Tree t;
    if (item.kind() == Kind::integer) {
      t.index = static_cast<std::int32_t>(
          integer(item, place, 0, std::max<std::int64_t>(0, static_cast<std::int64_t>(leaves) - 1)));
      return t;
    }
    if (item.kind() == Kind::null) {
      t.kind = Tree::Kind::none;
      return t;
    }
    if (item.kind() != Kind::object || item.size() != 1)
      fail(place, "the index of a leaf, null, or one of {\"tuple\"}, {\"list\"}, {\"map\"}", item.quote());
    auto it = item.begin();
    const std::string_view kind = (*it).text();
    ++it;
    if (kind == "tuple" || kind == "list") {
      t.kind = kind == "tuple" ? Tree::Kind::tuple : Tree::Kind::list;
      each(*it, place.at(kind), [&](Item child, const Place& at) { t.children.push_back(tree(child, at, leaves)); });
    } else if (kind == "map") {
      t.kind = Tree::Kind::map;
      std::unordered_map<std::string, bool> seen;
      each_pair(*it, place.at("map"), [&](const std::string& key, Item child, const Place& at) {
        if (!seen.emplace(key, true).second) fail(at, "each key once", "it twice");
        t.keys.push_back(key);
        t.children.push_back(tree(child, at, leaves));
      });
    } else {
      fail(place, "tuple, list or map", (*item.begin()).quote());
    }
    return t;
  }
  void read_loss(Item item, const Place& place) {
    Item value = item, gradient = item;
    fields(item, place, {{"value", &value}, {"gradient", &gradient}});
    graph_.losses.push_back({reference(value, place.at("value")), reference(gradient, place.at("gradient"), true)});
  }
  void read_clip(Item item, const Place& place) {
    Item kind = item, limit = item, norm_type = item, parameters = item;
    fields(item, place, {{"kind", &kind}, {"limit", &limit}, {"norm_type", &norm_type}, {"parameters", &parameters}});
    const std::string name = label(kind, place.at("kind"));
    if (name != "norm" && name != "value") fail(place.at("kind"), "norm or value", kind.quote());
    Clip clip{name == "norm" ? Clip::Kind::norm : Clip::Kind::value,
              {},
              number(limit, place.at("limit")),
              number(norm_type, place.at("norm_type"))};
    if (!(clip.limit >= 0)) fail(place.at("limit"), "a number of at least 0", limit.quote());
    if (!(clip.norm_type > 0)) fail(place.at("norm_type"), "a positive number", norm_type.quote());
    each(parameters, place.at("parameters"),
         [&](Item p, const Place& at) { clip.parameters.push_back(reference(p, at)); });
    graph_.clips.push_back(std::move(clip));
  }
  std::map<std::string, double> options(Item item, const Place& place) const {
    std::map<std::string, double> m;
    each_pair(item, place, [&](const std::string& key, Item value, const Place& at) {
      if (!m.emplace(key, number(value, at)).second) fail(at, "each option once", "it twice");
    });
    return m;
  }
  void read_optimizer(Item item, const Place& place) {
    Item kind = item, groups = item, schedule = item, plateau = item;
    bool has_plateau = false;
    fields(item, place,
           {{"kind", &kind}, {"groups", &groups}, {"schedule", &schedule}, {"plateau", &plateau, &has_plateau}});
    Optimizer o;
    o.kind = label(kind, place.at("kind"));
    const OptimizerKind& known =
        located(place.at("kind"), [&]() -> const OptimizerKind& { return optimizer_kind(o.kind); });
    each(groups, place.at("groups"), [&](Item group, const Place& at) {
      Item parameters = group, group_options = group;
      fields(group, at, {{"options", &group_options}, {"parameters", &parameters}});
      ParameterGroup g;
      each(parameters, at.at("parameters"),
           [&](Item p, const Place& where) { g.parameters.push_back(reference(p, where)); });
      const Place options_place = at.at("options");
      g.options = options(group_options, options_place);
      if (!g.options.count("lr")) fail(options_place, "the option lr", "none");
      if (g.options.count(std::string(kClipMaxNorm)) != g.options.count(std::string(kClipNormType)))
        fail(options_place, std::string(kClipMaxNorm) + " and " + std::string(kClipNormType), "one of them");
      for (const auto& [name, value] : g.options)
        if (!std::isfinite(value) && name != kClipNormType)
          fail(options_place.at(name), "a finite number", std::isnan(value) ? "nan" : "infinity");
      located(options_place, [&] {
        check_options(o.kind, g.options);
        return update_attributes(known, g.options);
      });
      o.groups.push_back(std::move(g));
    });
    o.schedule = read_schedule(schedule, place.at("schedule"), 1);
    located(place.at("schedule"), [&] {
      check_schedule(o.schedule);
      return 0;
    });
    if (has_plateau) {
      o.plateau = options(plateau, place.at("plateau"));
      located(place.at("plateau"), [&] {
        check_plateau(o);
        return 0;
      });
    }
    graph_.optimizers.push_back(std::move(o));
  }
  Schedule read_schedule(Item item, const Place& place, std::size_t depth) const {
    if (depth > kMaximumScheduleDepth)
      fail(place, "schedules within schedules at most " + std::to_string(kMaximumScheduleDepth) + " deep", "one more");
    Item kind = item, schedule_options = item, milestones = item, parts = item, factors = item;
    bool has_parts = false, has_factors = false;
    fields(item, place,
           {{"kind", &kind},
            {"options", &schedule_options},
            {"milestones", &milestones},
            {"parts", &parts, &has_parts},
            {"factors", &factors, &has_factors}});
    Schedule s;
    s.kind = label(kind, place.at("kind"));
    s.options = options(schedule_options, place.at("options"));
    each(milestones, place.at("milestones"),
         [&](Item m, const Place& where) { s.milestones.push_back(number(m, where)); });
    if (has_factors)
      each(factors, place.at("factors"), [&](Item f, const Place& where) { s.factors.push_back(number(f, where)); });
    if (has_parts)
      each(parts, place.at("parts"),
           [&](Item part, const Place& where) { s.parts.push_back(read_schedule(part, where, depth + 1)); });
    return s;
  }

  const std::string& file_;
  const ConstantLoader& load_constant_;
  json::Document document_;
  Item nodes_ = document_.root();
  std::map<std::string, Symbol, std::less<>> symbols_;
  Graph graph_;
};

}  // namespace

Graph from_json(std::string_view text, const std::string& file, const ConstantLoader& load_constant,
                std::string* saved) {
  if (saved) saved->clear();
  return Reader(text, file, load_constant).read(saved);
}

}  // namespace graven::ir
