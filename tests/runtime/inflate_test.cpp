#include "runtime_min/inflate.h"

#include "fixture.h"

namespace graven::runtime {
namespace {

/// Made by zlib 1.2.13 (gzip wrapping, level 9 where not said), from the plain texts that `plain` makes.
const char kFixed[] =  // Z_FIXED
    "1f8b08000000000002030bc94855282ccd4cce56482aca2fcf5348cbaf50c82acd2d2856c82f4b2d5228014ae72456552aa4e4a7eb2984d04c"
    "310058"
    "001e0087000000";
const char kStored[] =  // level 0
    "1f8b0800000000000403010300fcff616263c241243503000000";
const char kDynamic[] =
    "1f8b08000000000002032d95896d03310c045b127fb2ffc6327b0e0238b2ee4491fbf9599eb557745ee79abd676e96697d76ed5e5eed7be119"
    "6df91e"
    "4f72b3fc6a9a733d3d7eb3ecd9bd774d054f7b7b66d5c6797336836ac9d1a276734573d374da72fb45fbf3ef89fb3b8f979e7451ef79f37ff8"
    "beecd3"
    "67f05e508c6e2e6839e838a817e3169b19d7973491dc9b519db997ed9943efb4578f16b8b482fed964b4aae13fd5fbad5eb566481e187365ef"
    "de3c86"
    "a4de507caa6f8672e7b640b5be540337d0db6548fae3d1d70405d97c4294819f6b95dcfffa1df8d887549939b8820d783580d8828c7f2c0488"
    "304682"
    "00e8f90946e11959021484e3e837ed3bcf89d4f9dcd58ca055c1d49ad06a59b57d08f2f4bb875e9f8dce0e704306f5e6a8bcba035e58e9de13"
    "e3a75e"
    "4ec431a6310a08b37ffe06f2ec632fa00f6e199f230e93221f0ae18e5998dd23c52e77422f27120681982a921e1b542eeef82074b1e6f0704e"
    "67ed62"
    "c0a71867e0c46912514860cb1c2e1c60741394fc50c92015a9fa1d2b603bbadb0c9ae60b58056f5884a909341241ad906a00f758a1a3608d86"
    "a4ac86"
    "8fe84f6b308dd8501f7501537a14a2b128143a9e24f8e49327b2b55a0188aec5936083527989f6f3e8088d52558693b7c01158710a86bcac01"
    "187930"
    "1b247270554e49ceb083e33821b64110ed1f3e2c28edd2e4658f95c9a770963aa42f5800d491c67ad2c7ca05d555dc01b6f7e91e11d0540d32"
    "c4e39c"
    "58d45a00043448ba8ede3e9afa155ab2cff5380b173f4509f609ad427ba9a7a9f74a274a67658c6fa01ef940778000e201dc4472f4a1bf7972"
    "dda3bf"
    "11cd833273e496d11c033b862737476934c5bc23b543ecfca7d280cb904d36c26ad09124eeb938176bd2c24aa4cb6e2f956f1dec376061c507"
    "d6c6df"
    "05478bb64edcf7d2d6cf4fbbb0ba10af90794a3f66c5dd865999d0508474d9d26311726214e5dc9716859aee871d0a3b4d737471b7a54fbad2"
    "522f50"
    "ddc80e852a837df1aa3c212559d30ffbc8887728c0fb9fe15180d6add00440bd0378a658d659d95c857e5b8a6a2b6db97f81249c8cf4643fa5"
    "1b094c"
    "afc8ff104c4089a2fc129c77568ab2fbc2ec94284c4fc4b9f28e4f45e097044a34ade3b49f8a41a539efb7ce7a9325649da2903ba8effb85e1"
    "973bf1"
    "14418a111c6c0a26fd06c8c35f2486468afc4251fe926735c49772a15f1a7e1fe4d45092f229065346213f9593e9dac711f2537c41facbd4fa"
    "e2b5be"
    "a46dd597dee43edd0b3772e2a99f7aca6a7aa1cffa129c44a37f299efdd45c184deefbe695f8fa7318fbab5f062e79f607bf6935a69107000"
    "0";
const char kFar[] =  // a match at distance 30,000 and more
    "1f8b0800000000000203ed9d5b9224290c04e748480890ee7fb1f1c89a23acd9fe84b759374d25420a3dea3357d4c4cdb36fcdad8e582b32a2"
    "2aeec4"
    "dccc93e766cfceda376a2d3ea9ae9373dee5dc7df7e5bc662f66adb958c88ad513716e703e92cd8db5e2e8c1f6e58acb4def5634b7cfbeb9f2"
    "fb2473"
    "4dee55597871d6cacbdfc7ffcd3e7e6e9edb18c39bd9b8bcf178636fbf8cdd557bee144e14f7d63eb7aaa76e563d7cc7bdb370814bcfc67f36"
    "09ed9c"
    "c75facdfd57a342e41f2411057ddee798b20b1f730fece9df73037198d549d8d357443bd6e82c43f3efa9cc0209b4b8a12f04aad8afbd75d83"
    "3ef129"
    "7522125dd106bd2e8244a34c7e59d82842188502a8972319a5e7ae234151780ffe567ce739513a5fdd8a11b5ce266a4518a759ddf814e4d3ef"
    "1e7c5d"
    "f174f62137c9c0de1b2cb7ee202fac74ef28e3235f468923cc201414667f723d92175ff636e923b784cf9124934a3e292477c442ecb94bd9e5"
    "4ed2cb"
    "892283488c15951e1b583edcf14998ca5a9287493cbba90ce43b84f3c849e22445a1026be248e94046bb5029872a79948aaa7a0d2b641bbceb"
    "da38cd"
    "3f68b57922f60e39418dec8dadadaa41dc61451d6dd6d4902aeb928f7dbf5a23d3141bd5875dc4543d4ad1dd5428e9582ac1a53e594ab6562d"
    "01a96b"
    "e549b29152f512eed7e011358a55359c7a0b1d91954ea121a7ce4318f5605d94a84757d53b2a67b243c77142d946416a7fe8c3434aef51e427"
    "16ab50"
    "9f92b3d221fd430ba03aa5d159f8d1ea8273cfe10eb49dafee29029c3a8f32a4c739d154eb4120a4a1a4cfe0db97a6bb0eb5145fd7d35974f1"
    "d228a1"
    "7db6565b7ba54f4bcf1d9d383aabc6f802ba4f7da03b5080e241dca2e4f0433f6fa9eb16fe3da5f95199f5d42d4f713cb213f464d7d3347a87"
    "789faa"
    "9dc4be7f53e9a1cb6336c593568f3a528967359d4b6be242ab489bdddb589e4eb4ef4d165af9a0b5e9ef438e9ada1ae5fe366efdfaa99bac36"
    "89d790"
    "599a7ec44a7707cd4a844145a82eafeaf130e494512a67be6971a8a6f96947858da219bc98e9a3df78a5a51ec07a303b345409ec1baf9a274c"
    "49d6f8"
    "c33e65c43318e0f9afe1a900adaf862602ea19c40b8d659d559bcbd06f4ba33a8eb632bf81249d82e9c97ea96e54607a44fd4f8219504a517d"
    "139c67"
    "5a1515f30db3d144217a465c6adef15b23f09b049a685aefd17e690c6a9af3fcd5d9bccc12669d462177603ffb1b86dfdcd94b234863840e0e"
    "0d267d"
    "07a887bf91b815d2ae6f28aabfd4b30ae29b725bdf347c3fa853b72629bf95c152a3303f35272bb54f47a89ff637487f33f57ce3f57c93f6ca"
    "beea4d"
    "dda77bc98d3a71e4cf599ad5f8829fe79be04c34fc57c5b35f8a8b4653f77df1aaf8eed761ecb7be19b864c51f638c31c618638c31c618638c"
    "31c618"
    "638c31c618638c31c618638c31c618638c31c618638c31c618638c31c618638c31c618638c31c618638c31c618638c31c618638c31c618638c"
    "f98f58"
    "7e81b95f60ee1798fb05e67e81b95f60ee1798ffff2f30ff0b59fca10952840000";
const char kEmpty[] = "1f8b080000000000020303000000000000000000";
const char kZeros[] =  // 100,000 bytes in 133
    "1f8b0800000000000203edc13101000000c2a0f54f6d0d0fa00000000000000000000000000000000000000000000000000000000000000000"
    "000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000"
    "008057037d9511d4a0860100";
const char kZlib[] =  // zlib wrapping
    "789c0bc94855282ccd4cce56482aca2fcf5348cbaf50c82acd2d2856c82f4b2d5228014ae72456552aa4e4a7eb2984d04c3100f93c3076";
const char kNamed[] =  // gzip's own file, with a name
    "1f8b08080000000002ff68656c6c6f2e74787400cb48cdc9c9e7020020303a3606000000";

std::string text(int times) {
  std::string s;
  for (int i = 0; i < times; ++i) s += "The quick brown fox jumps over the lazy dog. ";
  return s;
}

std::string squares() {
  std::string s;
  for (int i = 0; i < 400; ++i) s += std::to_string(i * i);
  return s;
}

std::string inflated(const std::string& compressed) {
  const std::vector<std::byte> out = gunzip(as_span(compressed), "file.gz");
  return {reinterpret_cast<const char*>(out.data()), out.size()};
}

TEST(Inflate, ReadsEveryKindOfBlock) {
  const struct {
    const char* note;
    std::string compressed, plain;
  } cases[] = {
      {"fixed codes", from_hex(kFixed), text(3)},
      {"stored", from_hex(kStored), "abc"},
      {"dynamic codes", from_hex(kDynamic), squares()},
      {"far matches", from_hex(kFar), squares() + std::string(30000, '\0') + squares()},
      {"empty", from_hex(kEmpty), ""},
      {"overlapping matches", from_hex(kZeros), std::string(100000, '\0')},
      {"named", from_hex(kNamed), "hello\n"},
      {"two members", from_hex(kNamed) + from_hex(kFixed), "hello\n" + text(3)},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    EXPECT_EQ(inflated(c.compressed), c.plain);
  }
  const std::vector<std::byte> out = zlib_inflate(as_span(from_hex(kZlib)), "file");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), out.size()), text(3));
}

class InflateShifted : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Blocks, InflateShifted, testing::Range(0, 8));

TEST_P(InflateShifted, ReadsCodesOfFifteenBits) {
  // A dynamic block written here bit by bit: literals 'A' to 'O' and the end have lengths 1, 2, ..., 14, 15, 15.
  std::string bits;
  const auto put = [&bits](unsigned value, int n) {
    for (int i = 0; i < n; ++i) bits += static_cast<char>('0' + (value >> i & 1));
  };
  const auto code = [&bits](unsigned value, int n) {
    for (int i = n - 1; i >= 0; --i) bits += static_cast<char>('0' + (value >> i & 1));
  };
  // Empty blocks before it (fixed codes, 10 bits each) move it against the borders of bytes.
  for (int i = 0; i < GetParam(); ++i) put(0, 1), put(1, 2), put(0, 7);
  put(1, 1), put(2, 2), put(0, 5), put(0, 5), put(15, 4);  // last, dynamic, 257 literals, 1 distance, 19 code lengths
  // Seventeen symbols of the code of code lengths are used, 0 to 15 and 18: fifteen take 4 bits, 14 and 18 take 5,
  // which is complete.
  const int order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
  int length[19] = {};
  for (int s = 0; s <= 15; ++s) length[s] = s == 14 ? 5 : 4;
  length[18] = 5;
  for (const int s : order) put(static_cast<unsigned>(length[s]), 3);
  unsigned codes[19] = {}, next = 0;
  for (int bits_of = 4; bits_of <= 5; ++bits_of) {
    if (bits_of == 5) next <<= 1;
    for (int s = 0; s < 19; ++s) {
      if (length[s] == bits_of) codes[s] = next++;
    }
  }
  const auto emit = [&](int symbol) { code(codes[symbol], length[symbol]); };
  emit(18), put(65 - 11, 7);                                     // 65 zeros
  for (int l = 1; l <= 15; ++l) emit(l);                         // 'A' to 'O'
  emit(18), put(127, 7), emit(18), put(256 - 80 - 138 - 11, 7);  // zeros up to 256
  emit(15);                                                      // the end
  emit(0);                                                       // one distance code, unused
  std::string plain;
  const auto symbol = [&](int i) {  // the i-th code of lengths 1, 2, ..., 15, 15: i ones and a zero, or fifteen ones
    for (int k = 0; k < i; ++k) bits += '1';
    if (i < 15) bits += '0';
  };
  for (int repeat = 0; repeat < 40; ++repeat) {  // the longest codes, one after another
    symbol(14);
    plain += 'O';
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (int i = 14; i >= 0; --i) {
      symbol(i);
      plain += static_cast<char>('A' + i);
    }
  }
  symbol(15);
  std::string deflated;
  for (std::size_t i = 0; i < bits.size(); i += 8) {
    unsigned byte = 0;
    for (std::size_t k = 0; k < 8 && i + k < bits.size(); ++k) byte |= static_cast<unsigned>(bits[i + k] - '0') << k;
    deflated += static_cast<char>(byte);
  }
  const std::string file = from_hex("1f8b0800000000000003") + deflated + little_endian(crc32(as_span(plain))) +
                           little_endian(static_cast<std::uint32_t>(plain.size()));
  EXPECT_EQ(inflated(file), plain);
}

TEST(Inflate, ReadsHeadersWithAChecksum) {
  EXPECT_EQ(inflated(from_hex("1f8b0802000000000003a7770300") + std::string(8, '\0')), "");
}

TEST(Inflate, RefusesDamage) {
  const std::string good = from_hex(kDynamic);
  const auto with = [&](std::size_t at, char byte) {
    std::string s = good;
    s[at] = byte;
    return s;
  };
  const struct {
    const char* note;
    std::string compressed;
    const char* error;
  } cases[] = {
      {"nothing", "", "gzip header"},
      {"other magic", with(0, 'x'), "gzip header"},
      {"other method", with(2, 7), "compression method 8, found 7"},
      {"reserved flags", with(3, '\x80'), "reserved flags"},
      {"a name that does not end", from_hex("1f8b0808000000000000") + "name", "a name or comment that ends"},
      {"an extra field beyond the end", from_hex("1f8b0804000000000000ffff"), "an extra field"},
      {"block type 3", from_hex("1f8b080000000000000007") + std::string(8, '\0'), "a block of type 0, 1 or 2, found 3"},
      {"a stored length that disagrees", from_hex("1f8b0800000000000000010300fdff616263"), "once inverted"},
      {"a stored block beyond the end", from_hex("1f8b0800000000000000010300fcff6162"), "3 bytes, found 2"},
      {"a distance before the start", from_hex("1f8b08000000000000004b0421") + std::string(9, '\0'),
       "a distance of at most"},
      {"a distance into the member before", good + from_hex("1f8b08000000000000004b0421") + std::string(9, '\0'),
       "a distance of at most"},
      {"another checksum of the header", from_hex("1f8b080200000000000300000300") + std::string(8, '\0'),
       "header checksum 000077a7, found 00000000"},
      {"another checksum", with(good.size() - 5, static_cast<char>(good[good.size() - 5] ^ 1)), "checksum"},
      {"another size", with(good.size() - 1, static_cast<char>(good[good.size() - 1] ^ 1)), "bytes of data"},
      {"trailing bytes", good + "x", "gzip header"},
      {"no trailer", good.substr(0, good.size() - 8), "trailer"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    EXPECT_ERROR(inflated(c.compressed), c.error);
  }
  EXPECT_ERROR(zlib_inflate(as_span(from_hex(kZlib).substr(0, 20)), "file"), "the end");
  std::string zlib = from_hex(kZlib);
  zlib.back() = static_cast<char>(zlib.back() ^ 1);
  EXPECT_ERROR(zlib_inflate(as_span(zlib), "file"), "checksum");
  EXPECT_ERROR(zlib_inflate(as_span("123456"), "file"), "zlib header");
}

// Whatever is cut or flipped, the result is an Error or (bits of the header that nobody reads) the plain text: never
// another text, never a crash.
TEST(Inflate, NeverReturnsAnotherText) {
  for (const char* hex : {kFixed, kDynamic, kStored, kNamed}) {
    const std::string good = from_hex(hex), plain = inflated(good);
    for (std::size_t n = 0; n < good.size(); ++n) EXPECT_THROW(inflated(good.substr(0, n)), Error) << n;
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      try {
        EXPECT_EQ(inflated(bad), plain) << "bit " << bit;
      } catch (const Error&) {
      }
    }
  }
}

// Whatever comes after them: the rest of a match or of a stored block, blocks, a damaged trailer, another member.
TEST(Inflate, StopsAfterTheFirstBytes) {
  for (const char* hex : {kFixed, kDynamic, kStored, kFar, kZeros}) {
    const std::string good = from_hex(hex), plain = inflated(good);
    std::string bad = good;
    bad[bad.size() - 6] = static_cast<char>(bad[bad.size() - 6] ^ 1);  // the checksum
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{1}, std::size_t{2}, plain.size() / 2, plain.size() - 1, plain.size()}) {
      const std::vector<std::byte> out = gunzip(as_span(bad), "file", n);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), out.size()), plain.substr(0, n));
      const std::vector<std::byte> raw = inflate_start(as_span(good).subspan(10), "file", 10, n);
      EXPECT_TRUE(std::equal(raw.begin(), raw.end(), out.begin(), out.end()));
    }
    EXPECT_ERROR(gunzip(as_span(bad), "file", plain.size() + 1), "checksum");
    const std::vector<std::byte> both = gunzip(as_span(good + good), "file", plain.size() + 2);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(both.data()), both.size()), plain + plain.substr(0, 2));
  }
}

TEST(Inflate, Crc32OfTheCatalogue) {
  EXPECT_EQ(crc32(as_span("123456789")), 0xCBF43926U);
  EXPECT_EQ(crc32({}), 0U);
}

}  // namespace
}  // namespace graven::runtime
