#include "frontend/autograd.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <unordered_map>

#include "frontend/dispatch.h"
#include "frontend/trace.h"
#include "ir/ops.h"
#include "ir/rank_layout.h"

namespace graven {

namespace detail {

namespace {
thread_local bool recording_enabled = true;
std::atomic<std::uint64_t> last_sequence{0};

/// What was known of an eager view's history is from before somebody wrote into what it is a view of: takes the view
/// again.
void renew_history(const Tensor& t) {
  std::vector<Tensor> outdated;
  for (Tensor at = t; at.impl()->view && at.impl()->trace_id == 0; at = Tensor(at.impl()->view->base)) {
    const TensorImpl& impl = *at.impl();
    if (impl.view->seen == impl.storage->version.load(std::memory_order_relaxed) ||
        (impl.requires_grad && !impl.grad_fn))
      break;
    outdated.push_back(at);
  }
  if (outdated.empty()) return;
  const bool before = set_grad_enabled(true);
  for (; !outdated.empty(); outdated.pop_back()) {
    TensorImpl& impl = *outdated.back().impl();
    impl.view->seen = impl.storage->version.load(std::memory_order_relaxed);
    impl.requires_grad = false;
    impl.grad_fn = nullptr;
    std::vector<Tensor> outputs{outdated.back()};
    record_on_tape(*impl.view->op, {Tensor(impl.view->base)}, outputs, impl.view->attributes, Location::current());
  }
  (void)set_grad_enabled(before);
}
}  // namespace

std::uint64_t tape_position() { return last_sequence.load(std::memory_order_relaxed); }

bool grad_enabled() { return recording_enabled; }
bool set_grad_enabled(bool enabled) { return std::exchange(recording_enabled, enabled); }

GradNode::~GradNode() {
  // A long chain is taken apart in a loop: destroying it link by link would recurse once for each.
  std::vector<std::shared_ptr<GradNode>> pending;
  const auto take = [&pending](std::vector<Edge>& edges) {
    for (Edge& e : edges)
      if (e.node) pending.push_back(std::move(e.node));
  };
  take(edges);
  while (!pending.empty()) {
    const std::shared_ptr<GradNode> node = std::move(pending.back());
    pending.pop_back();
    if (node.use_count() == 1) take(node->edges);
  }
}

bool any_requires_grad(const std::vector<Tensor>& tensors) {
  if (!recording_enabled) return false;
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.defined() && t.requires_grad(); });
}

namespace {

std::shared_ptr<GradNode> new_node(const ir::OpDef& op, const Tensor& output, Location where) {
  auto node = std::make_shared<GradNode>();
  node->op = &op;
  node->sequence = ++last_sequence;
  node->where = where;
  node->device = output.impl()->storage->device;
  return node;
}

Edge edge_to(const Tensor& x) {
  const TensorImpl& impl = *x.impl();
  return impl.grad_fn ? Edge{impl.grad_fn, impl.output_index, nullptr} : Edge{nullptr, 0, x.impl()};
}

void comes_from(Tensor& output, const std::shared_ptr<GradNode>& node, std::int32_t index) {
  TensorImpl& result = *output.impl();
  result.requires_grad = true;
  result.grad_fn = node;
  result.output_index = index;
}

}  // namespace

void record_on_tape(const ir::OpDef& op, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                    const ir::Attributes& attributes, Location where) {
  if (outputs.empty() || !op.gradient || !any_requires_grad(inputs) || !ir::is_floating(outputs[0].dtype())) return;
  std::vector<bool> needed(inputs.size(), false);
  for (std::size_t i = 0; i < inputs.size(); ++i) needed[i] = inputs[i].defined() && inputs[i].requires_grad();
  const std::shared_ptr<GradNode> node = new_node(op, outputs[0], where);
  const std::size_t flowing = std::min(op.gradient_outputs, outputs.size());
  for (std::size_t i = 0; i < flowing; ++i) node->output_types.push_back({outputs[i].dtype(), outputs[i].shape()});
  node->program = eager::gradient_of(op, inputs, attributes, needed);
  if (!node->program) return;
  const auto save = [&node](const Tensor& t) {
    node->saved.push_back({alias_of(t), t.impl()->storage->version.load(std::memory_order_relaxed)});
  };
  for (std::int32_t i : node->program->saved_inputs) save(inputs[static_cast<std::size_t>(i)]);
  for (std::int32_t i : node->program->saved_outputs) save(outputs[static_cast<std::size_t>(i)]);
  node->edges.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (needed[i]) node->edges[i] = edge_to(inputs[i]);
  for (std::size_t i = 0; i < flowing; ++i) comes_from(outputs[i], node, static_cast<std::int32_t>(i));
}

void record_copy_on_tape(const Tensor& x, Tensor& copy, Location where) {
  if (!any_requires_grad({x})) return;
  const std::shared_ptr<GradNode> node = new_node(ir::kCopy, copy, where);
  node->copied_from = x.impl()->storage->device;
  node->output_types.push_back({x.dtype(), x.shape()});
  node->edges.push_back(edge_to(x));
  comes_from(copy, node, 0);
}

namespace {

[[noreturn]] void fail_backward(const std::string& message, Location where) { fail("backward", message, where); }

/// Sums without recording.
Tensor accumulate(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return eager::run(ir::kAdd, {a, b}, {}).at(0);
}

}  // namespace

void run_backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients, bool retain_graph,
                  const std::vector<Tensor>* wanted, std::vector<Tensor>* results, Location where) {
  NoGradGuard no_grad;
  // By sequence, latest first: every node comes after all that consume its outputs, whose gradients stand side by side,
  // undefined where there is none.
  struct Pending {
    std::shared_ptr<GradNode> node;
    std::vector<Tensor> gradients;
  };
  std::map<std::uint64_t, Pending, std::greater<>> pending;
  std::unordered_map<const TensorImpl*, std::size_t> wanted_leaf;
  std::map<std::pair<const GradNode*, std::int32_t>, std::size_t> wanted_output;
  if (wanted) {
    results->assign(wanted->size(), Tensor());
    for (std::size_t i = 0; i < wanted->size(); ++i) {
      const auto& impl = (*wanted)[i].impl();
      if (!(*wanted)[i].is_leaf())
        wanted_output.emplace(std::pair(impl->grad_fn.get(), impl->output_index), i);
      else
        wanted_leaf.emplace(impl.get(), i);
    }
  }
  const auto into_leaf = [&](const std::shared_ptr<TensorImpl>& leaf, const Tensor& gradient) {
    if (wanted) {
      const auto it = wanted_leaf.find(leaf.get());
      if (it != wanted_leaf.end()) (*results)[it->second] = accumulate((*results)[it->second], gradient);
      return;
    }
    // Where the leaf lies now: its module may have moved since.
    const Tensor there = contiguous_on(gradient, leaf->storage->device);
    if (!leaf->grad) {
      // The gradient may be somebody else's memory (the caller's, or a view of another gradient).
      leaf->grad = (there.is_same(gradient) ? there.clone() : there).impl();
    } else {
      Tensor sum(leaf->grad);
      copy_elements(*accumulate(sum, there).impl(), *leaf->grad);
    }
  };
  const auto flow = [&](const std::shared_ptr<GradNode>& node, std::int32_t output, const Tensor& gradient) {
    Pending& slot = pending[node->sequence];
    slot.node = node;
    slot.gradients.resize(node->output_types.size());
    Tensor& sum = slot.gradients[static_cast<std::size_t>(output)];
    sum = accumulate(sum, gradient);
  };
  for (std::size_t i = 0; i < roots.size(); ++i) {
    const auto& impl = roots[i].impl();
    if (!roots[i].is_leaf())
      flow(impl->grad_fn, impl->output_index, gradients[i]);
    else
      into_leaf(impl, gradients[i]);
  }
  while (!pending.empty()) {
    const std::shared_ptr<GradNode> node = pending.begin()->second.node;
    std::vector<Tensor> inputs = std::move(pending.begin()->second.gradients);
    pending.erase(pending.begin());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto it = wanted_output.find({node.get(), static_cast<std::int32_t>(i)});
      if (it != wanted_output.end()) (*results)[it->second] = inputs[i];
      if (!inputs[i].defined())
        inputs[i] = zeros(node->output_types[i].shape, {node->output_types[i].dtype, node->device});
    }
    if (node->released)
      fail_backward("the history of " + std::string(node->op->name) +
                        " was freed by an earlier backward(); call that one with retain_graph = true",
                    where);
    for (const SavedTensor& s : node->saved) {
      if (s.tensor.impl()->storage->version.load(std::memory_order_relaxed) != s.version)
        fail_backward(
            "a tensor " + s.tensor.describe() + " that " + std::string(node->op->name) + " (" +
                node->where.file_name() + ":" + std::to_string(node->where.line) +
                ") needs for its gradient was changed in place since: use its clone() there, or change it after "
                "backward()",
            where);
      inputs.push_back(s.tensor);
    }
    const std::vector<Tensor> flowing =
        node->program ? eager::run(*node->program, inputs) : std::vector{contiguous_on(inputs[0], node->copied_from)};
    for (std::size_t i = 0; i < flowing.size(); ++i) {
      const Edge& edge = node->edges[node->program ? static_cast<std::size_t>(node->program->wanted[i]) : 0];
      if (edge.node)
        flow(edge.node, edge.output, flowing[i]);
      else if (edge.leaf)
        into_leaf(edge.leaf, flowing[i]);
    }
    if (!retain_graph) {
      node->released = true;
      node->saved.clear();
    }
  }
}

}  // namespace detail

NoGradGuard::NoGradGuard() : previous_(detail::set_grad_enabled(false)) {}
NoGradGuard::~NoGradGuard() { detail::set_grad_enabled(previous_); }
bool is_grad_enabled() { return detail::grad_enabled(); }

bool Tensor::requires_grad(Location where) const {
  detail::require_defined(*this, "requires_grad", where);
  detail::renew_history(*this);
  return impl_->requires_grad;
}
Tensor& Tensor::requires_grad_(bool value, Location where) {
  detail::TensorImpl& impl = detail::get_mutable(*this, "requires_grad_", where);
  if (value && !ir::is_floating(impl.dtype))
    detail::fail("requires_grad_", "only floating-point tensors have gradients, got " + describe(), where);
  if (impl.trace_id != 0) detail::fail("requires_grad_", "a recorded tensor cannot become a leaf", where);
  if (!is_leaf() && !value)
    detail::fail("requires_grad_", "only a leaf can stop to require a gradient; detach() this tensor", where);
  if (value && !impl.requires_grad) impl.leaf_since = detail::next_moment();
  impl.requires_grad = value;
  return *this;
}
std::string Layout::to_string() const {
  switch (kind_) {
    case Kind::broadcast:
      return "broadcast";
    case Kind::split:
      return "split(" + std::to_string(dim_) + ")";
    case Kind::partial_sum:
      return "partial_sum";
  }
  return {};
}
Tensor& Tensor::set_layout(const Layout& layout, Location where) {
  detail::TensorImpl& impl = detail::get_mutable(*this, "set_layout", where);
  const auto rank = static_cast<std::int64_t>(impl.shape.rank());
  if (layout.kind() == Layout::Kind::split && (layout.dim() < -rank || layout.dim() >= rank))
    detail::fail("set_layout", layout.to_string() + ": expected a dimension of " + describe(), where);
  const bool is_recorded = impl.trace_id != 0;
  if (!is_recorded && !impl.owner.empty() && layout.kind() == Layout::Kind::partial_sum)
    detail::fail("set_layout", "expected split(dimension) or broadcast of a parameter, found partial_sum", where);
  if (layout.kind() == Layout::Kind::partial_sum && !ir::is_floating(impl.dtype))
    detail::fail("set_layout", "expected floating-point numbers, of which there are terms, found " + describe(), where);
  const bool is_split = layout.kind() == Layout::Kind::split;
  impl.layout = is_split ? layout::split(layout.dim() < 0 ? layout.dim() + rank : layout.dim()) : layout;
  if (is_recorded) {
    detail::Trace* const trace = detail::active_trace();
    if (trace == nullptr || !trace->owns(*this))
      detail::fail("set_layout", "expected a tensor of the build() that runs, found " + describe(), where);
    trace->graph.config[std::string(ir::kLayoutOf) + trace->graph.value(impl.value).name] = impl.layout->to_string();
  }
  return *this;
}
std::optional<Layout> Tensor::layout(Location where) const {
  detail::require_defined(*this, "layout", where);
  return impl_->layout;
}
bool Tensor::is_leaf(Location where) const {
  detail::require_defined(*this, "is_leaf", where);
  (void)requires_grad();
  return impl_->grad_fn == nullptr;
}
namespace {
/// Within build() there are no gradients yet.
void require_eager_gradients(const Tensor& t, const char* function, Location where) {
  const detail::Trace* trace = detail::active_trace();
  if (trace && t.defined() && trace->owns(t))
    detail::fail(
        function,
        "within build() gradients are not there yet: backward() marks a loss, and the graph's step finds and uses "
        "them. " +
            std::string(
                "clip_grad_norm_() and clip_grad_value_() work there; what else needs gradients is done eagerly"),
        where);
}
}  // namespace

Tensor Tensor::grad(Location where) const {
  require_eager_gradients(*this, "grad", where);
  return Tensor(detail::get(*this, "grad", where).grad);
}
void Tensor::set_grad(const Tensor& gradient, Location where) {
  require_eager_gradients(*this, "set_grad", where);
  detail::TensorImpl& impl = detail::get_mutable(*this, "set_grad", where);
  if (gradient.defined() && (gradient.shape() != impl.shape || gradient.dtype() != impl.dtype))
    detail::fail("set_grad", "the gradient must be " + describe() + ", got " + gradient.describe(), where);
  if (gradient.defined() && gradient.device() != device())
    detail::fail("set_grad",
                 "the gradient must be on " + device().to_string() + ", as the tensor is, and is on " +
                     gradient.device().to_string(),
                 where);
  impl.grad = gradient.impl();
}

namespace {
Tensor seed_of(const Tensor& root, const Tensor& gradient, Location where) {
  detail::require_defined(root, "backward", where);
  if (!root.requires_grad())
    detail::fail("backward",
                 "the tensor " + root.describe() + " does not require a gradient: nothing it was computed from does",
                 where);
  if (!gradient.defined()) {
    if (root.numel() != 1)
      detail::fail("backward", "needs a gradient for a tensor of more than one element, got " + root.describe(), where);
    return ones_like(root);
  }
  if (gradient.shape() != root.shape() || gradient.dtype() != root.dtype())
    detail::fail("backward", "the gradient must be " + root.describe() + ", got " + gradient.describe(), where);
  return gradient.detach(where);
}
}  // namespace

void Tensor::backward(const Tensor& gradient, bool retain_graph, Location where) const {
  const detail::TensorImpl& impl = detail::get(*this, "backward", where);
  if (impl.trace_id != 0) {
    detail::Trace* trace = detail::active_trace();
    if (!trace || !trace->owns(*this))
      detail::fail("backward", "this tensor was recorded by a graph's build() that is over", where);
    trace->require_before_update("backward()", where);
    if (!impl.requires_grad)
      detail::fail("backward", "the tensor " + describe() + " does not depend on any parameter", where);
    ir::Loss loss{impl.value, ir::kNone};
    if (gradient.defined()) {
      if (gradient.shape() != shape() || gradient.dtype() != dtype())
        detail::fail("backward", "the gradient must be " + describe() + ", got " + gradient.describe(), where);
      loss.gradient = trace->value_of(gradient, where);
    } else if (shape().numel() != Dim(1)) {
      detail::fail("backward",
                   "a loss must have one element, got " + describe() + "; reduce it, or give backward() a gradient",
                   where);
    }
    for (const ir::Loss& earlier : trace->graph.losses)
      if (earlier.value == loss.value)
        detail::fail(
            "backward",
            "this loss went backward in this build() already; for its gradient twice, scale it: (2 * loss).backward()",
            where);
    trace->graph.losses.push_back(loss);
    return;
  }
  detail::run_backward({*this}, {seed_of(*this, gradient, where)}, retain_graph, nullptr, nullptr, where);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& output_gradients, bool retain_graph, Location where) {
  for (const std::vector<Tensor>& tensors : {outputs, inputs}) {
    detail::require_defined(tensors, "grad", where);
    for (const Tensor& t : tensors) require_eager_gradients(t, "grad", where);
  }
  if (!output_gradients.empty() && output_gradients.size() != outputs.size())
    detail::fail_at("grad: expected " + std::to_string(outputs.size()) + " gradients, got " +
                        std::to_string(output_gradients.size()),
                    where);
  std::vector<Tensor> seeds, results;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    seeds.push_back(seed_of(outputs[i], output_gradients.empty() ? Tensor() : output_gradients[i], where));
  for (const Tensor& t : inputs)
    if (!t.requires_grad()) detail::fail_at("grad: the tensor " + t.describe() + " does not require a gradient", where);
  detail::run_backward(outputs, seeds, retain_graph, &inputs, &results, where);
  return results;
}

}  // namespace graven
