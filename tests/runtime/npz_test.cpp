// .npz: what NumPy writes, and archives that must not be read.
#include "runtime_min/npz.h"

#include "fixture.h"
#include "runtime_min/dataset.h"
#include "runtime_min/inflate.h"

namespace graven::runtime {
namespace {

// numpy.savez and savez_compressed of x = [[0, 1, 2], [3, 4, 5]], int32, and y = [0.5, 2.5], float64.
const char* const kStoredNpz =
    "504b03042d00000000000000210050b44d84ffffffffffffffff05001400782e6e70790100100098000000000000009800000000000000"
    "934e554d5059010076007b276465736372273a20273c6934272c2027666f727472616e5f6f72646572273a2046616c73652c2027736861"
    "7065273a2028322c2033292c207d2020202020202020202020202020202020202020202020202020202020202020202020202020202020"
    "20202020202020202020202020202020200a000000000100000002000000030000000400000005000000504b03042d0000000000000021"
    "00881f68fcffffffffffffffff05001400792e6e70790100100090000000000000009000000000000000934e554d5059010076007b2764"
    "65736372273a20273c6638272c2027666f727472616e5f6f72646572273a2046616c73652c20277368617065273a2028322c292c207d20"
    "20202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020"
    "202020200a000000000000e03f0000000000000440504b01022d032d00000000000000210050b44d849800000098000000050000000000"
    "000000000000800100000000782e6e7079504b01022d032d000000000000002100881f68fc900000009000000005000000000000000000"
    "00008001cf000000792e6e7079504b0506000000000200020066000000960100000000";
const char* const kDeflatedNpz =
    "504b03042d00000008000000210050b44d84ffffffffffffffff05001400782e6e70790100100098000000000000005500000000000000"
    "9bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402"
    "f91a463a0ac69a3a0ab50a64032e06206004622620660662162066056200504b03042d000000080000002100881f68fcffffffffffffff"
    "ff05001400792e6e70790100100090000000000000004c000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a1"
    "aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a463a9a3a0ab50a14002e063078600fa1591c00504b0102"
    "2d032d00000008000000210050b44d845500000098000000050000000000000000000000800100000000782e6e7079504b01022d032d00"
    "0000080000002100881f68fc4c0000009000000005000000000000000000000080018c000000792e6e7079504b05060000000002000200"
    "660000000f0100000000";

std::string array_file(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  return "\x93NUMPY" + std::string("\x01\0", 2) + little_endian(static_cast<std::uint16_t>(text.size())) + text + data;
}

/// A zip archive whose records can be made to lie.
struct ZipText {
  struct Member {
    std::string name, data;
    std::uint16_t method = 0, flags = 0;
    std::int64_t size = -1, compressed = -1;  ///< in the directory; -1: the data's
    std::string extra = {}, local_name = {};
    std::int64_t checksum = -1, offset = -1;
  };
  std::vector<Member> members;
  std::string comment = {}, after = {};
  std::int64_t count = -1, directory_bytes = -1, directory_offset = -1;
  std::uint16_t disk = 0;
  bool zip64 = false;

  std::string text() const {
    const auto u16 = [](std::int64_t x) { return little_endian(static_cast<std::uint16_t>(x)); };
    const auto u32 = [](std::int64_t x) { return little_endian(static_cast<std::uint32_t>(x)); };
    const auto u64 = [](std::int64_t x) { return little_endian(static_cast<std::uint64_t>(x)); };
    std::string all, directory;
    for (const Member& m : members) {
      const auto at = static_cast<std::int64_t>(all.size()), bytes = static_cast<std::int64_t>(m.data.size());
      const std::string name = m.local_name.empty() ? m.name : m.local_name;
      const std::int64_t sum = m.checksum < 0 ? crc32(as_span(m.data)) : m.checksum;
      all += "PK\x03\x04" + u16(20) + u16(m.flags) + u16(m.method) + u32(0) + u32(sum) + u32(bytes) + u32(bytes) +
             u16(static_cast<std::int64_t>(name.size())) + u16(0) + name + m.data;
      directory += "PK\x01\x02" + u16(20) + u16(20) + u16(m.flags) + u16(m.method) + u32(0) + u32(sum) +
                   u32(m.compressed < 0 ? bytes : m.compressed) + u32(m.size < 0 ? bytes : m.size) +
                   u16(static_cast<std::int64_t>(m.name.size())) + u16(static_cast<std::int64_t>(m.extra.size())) +
                   u16(0) + u16(0) + u16(0) + u32(0) + u32(m.offset < 0 ? at : m.offset) + m.name + m.extra;
    }
    directory += after;
    const auto begin = directory_offset < 0 ? static_cast<std::int64_t>(all.size()) : directory_offset,
               n = count < 0 ? static_cast<std::int64_t>(members.size()) : count,
               bytes = directory_bytes < 0 ? static_cast<std::int64_t>(directory.size()) : directory_bytes;
    all += directory;
    if (zip64) {
      const auto at = static_cast<std::int64_t>(all.size());
      all += "PK\x06\x06" + u64(44) + u16(45) + u16(45) + u32(0) + u32(0) + u64(n) + u64(n) + u64(bytes) + u64(begin);
      all += "PK\x06\x07" + u32(0) + u64(at) + u32(1);
      return all + "PK\x05\x06" + u16(0) + u16(0) + u16(0xFFFF) + u16(0xFFFF) + u32(0xFFFFFFFF) + u32(0xFFFFFFFF) +
             u16(0);
    }
    return all + "PK\x05\x06" + u16(disk) + u16(disk) + u16(n) + u16(n) + u32(bytes) + u32(begin) +
           u16(static_cast<std::int64_t>(comment.size())) + comment;
  }
};

/// An archive of x.npy alone, deflated, of `size` bytes as its directory has it.
std::string deflated_member(const std::string& stream, std::int64_t size) {
  return ZipText{.members = {{.name = "x.npy", .data = stream, .method = 8, .size = size}}}.text();
}

/// A DEFLATE stream that compresses nothing.
std::string stored_block(const std::string& data) {
  const auto size = static_cast<std::uint16_t>(data.size());
  return '\1' + little_endian(size) + little_endian(static_cast<std::uint16_t>(~size)) + data;
}

template <class T>
std::vector<T> values_of(const Array& array) {
  std::vector<T> all(array.bytes.size() / sizeof(T));
  std::memcpy(all.data(), array.bytes.data(), array.bytes.size());
  return all;
}

TEST(Npz, ReadsWhatNumPyWrites) {
  const TemporaryFolder folder;
  for (const char* text : {kStoredNpz, kDeflatedNpz}) {
    write_file(folder / "a.npz", from_hex(text));
    const NpzFile file(folder / "a.npz");
    EXPECT_EQ(file.names(), (std::vector<std::string>{"x", "y"}));
    EXPECT_TRUE(file.has("x"));
    EXPECT_FALSE(file.has("x.npy"));
    const Array x = file.read("x"), y = file.read("y");
    EXPECT_EQ(x.dtype, DType::i32);
    EXPECT_EQ(x.shape, (Dims{2, 3}));
    EXPECT_EQ(values_of<std::int32_t>(x), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(values_of<double>(y), (std::vector<double>{0.5, 2.5}));
    EXPECT_ERROR(file.read("z"), "a.npz: expected an array \"z\", found \"x\", \"y\"");
  }
}

TEST(Npz, ReadsOddButValidArchives) {
  const TemporaryFolder folder;
  const std::string x = array_file("|u1", "(3,)", "abc");
  const auto expect = [&](const ZipText& zip) {
    write_file(folder / "odd.npz", zip.text());
    EXPECT_EQ(values_of<char>(NpzFile(folder / "odd.npz").read("x")), (std::vector<char>{'a', 'b', 'c'}));
  };
  expect({.members = {{"x.npy", x}}, .comment = "made by hand, PK\x05\x06 and all"});
  expect({.members = {{"readme.txt", "words", 12}, {"x.npy", x}}});  // what is no array is passed over
  expect({.members = {{"x.npy", x}}, .zip64 = true});
  const auto n = little_endian(static_cast<std::uint64_t>(x.size()));
  expect({.members = {{.name = "x.npy",
                       .data = x,
                       .size = 0xFFFFFFFF,
                       .compressed = 0xFFFFFFFF,
                       .extra = std::string("\x09\0\0\0\x01\0\x10\0", 8) + n + n}}});
  expect({.members = {
              {.name = "x.npy", .data = x, .flags = 8}}});  // sizes that follow the data stand in the directory, too
  write_file(folder / "empty.npz", ZipText{}.text());
  EXPECT_TRUE(NpzFile(folder / "empty.npz").names().empty());
  EXPECT_ERROR(NpzFile(folder / "empty.npz").read("x"), "expected an array \"x\", found none");
}

TEST(Npz, RefusesBadArchives) {
  const std::string x = array_file("|u1", "(3,)", "abc");
  const auto n = static_cast<std::int64_t>(x.size());
  const std::string deflated = from_hex(kDeflatedNpz), stored = from_hex(kStoredNpz);
  const auto with = [](std::string text, std::size_t at, const std::string& bytes) {
    return text.replace(at, bytes.size(), bytes);
  };
  const struct {
    const char* note;
    std::string content;
    const char* error;
  } cases[] = {
      {"empty", "", "a zip archive of at least 22 bytes, found 0"},
      {"no zip", std::string(100, 'x'), "the end of a zip archive's directory, found none"},
      {"npy", x, "the end of a zip archive's directory, found none"},
      {"cut", stored.substr(0, stored.size() - 1), "the end of a zip archive's directory, found none"},
      {"longer", stored + "x", "the end of a zip archive's directory, found none"},
      {"parts", ZipText{.members = {{"x.npy", x}}, .disk = 1}.text(), "a zip archive of one part, found several"},
      {"directory outside", ZipText{.members = {{"x.npy", x}}, .directory_offset = 4000}.text(),
       "a directory within the file, found 51 bytes from byte 4000 on"},
      {"directory too long", ZipText{.members = {{"x.npy", x}}, .directory_bytes = 4000}.text(),
       "a directory within the file"},
      {"one entry more", ZipText{.members = {{"x.npy", x}}, .count = 2}.text(),
       "directory, entry 1: expected 46 bytes, found 0"},
      {"one entry less", ZipText{.members = {{"x.npy", x}}, .count = 0}.text(), "its end after 0 entries, found more"},
      {"no entry", ZipText{.members = {{"x.npy", x}}, .after = std::string(46, 'x'), .count = 2}.text(),
       "an entry of a zip archive's directory"},
      {"names beyond",
       ZipText{.members = {{"x.npy", x}},
               .after = "PK\x01\x02" + std::string(24, '\0') + "\xff\xff" + std::string(16, '\0'),
               .count = 2}
           .text(),
       "65535 bytes of names, found 0"},
      {"zip64 end absent", ZipText{.members = {{"x.npy", x}}, .count = 0xFFFF}.text(),
       "the ZIP64 end of a zip archive's directory, found none"},
      {"zip64 field absent", ZipText{.members = {{.name = "x.npy", .data = x, .size = 0xFFFFFFFF}}}.text(),
       "a ZIP64 field with the sizes, found none"},
      {"zip64 field short",
       ZipText{.members = {{.name = "x.npy",
                            .data = x,
                            .size = 0xFFFFFFFF,
                            .compressed = 0xFFFFFFFF,
                            .extra = std::string("\x01\0\x08\0", 4) + std::string(8, '\0')}}}
           .text(),
       "a ZIP64 field with the sizes, found none"},
      {"zip64 field cut",
       ZipText{.members = {{.name = "x.npy", .data = x, .size = 0xFFFFFFFF, .extra = std::string("\x01\0\x08\0x", 5)}}}
           .text(),
       "a ZIP64 field with the sizes, found none"},
      {"encrypted", ZipText{.members = {{.name = "x.npy", .data = x, .flags = 1}}}.text(),
       "member \"x.npy\": expected no encryption, found some"},
      {"bzip2", ZipText{.members = {{.name = "x.npy", .data = x, .method = 12}}}.text(),
       "method 0 (stored) or 8 (deflated), found 12"},
      {"stored, another size", ZipText{.members = {{.name = "x.npy", .data = x, .size = n + 1}}}.text(),
       "132 bytes, stored, found 131"},
      {"twice", ZipText{.members = {{"x.npy", x}, {"x.npy", x}}}.text(), "each name once, found a second \"x.npy\""},
      {"hostile name", ZipText{.members = {{"\x1b[2J.npy", x}}}.text(), "expected an array \"x\", found \"\\x1b[2J\""},
      {"member outside", ZipText{.members = {{.name = "x.npy", .data = x, .offset = 3000}}}.text(),
       "its header at byte 3000, found other data"},
      {"member in the directory", ZipText{.members = {{.name = "x.npy", .data = x, .offset = 165}}}.text(),
       "its header at byte 165, found other data"},
      {"member elsewhere", ZipText{.members = {{.name = "x.npy", .data = x, .offset = 2}}}.text(),
       "its header at byte 2, found other data"},
      {"data too long", ZipText{.members = {{.name = "x.npy", .data = x, .size = n + 9, .compressed = n + 9}}}.text(),
       "140 bytes of data, found 131"},
      {"another name at the data", ZipText{.members = {{.name = "x.npy", .data = x, .local_name = "y.npy"}}}.text(),
       "the same name at the data, found \"y.npy\""},
      {"checksum", ZipText{.members = {{.name = "x.npy", .data = x, .checksum = 7}}}.text(),
       "member \"x.npy\": expected checksum 7, found"},
      {"damaged data", with(stored, 60, "x"), "member \"x.npy\": expected checksum"},
      {"damaged stream", with(deflated, 60, "\xff\xff\xff"), "bad.npz: \"x\": npy header"},
      {"damaged stream of the data", with(deflated, 130, "\xff\xff\xff"), "bad.npz: compressed byte"},
      {"deflated, longer than the directory says", with(deflated, 0x10f + 24, std::string("\x97\0", 2)),
       "24 bytes for i32[2,3], found 23"},
      {"deflated, shorter than the directory says", with(deflated, 0x10f + 24, std::string("\x99\0", 2)),
       "24 bytes for i32[2,3], found 25"},
      {"deflated, longer than both say", deflated_member(stored_block(x + "d"), n),
       "at most 131 bytes of data, found more"},
      {"deflated, shorter than both say", deflated_member(stored_block(x.substr(0, x.size() - 1)), n),
       "131 bytes of data, found 130"},
      {"deflated, without its header", deflated_member(stored_block(x.substr(0, 100)), n),
       "118 bytes of header, found 90"},
      {"a bomb that only the directory declares", deflated_member(deflate_bomb(x), n + 1 + 300'000'000 / 258 * 258),
       "3 bytes for u8[3], found 29999"},
      {"a bomb that nothing declares", deflated_member(deflate_bomb(x), n), "at most 131 bytes of data, found more"},
      {"a bomb of a header", deflated_member(deflate_bomb(std::string("\x93NUMPY\2\0\0\0\0\x10", 12)), 300'000'000),
       "at most 65535 bytes of header, found 268435456"},
      {"more than the file can hold", deflated_member(stored_block(x), 400'000'000),
       "400000000 bytes of data, found 136 bytes, compressed"},
      {"no npy", ZipText{.members = {{"x.npy", "words"}}}.text(),
       "bad.npz: \"x\": npy header: expected \\x93NUMPY, found 5 bytes"},
      {"objects", ZipText{.members = {{"x.npy", array_file("|O", "(1,)", "12345678")}}}.text(), "Python objects"},
  };
  const TemporaryFolder folder;
  // What its header makes useless is not inflated.
  const std::string large = array_file("|u1", "(" + std::to_string(1 + 300'000'000 / 258 * 258) + ",)", "");
  write_file(folder / "large.npz", deflated_member(deflate_bomb(large), large.size() + 1 + 300'000'000 / 258 * 258));
  largest_allocation = 0;
  const std::vector<TensorDescription> inputs = {{.name = "x", .dtype = DType::f32, .shape = {8, 3}}};
  EXPECT_ERROR(open_dataset({folder / "large.npz"}, inputs, Split::train),
               "samples of [3] for the model's input \"x\", found []");
  EXPECT_LT(largest_allocation, 100'000U);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    write_file(folder / "bad.npz", c.content);
    largest_allocation = 0;
    EXPECT_ERROR(NpzFile(folder / "bad.npz").read("x"), c.error);
    EXPECT_LT(largest_allocation, 100'000U);
  }
}

TEST(Npz, IsADataset) {
  const std::vector<TensorDescription> inputs = {
      {.name = "images", .dtype = DType::f32, .shape = {1, 1, 2, 2}, .batched = true, .classes = 0},
      {.name = "labels", .dtype = DType::i64, .shape = {1}, .batched = true, .classes = 3}};
  const auto set = [](const std::string& labels) {
    return ZipText{.members = {{"labels.npy", array_file("|u1", "(2,)", labels)},
                               {"images.npy", array_file("|u1", "(2, 2, 2)", "aaaabbbb")}}}
        .text();
  };
  const TemporaryFolder folder;
  write_file(folder / "set.npz", set(std::string("\x01\x02", 2)));
  for (const char* format : {"auto", "npz"}) {
    const Dataset data = open_dataset({folder / "set.npz", format}, inputs, Split::train);
    EXPECT_EQ(data.size(), 2);
    EXPECT_EQ(*data.sample(0, 1), std::byte{'b'});
    EXPECT_EQ(*data.sample(1, 1), std::byte{2});
  }
  EXPECT_ERROR(open_dataset({(folder / "set.npz") + "," + (folder / "set.npz")}, inputs, Split::train),
               "alone, as the arrays of all inputs");

  EXPECT_FALSE(has_test_split({folder.path()}, inputs));
  write_file(folder / "both/train.npz", set(std::string("\x01\x02", 2)));
  EXPECT_FALSE(has_test_split({folder / "both"}, inputs));
  write_file(folder / "both/test.npz", set(std::string("\0\0", 2)));
  EXPECT_TRUE(has_test_split({folder / "both"}, inputs));
  EXPECT_EQ(*open_dataset({folder / "both"}, inputs, Split::train).sample(1, 0), std::byte{1});
  EXPECT_EQ(*open_dataset({folder / "both"}, inputs, Split::test).sample(1, 0), std::byte{0});
}

}  // namespace
}  // namespace graven::runtime
