#include "runtime_min/safetensors.h"

#include "fixture.h"

namespace graven::runtime {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  return little_endian<std::uint64_t>(header.size()) + header + data;
}

TEST(Safetensors, RefusesBadFiles) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  std::string million = "{";
  for (int i = 0; i < 10000; ++i) million += std::string(i == 0 ? "" : ",") + "\"t" + std::to_string(i) + "\":" + entry;
  million += "}";
  struct Case {
    const char* note;
    std::string content;
    const char* error;
  };
  const Case cases[] = {
      {"0 bytes", "", "8 bytes of length, found 0 bytes"},
      {"7 bytes", "1234567", "8 bytes of length, found 7 bytes"},
      {"N = 0", little_endian<std::uint64_t>(0), "an object"},
      {"N = 2^63", little_endian<std::uint64_t>(1ULL << 63) + "{}", "at most 100000000"},
      {"N = 2^64 - 8", little_endian<std::uint64_t>(~7ULL) + "{}", "at most 100000000"},
      {"N beyond the file", little_endian<std::uint64_t>(100) + "{}", "100 bytes of JSON, found 2 bytes"},
      {"N above 100 MB", little_endian<std::uint64_t>(100000001) + "{}", "at most 100000000"},
      {"invalid UTF-8", file_of("{\"a\xFF\":1}", ""), "UTF-8"},
      {"truncated JSON", file_of(R"({"a":{"dtype":"F32")", ""), "comma or a closing brace"},
      {"array at the top", file_of("[]", ""), "an object"},
      {"space before the object", file_of(" {}", ""), "an object"},
      {"duplicate tensor",
       file_of("{\"a\":" + entry + R"(,"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"),
       "a second \"a\""},
      {"duplicate tensor of no bytes",
       file_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
               R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
               ""),
       "a second \"a\""},
      {"duplicate inner key",
       file_of(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"),
       "a second \"dtype\""},
      {"metadata value that is no string", file_of(R"({"__metadata__":{"a":1}})", ""), "a string"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", ""), "a second \"__metadata__\""},
      {"duplicate metadata key", file_of(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "a second \"a\""},
      {"missing dtype", file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "1234"), "no \"dtype\""},
      {"missing shape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "1234"), "no \"shape\""},
      {"missing offsets", file_of(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"), "no \"data_offsets\""},
      {"unknown dtype", file_of(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "1234"), "\"F31\""},
      {"extra field", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "1234"), "\"x\""},
      {"negative offset", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", "1234"),
       "integer from 0 up"},
      {"1.5 as an offset", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1.5]}})", "1234"),
       "integer from 0 up"},
      {"1e3 as an offset", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1e3]}})", "1234"),
       "integer from 0 up"},
      {"three offsets", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", "1234"), "two offsets"},
      {"one offset", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234"), "two offsets"},
      {"end before begin", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234"),
       "offsets in order"},
      {"overlap", file_of("{\"a\":" + entry + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", "123456"),
       "data from byte 4 on"},
      {"hole", file_of("{\"a\":" + entry + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[6,10]}})", "1234567890"),
       "data from byte 4 on"},
      {"starts late", file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"),
       "data from byte 0 on"},
      {"trailing bytes", file_of("{\"a\":" + entry + "}", "12345"), "expected 4 bytes, found 5"},
      {"two bytes short", file_of("{\"a\":" + entry + "}", "12"), "at most 2 bytes of data"},
      {"data without tensors", file_of("{}", "1"), "expected 0 bytes, found 1"},
      {"shape and bytes disagree", file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"),
       "8 bytes for F32[2]"},
      {"shape product overflows",
       file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234"),
       "can be counted"},
      {"shape x dtype overflows",
       file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}})", "1234"),
       "can be counted"},
      {"dimension of 2^64 - 1",
       file_of(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", "1234"), "below 2^63"},
      {"half a byte", file_of(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "1"), "can be counted"},
      {"many tensors on one range", file_of(million, "1234"), "data from byte 4 on"},
      {"deep nesting", file_of("{\"a\":" + std::string(100000, '['), ""), "an object"},
      {"deep nesting in a shape", file_of(R"({"a":{"dtype":"F32","shape":)" + std::string(100000, '['), ""),
       "an integer"},
      {"JSON after the object", file_of("{} {}", ""), "expected the end"},
  };
  const TemporaryFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.note);
    write_file(folder / "bad.safetensors", c.content);
    EXPECT_ERROR(SafetensorsFile(folder / "bad.safetensors"), c.error);
    EXPECT_ERROR(SafetensorsFile(folder / "bad.safetensors"), "bad.safetensors");
  }
  EXPECT_ERROR(SafetensorsFile(folder / "none"), "cannot open: No such file");
  EXPECT_ERROR(SafetensorsFile(folder.path()), "expected a file, found a folder");
}

TEST(Safetensors, ReadsEveryTruncationAsAnError) {
  const TemporaryFolder folder;
  const std::string whole = file_of(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})",
      "123456789");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    write_file(folder / "cut", whole.substr(0, n));
    EXPECT_THROW(SafetensorsFile(folder / "cut"), Error) << n;
  }
}

TEST(Safetensors, ReadsValidFiles) {
  const TemporaryFolder folder;
  const std::string long_name(1 << 20, 'n');
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[2,6]},"
      "\"../a\\u0000\":{\"data_offsets\":[0,2],\"shape\":[2,1],\"dtype\":\"U8\"},"
      "\"empty\":{\"dtype\":\"I64\",\"shape\":[3,0],\"data_offsets\":[6,6]},"
      "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[6,7]},\"" +
      long_name + "\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[7,8]}}   ";
  write_file(folder / "good", file_of(header, "12" + from_hex("0000c07f") + "78"));
  const SafetensorsFile file(folder / "good");
  ASSERT_EQ(file.entries().size(), 5U);
  const SafetensorsEntry* a = file.find(std::string_view("../a\0", 5));
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (Dims{2, 1}));
  EXPECT_EQ(static_cast<char>(file.bytes(*a)[1]), '2');
  EXPECT_TRUE(file.find("b")->shape.empty());
  EXPECT_EQ(file.find("empty")->shape, (Dims{3, 0}));
  EXPECT_FALSE(file.find("f8")->dtype.has_value());
  EXPECT_NE(file.find(long_name), nullptr);
  EXPECT_EQ(file.metadata()[0].first, "format");

  // A tensor of a dtype that memory lacks is an error for whoever wants it, and for nobody else.
  float x = 0;
  const Variable f8[] = {{"f8", DType::u8, {1}, &x}};
  EXPECT_ERROR(load_variables(file, f8, Unexpected::ignore), "found F8_E4M3[1]");
  const Variable b[] = {{"b", DType::f32, {}, &x}};
  load_variables(file, b, Unexpected::ignore);
  EXPECT_TRUE(x != x) << "NaN is data";
}

TEST(Safetensors, SavesAndLoads) {
  const TemporaryFolder folder;
  float weight[6] = {1, 2, 3, 4, 5, -0.0F};
  std::int64_t count[1] = {7};
  std::uint8_t flags[3] = {1, 0, 1};
  const Variable variables[] = {{"b.flags", DType::boolean, {3}, flags},
                                {"a.weight", DType::f32, {2, 3}, weight},
                                {"a.count", DType::i64, {}, count},
                                {"a.none", DType::f32, {0, 5}, nullptr}};
  const std::string path = folder / "w.safetensors";
  save_variables(path, variables, {{"z", "1"}, {"graph", "abc"}});
  const std::string bytes = read_file(path);
  EXPECT_EQ(bytes.substr(8, 40), R"({"__metadata__":{"graph":"abc","z":"1"},)");
  std::uint64_t n;
  std::memcpy(&n, bytes.data(), 8);
  EXPECT_EQ(n % 8, 0U);

  const SafetensorsFile file(path);
  ASSERT_EQ(file.entries().size(), 4U);
  EXPECT_EQ(file.find("a.count")->begin, 0U);  // descending dtype, then name
  EXPECT_EQ(file.find("a.none")->begin, 8U);
  EXPECT_EQ(file.find("b.flags")->begin, 32U);
  EXPECT_EQ(file.find("nobody"), nullptr);
  EXPECT_EQ(file.metadata()[0].second, "abc");

  float weight2[6] = {};
  std::int64_t count2[1] = {};
  std::uint8_t flags2[3] = {};
  const Variable loaded[] = {{"a.weight", DType::f32, {2, 3}, weight2},
                             {"a.count", DType::i64, {}, count2},
                             {"b.flags", DType::boolean, {3}, flags2}};
  EXPECT_ERROR(load_variables(file, loaded), "unexpected: \"a.none\"");
  EXPECT_EQ(count2[0], 0) << "nothing may be written";
  load_variables(file, loaded, Unexpected::ignore);
  EXPECT_EQ(std::memcmp(weight, weight2, sizeof weight), 0);
  EXPECT_EQ(count2[0], 7);
  EXPECT_EQ(std::memcmp(flags, flags2, sizeof flags), 0);

  save_variables(path, variables, {{"z", "1"}, {"graph", "abc"}});
  EXPECT_EQ(read_file(path), bytes) << "the same variables, the same bytes";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "no temporary file is left";
}

TEST(Safetensors, LoadsAllOrNothing) {
  const TemporaryFolder folder;
  float a[2] = {1, 2}, b[2] = {3, 4};
  const Variable saved[] = {{"a", DType::f32, {2}, a}, {"b", DType::f32, {2}, b}};
  save_variables(folder / "w", saved);
  const SafetensorsFile file(folder / "w");
  float x[2] = {9, 9}, y[2] = {9, 9};
  const auto load = [&](std::vector<Variable> variables) { load_variables(file, variables); };
  EXPECT_ERROR(load({{"a", DType::f32, {2}, x}, {"c", DType::f32, {2}, y}}), "missing: c");
  EXPECT_ERROR(load({{"a", DType::f32, {2}, x}, {"b", DType::f32, {1, 2}, y}}), "b (expected f32[1,2], found f32[2])");
  EXPECT_ERROR(load({{"a", DType::f32, {2}, x}, {"b", DType::i32, {2}, y}}), "b (expected i32[2], found f32[2])");
  EXPECT_EQ(x[0], 9);
  EXPECT_EQ(y[0], 9);
}

TEST(Safetensors, RefusesToWriteWhatItCouldNotRead) {
  const TemporaryFolder folder;
  float a[1] = {1};
  const Variable twice[] = {{"a", DType::f32, {1}, a}, {"a", DType::f32, {1}, a}};
  EXPECT_ERROR(save_variables(folder / "w", twice), "a second \"a\"");
  const Variable reserved[] = {{"__metadata__", DType::f32, {1}, a}};
  EXPECT_ERROR(save_variables(folder / "w", reserved), "__metadata__");
  EXPECT_FALSE(std::filesystem::exists(folder / "w"));
  EXPECT_ERROR(save_variables(folder / "no/such/folder/w", std::span(twice, 1)), "cannot create");
}

}  // namespace
}  // namespace graven::runtime
