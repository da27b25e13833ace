#include "safetensors.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "error.h"
#include "json_reader.h"
#include "json_writer.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the data of safetensors is little-endian");

namespace graven::runtime {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kReleasedBytes = std::size_t{1}
                                       << 20;  // of a tensor: what is larger is not held twice while it is loaded

/// Every dtype of the format, in its own order (by alignment): the writer's order, backwards.
struct FileDType {
  std::string_view name;
  unsigned bits;
};
constexpr FileDType kFileDTypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};

const FileDType* find_dtype(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFileDTypes), std::end(kFileDTypes), [&](const FileDType& d) { return d.name == name; });
  return found == std::end(kFileDTypes) ? nullptr : found;
}

std::optional<DType> memory_dtype(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kDTypes); ++i) {
    if (kDTypes[i].safetensors == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

/// Bytes of a tensor, nothing when a product overflows or the bits don't fill whole bytes.
std::optional<std::uint64_t> bytes_of(const Dims& shape, unsigned bits) {
  const std::optional<std::int64_t> total = checked_count(shape, bits);
  if (!total || *total % 8 != 0) return std::nullopt;
  return static_cast<std::uint64_t>(*total) / 8;
}

SafetensorsEntry read_entry(JsonReader& json, std::string name) {
  SafetensorsEntry entry;
  entry.name = std::move(name);
  bool has_dtype = false, has_shape = false, has_offsets = false;
  const auto once = [&](bool& seen, const std::string& key) {
    if (seen) json.fail("each key once", std::string("a second ") + printable(key));
    seen = true;
  };
  std::string key;
  json.begin_object();
  while (json.next_key(key)) {
    if (key == "dtype") {
      once(has_dtype, key);
      entry.dtype_name = json.string();
      if (find_dtype(entry.dtype_name) == nullptr) json.fail("a dtype of safetensors", printable(entry.dtype_name));
      entry.dtype = memory_dtype(entry.dtype_name);
    } else if (key == "shape") {
      once(has_shape, key);
      json.begin_array();
      while (json.next_item()) {
        const std::uint64_t d = json.unsigned_integer();
        if (d > static_cast<std::uint64_t>(INT64_MAX)) json.fail("a dimension below 2^63", std::to_string(d));
        entry.shape.push_back(static_cast<std::int64_t>(d));
      }
    } else if (key == "data_offsets") {
      once(has_offsets, key);
      json.begin_array();
      std::uint64_t* const ends[] = {&entry.begin, &entry.end};
      std::size_t n = 0;
      while (json.next_item()) {
        if (n == 2) json.fail("two offsets", "more");
        *ends[n++] = json.unsigned_integer();
      }
      if (n != 2) json.fail("two offsets", std::to_string(n));
    } else {
      json.fail("\"dtype\", \"shape\" or \"data_offsets\"", printable(key));
    }
  }
  if (!has_dtype || !has_shape || !has_offsets)
    json.fail(std::string("\"dtype\", \"shape\" and \"data_offsets\" of ") + printable(entry.name),
              std::string("no \"") +
                  (!has_dtype   ? "dtype"
                   : !has_shape ? "shape"
                                : "data_offsets") +
                  "\"");
  return entry;
}

/// Up to eight names, for a message.
std::string list(const std::vector<std::string>& names) {
  std::string s;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) s += std::string(i == 0 ? "" : ", ") + names[i];
  if (names.size() > 8) s += std::string(" and ") + std::to_string(names.size() - 8) + " more";
  return s;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : file_(std::move(path)) {
  const std::span<const std::byte> all = file_.bytes();
  if (all.size() < 8)
    throw Error(file_.path(), "header", "8 bytes of length", std::to_string(all.size()) + " bytes in the file");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, all.data(), 8);
  if (header_bytes > kMaxHeader)
    throw Error(file_.path(), "header", "a length of at most 100000000", std::to_string(header_bytes));
  if (header_bytes > all.size() - 8)
    throw Error(file_.path(), "header", std::to_string(header_bytes) + " bytes of JSON",
                std::to_string(all.size() - 8) + " bytes in the file");
  data_begin_ = 8 + header_bytes;
  parse_header({reinterpret_cast<const char*>(all.data()) + 8, static_cast<std::size_t>(header_bytes)});
}

void SafetensorsFile::parse_header(std::string_view header) {
  JsonReader json(header, file_.path() + ": header");
  bool has_metadata = false;
  std::string key;
  if (header.empty() || header[0] != '{') json.fail("an object");
  json.begin_object();
  while (json.next_key(key)) {
    if (key != "__metadata__") {
      entries_.push_back(read_entry(json, std::move(key)));
      continue;
    }
    if (std::exchange(has_metadata, true)) json.fail("each key once", "a second \"__metadata__\"");
    json.begin_object();
    while (json.next_key(key)) metadata_.emplace_back(key, json.string());
  }
  json.end();

  const auto place = [](const SafetensorsEntry& entry) { return std::string("tensor ") + printable(entry.name); };
  std::sort(metadata_.begin(), metadata_.end());
  for (std::size_t i = 1; i < metadata_.size(); ++i) {
    if (metadata_[i - 1].first == metadata_[i].first)
      throw Error(path(), "metadata", "each key once", std::string("a second ") + printable(metadata_[i].first));
  }

  // Tensors without elements may begin and end where others do: by name. (stable_sort: a warning of clang++ about
  // libstdc++'s own text.)
  std::sort(entries_.begin(), entries_.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const std::uint64_t data_bytes = file_.size() - data_begin_;
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries_) {
    const std::string offsets = std::string("[") + std::to_string(entry.begin) + "," + std::to_string(entry.end) + "]";
    if (entry.end < entry.begin) throw Error(path(), place(entry), "offsets in order", offsets);
    if (entry.begin != covered)
      throw Error(path(), place(entry), std::string("data from byte ") + std::to_string(covered) + " on",
                  "offsets " + offsets);
    if (entry.end > data_bytes)
      throw Error(path(), place(entry), std::string("at most ") + std::to_string(data_bytes) + " bytes of data",
                  "offsets " + offsets);
    const std::optional<std::uint64_t> bytes = bytes_of(entry.shape, find_dtype(entry.dtype_name)->bits);
    if (!bytes)
      throw Error(path(), place(entry), "a shape whose bytes can be counted", entry.dtype_name + describe(entry.shape));
    if (*bytes != entry.end - entry.begin) {
      throw Error(path(), place(entry),
                  std::to_string(*bytes) + " bytes for " + entry.dtype_name + describe(entry.shape),
                  "offsets " + offsets);
    }
    covered = entry.end;
  }
  if (covered != data_bytes)
    throw Error(path(), "data", std::to_string(covered) + " bytes", std::to_string(data_bytes));

  std::sort(entries_.begin(), entries_.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i - 1].name == entries_[i].name)
      throw Error(path(), "header", "each name once", std::string("a second ") + printable(entries_[i].name));
  }
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const SafetensorsEntry& e, std::string_view n) { return e.name < n; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(static_cast<std::size_t>(data_begin_ + entry.begin),
                               static_cast<std::size_t>(entry.end - entry.begin));
}

void check_variables(const SafetensorsFile& file, std::span<const Variable> variables, Unexpected unexpected) {
  std::vector<std::string> missing, wrong, surplus;
  std::vector<std::string_view> names;
  for (const Variable& variable : variables) {
    names.push_back(variable.path);
    const SafetensorsEntry* entry = file.find(variable.path);
    if (entry == nullptr) {
      missing.push_back(variable.path);
    } else if (entry->dtype != variable.dtype || entry->shape != variable.shape) {
      const std::string held =
          (entry->dtype ? name(*entry->dtype) : entry->dtype_name.c_str()) + describe(entry->shape);
      wrong.push_back(variable.path + " (expected " + describe(variable.dtype, variable.shape) + ", found " + held +
                      ")");
    }
  }
  if (unexpected == Unexpected::refuse) {
    std::sort(names.begin(), names.end());
    for (const SafetensorsEntry& entry : file.entries()) {
      if (!std::binary_search(names.begin(), names.end(), std::string_view(entry.name)))
        surplus.push_back(printable(entry.name));
    }
  }
  if (!missing.empty() || !wrong.empty() || !surplus.empty()) {
    std::string what = "the tensors are not the model's";
    if (!wrong.empty()) what += std::string("\n  another type: ") + list(wrong);
    if (!missing.empty()) what += std::string("\n  missing: ") + list(missing);
    if (!surplus.empty()) what += std::string("\n  unexpected: ") + list(surplus);
    throw Error(file.path(), what);
  }
}

void load_variables(const SafetensorsFile& file, std::span<const Variable> variables, Unexpected unexpected) {
  check_variables(file, variables, unexpected);
  for (const Variable& variable : variables) {
    const std::span<const std::byte> from = file.bytes(*file.find(variable.path));
    if (variable.is_part()) {
      const Shard& own = variable.shard;
      const int rank = static_cast<int>(variable.cut.is_cut() ? variable.cut.rank : own.rank);
      variable.each_run_of(rank, static_cast<int>(own.ranks), [&](std::size_t at, std::size_t to, std::size_t bytes) {
        if (bytes > 0) std::memcpy(static_cast<std::byte*>(variable.data) + to, from.data() + at, bytes);
      });
    } else if (variable.bytes() > 0) {
      std::memcpy(variable.data, from.data(), variable.bytes());
    }
    if (from.size() >= kReleasedBytes) file.release(from);
  }
}

std::vector<const Variable*> in_file_order(std::span<const Variable> variables) {
  std::vector<const Variable*> order;
  for (const Variable& variable : variables) order.push_back(&variable);
  const auto rank = [](const Variable* v) { return find_dtype(info(v->dtype).safetensors); };
  std::sort(order.begin(), order.end(), [&](const Variable* a, const Variable* b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : a->path < b->path;
  });
  return order;
}

void save_variables(const std::string& path, std::span<const Variable> variables,
                    std::vector<std::pair<std::string, std::string>> metadata, bool sync_folder,
                    const std::function<const void*(const Variable&)>& whole) {
  const std::vector<const Variable*> order = in_file_order(variables);
  for (const Variable* variable : order)
    if (variable->is_part() && !whole)
      throw Error(path, printable(variable->path), "all of its elements",
                  "this rank's, " + std::to_string(variable->count()) + ": checkpoints have them all");
  std::vector<std::string_view> names = {"__metadata__"};  // taken by the format
  for (const Variable& variable : variables) names.push_back(variable.path);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    throw Error(path, "", "each name once", std::string("a second ") + printable(*twice));
  for (const std::string_view name : names)
    if (!is_utf8(name)) throw Error(path, "", "names in UTF-8", printable(name));

  JsonWriter json;
  json.begin_object();
  if (!metadata.empty()) {
    std::sort(metadata.begin(), metadata.end());
    json.key("__metadata__").begin_object();
    for (const auto& [key, value] : metadata) json.key(key).value(value);
    json.end_object();
  }
  std::uint64_t offset = 0;
  for (const Variable* variable : order) {
    json.key(variable->path)
        .begin_object()
        .key("dtype")
        .value(info(variable->dtype).safetensors)
        .key("shape")
        .begin_array();
    for (const std::int64_t d : variable->shape) json.value(d);
    json.end_array().key("data_offsets").begin_array().value(offset);
    offset += variable->whole_bytes();
    json.value(offset).end_array().end_object();
  }
  json.end_object();
  std::string header = json.text();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeader) throw Error(path, "header", "at most 100000000 bytes", std::to_string(header.size()));

  const std::uint64_t length = header.size();
  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(header);
  for (const Variable* variable : order)
    file.write(variable->is_part() ? whole(*variable) : variable->data, variable->whole_bytes());
  file.commit(sync_folder);
}

}  // namespace graven::runtime
