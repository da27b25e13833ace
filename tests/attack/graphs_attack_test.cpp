// Graph files of every stage, one field of them changed: each is refused with a message, or compiles and is emitted. No
// internal error.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "codegen/emit/evaluation.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "frontend/eager/oracle.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/passes/pass.h"
#include "tests/attack/attack.h"
#include "tests/emit/graphs.h"
#include "tests/passes/graphs.h"

namespace graven::attack {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Seed {
  std::string name;
  ir::Graph graph;
  Json json;
};

/// Graphs at their trace and after every pass that changes them.
const std::vector<Seed>& seeds() {
  static const std::vector<Seed> all = [] {
    std::vector<Seed> list;
    const std::pair<std::string, ir::Graph> traced[] = {
        {"mlp", codegen::mlp_training()},         {"linear", codegen::my_linear()},
        {"residual", tests::residual_training()}, {"polynomial", tests::polynomial_training(8)},
        {"norms", tests::norms_inference()},
    };
    for (const auto& [name, trace] : traced) {
      std::set<std::string> known;
      ir::Graph graph = trace;
      for (const ir::Pass& pass : ir::pipeline()) {
        const std::string text = ir::to_json(graph);
        if (known.insert(Json::parse(text)["nodes"].dump()).second)
          list.push_back({name + " after " + graph.stage, graph, Json::parse(text)});
        ir::PassOptions only;
        only.from = only.to = std::string(pass.name);
        ir::run_passes(graph, only);
      }
      list.push_back({name + " after " + graph.stage, graph, Json::parse(ir::to_json(graph))});
    }
    return list;
  }();
  return all;
}

/// "nodes/*/phase": where values of one meaning stand.
std::string kind_of_place(const std::string& pointer) {
  std::string kind;
  for (std::size_t at = 1; at <= pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at), pointer.size());
    const std::string part = pointer.substr(at, end - at);
    kind += "/" + (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos ? "*" : part);
    at = end + 1;
  }
  return kind;
}

void places_in(const Json& json, const std::string& pointer, std::vector<std::string>& places) {
  if (!pointer.empty()) places.push_back(pointer);
  if (json.is_array())
    for (std::size_t i = 0; i < json.size(); ++i) places_in(json[i], pointer + "/" + std::to_string(i), places);
  if (json.is_object())
    for (const auto& [key, value] : json.items())
      if (key.find_first_of("/~") == std::string::npos) places_in(value, pointer + "/" + key, places);
}

/// What stands in all seeds where values of one meaning stand.
const std::map<std::string, std::vector<Json>>& values_by_kind() {
  static const std::map<std::string, std::vector<Json>> all = [] {
    std::map<std::string, std::vector<Json>> values;
    std::map<std::string, std::set<std::string>> known;
    for (const Seed& seed : seeds()) {
      std::vector<std::string> places;
      places_in(seed.json, "", places);
      for (const std::string& place : places) {
        const Json& value = seed.json[Json::json_pointer(place)];
        const std::string kind = kind_of_place(place), text = value.dump();
        if (text.size() < 2000 && known[kind].insert(text).second) values[kind].push_back(value);
      }
    }
    for (const char* phase : {"prepare", "forward", "backward", "update"})
      if (known["/nodes/*/phase"].insert('"' + std::string(phase) + '"').second)
        values["/nodes/*/phase"].push_back(phase);
    return values;
  }();
  return all;
}

/// Changes one field; what was done to it.
std::string change(Json& json, Attack& attack) {
  std::vector<std::string> places;
  places_in(json, "", places);
  // Fields of all meanings alike: there are many more origins and names than phases.
  std::map<std::string, std::vector<std::string>> by_kind;
  for (const std::string& place : places) by_kind[kind_of_place(place)].push_back(place);
  auto kind = by_kind.begin();
  std::advance(kind, attack.below(by_kind.size()));
  // What says how a graph runs comes more often than what it is called.
  static const char* const often[] = {"/nodes/*/phase", "/nodes/*/op", "/nodes/*/inputs/*", "/outputs/*", "/stage"};
  if (const auto found = by_kind.find(attack.choose(often)); found != by_kind.end() && attack.below(2) == 0)
    kind = found;
  const std::string place = attack.choose(kind->second);
  Json& value = json[Json::json_pointer(place)];
  const std::string before = value.dump().substr(0, 60);
  const std::string parent = place.substr(0, place.rfind('/'));
  Json& holder = json[Json::json_pointer(parent)];
  switch (attack.below(6)) {
    case 0:
    case 1:
    case 2:  // something else that has this meaning elsewhere
      if (const auto found = values_by_kind().find(kind->first); found != values_by_kind().end()) {
        value = attack.choose(found->second);
        break;
      }
      [[fallthrough]];
    case 3:
      if (value.is_number_integer()) {
        const std::int64_t numbers[] = {
            0, -1, 1, 2, 1 << 20, std::int64_t{1} << 31, INT64_MAX, INT64_MIN, value.get<std::int64_t>() + 1};
        value = attack.choose(numbers);
      } else if (value.is_number()) {
        const Json numbers[] = {0.0, -1.0, 1e308, 5e-324, "nan", "inf", "-inf"};
        value = attack.choose(numbers);
      } else if (value.is_boolean()) {
        value = !value.get<bool>();
      } else if (value.is_string()) {
        const std::string text = value, texts[] = {"",       text + "_", "f32[]", "\x1b[31m", std::string("a\0b", 3),
                                                   "i64[4]", "f64[2,3]", "//",    "é"};
        value = attack.choose(texts);
      } else if (value.is_array() && value.size() > 1) {
        std::swap(value[attack.below(value.size())], value[attack.below(value.size())]);
      } else {
        value = nullptr;
      }
      break;
    case 4:  // it is not there, or there twice
      if (holder.is_array()) {
        const auto index = static_cast<std::size_t>(std::stoul(place.substr(place.rfind('/') + 1)));
        if (attack.below(2) == 0)
          holder.insert(holder.begin() + static_cast<std::ptrdiff_t>(index), Json(holder[index]));
        else
          holder.erase(index);
      } else if (attack.below(4) == 0) {
        holder.erase(place.substr(place.rfind('/') + 1));
      } else {
        value = value.is_array() ? Json::array() : value.is_object() ? Json::object() : Json(nullptr);
      }
      return place + ": " + before + " removed or twice";
    default: {  // another of the same holder
      const std::string other = attack.choose(kind->second);
      Json copy = json[Json::json_pointer(other)];
      if (other != place && attack.below(2) == 0) json[Json::json_pointer(other)] = value;
      value = std::move(copy);
    }
  }
  return place + ": " + before + " -> " +
         json[Json::json_pointer(place)].dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
}

/// How the file ends: refused where, or sound. Throws nothing but what must not be.
std::string outcome(const std::string& text, const Seed& seed, const fs::path& folder) {
  ir::Graph graph;
  try {
    graph = ir::from_json(text, "graph.json", [&](std::string_view name, const ir::TensorType&) {
      const ir::ValueId v = seed.graph.find(name);
      const auto found = seed.graph.constants.find(v);
      return found == seed.graph.constants.end() ? nullptr : found->second;
    });
  } catch (const UserError&) {
    return "refused by the reader";
  }
  codegen::EmitOptions options;
  try {  // as graven check
    options = codegen::recorded_options(graph, "graph.json");
    ir::Graph finished = graph;
    ir::PassOptions all;
    all.target = &codegen::target_named(options.target).passes;
    ir::finish_passes(finished, all);
    bool unknown = false;
    codegen::make_evaluation(graph, finished, options, unknown);
    codegen::make_plan(finished, codegen::target_named(options.target));
  } catch (const UserError&) {
    return "refused by the passes";
  }
  try {
    options.execute = eager::reference_run;
    options.format = false;
    options.force = true;
    codegen::emit(graph, folder, options);
  } catch (
      const UserError&) {  // "a graph without outputs computes nothing": what a project needs, and a graph does not
    return "refused by emission";
  }
  return "emitted";
}

TEST(Graphs, WithAChangedFieldAreRefusedOrEmitted) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "attack/graphs";
  fs::remove_all(folder);
  Attack attack("fields of graph files", 80);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    const Seed& seed = attack.choose(seeds());
    Json json = seed.json;
    std::string what = seed.name + ": " + change(json, attack);
    SCOPED_TRACE(what);
    try {
      const std::string end = outcome(json.dump(-1, ' ', false, Json::error_handler_t::replace), seed, folder);
      attack.count(end);
    } catch (const std::exception& e) {
      attack.count("internal error");
      ADD_FAILURE() << e.what();
    }
  }
}

/// The graph with a number that stands among its dimensions made a symbol: everywhere, in all types and shapes, or here
/// and there.
std::string with_a_symbol(ir::Graph& graph, Attack& attack) {
  std::set<std::int64_t> numbers;
  for (const ir::Value& value : graph.values)
    for (const ir::Dim& d : value.type.shape)
      if (d.is_static() && d.value() > 1) numbers.insert(d.value());
  if (numbers.empty()) return "no dimension";
  auto chosen = numbers.begin();
  std::advance(chosen, attack.below(numbers.size()));
  const std::int64_t most = *chosen;
  const bool everywhere = attack.below(2) == 0;
  const auto change = [&](ir::Shape& shape) {
    for (std::size_t d = 0; d < shape.rank(); ++d) {
      if (!shape[d].is_static() || (!everywhere && attack.below(4) != 0)) continue;
      if (shape[d].value() == most || (attack.below(2) == 0 && shape[d].value() % most == 0))
        shape[d] = ir::Dim("n", most) * ir::Dim(shape[d].value() / most);
    }
  };
  for (ir::Value& value : graph.values)
    if (value.kind != ir::ValueKind::constant) change(value.type.shape);
  for (ir::Node& node : graph.nodes)
    for (const char* key : {"shape", "input_shape"})
      if (const ir::Attribute* a = node.attributes.find(key); a != nullptr && std::holds_alternative<ir::Shape>(*a)) {
        ir::Shape shape = std::get<ir::Shape>(*a);
        change(shape);
        node.attributes.set(key, shape);
      }
  return std::to_string(most) + (everywhere ? " everywhere" : " here and there");
}

TEST(Graphs, WithADimensionThatIsASymbolAreRefusedOrEmitted) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "attack/symbols";
  fs::remove_all(folder);
  Attack attack("dimensions of graph files", 120);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    const Seed& seed = attack.choose(seeds());
    ir::Graph graph = seed.graph;
    SCOPED_TRACE(seed.name + ": a symbol for " + with_a_symbol(graph, attack));
    try {
      attack.count(outcome(ir::to_json(graph), seed, folder));
    } catch (const UserError&) {
      attack.count("refused by the writer");
    } catch (const std::exception& e) {
      attack.count("internal error");
      ADD_FAILURE() << e.what();
    }
  }
}

}  // namespace
}  // namespace graven::attack
