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

std::string owner_of(const Origins& origins) {
  for (const Origin& o : origins)
    if (!o.module.empty()) return o.module;
  return {};
}

std::string place_of(const Origins& origins) {
  for (const Origin& o : origins)
    if (!o.file.empty()) return o.file + ":" + std::to_string(o.line);
  return {};
}

std::string described(const Origins& origins) {
  const std::string owner = owner_of(origins), place = place_of(origins);
  return owner + (owner.empty() || place.empty() ? "" : ", ") + place;
}

std::vector<std::string> modules_of(const Origins& origins) {
  std::vector<std::string> modules;
  for (const Origin& o : origins)
    if (!o.module.empty() && std::find(modules.begin(), modules.end(), o.module) == modules.end())
      modules.push_back(o.module);
  return modules;
}

bool is_within(const std::string& path, const std::string& module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

std::string common_module(const std::vector<std::string>& paths) {
  if (paths.empty()) return {};
  std::string common = paths.front();
  for (const std::string& path : paths) {
    std::size_t same = 0;
    while (same < common.size() && same < path.size() && common[same] == path[same]) ++same;
    const auto ends = [&](const std::string& p) { return same == p.size() || p[same] == '.'; };
    if (!ends(common) || !ends(path)) {  // within a name
      const std::size_t dot = common.substr(0, same).rfind('.');
      same = dot == std::string::npos ? 0 : dot;
    }
    common.resize(same);
  }
  return common;
}

std::string braced(const std::vector<std::string>& paths) {
  struct Family {
    std::string parent;  // with its dot
    std::vector<std::string> children;
  };
  std::vector<Family> families;
  for (const std::string& path : paths) {
    const std::size_t dot = path.rfind('.');
    const std::string parent = dot == std::string::npos ? std::string() : path.substr(0, dot + 1);
    auto family = std::find_if(families.begin(), families.end(), [&](const Family& f) { return f.parent == parent; });
    if (family == families.end()) family = families.insert(family, Family{parent, {}});
    family->children.push_back(path.substr(parent.size()));
  }
  std::string text;
  for (const Family& family : families) {
    std::string children;
    for (const std::string& child : family.children)
      children += (children.empty() ? "" : family.parent.empty() ? ", " : ",") + child;
    if (family.children.size() > 1 && !family.parent.empty()) children = "{" + children + "}";
    text += (text.empty() ? "" : ", ") + family.parent + children;
  }
  return text;
}

}  // namespace graven::ir
