#include "ir/origin.h"

#include <algorithm>

namespace graven::ir {

std::string Origin::to_string() const {
  if (file.empty()) return module;
  const std::string place = file + ":" + std::to_string(line);
  return module.empty() ? place : module + " (" + place + ")";
}

Origins merge(const Origins& a, const Origins& b) {
  Origins r = a;
  for (const Origin& o : b)
    if (std::find(r.begin(), r.end(), o) == r.end()) r.push_back(o);
  return r;
}

}  // namespace graven::ir
