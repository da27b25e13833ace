#include <limits>

#include "fixture.h"
#include "runtime_min/json_reader.h"
#include "runtime_min/json_writer.h"

namespace graven::runtime::json_test {
namespace {

struct Case {
  const char* note;
  std::string text;
  const char* error;  ///< nullptr: valid
};

TEST(JsonReader, AcceptsAndRefusesWholeDocuments) {
  const Case cases[] = {
      {"object", R"({"a": [1, -2.5e3, true, false, null, "x"], "b": {}})", nullptr},
      {"empty array", "[]", nullptr},
      {"white space", " \t\r\n[ ] \n", nullptr},
      {"escapes", R"("\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00")", nullptr},
      {"UTF-8", "\"\xC3\xA9\xF0\x9F\x98\x80\"", nullptr},
      {"zero", "-0", nullptr},
      {"nothing", "", "expected a value, found the end"},
      {"truncated object", R"({"a":)", "expected a value"},
      {"truncated string", R"("abc)", "closing quote"},
      {"truncated array", "[1,", "expected a value"},
      {"trailing comma in an array", "[1,]", "expected a value"},
      {"trailing comma in an object", R"({"a":1,})", "expected a string"},
      {"missing comma", "[1 2]", "comma"},
      {"missing colon", R"({"a" 1})", "colon"},
      {"unquoted key", "{a:1}", "a string"},
      {"leading zero", "01", "leading zeros"},
      {"plus", "+1", "a value"},
      {"bare point", "1.", "a number"},
      {"bare exponent", "1e", "a number"},
      {"NaN", "NaN", "a value"},
      {"Infinity", "-Infinity", "a number"},
      {"comment", "/* */ 1", "a value"},
      {"two values", "1 2", "expected the end"},
      {"wrong word", "trie", "true or false"},
      {"control character", std::string("\"a\nb\""), "escaped control character"},
      {"NUL", std::string("\"a\0b\"", 5), "escaped control character"},
      {"bad escape", R"("\x")", "escape sequence"},
      {"lone surrogate", R"("\ud800")", "surrogates"},
      {"low surrogate first", R"("\udc00\ud800")", "surrogates"},
      {"bad hex", R"("\u12g4")", "hexadecimal"},
      {"lone continuation byte", "\"\x80\"", "UTF-8"},
      {"overlong", "\"\xC0\xAF\"", "UTF-8"},
      {"surrogate in UTF-8", "\"\xED\xA0\x80\"", "UTF-8"},
      {"beyond Unicode", "\"\xF4\x90\x80\x80\"", "UTF-8"},
      {"truncated UTF-8", "\"\xE2\x82", "UTF-8"},
      {"nesting", std::string(100000, '['), "64 levels"},
      {"nested objects",
       [] {
         std::string s;
         for (int i = 0; i < 1000; ++i) s += "{\"a\":";
         return s;
       }(),
       "64 levels"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.note);
    const auto read = [&] {
      JsonReader json(c.text, "file");
      json.skip();
      json.end();
    };
    if (c.error == nullptr) {
      EXPECT_NO_THROW(read());
    } else {
      EXPECT_ERROR(read(), c.error);
    }
  }
}

TEST(JsonReader, PullsValues) {
  JsonReader json(R"({"n": 9223372036854775807, "s": "a\u00e9\ud83d\ude00", "list": [0.1, 1e300], )"
                  R"("inner": {"t": true, "z": null}})",
                  "file");
  std::string key;
  json.begin_object();
  ASSERT_TRUE(json.next_key(key));
  EXPECT_EQ(json.integer(), INT64_MAX);
  ASSERT_TRUE(json.next_key(key));
  EXPECT_EQ(json.string(), "a\xC3\xA9\xF0\x9F\x98\x80");
  ASSERT_TRUE(json.next_key(key));
  json.begin_array();
  ASSERT_TRUE(json.next_item());
  EXPECT_EQ(json.number(), 0.1);
  ASSERT_TRUE(json.next_item());
  EXPECT_EQ(json.number(), 1e300);
  EXPECT_FALSE(json.next_item());
  ASSERT_TRUE(json.next_key(key));
  EXPECT_EQ(key, "inner");
  json.begin_object();
  ASSERT_TRUE(json.next_key(key));
  EXPECT_TRUE(json.boolean());
  ASSERT_TRUE(json.next_key(key));
  json.null();
  EXPECT_FALSE(json.next_key(key));
  EXPECT_FALSE(json.next_key(key));
  json.end();
}

TEST(JsonReader, RefusesNumbersThatDoNotFit) {
  for (const char* text : {"1.5", "1e3", "9223372036854775808", "\"1\""})
    EXPECT_THROW(JsonReader(text, "f").integer(), Error) << text;
  for (const char* text : {"-1", "1.0", "1e3", "18446744073709551616"})
    EXPECT_THROW(JsonReader(text, "f").unsigned_integer(), Error) << text;
  EXPECT_THROW(JsonReader("1e999", "f").number(), Error);
  EXPECT_ERROR(JsonReader("\n\n  x", "manifest.json").integer(), "manifest.json: byte 4 (line 3)");
}

TEST(JsonWriter, WritesWhatTheReaderReadsBack) {
  const double numbers[] = {0, -0.0, 0.1, 1e-310, 1.7976931348623157e308, 123456789.123456789, -1.0 / 3};
  JsonWriter json;
  json.begin_object().key("a\"\\\n\x01").value("\xC3\xA9 \xFF").key("n").begin_array();
  for (const double x : numbers) json.value(x);
  json.value(std::numeric_limits<double>::quiet_NaN())
      .value(true)
      .value(std::uint64_t{18446744073709551615U})
      .end_array()
      .end_object();
  JsonReader reader(json.text(), "f");
  std::string key;
  reader.begin_object();
  ASSERT_TRUE(reader.next_key(key));
  EXPECT_EQ(key, "a\"\\\n\x01");
  EXPECT_EQ(reader.string(), "\xC3\xA9 \xEF\xBF\xBD");
  ASSERT_TRUE(reader.next_key(key));
  reader.begin_array();
  for (const double x : numbers) {
    ASSERT_TRUE(reader.next_item());
    const double read = reader.number();
    EXPECT_EQ(std::memcmp(&read, &x, sizeof x), 0) << x;
  }
  ASSERT_TRUE(reader.next_item());
  reader.null();
  ASSERT_TRUE(reader.next_item());
  EXPECT_TRUE(reader.boolean());
  ASSERT_TRUE(reader.next_item());
  EXPECT_EQ(reader.unsigned_integer(), UINT64_MAX);
  EXPECT_FALSE(reader.next_item());
  EXPECT_FALSE(reader.next_key(key));
  reader.end();
}

}  // namespace
}  // namespace graven::runtime::json_test
