#include "codegen/emit/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>

#include "codegen/emit/text.h"
#include "ir/origin.h"

namespace graven::codegen {

namespace {

/// Fewer calls than this are no function.
constexpr std::size_t kLeastCalls = 3;

/// Calls that the functions of a class must save; and as many make a function of a block that is like no other.
constexpr std::size_t kLeastSaved = 8;

/// What belongs to a block, in the order in which functions take it.
constexpr std::array<std::string_view, 5> kObjects = {"param", "grad", "state", "prepared", "buf"};

bool is_within(const std::string& path, const std::string& module) {
  return path.size() >= module.size() && path.compare(0, module.size(), module) == 0 &&
         (path.size() == module.size() || path[module.size()] == '.');
}

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

}  // namespace

std::vector<std::string> repeated_modules(const std::vector<ir::ModuleInfo>& modules,
                                          const std::vector<const std::vector<Call>*>& phases) {
  std::vector<std::unordered_map<std::string, CallRange>> found;
  for (const std::vector<Call>* calls : phases) found.push_back(call_ranges(*calls));
  struct Class {
    std::vector<std::string> paths;
    std::map<std::string, std::pair<std::size_t, std::size_t>>
        kinds;  // by kernels: how many modules, of how many calls
    bool is_listed = false;
    std::size_t saved() const {
      std::size_t lines = 0;
      for (const auto& [kernels, kind] : kinds) lines += (kind.first - 1) * kind.second;
      return lines;
    }
  };
  std::map<std::string, Class> classes;
  std::unordered_set<std::string> containers;
  for (const ir::ModuleInfo& m : modules)
    if (is_container(m.class_name)) containers.insert(m.path);
  for (const ir::ModuleInfo& m : modules) {
    if (is_container(m.class_name)) continue;
    std::string kernels;
    std::size_t count = 0;
    for (std::size_t p = 0; p < phases.size(); ++p) {
      const auto range = found[p].find(m.path);
      if (range == found[p].end() || !range->second.is_one_run()) continue;
      for (std::size_t i = range->second.first; i <= range->second.last; ++i)
        kernels += first_word((*phases[p])[i].description) + " ";
      kernels += "| ";
      count += range->second.count;
    }
    if (count == 0) continue;
    Class& c = classes[m.class_name];
    c.is_listed = c.is_listed || (count >= kLeastSaved && containers.count(m.path.substr(0, m.path.rfind('.'))));
    c.paths.push_back(m.path);
    auto& [number, calls] = c.kinds[kernels];
    ++number;
    calls = count;
  }
  std::vector<const Class*> order;
  for (const auto& [name, c] : classes) order.push_back(&c);
  // What saves a few lines is no gain for who reads them. The only one of a list is a block as it is with others: the
  // second one then changes nothing of the first.
  std::erase_if(order, [](const Class* c) { return c->saved() < kLeastSaved && !c->is_listed; });
  std::stable_sort(order.begin(), order.end(), [](const Class* a, const Class* b) { return a->saved() > b->saved(); });
  std::vector<std::string> chosen;
  for (const Class* c : order) {
    const std::size_t before = chosen.size();
    for (const std::string& path : c->paths) {
      const bool overlaps =
          std::any_of(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(before),
                      [&](const std::string& other) { return is_within(path, other) || is_within(other, path); });
      // A module in one of its own class belongs to that.
      const bool is_inner = std::any_of(c->paths.begin(), c->paths.end(), [&](const std::string& other) {
        return other != path && is_within(path, other);
      });
      if (!overlaps && !is_inner) chosen.push_back(path);
    }
  }
  return chosen;
}

namespace {

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

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Whether there is scratch memory depends on the sizes, which are not the function's.
std::string without_workspace(const Call& call) {
  const std::string end = ", " + call.workspace + ");";
  return call.workspace.empty() || !call.code.ends_with(end)
             ? call.code
             : call.code.substr(0, call.code.size() - end.size()) + ");";
}

/// Calls of one block, one after the other, as a function would have them.
struct Run {
  std::string module, block;
  std::size_t begin = 0, end = 0;
  std::vector<Call> calls;
  std::vector<std::string> given, names;  ///< pointers that are not its own: where it is called, and inside
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

class Sharer {
 public:
  Sharer(std::vector<Call>& calls, const std::string& suffix, const std::unordered_map<std::string, Pointer>& pointers,
         std::unordered_map<std::string, std::unordered_map<std::string, std::string>>& arguments)
      : calls_(calls), suffix_(suffix), pointers_(pointers), arguments_(arguments) {
    for (const Call& call : calls) made_here_.insert(call.written.begin(), call.written.end());
  }

  std::vector<Run> runs(const std::unordered_map<std::string, std::string>& blocks) {
    std::vector<Run> list;
    std::string open;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      std::string module = calls_[i].owner();
      while (!module.empty() && !blocks.count(module)) {
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
      run.block = blocks.at(run.module);
      rewrite(run);
    }
    return list;
  }

 private:
  void rewrite(Run& run) {
    std::unordered_set<std::string> written;
    for (std::size_t i = run.begin; i < run.end; ++i)
      written.insert(calls_[i].written.begin(), calls_[i].written.end());
    std::set<std::string_view> used;
    for (std::size_t i = run.begin; i < run.end; ++i) {
      Call call = calls_[i];
      call.code = rewritten(run, call.code, written, used);
      const std::string own = "buf." + run.block + ".";
      if (call.workspace.starts_with(own)) call.workspace = "buf." + call.workspace.substr(own.size());
      call.modules.clear();
      for (const std::string& m : calls_[i].modules)
        if (is_within(m, run.module) && m != run.module) call.modules.push_back(m.substr(run.module.size() + 1));
      run.calls.push_back(std::move(call));
    }
    for (const std::string_view object : kObjects)
      if (used.count(object)) run.objects.push_back(object);
  }

  std::string rewritten(Run& run, const std::string& code, const std::unordered_set<std::string>& written,
                        std::set<std::string_view>& used) {
    std::string text;
    const std::string config = "config::" + run.block + "::", evaluation = "config::evaluation::" + run.block + "::";
    for (std::size_t i = 0; i < code.size();) {
      if (code[i] == '"') {  // a string, as it is
        std::size_t end = i + 1;
        while (end < code.size() && code[end] != '"') end += code[end] == '\\' ? 2 : 1;
        text += code.substr(i, end + 1 - i);
        i = end + 1;
        continue;
      }
      if (!is_letter(code[i])) {
        text += code[i++];
        continue;
      }
      for (const std::string* prefix : {&config, &evaluation})
        if (code.compare(i, prefix->size(), *prefix) == 0) {
          text += "Config::";
          i += prefix->size();
          run.uses_config = true;
          run.uses_evaluation = run.uses_evaluation || prefix == &evaluation;
          break;
        }
      std::size_t end = i;
      while (end < code.size() && (is_letter(code[end]) || code[end] == '.')) ++end;
      const std::string word = code.substr(i, end - i);
      i = end;
      const std::size_t dot = word.find('.');
      const auto object = std::find(kObjects.begin(), kObjects.end(), word.substr(0, dot));
      if (dot == std::string::npos || object == kObjects.end()) {
        text += word;
        continue;
      }
      if (word.compare(dot + 1, run.block.size() + 1, run.block + ".") == 0) {
        used.insert(*object);
        text += word.substr(0, dot + 1) + word.substr(dot + 2 + run.block.size());
        continue;
      }
      text += argument(run, word, written.count(word) != 0);
    }
    return text;
  }

  std::string argument(Run& run, const std::string& pointer, bool is_written) {
    const auto known = std::find(run.given.begin(), run.given.end(), pointer);
    if (known != run.given.end()) return run.names[static_cast<std::size_t>(known - run.given.begin())];
    std::unordered_map<std::string, std::string>& names = arguments_[run.block];
    auto own = names.find(pointer);
    if (own == names.end()) {
      const std::string base = is_written                             ? "y"
                               : pointer.compare(0, 6, "param.") == 0 ? "weight"
                               : suffix_.empty()                      ? "x"
                               : made_here_.count(pointer)            ? "gradient"
                                                                      : "other";
      const auto is_taken = [&](const std::string& name) {
        return std::any_of(names.begin(), names.end(), [&](const auto& entry) { return entry.second == name; });
      };
      std::string name = base;
      for (int n = 2; is_taken(name); ++n) name = fmt::format("{}_{}", base, n);
      own = names.emplace(pointer, name).first;
    }
    const auto about = pointers_.find(pointer);
    const std::string element = about == pointers_.end() ? "u8" : about->second.element;
    run.given.push_back(pointer);
    run.names.push_back(own->second);
    run.types.push_back((is_written ? "" : "const ") + element + "*");
    return own->second;
  }

  std::vector<Call>& calls_;
  const std::string& suffix_;
  const std::unordered_map<std::string, Pointer>& pointers_;
  std::unordered_map<std::string, std::unordered_map<std::string, std::string>>& arguments_;
  std::unordered_set<std::string> made_here_;
};

bool mentions(const std::string& code, const std::string& pointer) {
  for (std::size_t i = code.find(pointer); i != std::string::npos; i = code.find(pointer, i + 1)) {
    const std::size_t end = i + pointer.size();
    if (end == code.size() || (!is_letter(code[end]) && code[end] != '.')) return true;
  }
  return false;
}

/// "f32[64,8,8,24] -> f32[64,4,4,32]": what goes in, and what others read of it.
std::string types_of(const Run& run, const std::vector<Call>& calls,
                     const std::unordered_map<std::string, Pointer>& pointers) {
  const auto type_of = [&](const std::string& pointer) {
    const auto about = pointers.find(pointer);
    return about == pointers.end() ? std::string() : about->second.type;
  };
  std::string from, to;
  for (std::size_t i = 0; from.empty() && i < run.given.size(); ++i)
    if (run.types[i].compare(0, 6, "const ") == 0) from = type_of(run.given[i]);
  for (std::size_t i = run.end; to.empty() && i-- > run.begin;)
    for (const std::string& pointer : calls[i].written)
      for (std::size_t k = run.end; to.empty() && k < calls.size(); ++k)
        if (pointer.compare(0, 4, "buf.") == 0 && mentions(calls[k].code, pointer)) to = type_of(pointer);
  return from.empty() || to.empty() ? from + to : from + " -> " + to;
}

}  // namespace

std::vector<BlockFunction> share_blocks(
    std::vector<Call>& calls, const std::vector<ir::ModuleInfo>& modules,
    const std::unordered_map<std::string, std::string>& blocks, const std::string& suffix,
    const std::unordered_set<std::string>& taken, std::unordered_set<std::string>& used,
    const std::unordered_map<std::string, Pointer>& pointers,
    std::unordered_map<std::string, std::unordered_map<std::string, std::string>>& arguments) {
  const std::vector<Run> runs = Sharer(calls, suffix, pointers, arguments).runs(blocks);
  std::unordered_map<std::string, std::string> classes;
  for (const ir::ModuleInfo& m : modules) classes.emplace(m.path, m.class_name);
  std::vector<std::vector<const Run*>> groups;
  std::unordered_map<std::string, std::size_t> by_key;
  for (const Run& run : runs) {
    const auto [known, fresh] = by_key.emplace(classes[run.module] + "\n" + run.key(), groups.size());
    if (fresh) groups.emplace_back();
    groups[known->second].push_back(&run);
  }
  std::vector<BlockFunction> functions;
  std::unordered_map<std::size_t, std::pair<const Run*, Call>> replaced;  // by where the run begins
  for (const std::vector<const Run*>& group : groups) {
    if (group.size() < 2 && group.front()->calls.size() < kLeastSaved) continue;
    const Run& first = *group.front();
    BlockFunction f;
    std::string base = snake_case(classes[first.module]);
    if (taken.count(base)) base += "_block";
    base += suffix;
    f.name = base;
    for (int n = 2; !used.insert(f.name).second; ++n) f.name = fmt::format("{}_{}", base, n);
    f.uses_config = first.uses_config;
    for (const std::string_view object : first.objects) {
      f.types.emplace_back("const auto&");
      f.parameters.emplace_back(object);
    }
    f.types.insert(f.types.end(), first.types.begin(), first.types.end());
    f.parameters.insert(f.parameters.end(), first.names.begin(), first.names.end());
    f.calls = first.calls;
    for (std::size_t i = 0; i < f.calls.size(); ++i) {
      const auto with =
          std::find_if(group.begin(), group.end(), [&](const Run* run) { return !run->calls[i].workspace.empty(); });
      if (with == group.end()) continue;
      f.calls[i].code = (*with)->calls[i].code;
      for (const Run* run : group)
        if (run->calls[i].workspace.empty())
          f.unneeded.push_back(run->block + (*with)->calls[i].workspace.substr(std::string_view("buf").size()));
    }
    for (std::size_t i = 0; i < f.calls.size(); ++i)
      for (std::string Call::* text : {&Call::description, &Call::types, &Call::location}) {
        std::vector<std::string> texts;
        for (const Run* run : group) texts.push_back(run->calls[i].*text);
        const bool differ = std::adjacent_find(texts.begin(), texts.end(), std::not_equal_to<>()) != texts.end();
        f.calls[i].*text = !differ ? texts.front() : text == &Call::location ? std::string() : merged(texts);
      }
    for (const Run* run : group) {
      f.modules.push_back(run->module);
      std::vector<std::string> values;
      for (const std::string_view object : run->objects) values.push_back(fmt::format("{}.{}", object, run->block));
      values.insert(values.end(), run->given.begin(), run->given.end());
      Call call;
      call.modules = {run->module};
      call.description = fmt::format("{}: {}", run->module, classes[run->module]);
      call.is_block = true;
      call.kernel_calls = f.calls.size();
      call.types = types_of(*run, calls, pointers);
      const std::string config = (run->uses_evaluation ? "<config::evaluation::" : "<config::") + run->block + ">";
      call.code = f.name + (run->uses_config ? config : std::string()) + "(" + join(values) + ");";
      for (const Call& own : run->calls) {
        call.headers.insert(own.headers.begin(), own.headers.end());
        call.uses_functor = call.uses_functor || own.uses_functor;
        call.written.insert(own.written.begin(), own.written.end());
      }
      replaced.emplace(run->begin, std::pair(run, std::move(call)));
    }
    functions.push_back(std::move(f));
  }
  std::vector<Call> shorter;
  for (std::size_t i = 0; i < calls.size();) {
    const auto block = replaced.find(i);
    if (block == replaced.end()) {
      shorter.push_back(std::move(calls[i++]));
    } else {
      i = block->second.first->end;
      shorter.push_back(std::move(block->second.second));
    }
  }
  calls = std::move(shorter);
  return functions;
}

}  // namespace graven::codegen
