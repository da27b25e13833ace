// Printing as PyTorch does (torch/_tensor_str.py): 4 decimals, 3 items at each edge of what has more than 1000
// elements, 80 columns.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "frontend/autograd.h"
#include "frontend/tensor_impl.h"
#include "graven/tensor.h"

namespace graven {

namespace {

constexpr std::int64_t kEdge = 3, kThreshold = 1000;
constexpr std::size_t kLineWidth = 80;

std::string format(const char* pattern, double value) {
  char text[400];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

class Printer {
 public:
  explicit Printer(const Tensor& t) : tensor_(t), impl_(detail::get(tensor_)), summarize_(t.numel() > kThreshold) {
    floating_ = ir::is_floating(impl_.dtype);
    measure();
  }

  std::string text(std::size_t indent) const { return body(0, impl_.offset, indent); }

 private:
  double number(std::int64_t at) const {
    return detail::read_element(impl_.dtype,
                                impl_.storage->data + at * static_cast<std::int64_t>(ir::size_of(impl_.dtype)));
  }
  std::int64_t integer(std::int64_t at) const {
    return detail::read_integer(impl_.dtype,
                                impl_.storage->data + at * static_cast<std::int64_t>(ir::size_of(impl_.dtype)));
  }
  /// The indices of dimension d that are shown; -1 stands for the dots.
  std::vector<std::int64_t> shown(std::size_t d) const {
    std::vector<std::int64_t> indices;
    const std::int64_t n = impl_.sizes[d];
    for (std::int64_t i = 0; i < n; ++i) {
      if (summarize_ && n > 2 * kEdge && i == kEdge) {
        indices.push_back(-1);
        i = n - kEdge;
      }
      indices.push_back(i);
    }
    return indices;
  }
  void collect(std::size_t d, std::int64_t at, std::vector<std::int64_t>& offsets) const {
    if (d == impl_.sizes.size()) {
      offsets.push_back(at);
      return;
    }
    for (std::int64_t i : shown(d))
      if (i >= 0) collect(d + 1, at + i * impl_.strides[d], offsets);
  }
  void measure() {
    std::vector<std::int64_t> offsets;
    collect(0, impl_.offset, offsets);
    if (!floating_) {
      for (std::int64_t o : offsets) width_ = std::max(width_, element(o).size());
      return;
    }
    double largest = 0, smallest = INFINITY;
    std::vector<double> values;
    for (std::int64_t o : offsets)
      if (const double v = number(o); std::isfinite(v) && v != 0) values.push_back(v);
    if (values.empty()) return;
    for (double v : values) {
      largest = std::max(largest, std::abs(v));
      smallest = std::min(smallest, std::abs(v));
      if (v != std::ceil(v)) integers_ = false;
    }
    scientific_ = largest / smallest > 1000 || largest > 1e8 || (!integers_ && smallest < 1e-4);
    for (double v : values) width_ = std::max(width_, plain(v).size());
  }
  std::string plain(double v) const {
    if (scientific_) return format("%.4e", v);
    if (!integers_) return format("%.4f", v);
    return format("%.0f", v) + (std::isfinite(v) ? "." : "");
  }
  std::string element(std::int64_t at) const {
    if (impl_.dtype == DType::boolean) return integer(at) ? "True" : "False";
    if (!floating_) return std::to_string(integer(at));
    const double v = number(at);
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
    return plain(v);
  }
  std::string padded(std::int64_t at) const {
    const std::string s = element(at);
    return std::string(width_ > s.size() ? width_ - s.size() : 0, ' ') + s;
  }
  std::string body(std::size_t d, std::int64_t at, std::size_t indent) const {
    const std::size_t rank = impl_.sizes.size();
    if (d == rank) return padded(at);
    std::string text = "[";
    if (d + 1 == rank) {
      const std::size_t room = kLineWidth > indent ? kLineWidth - indent : 0;
      const std::size_t per_line = std::max<std::size_t>(1, room / (width_ + 2));
      std::string line_break = ",\n";
      line_break.append(indent + 1, ' ');
      std::size_t n = 0;
      for (std::int64_t i : shown(d)) {
        if (n) text += n % per_line == 0 ? line_break : ", ";
        text += i < 0 ? " ..." : padded(at + i * impl_.strides[d]);
        ++n;
      }
    } else {
      bool first = true;
      for (std::int64_t i : shown(d)) {
        if (!first) text.append(",").append(rank - d - 1, '\n').append(indent + 1, ' ');
        text += i < 0 ? "..." : body(d + 1, at + i * impl_.strides[d], indent + 1);
        first = false;
      }
    }
    return text + "]";
  }

  Tensor tensor_;
  const detail::TensorImpl& impl_;
  bool summarize_, floating_ = false, integers_ = true, scientific_ = false;
  std::size_t width_ = 1;
};

std::string python_shape(const Shape& shape) {
  std::string s = "(";
  for (std::size_t i = 0; i < shape.rank(); ++i) s += (i ? ", " : "") + shape[i].to_string();
  return s + (shape.rank() == 1 ? ",)" : ")");
}

}  // namespace

std::string to_string(const Tensor& t) {
  if (!t.defined()) return "tensor(undefined)";
  const detail::TensorImpl& impl = *t.impl();
  const std::string prefix = "tensor(";
  std::vector<std::string> suffixes;
  std::string text;
  bool show_dtype = impl.dtype != DType::f32 && impl.dtype != DType::i64 && impl.dtype != DType::boolean;
  if (impl.trace_id != 0) {
    text = "...";
    suffixes.push_back("size=" + python_shape(impl.shape));
    show_dtype = true;
  } else if (impl.numel() == 0) {
    text = "[]";
    if (impl.sizes.size() != 1) suffixes.push_back("size=" + python_shape(impl.shape));
    show_dtype = impl.dtype != DType::f32;
  } else {
    text = Printer(detail::on_host(t)).text(prefix.size());
  }
  if (impl.trace_id == 0 && !impl.storage->device.is_cpu())
    suffixes.push_back("device='" + impl.storage->device.to_string() + "'");
  if (show_dtype) suffixes.push_back("dtype=" + std::string(ir::name(impl.dtype)));
  if (!t.is_leaf())
    suffixes.push_back("grad_fn=<" + std::string(impl.grad_fn->op->name) + ">");
  else if (impl.requires_grad)
    suffixes.push_back("requires_grad=True");
  std::string result = prefix + text;
  const std::size_t last_break = result.find_last_of('\n');
  std::size_t last_line = result.size() - (last_break == std::string::npos ? 0 : last_break + 1);
  for (const std::string& s : suffixes) {
    if (last_line + s.size() + 2 > kLineWidth) {
      result.append(",\n").append(prefix.size(), ' ').append(s);
      last_line = prefix.size() + s.size();
    } else {
      result += ", " + s;
      last_line += s.size() + 2;
    }
  }
  return result + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << to_string(t); }

}  // namespace graven
