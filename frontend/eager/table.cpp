#include "frontend/eager/table.h"

#include <unordered_map>

namespace graven::eager {

Thunk find_thunk(const std::string& key) {
  static const auto* const map = [] {
    auto* m = new std::unordered_map<std::string_view, Thunk>;
    for (const auto& part : table_parts())
      for (const TableEntry& e : part) m->emplace(e.key, e.thunk);
    return m;
  }();
  const auto it = map->find(key);
  return it == map->end() ? nullptr : it->second;
}

}  // namespace graven::eager
