// safetensors (https://github.com/huggingface/safetensors): named tensors in one file. u64 length N, N bytes of JSON,
// data.
//
//   const SafetensorsFile file("weights.safetensors");          // mapped, and validated whole
//   file.find("model.conv1.weight")->shape;
//   load_variables(file, variables);                            // all or nothing: dtypes, shapes, missing and
//                                                               // unexpected names
//   save_variables("weights.safetensors", variables, {{"graph", hash}});   // atomically, canonical bytes
//
// A file is valid iff N <= 100,000,000 and 8 + N <= its size; the tensors, in the order of their offsets, cover the
// data from its first byte to its last without hole or overlap; and each one's bytes are its shape times its dtype.
// Anything else is an Error, before memory is allocated for it: what is allocated is bounded by a small multiple of the
// header's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "file.h"
#include "tensor.h"

namespace graven::runtime {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      ///< as in the file: "F32"
  std::optional<DType> dtype;  ///< nothing for dtypes that Graven has no memory for (C64, F8_*, F6_*, F4)
  Dims shape;
  std::uint64_t begin = 0, end = 0;  ///< within the data
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return file_.path(); }
  /// Sorted by name.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }
  /// Nullptr when there is none of that name.
  const SafetensorsEntry* find(std::string_view name) const;
  /// The tensor's bytes, row-major, little-endian; not necessarily aligned.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  /// Bytes that were copied: they no longer count as this process's memory.
  void release(std::span<const std::byte> copied) const { file_.release(copied); }

 private:
  void parse_header(std::string_view header);

  MappedFile file_;
  std::uint64_t data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

enum class Unexpected : std::uint8_t { refuse, ignore };

/// Copies the file's tensors into the variables of the same names; of one that ranks share, this rank's elements.
/// Nothing is written unless everything fits: a name that is missing, one that no variable has (unless ignored),
/// another dtype or shape is an Error that lists up to eight of each.
void load_variables(const SafetensorsFile& file, std::span<const Variable> variables,
                    Unexpected unexpected = Unexpected::refuse);

/// The checks of load_variables alone.
void check_variables(const SafetensorsFile& file, std::span<const Variable> variables,
                     Unexpected unexpected = Unexpected::refuse);

/// Writes the variables as one file: in descending order of dtype, then by name, header padded with spaces to a
/// multiple of 8. The old file, if any, stays until the new one is complete. Two variables of one name are an Error.
/// `sync_folder` false: the caller syncs the folder itself. `whole` is asked for the elements of each that ranks share,
/// in the file's order; without it such a variable is an Error.
void save_variables(const std::string& path, std::span<const Variable> variables,
                    std::vector<std::pair<std::string, std::string>> metadata = {}, bool sync_folder = true,
                    const std::function<const void*(const Variable&)>& whole = {});

/// The order of a file that save_variables() writes.
std::vector<const Variable*> in_file_order(std::span<const Variable> variables);

}  // namespace graven::runtime
