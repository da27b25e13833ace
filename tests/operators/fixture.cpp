#include "tests/operators/fixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>

namespace graven::tests {

namespace {

double number_of(const nlohmann::json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

Tensor tensor_from(const nlohmann::json& stored) {
  std::vector<Dim> dims;
  for (const auto& d : stored.at("shape")) dims.emplace_back(d.get<std::int64_t>());
  const Shape shape(dims);
  const std::string dtype = stored.at("dtype");
  if (ir::is_floating(*ir::dtype_from_name(dtype))) {
    std::vector<double> values;
    for (const auto& v : stored.at("values")) values.push_back(number_of(v));
    return from_data(values, shape).to(*ir::dtype_from_name(dtype));
  }
  const auto values = stored.at("values").get<std::vector<std::int64_t>>();
  return from_data(values, shape).to(*ir::dtype_from_name(dtype));
}

double tolerance_of(const tolerance::Tolerance& t, DType dtype) {
  return dtype == f64 ? t.f64 : dtype == f16 ? t.f16 : dtype == bf16 ? t.bf16 : t.f32;
}

void expect_close(const Tensor& expected, const Tensor& computed, const tolerance::Tolerance& tolerance) {
  ASSERT_TRUE(computed.defined());
  ASSERT_EQ(expected.shape().to_string(), computed.shape().to_string());
  ASSERT_EQ(expected.dtype(), computed.dtype());
  const std::vector<double> a = expected.to_vector<double>(), b = computed.to_vector<double>();
  double largest = 0;
  for (const double v : a)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  const double allowed =
      ir::is_floating(expected.dtype()) ? tolerance_of(tolerance, expected.dtype()) * (1 + largest) : 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) || std::fabs(a[i] - b[i]) <= allowed;
    if (!same) {
      ADD_FAILURE() << "element " << i << ": expected " << a[i] << ", computed " << b[i] << ", allowed difference "
                    << allowed;
      return;
    }
  }
}

}  // namespace

Fixture::Fixture(const nlohmann::json& stored)
    : function_(stored.at("function")), note_(stored.at("note")), options_(stored.at("options")) {
  for (const auto& [name, t] : stored.at("inputs").items()) inputs_.emplace(name, tensor_from(t));
  for (const auto& t : stored.at("outputs")) outputs_.push_back(tensor_from(t));
  if (!stored.contains("gradients")) return;
  for (const auto& [name, t] : stored.at("gradients").items()) gradients_.emplace(name, tensor_from(t));
  for (const auto& t : stored.at("weights")) weights_.push_back(t.is_null() ? Tensor() : tensor_from(t));
}

Tensor Fixture::tensor(const std::string& name) const {
  const auto found = inputs_.find(name);
  return found == inputs_.end() ? Tensor() : found->second;
}

Sizes Fixture::sizes(const std::string& option) const {
  if (!has(option)) return {};
  const nlohmann::json& value = options_.at(option);
  if (value.is_array()) return value.get<Sizes>();
  return {value.get<std::int64_t>()};
}

std::vector<double> Fixture::numbers(const std::string& option) const {
  return has(option) ? options_.at(option).get<std::vector<double>>() : std::vector<double>{};
}

Reduction Fixture::reduction() const {
  const std::string name = text("reduction", "mean");
  return name == "none"        ? Reduction::none
         : name == "sum"       ? Reduction::sum
         : name == "batchmean" ? Reduction::batchmean
                               : Reduction::mean;
}

Fixture Fixture::with(std::map<std::string, Tensor> inputs) const {
  Fixture changed = *this;
  changed.inputs_ = std::move(inputs);
  changed.parameters_ = std::make_shared<std::map<std::string, Tensor>>();
  return changed;
}

void Fixture::give_parameters(nn::ModuleBase& module) const {
  for (auto [name, parameter] : module.named_parameters()) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) name.replace(dot, 1, "__");
    if (!tensor(name).defined()) throw UserError("the case has no parameter " + name);
    NoGradGuard no_grad;
    parameter.copy_(tensor(name));
    parameters_->insert_or_assign(name, parameter);
  }
}

Tensor Fixture::leaf(const std::string& name) const {
  const auto found = parameters_->find(name);
  return found == parameters_->end() ? tensor(name) : found->second;
}

Function one(Tensor (*function)(const Fixture&)) {
  return [function](const Fixture& fixture) { return std::vector<Tensor>{function(fixture)}; };
}

void expect_family(const std::string& family, const std::map<std::string, Function>& functions,
                   const tolerance::Tolerance& output_tolerance, const tolerance::Tolerance& gradient_tolerance) {
  std::ifstream file(GRAVEN_SOURCE_DIR "/tests/fixtures/operators/" + family + ".json");
  ASSERT_TRUE(file) << family;
  std::set<std::string> seen;
  for (const nlohmann::json& stored : nlohmann::json::parse(file)) {
    const Fixture fixture(stored);
    SCOPED_TRACE(family + ": " + fixture.function() + (fixture.note().empty() ? "" : ", " + fixture.note()) + " " +
                 stored.at("options").dump());
    seen.insert(fixture.function());
    const auto function = functions.find(fixture.function());
    if (function == functions.end()) {
      ADD_FAILURE() << "no function of this name";
      continue;
    }
    std::map<std::string, Tensor> leaves;
    for (const auto& [name, t] : fixture.inputs()) {
      Tensor leaf = t.clone();
      if (fixture.gradients().count(name)) leaf.requires_grad_();
      leaves.emplace(name, leaf);
    }
    try {
      const Fixture own = fixture.with(leaves);
      const std::vector<Tensor> outputs = function->second(own);
      if (outputs.empty() || outputs.size() > fixture.outputs().size()) {
        ADD_FAILURE() << "expected up to " << fixture.outputs().size() << " outputs, computed " << outputs.size();
        continue;
      }
      Tensor loss;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        SCOPED_TRACE("output " + std::to_string(i));
        expect_close(fixture.outputs()[i], outputs[i], output_tolerance);
        if (i >= fixture.weights().size() || !fixture.weights()[i].defined()) continue;
        const Tensor part = (outputs[i] * fixture.weights()[i]).sum();
        loss = loss.defined() ? loss + part : part;
      }
      if (!loss.defined() || testing::Test::HasFailure()) continue;
      loss.backward();
      for (const auto& [name, expected] : fixture.gradients()) {
        SCOPED_TRACE("gradient of " + name);
        expect_close(expected, own.leaf(name).grad(), gradient_tolerance);
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  for (const auto& [name, function] : functions)
    EXPECT_TRUE(seen.count(name)) << "no case of " << name << " in " << family;
}

}  // namespace graven::tests
