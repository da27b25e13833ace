#include "cifar.h"

#include "error.h"

namespace graven::runtime {

CifarFile read_cifar(const std::string& path, CifarKind kind) {
  CifarFile file{.bytes = Bytes::map(path)};
  const std::int64_t labels = label_bytes(kind), record = labels + kCifarImageBytes;
  const auto size = static_cast<std::int64_t>(file.bytes.view.size());
  if (size == 0 || size % record != 0) {
    throw Error(path, "", std::string("records of ") + std::to_string(record) + " bytes",
                std::to_string(size) + " bytes (" + std::to_string(size % record) + " after the last record)");
  }
  file.records = size / record;
  const int classes[2] = {kind == CifarKind::cifar10 ? 10 : 20, 100};
  for (std::int64_t i = 0; i < file.records; ++i) {
    for (std::int64_t k = 0; k < labels; ++k) {
      const int label = static_cast<int>(file.bytes.view[static_cast<std::size_t>(i * record + k)]);
      if (label >= classes[k]) {
        throw Error(path, std::string("record ") + std::to_string(i),
                    std::string("a label from 0 to ") + std::to_string(classes[k] - 1), std::to_string(label));
      }
    }
  }
  return file;
}

}  // namespace graven::runtime
