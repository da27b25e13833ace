#include "frontend/eager/program.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "frontend/eager/table.h"
#include "ir/analysis.h"

namespace graven::eager {

namespace {

using ir::kNone;
using ir::ValueId;

void append(std::string& key, const ir::Attribute& a) {
  key += static_cast<char>('A' + static_cast<int>(a.index()));
  std::visit(
      [&](const auto& v) {
        using T = std::remove_cvref_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::int64_t>) {
          key += std::to_string(v);
        } else if constexpr (std::is_same_v<T, double>) {
          char bits[sizeof v];
          __builtin_memcpy(bits, &v, sizeof v);
          key.append(bits, sizeof bits);
        } else if constexpr (std::is_same_v<T, std::string>) {
          key.append(std::to_string(v.size())).append(":").append(v);
        } else if constexpr (std::is_same_v<T, ir::Ints>) {
          for (std::int64_t i : v) key.append(std::to_string(i)).append(",");
        } else if constexpr (std::is_same_v<T, ir::DType>) {
          key += ir::name(v);
        } else if constexpr (std::is_same_v<T, ir::Shape>) {
          key += v.to_string();
        } else {
          GRAVEN_CHECK(v.empty(), "a fused program has no eager signature");
        }
      },
      a);
}

/// What tells two calls apart that need different programs.
std::string signature(const ir::OpDef& op, const std::vector<Tensor>& inputs, const ir::Attributes& attributes) {
  std::string key(op.name);
  for (const auto& [name, value] : attributes) {
    key.append("|").append(name).append("=");
    append(key, value);
  }
  for (const Tensor& t : inputs) {
    key += ';';
    if (!t.defined()) continue;
    key += ir::name(t.dtype());
    for (std::int64_t s : t.impl()->sizes) key.append(",").append(std::to_string(s));
  }
  return key;
}

/// Programs by signature. Bounded: a program with ever new shapes starts over rather than growing without end.
template <class T>
class Cache {
 public:
  template <class Make>
  std::shared_ptr<const T> get(const std::string& key, Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = entries_.find(key); it != entries_.end()) return it->second;
    }
    std::shared_ptr<const T> made = make();
    const std::lock_guard lock(mutex_);
    constexpr std::size_t kMost = 10000;
    if (entries_.size() >= kMost) entries_.clear();
    return entries_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const T>> entries_;
};

struct OperatorProgram {
  std::shared_ptr<const Executor> executor;
  std::vector<ir::TensorType> results;
  std::vector<std::size_t> given;    ///< inputs that are present
  std::vector<std::size_t> updated;  ///< of them, those whose new values are the last results
};

std::shared_ptr<const OperatorProgram> make_program(const ir::OpDef& op, const std::vector<Tensor>& inputs,
                                                    const ir::Attributes& attributes) {
  auto program = std::make_shared<OperatorProgram>();
  ir::Graph graph;
  graph.name = "eager";
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      ids.push_back(kNone);
      continue;
    }
    program->given.push_back(i);
    ids.push_back(graph.add_input("input_" + std::to_string(i), {inputs[i].dtype(), inputs[i].shape()}));
  }
  // Optional inputs at the end may be left out.
  while (!ids.empty() && ids.back() == kNone) ids.pop_back();
  graph.outputs = graph.add_node(op, ids, attributes, {});
  for (ValueId v : graph.outputs) program->results.push_back(graph.type(v));
  program->updated = ir::donated_inputs(op, graph.nodes.back().inputs);
  lower_for_eager(graph);
  program->executor = std::make_shared<const Executor>(std::move(graph));
  return program;
}

std::vector<Tensor> run_program(const Executor& executor, const std::vector<ir::TensorType>& results,
                                const std::vector<Tensor>& rows, const std::vector<Tensor>& updated = {}) {
  std::vector<const void*> in;
  for (const Tensor& t : rows) in.push_back(t.impl()->data());
  std::vector<Tensor> outputs;
  std::vector<void*> out;
  const std::size_t made = results.size() - updated.size();
  for (std::size_t i = 0; i < made; ++i) {
    outputs.push_back(detail::make_tensor(results[i].dtype, results[i].shape));
    out.push_back(outputs.back().impl()->data());
  }
  for (const Tensor& t : updated) out.push_back(t.impl()->data());
  executor.run(in, out);
  return outputs;
}

}  // namespace

std::vector<Tensor> run(const ir::OpDef& op, const std::vector<Tensor>& inputs, const ir::Attributes& attributes) {
  static Cache<OperatorProgram> cache;
  const auto program =
      cache.get(signature(op, inputs, attributes), [&] { return make_program(op, inputs, attributes); });
  std::vector<Tensor> rows, updated;
  for (const std::size_t i : program->given) {
    rows.push_back(detail::contiguous_copy(inputs[i]));
    if (std::count(program->updated.begin(), program->updated.end(), i) != 0) updated.push_back(rows.back());
  }
  const std::vector<Tensor> outputs = run_program(*program->executor, program->results, rows, updated);
  for (std::size_t k = 0; k < updated.size(); ++k) {
    detail::TensorImpl& target = *inputs[program->updated[k]].impl();
    if (updated[k].impl() != inputs[program->updated[k]].impl()) detail::copy_elements(*updated[k].impl(), target);
    target.bump_version();
  }
  return outputs;
}

std::shared_ptr<const GradientProgram> gradient_of(const ir::OpDef& op, const std::vector<Tensor>& inputs,
                                                   const ir::Attributes& attributes, const std::vector<bool>& needed) {
  static Cache<GradientProgram> cache;
  std::string key = signature(op, inputs, attributes) + "/";
  for (bool b : needed) key += b ? '1' : '0';
  return cache.get(key, [&]() -> std::shared_ptr<const GradientProgram> {
    ir::Graph graph;
    graph.name = "eager_gradient";
    ir::Node node{&op, attributes, {}, {}, ir::Phase::forward, {}};
    std::vector<std::optional<ir::TensorType>> types;
    for (const Tensor& t : inputs)
      types.push_back(t.defined() ? std::optional(ir::TensorType{t.dtype(), t.shape()}) : std::nullopt);
    const std::vector<ir::TensorType> results = ir::infer(op, types, node.attributes);  // fills in the defaults
    std::vector<ValueId> output_gradients(results.size(), kNone), remaining;
    for (std::size_t i = 0; i < op.gradient_outputs; ++i) {
      output_gradients.at(i) = graph.add_input("dy_" + std::to_string(i), results[i]);
      remaining.push_back(output_gradients[i]);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
      node.inputs.push_back(types[i] ? graph.add_input("input_" + std::to_string(i), *types[i]) : kNone);
    for (std::size_t i = 0; i < results.size(); ++i)
      node.outputs.push_back(graph.add_input("output_" + std::to_string(i), results[i]));
    ir::GradientBuilder builder(graph, node, output_gradients, needed);
    op.gradient(builder);
    auto program = std::make_shared<GradientProgram>();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueId v = builder.gradients()[i];
      if (!needed[i] || v == kNone) continue;
      if (graph.type(v) != graph.type(node.inputs[i]))
        GRAVEN_CHECK(false, "the gradient of " + std::string(op.name) + " is " + graph.type(v).to_string() + " where " +
                                graph.type(node.inputs[i]).to_string() + " is due");
      program->wanted.push_back(static_cast<std::int32_t>(i));
      program->results.push_back(graph.type(v));
      graph.outputs.push_back(v);
    }
    if (graph.outputs.empty()) return nullptr;
    // Nodes that nothing needs (the rule may build more than is asked for), then what remains of the inputs is what
    // must be saved.
    ir::ByValue<bool> used;
    for (ValueId v : graph.outputs) used[v] = true;
    std::vector<ir::Node> kept;
    for (std::size_t k = graph.nodes.size(); k-- > 0;) {
      ir::Node& n = graph.nodes[k];
      if (std::none_of(n.outputs.begin(), n.outputs.end(), std::cref(used))) continue;
      for (ValueId v : n.inputs)
        if (v != kNone) used[v] = true;
      kept.push_back(std::move(n));
    }
    graph.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (used(node.inputs[i])) {
        program->saved_inputs.push_back(static_cast<std::int32_t>(i));
        remaining.push_back(node.inputs[i]);
      }
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (used(node.outputs[i])) {
        program->saved_outputs.push_back(static_cast<std::int32_t>(i));
        remaining.push_back(node.outputs[i]);
      }
    graph.inputs = remaining;
    lower_for_eager(graph);
    program->executor = std::make_shared<const Executor>(std::move(graph));
    return program;
  });
}

std::vector<Tensor> run(const GradientProgram& program, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> rows;
  for (const Tensor& t : inputs) rows.push_back(detail::contiguous_copy(t));
  return run_program(*program.executor, program.results, rows);
}

}  // namespace graven::eager
