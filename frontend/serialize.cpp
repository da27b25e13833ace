#include "graven/serialize.h"

#include <cstring>

#include "frontend/dispatch.h"
#include "frontend/serialize.h"
#include "frontend/tensor_impl.h"
#include "runtime_min/error.h"
#include "runtime_min/safetensors.h"

namespace graven::nn {

namespace {

runtime::DType runtime_dtype(DType d) {
  switch (d) {
    case DType::f32:
      return runtime::DType::f32;
    case DType::f64:
      return runtime::DType::f64;
    case DType::f16:
      return runtime::DType::f16;
    case DType::bf16:
      return runtime::DType::bf16;
    case DType::i8:
      return runtime::DType::i8;
    case DType::i32:
      return runtime::DType::i32;
    case DType::i64:
      return runtime::DType::i64;
    case DType::u8:
      return runtime::DType::u8;
    case DType::boolean:
      break;
  }
  return runtime::DType::boolean;
}

}  // namespace

void save_file(const StateDict& state, const std::string& path,
               std::vector<std::pair<std::string, std::string>> metadata) {
  std::vector<Tensor> rows;
  std::vector<runtime::Variable> variables;
  for (const auto& [name, t] : state) {
    if (!t.defined()) throw UserError(path + ": cannot save '" + name + "': the tensor is undefined");
    if (t.is_traced())
      throw UserError(path + ": cannot save '" + name + "': it was recorded by a graph's build() and has no data");
    rows.push_back(graven::detail::contiguous_copy(t));
    variables.push_back({name, runtime_dtype(t.dtype()), t.sizes(), rows.back().impl()->data()});
  }
  try {
    runtime::save_variables(path, variables, std::move(metadata));
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
}

void save(const StateDict& state, const std::string& path, Location where) {
  graven::detail::located(where, [&] { save_file(state, path, {}); });
}

StateDict tensors_of(const runtime::SafetensorsFile& file) {
  const std::string& path = file.path();
  StateDict state;
  for (const runtime::SafetensorsEntry& entry : file.entries()) {
    std::optional<DType> dtype;
    for (DType d : ir::kAllDTypes)
      if (entry.dtype && runtime_dtype(d) == *entry.dtype) dtype = d;
    if (!dtype)
      throw UserError(path + ": '" + entry.name + "': expected a dtype that Graven has, found " + entry.dtype_name);
    const auto bytes = file.bytes(entry);
    state.emplace_back(entry.name, from_bytes(bytes.data(), bytes.size(), *dtype, Shape::of(entry.shape)));
  }
  return state;
}

StateDict load(const std::string& path, Location where) {
  return graven::detail::located(where, [&] {
    try {
      return tensors_of(runtime::SafetensorsFile(path));
    } catch (const runtime::Error& e) {
      throw UserError(e.what());
    }
  });
}

}  // namespace graven::nn
