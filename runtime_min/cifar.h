// CIFAR-10 and CIFAR-100 in their binary form: records of labels and 3072 bytes, 1024 red, 1024 green, 1024 blue, row
// by row.
//
//   const CifarFile file = read_cifar("cifar-10-batches-bin/data_batch_1.bin", CifarKind::cifar10);
//   file.records;                    // 10000
//   file.bytes.view[3073 * i];       // label of record i; its image, u8[3,32,32], follows
//
// CIFAR-10 has one label byte (0 to 9); CIFAR-100 two, coarse (0 to 19) and fine (0 to 99). Every label is checked.
#pragma once

#include <cstdint>
#include <string>

#include "array.h"

namespace graven::runtime {

enum class CifarKind : std::uint8_t { cifar10, cifar100 };

struct CifarFile {
  Bytes bytes;
  std::int64_t records = 0;
};

constexpr std::int64_t label_bytes(CifarKind kind) { return kind == CifarKind::cifar10 ? 1 : 2; }
constexpr std::int64_t kCifarImageBytes = 3072;

CifarFile read_cifar(const std::string& path, CifarKind kind);

}  // namespace graven::runtime
