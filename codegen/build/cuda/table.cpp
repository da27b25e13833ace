#include "codegen/build/cuda/table.h"

#include <string_view>
#include <unordered_map>

namespace graven::codegen {

CudaThunk find_cuda_thunk(const std::string& key) {
  static const auto* const map = [] {
    auto* m = new std::unordered_map<std::string_view, CudaThunk>;
    for (const auto& part : cuda_table_parts())
      for (const CudaTableEntry& e : part) m->emplace(e.key, e.thunk);
    return m;
  }();
  const auto it = map->find(key);
  return it == map->end() ? nullptr : it->second;
}

}  // namespace graven::codegen
