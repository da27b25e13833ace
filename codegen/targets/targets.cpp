#include "codegen/targets/targets.h"

#include <algorithm>
#include <cctype>
#include <mutex>

#include "codegen/targets/cpu/target.h"
#include "codegen/targets/cuda/target.h"
#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

/// The first is the host's.
struct Registry {
  std::mutex mutex;
  std::vector<const Target*> targets = {&cpu_target(), &cuda_target()};
};

Registry& registry() {
  static Registry all;
  return all;
}

bool is_name(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

}  // namespace

std::vector<const Target*> targets() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.targets;
}

const Target* find_target(std::string_view name) {
  for (const Target* target : targets())
    if (target->name() == name) return target;
  return nullptr;
}

const Target& target_named(std::string_view name) {
  if (name.empty()) return *targets().front();
  if (const Target* found = find_target(name)) return *found;
  throw UserError("there is no target '" + std::string(name.substr(0, 100)) + "'").note("targets: " + target_names());
}

std::string target_names(std::string_view before_last) {
  const std::vector<const Target*> all = targets();
  std::string names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0) names += i + 1 == all.size() ? before_last : ", ";
    names += all[i]->name();
  }
  return names;
}

void add_target(const Target& target) {
  if (!is_name(target.name()))
    throw UserError("a target's name has letters, digits and '_', got '" + std::string(target.name()) + "'");
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const Target* other : all.targets)
    if (other->name() == target.name())
      throw UserError("there is a target '" + std::string(target.name()) + "' already");
  all.targets.push_back(&target);
}

}  // namespace graven::codegen
