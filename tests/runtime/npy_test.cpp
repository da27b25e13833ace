#include "runtime_min/npy.h"

#include "fixture.h"

namespace graven::runtime {
namespace {

/// A file of version `major`.0 around the header's text, padded as NumPy pads it.
std::string npy(const std::string& header, const std::string& data, int major = 1) {
  std::string text = header;
  const std::size_t prefix = major == 1 ? 10 : 12;
  while ((prefix + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string s = "\x93NUMPY" + std::string(1, static_cast<char>(major)) + std::string(1, '\0');
  s += little_endian(static_cast<std::uint32_t>(text.size())).substr(0, prefix - 8);
  return s + text + data;
}

std::string header(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

TEST(Npy, RefusesBadFiles) {
  const std::string good = header("<f4", "(2,)");
  const struct {
    const char* note;
    std::string content;
    const char* error;
  } cases[] = {
      {"empty", "", "\\x93NUMPY, found 0 bytes"},
      {"bad magic", "\x93NUMPI\x01" + std::string(100, ' '), "\\x93NUMPY, found other bytes"},
      {"magic alone", std::string("\x93NUMPY\x01\x00", 8), "10 bytes, found 8"},
      {"version 9.9", std::string("\x93NUMPY\x09\x09") + std::string(100, ' '), "version 1.0, 2.0 or 3.0, found 9.9"},
      {"version 0", std::string("\x93NUMPY\x00\x00", 8) + std::string(100, ' '), "found 0.0"},
      {"header length 0xFFFFFFF0", std::string("\x93NUMPY\x02\x00", 8) + from_hex("f0ffffff") + good,
       "4294967280 bytes of header"},
      {"a header of 65588 bytes", npy(good + std::string(65587 - good.size(), ' '), "12345678", 2),
       "at most 65535 bytes of header, found 65588"},
      {"version 2 cut in its length", std::string("\x93NUMPY\x02\x00", 8) + from_hex("0000"), "12 bytes, found 10"},
      {"no dictionary", npy("", ""), "'{'"},
      {"missing descr", npy("{'fortran_order': False, 'shape': (2,)}", "12345678"), "no 'descr'"},
      {"missing fortran_order", npy("{'descr': '<f4', 'shape': (2,)}", "12345678"), "no 'fortran_order'"},
      {"missing shape", npy("{'descr': '<f4', 'fortran_order': False}", "12345678"), "no 'shape'"},
      {"extra key", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "12345678"), "found \"x\""},
      {"key twice", npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "12345678"),
       "a second 'descr'"},
      {"objects", npy(header("|O", "(2,)"), "12345678"), "Python objects"},
      {"structure", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "12345678"), "a structure"},
      {"string", npy(header("<U4", "(2,)"), "12345678"), "\"<U4\""},
      {"complex", npy(header("<c8", "(1,)"), "12345678"), "\"<c8\""},
      {"long double", npy(header("<f16", "(1,)"), std::string(16, ' ')), "\"<f16\""},
      {"no byte order", npy(header("f4", "(2,)"), "12345678"), "\"f4\""},
      {"byte order | of several bytes", npy(header("|f4", "(2,)"), "12345678"), "byte order"},
      {"Fortran order", npy(header("<f4", "(2, 2)", "True"), std::string(16, ' ')), "Fortran order"},
      {"neither True nor False", npy(header("<f4", "(2,)", "None"), "12345678"), "True or False"},
      {"shape overflow", npy(header("<f4", "(4294967296, 4294967296)"), "12345678"), "can be counted"},
      {"shape x dtype overflow", npy(header("<f8", "(4611686018427387904,)"), "12345678"), "can be counted"},
      {"dimension of 2^63", npy(header("<f4", "(9223372036854775808,)"), "12345678"), "a dimension"},
      {"negative dimension", npy(header("<f4", "(-1,)"), ""), "a dimension"},
      {"(3) for (3,)", npy(header("<f4", "(3)"), std::string(12, ' ')), "a tuple"},
      {"a list", npy(header("<f4", "[3]"), std::string(12, ' ')), "'('"},
      {"no commas", npy(header("<f4", "(3 4)"), std::string(48, ' ')), "comma"},
      {"short data", npy(good, "1234567"), "8 bytes for f32[2], found 7"},
      {"long data", npy(good, "123456789"), "8 bytes for f32[2], found 9"},
      {"text after the dictionary", npy(good + "x", "12345678"), "the end of the header"},
      {"unfinished dictionary", npy("{'descr': '<f4'", "12345678"), "'}'"},
      {"unfinished string", npy("{'descr", "12345678"), "a string"},
  };
  const TemporaryFolder folder;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    write_file(folder / "bad.npy", c.content);
    EXPECT_ERROR(read_npy(folder / "bad.npy"), c.error);
  }
}

TEST(Npy, ReadsValidFiles) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& content) {
    write_file(folder / "good.npy", content);
    return read_npy(folder / "good.npy");
  };
  const std::string two = little_endian(1.5F) + little_endian(-2.0F);
  for (const int major : {1, 2, 3}) {
    const Array a = read(npy(header("<f4", "(2,)"), two, major));
    EXPECT_EQ(a.dtype, DType::f32);
    EXPECT_EQ(a.shape, Dims{2});
    EXPECT_EQ(std::memcmp(a.bytes.data(), two.data(), 8), 0);
  }
  const std::string swapped_two = from_hex("3fc00000c0000000");
  const Array big = read(npy(header(">f4", "(2, 1)"), swapped_two));
  EXPECT_EQ(std::memcmp(big.bytes.data(), two.data(), 8), 0) << "big-endian data is converted";
  EXPECT_EQ(read(npy(header("<f4", "()"), little_endian(1.0F))).shape, Dims{});
  EXPECT_EQ(read(npy(header("|u1", "(3, 0)"), "")).shape, (Dims{3, 0}));
  EXPECT_EQ(read(npy(header("<f4", "(2,)", "True"), two)).shape, Dims{2}) << "one dimension: both orders agree";
  EXPECT_EQ(read(npy(header("<i8", "(2L, 1L)"), std::string(16, ' '))).shape, (Dims{2, 1}));
  EXPECT_EQ(read(npy(header("<f4", "(2,)") + std::string(65523 - header("<f4", "(2,)").size(), ' '), two, 2)).shape,
            Dims{2});
  EXPECT_EQ(read(npy("{\"shape\":(1,2),\"descr\":\"|b1\",\"fortran_order\":False}", "\x01\x01")).dtype, DType::boolean);
}

TEST(Npy, WritesWhatItReads) {
  const TemporaryFolder folder;
  const struct {
    DType dtype;
    Dims shape;
  } cases[] = {{DType::f32, {3, 2}},        {DType::f64, {}}, {DType::i64, {5}}, {DType::u8, {2, 0, 3}},
               {DType::boolean, {1, 1, 1}}, {DType::f16, {4}}};
  for (const auto& c : cases) {
    std::string data(static_cast<std::size_t>(count_of(c.shape)) * size_of(c.dtype), '\0');
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i % 2);
    NpyWriter writer(folder / "x.npy", c.dtype, c.shape);
    writer.write(data.data(), data.size());
    writer.commit();
    const Array a = read_npy(folder / "x.npy");
    EXPECT_EQ(a.dtype, c.dtype);
    EXPECT_EQ(a.shape, c.shape);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size()), data);
    EXPECT_EQ((read_file(folder / "x.npy").size() - data.size()) % 64, 0U);
  }
  NpyWriter half(folder / "b.npy", DType::bf16, {2});
  const std::uint16_t ones[2] = {0x3F80, 0xC000};
  half.write(ones, 4);
  half.commit();
  const Array a = read_npy(folder / "b.npy");
  EXPECT_EQ(a.dtype, DType::f32);
  float values[2];
  std::memcpy(values, a.bytes.data(), 8);
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_EQ(values[1], -2.0F);
}

TEST(Npy, AnUnfinishedFileDoesNotAppear) {
  const TemporaryFolder folder;
  {
    NpyWriter writer(folder / "x.npy", DType::f32, {2});
    writer.write("1234", 4);
    EXPECT_ERROR(writer.commit(), "4 bytes more");
    EXPECT_ERROR(writer.write("123456", 6), "at most 4 bytes more");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace graven::runtime
