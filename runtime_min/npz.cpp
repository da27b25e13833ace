#include "npz.h"

#include <algorithm>
#include <cstring>

#include "error.h"
#include "inflate.h"
#include "npy.h"

namespace graven::runtime {
namespace {

constexpr std::uint32_t kLocal = 0x04034B50, kCentral = 0x02014B50, kEnd = 0x06054B50, kEnd64 = 0x06064B50,
                        kLocator64 = 0x07064B50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr std::uint64_t kFull16 = 0xFFFF, kFull32 = 0xFFFFFFFF;  // "see the ZIP64 field"

/// A little-endian number; the caller has seen that it lies within.
std::uint64_t number(std::span<const std::byte> data, std::uint64_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, data.data() + at, bytes);
  return value;
}

/// The sizes and the offset that did not fit into the 32 bits of the directory, from its extra field.
void read_zip64(std::span<const std::byte> extra, std::initializer_list<std::uint64_t*> fields, const Error& missing) {
  const bool needed = std::any_of(fields.begin(), fields.end(), [](const std::uint64_t* f) { return *f == kFull32; });
  if (!needed) return;
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const auto id = number(extra, at, 2);
    const auto length = static_cast<std::size_t>(number(extra, at + 2, 2));
    if (extra.size() - at - 4 < length) throw missing;
    if (id == 1) {
      std::size_t from = at + 4;
      for (std::uint64_t* field : fields) {
        if (*field != kFull32) continue;
        if (at + 4 + length - from < 8) throw missing;
        *field = number(extra, from, 8);
        from += 8;
      }
      return;
    }
    at += 4 + length;
  }
  throw missing;
}

}  // namespace

NpzFile::NpzFile(std::string path) : path_(std::move(path)), file_(Bytes::map(path_)) { read_directory(); }

std::string NpzFile::place(const std::string& name) const { return std::string("member ") + printable(name + ".npy"); }

void NpzFile::read_directory() {
  const std::span<const std::byte> all = file_.view;
  if (all.size() < kEndBytes)
    throw Error(path_, "npz", "a zip archive of at least 22 bytes", std::to_string(all.size()));
  // The end record is the last thing but a comment, whose length it knows.
  const std::size_t most = std::min<std::size_t>(all.size() - kEndBytes, kFull16);
  std::size_t end = all.size();
  for (std::size_t comment = 0; comment <= most && end == all.size(); ++comment) {
    const std::size_t at = all.size() - kEndBytes - comment;
    if (number(all, at, 4) == kEnd && number(all, at + 20, 2) == comment) end = at;
  }
  if (end == all.size()) throw Error(path_, "npz", "the end of a zip archive's directory", "none");
  std::uint64_t disk = number(all, end + 4, 2), first_disk = number(all, end + 6, 2), here = number(all, end + 8, 2),
                count = number(all, end + 10, 2), bytes = number(all, end + 12, 4), begin = number(all, end + 16, 4);
  std::uint64_t limit = end;
  if (here == kFull16 || count == kFull16 || bytes == kFull32 || begin == kFull32) {
    if (end < kLocator64Bytes || number(all, end - kLocator64Bytes, 4) != kLocator64)
      throw Error(path_, "npz", "the ZIP64 end of a zip archive's directory", "none");
    const std::uint64_t at = number(all, end - kLocator64Bytes + 8, 8);
    if (at > end - kLocator64Bytes || end - kLocator64Bytes - at < kEnd64Bytes || number(all, at, 4) != kEnd64)
      throw Error(path_, "npz", "the ZIP64 end of a zip archive's directory", "none at byte " + std::to_string(at));
    disk = number(all, at + 16, 4), first_disk = number(all, at + 20, 4), here = number(all, at + 24, 8),
    count = number(all, at + 32, 8);
    bytes = number(all, at + 40, 8), begin = number(all, at + 48, 8);
    limit = at;
  }
  if (disk != 0 || first_disk != 0 || here != count) throw Error(path_, "npz", "a zip archive of one part", "several");
  if (begin > limit || bytes > limit - begin)
    throw Error(path_, "npz", "a directory within the file",
                std::to_string(bytes) + " bytes from byte " + std::to_string(begin) + " on");
  directory_ = begin;
  const std::span<const std::byte> directory =
      all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes));
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto entry = [&] { return "directory, entry " + std::to_string(i); };
    if (directory.size() - at < kCentralBytes)
      throw Error(path_, entry(), "46 bytes", std::to_string(directory.size() - at));
    if (number(directory, at, 4) != kCentral)
      throw Error(path_, entry(), "an entry of a zip archive's directory", "other data");
    const auto flags = number(directory, at + 8, 2), method = number(directory, at + 10, 2);
    const auto name_bytes = static_cast<std::size_t>(number(directory, at + 28, 2)),
               extra_bytes = static_cast<std::size_t>(number(directory, at + 30, 2)),
               comment_bytes = static_cast<std::size_t>(number(directory, at + 32, 2));
    if (directory.size() - at - kCentralBytes < name_bytes + extra_bytes + comment_bytes)
      throw Error(path_, entry(), std::to_string(name_bytes + extra_bytes + comment_bytes) + " bytes of names",
                  std::to_string(directory.size() - at - kCentralBytes));
    std::string name(reinterpret_cast<const char*>(directory.data()) + at + kCentralBytes, name_bytes);
    Member member{.name = {},
                  .deflated = method == 8,
                  .checksum = static_cast<std::uint32_t>(number(directory, at + 16, 4)),
                  .compressed = number(directory, at + 20, 4),
                  .size = number(directory, at + 24, 4),
                  .offset = number(directory, at + 42, 4)};
    read_zip64(directory.subspan(at + kCentralBytes + name_bytes, extra_bytes),
               {&member.size, &member.compressed, &member.offset},
               Error(path_, entry(), "a ZIP64 field with the sizes", "none"));
    at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    if (!name.ends_with(".npy")) continue;
    name.resize(name.size() - 4);
    member.name = name;
    if ((flags & 1) != 0) throw Error(path_, place(name), "no encryption", "some");
    if (method != 0 && method != 8)
      throw Error(path_, place(name), "method 0 (stored) or 8 (deflated)", std::to_string(method));
    if (!member.deflated && member.compressed != member.size)
      throw Error(path_, place(name), std::to_string(member.size) + " bytes, stored",
                  std::to_string(member.compressed));
    members_.push_back(std::move(member));
    names_.push_back(std::move(name));
  }
  if (at != directory.size())
    throw Error(path_, "directory", "its end after " + std::to_string(count) + " entries", "more");
  std::vector<std::string_view> sorted(names_.begin(), names_.end());
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    throw Error(path_, "directory", "each name once",
                std::string("a second ") + printable(std::string(*twice) + ".npy"));
}

bool NpzFile::has(std::string_view name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }

Array NpzFile::read(std::string_view name, const HeaderCheck& check) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    std::string all;
    for (std::size_t i = 0; i < names_.size() && i < 8; ++i) all += (i == 0 ? "" : ", ") + printable(names_[i]);
    throw Error(path_, "", std::string("an array ") + printable(std::string(name)),
                all.empty() ? "none" : all + (names_.size() > 8 ? ", ..." : ""));
  }
  const Member& member = members_[static_cast<std::size_t>(found - names_.begin())];
  const std::string where = place(member.name);
  const std::span<const std::byte> all = file_.view.first(static_cast<std::size_t>(directory_));
  if (member.offset > all.size() || all.size() - member.offset < kLocalBytes || number(all, member.offset, 4) != kLocal)
    throw Error(path_, where, "its header at byte " + std::to_string(member.offset), "other data");
  const std::uint64_t name_bytes = number(all, member.offset + 26, 2), extra_bytes = number(all, member.offset + 28, 2),
                      begin = member.offset + kLocalBytes + name_bytes + extra_bytes;
  if (begin > all.size() || all.size() - begin < member.compressed)
    throw Error(path_, where, std::to_string(member.compressed) + " bytes of data",
                begin > all.size() ? "the end" : std::to_string(all.size() - begin));
  const std::string_view held(reinterpret_cast<const char*>(all.data()) + member.offset + kLocalBytes,
                              static_cast<std::size_t>(name_bytes));
  if (held != member.name + ".npy")
    throw Error(path_, where, "the same name at the data", printable(std::string(held)));
  const std::span<const std::byte> data =
      all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(member.compressed));
  const std::string array = path_ + ": " + printable(member.name);
  Bytes plain{data, file_.owner};
  if (member.deflated) {
    // No more memory than the array's own header declares, whatever the member inflates to, and none for what it cannot
    // hold.
    if (member.size > inflated_at_most(data.size()))
      throw Error(path_, where, std::to_string(member.size) + " bytes of data",
                  std::to_string(data.size()) + " bytes, compressed");
    const auto offset = static_cast<std::size_t>(begin);
    const NpyHeader header = parse_npy_header(
        inflate_start(data, path_, offset, std::min<std::uint64_t>(member.size, kMostNpyHeader)), member.size, array);
    check(header.dtype, header.shape);
    plain = Bytes::hold(inflate(data, path_, offset, member.size));
  }
  if (const std::uint32_t checksum = crc32(plain.view); checksum != member.checksum)
    throw Error(path_, where, "checksum " + std::to_string(member.checksum), std::to_string(checksum));
  return parse_npy(plain, array, check);
}

}  // namespace graven::runtime
