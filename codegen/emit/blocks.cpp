#include "codegen/emit/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "codegen/emit/text.h"
#include "ir/origin.h"

namespace graven::codegen {

namespace {

using Blocks = std::unordered_map<std::string, std::string>;  // identifiers, by the modules' paths

/// Fewer calls than this are no function.
constexpr std::size_t kLeastCalls = 3;

/// Calls that the functions of a class must save; and as many make a function of a block that is like no other.
constexpr std::size_t kLeastSaved = 8;

/// A function is compiled for each of its blocks: the calls that one file comes to are at most so many times those that
/// may be written in it.
constexpr std::size_t kMostCompiled = 10;

/// What belongs to a block, in the order in which functions take it.
constexpr std::array<std::string_view, 5> kObjects = {"param", "grad", "state", "prepared", "buf"};

bool is_container(const std::string& class_name) {
  return class_name == "Sequential" || class_name == "ModuleList" || class_name == "ModuleDict";
}

std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

/// The calls of a module and of all in it, in one phase.
struct CallRange {
  std::size_t first = 0, last = 0, count = 0;
  bool is_one_run() const { return count >= kLeastCalls && last - first + 1 == count; }
};

std::unordered_map<std::string, CallRange> call_ranges(const std::vector<Call>& calls) {
  std::unordered_map<std::string, CallRange> found;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string path = calls[i].owner();
    for (std::size_t end = path.find('.'); !path.empty(); end = path.find('.', end + 1)) {
      CallRange& e = found[path.substr(0, end)];
      if (e.count++ == 0) e.first = i;
      e.last = i;
      if (end == std::string::npos) break;
    }
  }
  return found;
}

/// What repeats of one class.
struct RepeatedClass {
  std::vector<std::string> paths;
  struct Kind {
    std::size_t modules = 0, calls = 0;
  };
  std::map<std::string, Kind> kinds;  ///< by the phase and the names of the kernels
  bool is_listed = false;             ///< as elements of a container

  std::size_t saved() const {
    std::size_t calls = 0;
    for (const auto& [kernels, kind] : kinds) calls += (kind.modules - 1) * kind.calls;
    return calls;
  }
};

/// The modules whose members get structs, as paths: those of the classes whose repetition makes most of the calls.
std::vector<std::string> repeated_modules(const std::vector<ir::ModuleInfo>& modules,
                                          const std::vector<const std::vector<Call>*>& phases) {
  std::vector<std::unordered_map<std::string, CallRange>> found;
  for (const std::vector<Call>* calls : phases) found.push_back(call_ranges(*calls));
  std::map<std::string, RepeatedClass> classes;
  std::unordered_set<std::string> containers;
  for (const ir::ModuleInfo& m : modules)
    if (is_container(m.class_name)) containers.insert(m.path);
  for (const ir::ModuleInfo& m : modules) {
    if (is_container(m.class_name)) continue;
    std::size_t count = 0;
    for (std::size_t p = 0; p < phases.size(); ++p) {
      const auto range = found[p].find(m.path);
      if (range == found[p].end() || !range->second.is_one_run()) continue;
      std::string kernels = fmt::format("{}:", p);
      for (std::size_t i = range->second.first; i <= range->second.last; ++i)
        kernels += " " + first_word((*phases[p])[i].description);
      RepeatedClass::Kind& kind = classes[m.class_name].kinds[kernels];
      ++kind.modules;
      kind.calls = range->second.count;
      count += range->second.count;
    }
    if (count == 0) continue;
    RepeatedClass& c = classes[m.class_name];
    c.is_listed = c.is_listed || (count >= kLeastSaved && containers.count(m.path.substr(0, m.path.rfind('.'))));
    c.paths.push_back(m.path);
  }
  std::vector<const RepeatedClass*> order;
  for (const auto& [name, c] : classes) order.push_back(&c);
  // What saves a few lines is no gain for who reads them. The only one of a list is a block as it is with others: the
  // second one then changes nothing of the first.
  std::erase_if(order, [](const RepeatedClass* c) { return c->saved() < kLeastSaved && !c->is_listed; });
  // Lists first: what stands in them is what a reader takes for a block, and of whatever is inside as many are left
  // out.
  std::stable_sort(order.begin(), order.end(), [](const RepeatedClass* a, const RepeatedClass* b) {
    return std::pair(a->is_listed, a->saved()) > std::pair(b->is_listed, b->saved());
  });
  std::vector<std::string> chosen;
  for (const RepeatedClass* c : order) {
    const std::size_t before = chosen.size();
    for (const std::string& path : c->paths) {
      const bool overlaps = std::any_of(
          chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(before),
          [&](const std::string& other) { return ir::is_within(path, other) || ir::is_within(other, path); });
      // A module in one of its own class belongs to that.
      const bool is_inner = std::any_of(c->paths.begin(), c->paths.end(), [&](const std::string& other) {
        return other != path && ir::is_within(path, other);
      });
      if (!overlaps && !is_inner) chosen.push_back(path);
    }
  }
  return chosen;
}

/// Texts that differ in their numbers alone, with _ for those numbers; otherwise nothing.
std::optional<std::string> merged_numbers(const std::vector<std::string>& texts) {
  struct Piece {
    bool is_number;
    std::string text;
  };
  const auto pieces_of = [](const std::string& text) {
    std::vector<Piece> pieces;
    for (const char c : text) {
      const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
      if (pieces.empty() || pieces.back().is_number != digit) pieces.push_back({digit, {}});
      pieces.back().text += c;
    }
    return pieces;
  };
  std::vector<Piece> merged = pieces_of(texts.front());
  for (const std::string& text : texts) {
    const std::vector<Piece> other = pieces_of(text);
    if (other.size() != merged.size()) return std::nullopt;
    for (std::size_t i = 0; i < other.size(); ++i) {
      if (other[i].is_number != (merged[i].is_number || merged[i].text == "_")) return std::nullopt;
      if (other[i].text == merged[i].text) continue;
      if (!other[i].is_number) return std::nullopt;
      merged[i].text = "_";
    }
  }
  std::string text;
  for (const Piece& p : merged) text += p.text;
  return text;
}

/// What comments of one call say in all of a block's modules.
std::string merged(const std::vector<std::string>& texts) {
  if (const auto whole = merged_numbers(texts)) return *whole;
  std::vector<std::vector<std::string>> lists;
  std::size_t least = SIZE_MAX;
  for (const std::string& text : texts) {
    std::vector<std::string>& list = lists.emplace_back();
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(", ", at), text.size());
      list.push_back(text.substr(at, end - at));
      at = end + 2;
    }
    least = std::min(least, list.size());
  }
  std::vector<std::string> common;
  for (std::size_t i = 0; i < least; ++i) {
    std::vector<std::string> column;
    for (const auto& list : lists) column.push_back(list[i]);
    const auto piece = merged_numbers(column);
    if (!piece) break;
    common.push_back(*piece);
  }
  return join(common);
}

/// Whether there is scratch memory depends on the sizes, which are not the function's.
std::string without_workspace(const Call& call) {
  Call other = call;
  std::erase_if(other.arguments, [&](const Code& argument) {
    const Pointer* pointer = argument.pointer();
    return pointer != nullptr && *pointer == call.workspace;
  });
  return join(other.lines(), "\n");
}

/// Calls of one block, one after the other, as a function would have them.
struct Run {
  std::string module, block;
  std::size_t begin = 0, end = 0;
  std::vector<Call> calls;
  std::vector<Pointer> given;      ///< pointers that are not its own, where it is called
  std::vector<std::string> names;  ///< and what they are inside
  std::vector<std::string> types;
  std::vector<std::string_view> objects;
  bool uses_config = false, uses_evaluation = false;

  /// What two runs must have in common.
  std::string key() const {
    std::string text;
    for (const Call& call : calls) text += without_workspace(call) + "\n";
    for (std::size_t i = 0; i < names.size(); ++i) text += types[i] + " " + names[i] + "\n";
    return text;
  }
};

bool mentions(const Call& call, const Pointer& pointer) {
  const auto is_in = [&](const std::vector<Code>& list) {
    return std::any_of(list.begin(), list.end(), [&](const Code& code) {
      return std::any_of(code.pieces().begin(), code.pieces().end(), [&](const Code::Piece& piece) {
        const Pointer* other = std::get_if<Pointer>(&piece);
        return other != nullptr && *other == pointer;
      });
    });
  };
  return is_in(call.before) || is_in(call.arguments) || is_in(call.after);
}

/// What a function may be told of a pointer that is not its block's.
struct Pointee {
  std::string element;  ///< "f32"
  std::string type;     ///< "f32[64,8,8,24]"
};

std::map<Pointer, Pointee> pointees_of(const WrittenGraph& g) {
  std::map<Pointer, Pointee> known;
  for (std::size_t v = 0; v < g.graph.values.size(); ++v) {
    const auto id = static_cast<ir::ValueId>(v);
    const Home home = g.plan.placements[v].home;
    if (home == Home::alias || home == Home::hyper) continue;
    const ir::TensorType& type = g.graph.type(id);
    const Code code = g.values.code(id);
    if (const Pointer* pointer = code.pointer())
      known.emplace(*pointer, Pointee{std::string(element_type(type.dtype)), type.to_string()});
  }
  return known;
}

/// Moves the calls of repeated blocks of one graph into functions, and leaves calls of these in their place.
class Sharer {
 public:
  /// `blocks`: identifiers of modules, by path. `taken`: what no function may be called.
  Sharer(const WrittenGraph& graph, const Blocks& blocks, const std::unordered_set<std::string>& taken)
      : blocks_(blocks), taken_(taken), pointees_(pointees_of(graph)) {
    for (const ir::ModuleInfo& m : graph.graph.modules) classes_.emplace(m.path, m.class_name);
  }

  /// The calls of one phase; `suffix` ends the functions' names ("_backward"). A pointer that a block is given in
  /// several phases has one name in them.
  void share(std::vector<Call>& calls, const std::string& suffix) {
    suffix_ = suffix;
    written_.clear();
    for (const Call& call : calls) written_.insert(call.written.begin(), call.written.end());
    const std::vector<Run> runs = find_runs(calls);
    std::vector<std::vector<const Run*>> groups;
    std::unordered_map<std::string, std::size_t> by_key;
    for (const Run& run : runs) {
      const auto [known, fresh] = by_key.emplace(classes_[run.module] + "\n" + run.key(), groups.size());
      if (fresh) groups.emplace_back();
      groups[known->second].push_back(&run);
    }
    std::unordered_map<std::size_t, std::pair<std::size_t, Call>> replaced;  // by where a run begins: its end
    for (const std::vector<const Run*>& group : groups) {
      if (group.size() < 2 && group.front()->calls.size() < kLeastSaved) continue;
      functions_.push_back(function_of(group));
      for (const Run* run : group)
        replaced.emplace(run->begin, std::pair(run->end, call_of(*run, functions_.back(), calls)));
    }
    std::vector<Call> shorter;
    for (std::size_t i = 0; i < calls.size();) {
      const auto block = replaced.find(i);
      if (block == replaced.end()) {
        shorter.push_back(std::move(calls[i++]));
      } else {
        i = block->second.first;
        shorter.push_back(std::move(block->second.second));
      }
    }
    calls = std::move(shorter);
  }

  std::vector<BlockFunction> take() { return std::move(functions_); }

 private:
  std::vector<Run> find_runs(const std::vector<Call>& calls) {
    std::vector<Run> list;
    std::string open;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      std::string module = calls[i].owner();
      while (!module.empty() && !blocks_.count(module)) {
        const std::size_t dot = module.rfind('.');
        module = dot == std::string::npos ? std::string() : module.substr(0, dot);
      }
      if (!module.empty() && (list.empty() || open != module)) {
        list.emplace_back();
        list.back().module = module;
        list.back().begin = i;
      }
      if (!module.empty()) list.back().end = i + 1;
      open = module;
    }
    std::erase_if(list, [](const Run& run) { return run.end - run.begin < kLeastCalls; });
    for (Run& run : list) {
      run.block = blocks_.at(run.module);
      rewrite(run, calls);
    }
    return list;
  }

  void rewrite(Run& run, const std::vector<Call>& calls) {
    std::set<Pointer> written;
    for (std::size_t i = run.begin; i < run.end; ++i) {
      written.insert(calls[i].written.begin(), calls[i].written.end());
      if (calls[i].workspace) written.insert(*calls[i].workspace);
    }
    std::set<std::string_view> used;
    for (std::size_t i = run.begin; i < run.end; ++i) {
      Call call = calls[i];
      for (std::vector<Code>* list : {&call.before, &call.arguments, &call.after})
        for (Code& code : *list)
          for (Code::Piece& piece : code.pieces()) rewrite(run, piece, written, used);
      // Scratch memory that is called after another module is given as pointers are.
      if (call.workspace && call.workspace->block != run.block) call.workspace.reset();
      if (call.workspace) call.workspace->block.clear();
      call.modules.clear();
      for (const std::string& m : calls[i].modules)
        if (ir::is_within(m, run.module) && m != run.module) call.modules.push_back(m.substr(run.module.size() + 1));
      run.calls.push_back(std::move(call));
    }
    for (const std::string_view object : kObjects)
      if (used.count(object)) run.objects.push_back(object);
  }

  /// What a piece is in the function: a member of the block without its name, what is not the block's as an argument.
  void rewrite(Run& run, Code::Piece& piece, const std::set<Pointer>& written, std::set<std::string_view>& used) {
    if (const ConfigName* config = std::get_if<ConfigName>(&piece); config && config->block == run.block) {
      run.uses_config = true;
      run.uses_evaluation = run.uses_evaluation || config->is_evaluation;
      piece = "Config::" + config->name;
      return;
    }
    Pointer* pointer = std::get_if<Pointer>(&piece);
    if (pointer == nullptr) return;
    const auto object = std::find(kObjects.begin(), kObjects.end(), pointer->object);
    if (object == kObjects.end()) return;
    if (pointer->block == run.block) {
      used.insert(*object);
      pointer->block.clear();
    } else {
      piece = argument(run, *pointer, written.count(*pointer) != 0);
    }
  }

  std::string argument(Run& run, const Pointer& pointer, bool is_written) {
    const auto known = std::find(run.given.begin(), run.given.end(), pointer);
    if (known != run.given.end()) return run.names[static_cast<std::size_t>(known - run.given.begin())];
    std::map<Pointer, std::string>& names = arguments_[run.block];
    auto own = names.find(pointer);
    if (own == names.end()) {
      const std::string base = is_written                  ? "y"
                               : pointer.object == "param" ? "weight"
                               : suffix_.empty()           ? "x"
                               : written_.count(pointer)   ? "gradient"
                                                           : "other";
      const auto is_taken = [&](const std::string& name) {
        return std::any_of(names.begin(), names.end(), [&](const auto& entry) { return entry.second == name; });
      };
      std::string name = base;
      for (int n = 2; is_taken(name); ++n) name = fmt::format("{}_{}", base, n);
      own = names.emplace(pointer, name).first;
    }
    const auto about = pointees_.find(pointer);
    const std::string element = about == pointees_.end() ? "u8" : about->second.element;
    run.given.push_back(pointer);
    run.names.push_back(own->second);
    run.types.push_back((is_written ? "" : "const ") + element + "*");
    return own->second;
  }

  /// "f32[64,8,8,24] -> f32[64,4,4,32]": what goes in, and what others read of it.
  std::string types_of(const Run& run, const std::vector<Call>& calls) const {
    const auto type_of = [&](const Pointer& pointer) {
      const auto about = pointees_.find(pointer);
      return about == pointees_.end() ? std::string() : about->second.type;
    };
    std::string from, to;
    for (std::size_t i = 0; from.empty() && i < run.given.size(); ++i)
      if (run.types[i].compare(0, 6, "const ") == 0) from = type_of(run.given[i]);
    for (std::size_t i = run.end; to.empty() && i-- > run.begin;)
      for (const Pointer& pointer : calls[i].written)
        if (pointer.object == "buf" && to.empty() &&
            std::any_of(calls.begin() + static_cast<std::ptrdiff_t>(run.end), calls.end(),
                        [&](const Call& later) { return mentions(later, pointer); }))
          to = type_of(pointer);
    return from.empty() || to.empty() ? from + to : from + " -> " + to;
  }

  /// The function of these runs, which are the same but for names.
  BlockFunction function_of(const std::vector<const Run*>& group) {
    const Run& first = *group.front();
    BlockFunction f;
    std::string base = snake_case(classes_[first.module]);
    if (taken_.count(base)) base += "_block";
    base += suffix_;
    f.name = base;
    for (int n = 2; !used_.insert(f.name).second; ++n) f.name = fmt::format("{}_{}", base, n);
    f.uses_config = first.uses_config;
    for (const std::string_view object : first.objects) f.parameters.push_back(fmt::format("const auto& {}", object));
    for (std::size_t i = 0; i < first.names.size(); ++i) f.parameters.push_back(first.types[i] + " " + first.names[i]);
    for (const Run* run : group) f.modules.push_back(run->module);
    f.calls = first.calls;
    for (std::size_t i = 0; i < f.calls.size(); ++i) {
      for (std::string Call::* text : {&Call::description, &Call::types, &Call::location}) {
        std::vector<std::string> texts;
        for (const Run* run : group) texts.push_back(run->calls[i].*text);
        const bool differ = std::adjacent_find(texts.begin(), texts.end(), std::not_equal_to<>()) != texts.end();
        f.calls[i].*text = !differ ? texts.front() : text == &Call::location ? std::string() : merged(texts);
      }
      const auto with =
          std::find_if(group.begin(), group.end(), [&](const Run* run) { return run->calls[i].workspace.has_value(); });
      if (with == group.end()) continue;
      const Call& scratch = (*with)->calls[i];
      f.calls[i].arguments = scratch.arguments;
      for (const Run* run : group)
        if (!run->calls[i].workspace) f.unneeded.push_back(run->block + "." + scratch.workspace->name);
    }
    return f;
  }

  Call call_of(const Run& run, const BlockFunction& f, const std::vector<Call>& calls) const {
    Call call;
    for (const std::string_view object : run.objects)
      call.arguments.emplace_back(fmt::format("{}.{}", object, run.block));
    call.arguments.insert(call.arguments.end(), run.given.begin(), run.given.end());
    call.modules = {run.module};
    call.description = fmt::format("{}: {}", run.module, classes_.at(run.module));
    call.kernel_calls = f.calls.size();
    call.types = types_of(run, calls);
    const std::string config = (run.uses_evaluation ? "<config::evaluation::" : "<config::") + run.block + ">";
    call.function = f.name + (run.uses_config ? config : std::string());
    return call;
  }

  const Blocks& blocks_;
  const std::unordered_set<std::string>& taken_;
  const std::map<Pointer, Pointee> pointees_;
  std::unordered_map<std::string, std::string> classes_;  ///< by module
  std::string suffix_;
  std::set<Pointer> written_;             ///< in this phase
  std::unordered_set<std::string> used_;  ///< names of functions
  /// What pointers that are given are called inside, by block.
  std::unordered_map<std::string, std::map<Pointer, std::string>> arguments_;
  std::vector<BlockFunction> functions_;
};

/// What functions of blocks may not be called: they are members, which hide what calls name.
std::unordered_set<std::string> taken_by(const BlockCalls& calls, const std::unordered_set<std::string>& reserved) {
  std::unordered_set<std::string> taken = reserved;
  for (const std::string_view object : kObjects) taken.emplace(object);
  for (const char* name : {"in", "out", "hyper", "size", "prepare", "forward", "backward", "update", "evaluate",
                           "config", "constant", "reference", "numel"})
    taken.emplace(name);
  for (const ir::DType d : ir::kAllDTypes) taken.emplace(element_type(d));
  for (const Calls* of : {&calls.calls, &calls.evaluation})
    for (const auto& [phase, list] : of->phases)
      for (const Call& call : list) taken.insert(call.names.begin(), call.names.end());
  return taken;
}

/// The calls with structs and functions for these blocks.
BlockCalls shared(const WrittenGraph& main, const std::optional<WrittenGraph>& evaluation, const CallStyle& style,
                  const Blocks& blocks, const std::unordered_set<std::string>& reserved) {
  std::vector<std::string> names;
  for (const auto& [path, name] : blocks) names.push_back(name);
  main.values.nest(Nesting(names));
  if (evaluation) evaluation->values.nest(Nesting(names));
  BlockCalls result = plain_calls(main, evaluation, style);
  const std::unordered_set<std::string> taken = taken_by(result, reserved);
  Sharer sharer(main, blocks, taken);
  for (const ir::Phase phase : {ir::Phase::prepare, ir::Phase::forward, ir::Phase::backward})
    if (const auto list = result.calls.phases.find(phase); list != result.calls.phases.end())
      sharer.share(list->second, phase == ir::Phase::forward ? "" : "_" + std::string(ir::name(phase)));
  result.functions = sharer.take();
  if (evaluation) {
    Sharer evaluated(*evaluation, blocks, taken);
    evaluated.share(result.evaluation.phases[ir::Phase::forward], "");
    result.evaluation_functions = evaluated.take();
  }
  return result;
}

}  // namespace

std::size_t written_calls(const Calls& calls, const std::vector<BlockFunction>& functions) {
  std::size_t total = 0;
  for (const auto& [phase, list] : calls.phases) total += list.size();
  for (const BlockFunction& f : functions) total += f.calls.size();
  return total;
}

BlockCalls plain_calls(const WrittenGraph& main, const std::optional<WrittenGraph>& evaluation,
                       const CallStyle& style) {
  BlockCalls result;
  result.calls = make_calls(main.graph, main.plan, main.values, style);
  if (evaluation)
    result.evaluation = make_calls(evaluation->graph, evaluation->plan, evaluation->values, style, &result.calls);
  return result;
}

BlockCalls block_calls(const WrittenGraph& main, const std::optional<WrittenGraph>& evaluation, const CallStyle& style,
                       const std::unordered_set<std::string>& reserved, std::size_t most) {
  BlockCalls plain = plain_calls(main, evaluation, style);
  std::vector<const std::vector<Call>*> phases;
  for (const Calls* calls : {&plain.calls, &plain.evaluation}) {
    for (const auto& [phase, list] : calls->phases)
      if (phase != ir::Phase::update) phases.push_back(&list);
    if (written_calls(*calls, {}) > kMostCompiled * most) return plain;
  }
  std::map<std::string, std::vector<std::string>> paths;  // by identifier
  for (const std::string& path : repeated_modules(main.graph.modules, phases))
    paths[identifier(path, main.values.root())].push_back(path);
  const std::unordered_set<std::string> members = main.values.all_members();
  Blocks blocks;
  for (const auto& [name, of] : paths)
    if (of.size() == 1 && !members.count(name) && !members.count(name + "_block")) blocks.emplace(of.front(), name);
  if (blocks.empty()) return plain;
  std::unordered_map<std::string, std::string> classes;
  for (const ir::ModuleInfo& m : main.graph.modules) classes.emplace(m.path, m.class_name);
  for (;;) {
    BlockCalls result = shared(main, evaluation, style, blocks, reserved);
    // A class whose modules turn out to be different has no structs.
    std::set<std::string> used;
    for (const auto* functions : {&result.functions, &result.evaluation_functions})
      for (const BlockFunction& f : *functions) used.insert(classes[f.modules.front()]);
    if (std::erase_if(blocks, [&](const auto& block) { return !used.count(classes[block.first]); }) != 0) continue;
    if (written_calls(result.calls, result.functions) <= most &&
        written_calls(result.evaluation, result.evaluation_functions) <= most)
      return result;
    main.values.nest({});
    if (evaluation) evaluation->values.nest({});
    return plain;
  }
}

SharedConfigs shared_configs(const std::vector<BlockLine>& lines,
                             const std::function<std::string(const std::string& block)>& base) {
  std::vector<std::string> order;
  std::unordered_map<std::string, std::vector<const BlockLine*>> own;
  for (const BlockLine& l : lines) {
    if (l.block.empty()) continue;
    std::vector<const BlockLine*>& list = own[l.block];
    if (list.empty()) order.push_back(l.block);
    list.push_back(&l);
  }
  SharedConfigs shared;
  std::unordered_set<const BlockLine*> left_out;
  std::unordered_map<std::string, std::vector<std::string>> written;  // blocks, by the names of their lines
  for (const std::string& block : order) {
    const std::vector<const BlockLine*>& list = own[block];
    std::string names = base(block);
    for (const BlockLine* l : list) names += "\n" + l->name;
    std::vector<std::string>& alike = written[names];
    const auto differing = [&](const std::string& other) {
      const std::vector<const BlockLine*>& others = own[other];
      return std::inner_product(list.begin(), list.end(), others.begin(), std::size_t{0}, std::plus<>(),
                                [](const BlockLine* a, const BlockLine* b) { return a->text != b->text; });
    };
    const auto closest = std::min_element(alike.begin(), alike.end(),
                                          [&](const auto& a, const auto& b) { return differing(a) < differing(b); });
    const std::size_t differ = closest == alike.end() ? list.size() : differing(*closest);
    shared.first[block] = differ == 0 ? *closest : block;
    if (differ == 0 || (base(block).empty() && 2 * differ <= list.size())) {
      if (differ != 0) shared.rest_from[block] = *closest;
      for (std::size_t i = 0; i < list.size(); ++i)
        if (list[i]->text == own[*closest][i]->text) left_out.insert(list[i]);
    } else {
      alike.push_back(block);
    }
  }
  std::unordered_set<std::string> named;
  for (const BlockLine& l : lines) {
    if (const auto of = shared.first.find(l.block); !l.block.empty() && of->second != l.block) {
      if (named.insert(l.block).second)
        shared.lines.push_back({"", fmt::format("using {} = {};", l.block, of->second)});
    } else if (left_out.count(&l) == 0) {
      shared.lines.push_back(l);
    }
  }
  return shared;
}

std::vector<std::string> lines_by_block(const std::vector<BlockLine>& lines,
                                        const std::function<std::string(const std::string& block)>& begin,
                                        const std::function<std::string(const std::string& block)>& end) {
  std::unordered_map<std::string, std::vector<std::string>> blocks;
  for (const BlockLine& l : lines)
    if (!l.block.empty()) blocks[l.block].push_back(l.text);
  std::vector<std::string> result;
  for (const BlockLine& l : lines) {
    if (l.block.empty()) {
      result.push_back(l.text);
    } else if (const auto own = blocks.find(l.block); own != blocks.end()) {
      result.push_back(begin(l.block));
      result.insert(result.end(), own->second.begin(), own->second.end());
      result.push_back(end(l.block));
      blocks.erase(own);
    }
  }
  return result;
}

}  // namespace graven::codegen
