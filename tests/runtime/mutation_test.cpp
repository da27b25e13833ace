// Readers under random damage: bytes of valid files changed, cut out, repeated. Whatever comes, a reader returns or throws an Error; with the
// sanitizers on, this is the test that finds reads beyond the end. The same mutations every time.
#include <functional>

#include "fixture.h"
#include "runtime_min/cifar.h"
#include "runtime_min/idx.h"
#include "runtime_min/image.h"
#include "runtime_min/json_reader.h"
#include "runtime_min/npy.h"
#include "runtime_min/safetensors.h"

namespace graven::runtime {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : state_(seed) {}
  std::string operator()(std::string s) {
    for (std::uint64_t n = next(3) + 1; n > 0 && !s.empty(); --n) {
      const std::size_t at = next(s.size());
      switch (next(6)) {
        case 0:
          s[at] = static_cast<char>(next(256));
          break;
        case 1:
          s[at] = static_cast<char>(s[at] ^ (1 << next(8)));
          break;
        case 2:
          s.erase(at, next(8) + 1);
          break;
        case 3:
          s.insert(at, s.substr(next(s.size()), next(16)));
          break;
        case 4:
          s.resize(at);
          break;
        default:
          s.replace(at, 1, kTokens[next(std::size(kTokens))]);
          break;
      }
    }
    return s;
  }

 private:
  static constexpr const char* kTokens[] = {
      "\"", "{", "[", "]", "}", ",", ":", "-", "9", "0", "18446744073709551615", "9223372036854775807", "\\u", "(", ")", "\xFF\xFF\xFF\xFF"};
  std::uint64_t next(std::uint64_t bound) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return (state_ >> 33) % bound;
  }
  std::uint64_t state_;
};

TEST(Mutation, NoReaderFails) {
  const std::string header =
      R"({"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";
  const std::string npy_header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n";
  const auto touch = [](std::span<const std::byte> bytes) {
    unsigned sum = 0;
    for (const std::byte b : bytes) sum += static_cast<unsigned>(b);
    return sum;
  };
  const struct {
    const char* note;
    std::string valid;
    std::function<unsigned(const std::string&)> read;
  } formats[] = {
      {"safetensors", little_endian<std::uint64_t>(header.size()) + header + std::string(19, 'x'),
       [&](const std::string& path) {
         const SafetensorsFile file(path);
         unsigned sum = 0;
         for (const SafetensorsEntry& entry : file.entries()) sum += touch(file.bytes(entry));
         return sum;
       }},
      {"npy", std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(npy_header.size()) + std::string(1, '\0') + npy_header + std::string(16, 'x'),
       [&](const std::string& path) { return touch(read_npy(path).bytes); }},
      {"idx", std::string("\0\0\x0D\x02\0\0\0\x02\0\0\0\x03", 12) + std::string(24, 'x'),
       [&](const std::string& path) { return touch(read_idx(path).bytes); }},
      {"idx, gzipped", from_hex("1f8b0800000000000003 636060e0656460606062006200") + std::string(8, 'x'),
       [&](const std::string& path) { return touch(read_idx(path).bytes); }},
      {"cifar", std::string(3073, '\x01'), [&](const std::string& path) { return touch(read_cifar(path, CifarKind::cifar10).bytes.view); }},
      {"png",
       from_hex("89504e470d0a1a0a0000000d4948445200000003000000010203000000668efc2700000009504c54450a141e28323c46505a16ac84740000000a49444154789c6368"
                "010000"
                "860085bcf5cdd60000000049454e44ae426082"),
       [&](const std::string& path) { return touch(read_image(path).bytes); }},
      {"ppm", "P6 # x\n2 1\n255\nabcdef", [&](const std::string& path) { return touch(read_image(path).bytes); }},
      {"json", R"({"a":[1,-2.5e3,{"b":"\u00e9\ud83d\ude00"}],"c":null,"d":true})",
       [&](const std::string& path) {
         const MappedFile file(path);
         JsonReader json({reinterpret_cast<const char*>(file.bytes().data()), file.size()}, path);
         json.skip();
         json.end();
         return 0U;
       }},
  };
  const TemporaryFolder folder;
  for (const auto& format : formats) {
    SCOPED_TRACE(format.note);
    Mutator mutate(1);
    int accepted = 0, refused = 0;
    for (int i = 0; i < 800; ++i) {
      write_file(folder / "mutated", mutate(format.valid));
      try {
        format.read(folder / "mutated");
        ++accepted;
      } catch (const Error&) {
        ++refused;
      }
    }
    EXPECT_EQ(accepted + refused, 800);
    EXPECT_GT(refused, 50) << "the mutations do damage";
  }
}

}  // namespace
}  // namespace graven::runtime
