#include "graven/layers/containers.h"

#include "frontend/dispatch.h"
#include "frontend/module_state.h"

namespace graven::nn {

void detail::fail_missing_key(const ModuleBase& container, std::string_view key, const std::vector<std::string>& keys) {
  std::string known;
  for (const std::string& k : keys) known += (known.empty() ? "" : ", ") + k;
  throw UserError(container.class_name() + ": there is no entry '" + std::string(key) + "', " +
                  (known.empty() ? "it is empty" : "it has " + known));
}

// ---- ParameterList --------------------------------------------------------------------------------------------------

ParameterList::ParameterList() { state()->prints_parameters = ModuleState::PrintsParameters::as_dtypes; }
ParameterList::ParameterList(std::initializer_list<Tensor> parameters)
    : ParameterList(std::vector<Tensor>(parameters)) {}
ParameterList::ParameterList(const std::vector<Tensor>& parameters) : ParameterList() {
  for (const Tensor& p : parameters) push_back(p, Location{});
}
ParameterList& ParameterList::push_back(Tensor init, Location where) {
  const std::string name = std::to_string(size());
  if (!init.defined())
    graven::detail::fail_at("ParameterList: entry " + name + " must be a tensor, got an undefined one", where);
  parameters_->emplace_back(parameter({std::string_view(name), where}, std::move(init)));
  return *this;
}
Registered<ParameterList>& ParameterList::operator[](std::size_t index) const {
  require_entry(index, size());
  return (*parameters_)[index];
}
std::vector<Registered<ParameterList>>::const_iterator ParameterList::begin() const {
  require_registered();
  return parameters_->begin();
}
std::vector<Registered<ParameterList>>::const_iterator ParameterList::end() const { return parameters_->end(); }

// ---- ParameterDict --------------------------------------------------------------------------------------------------

ParameterDict::ParameterDict() { state()->prints_parameters = ModuleState::PrintsParameters::as_tensors; }
ParameterDict::ParameterDict(std::initializer_list<std::pair<std::string, Tensor>> parameters)
    : ParameterDict(std::vector<std::pair<std::string, Tensor>>(parameters)) {}
ParameterDict::ParameterDict(const std::vector<std::pair<std::string, Tensor>>& parameters) : ParameterDict() {
  for (const auto& [key, p] : parameters) insert({std::string_view(key), Location{}}, p);
}
ParameterDict& ParameterDict::insert(Name key, Tensor init) {
  if (!init.defined())
    graven::detail::fail_at(
        "ParameterDict: entry '" + std::string(key.text()) + "' must be a tensor, got an undefined one", key.where());
  parameters_->emplace_back(std::string(key.text()), parameter(key, std::move(init)));
  return *this;
}
Registered<ParameterDict>& ParameterDict::operator[](std::string_view key) const {
  require_registered();
  Registered<ParameterDict>* found = detail::find_entry(*parameters_, key);
  if (!found) detail::fail_missing_key(*this, key, keys());
  return *found;
}
detail::Entries<Registered<ParameterDict>>::const_iterator ParameterDict::begin() const {
  require_registered();
  return parameters_->begin();
}
detail::Entries<Registered<ParameterDict>>::const_iterator ParameterDict::end() const { return parameters_->end(); }

}  // namespace graven::nn
