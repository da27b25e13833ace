#include "inflate.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "error.h"

namespace graven::runtime {
namespace {

/// tables[k][b]: the CRC of byte b followed by k zero bytes, so that eight bytes take one round.
constexpr std::array<std::array<std::uint32_t, 256>, 8> crc_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t c = b;
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) != 0 ? 0xEDB88320U : 0U);
    tables[0][b] = c;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xFF];
  }
  return tables;
}
constexpr auto kCrc = crc_tables();

constexpr int kMaxBits = 15, kFastBits = 10;

/// A canonical Huffman code: codes of up to kFastBits bits by table, longer ones bit by bit.
struct Huffman {
  std::uint16_t fast[1 << kFastBits];  ///< symbol << 4 | length; 0: a longer code
  std::uint16_t count[kMaxBits + 1];   ///< codes of each length
  std::uint16_t symbol[288];           ///< in the order of the codes

  /// False when the lengths over-subscribe the code, or leave some of it unused (unless it is a single code, which
  /// DEFLATE allows).
  bool build(const std::uint8_t* lengths, int n) {
    std::fill(std::begin(count), std::end(count), std::uint16_t{0});
    for (int i = 0; i < n; ++i) ++count[lengths[i]];
    const int used = n - count[0];
    count[0] = 0;
    int left = 1;
    for (int length = 1; length <= kMaxBits; ++length) {
      left = 2 * left - count[length];
      if (left < 0) return false;
    }
    if (left > 0 && !(used == 1 && count[1] == 1) && used != 0) return false;
    std::uint16_t next[kMaxBits + 2] = {}, code[kMaxBits + 2] = {};
    for (int length = 1; length <= kMaxBits; ++length) {
      next[length + 1] = static_cast<std::uint16_t>(next[length] + count[length]);
      code[length + 1] = static_cast<std::uint16_t>((code[length] + count[length]) << 1);
    }
    std::fill(std::begin(fast), std::end(fast), std::uint16_t{0});
    for (int i = 0; i < n; ++i) {
      const int length = lengths[i];
      if (length == 0) continue;
      symbol[next[length]++] = static_cast<std::uint16_t>(i);
      const unsigned c = code[length]++;
      if (length > kFastBits) continue;
      unsigned reversed = 0;  // DEFLATE packs codes from their first bit into the lowest
      for (int b = 0; b < length; ++b) reversed |= (c >> b & 1U) << (length - 1 - b);
      for (unsigned f = reversed; f < (1U << kFastBits); f += 1U << length)
        fast[f] = static_cast<std::uint16_t>(i << 4 | length);
    }
    return true;
  }
};

/// What more than the limit is: an Error, or where decoding stops.
enum class Beyond : std::uint8_t { fails, stops };

/// Decodes one DEFLATE stream from `in`, appending to `out`.
class Inflater {
 public:
  Inflater(std::span<const std::byte> in, const std::string& file, std::size_t offset, std::uint64_t limit,
           Beyond beyond = Beyond::fails)
      : in_(in), file_(file), offset_(offset), limit_(limit), beyond_(beyond) {}

  /// `hint` is a guess of the size. Returns the bytes of `in` that the stream took.
  std::size_t run(std::vector<std::byte>& out, std::size_t hint) {
    out_ = &out;
    start_ = written_ = out.size();
    out.resize(start_ + hint);
    try {
      blocks();
    } catch (const Enough&) {
    }
    out.resize(start_ + static_cast<std::size_t>(std::min<std::uint64_t>(
                            written_ - start_, limit_)));  // the last match may have gone beyond
    return at_ - static_cast<std::size_t>(held_) / 8;      // whole bytes that were taken in advance go back
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& found) const {
    throw Error(file_, std::string("compressed byte ") + std::to_string(offset_ + std::min(at_, in_.size())), expected,
                found);
  }

 private:
  /// Thrown where decoding stops: out of the midst of a block, past loops that need not ask for it with each byte.
  struct Enough {};

  void blocks() {
    bool last = false;
    while (!last) {
      last = bits(1) != 0;
      switch (bits(2)) {
        case 0:
          stored();
          break;
        case 1:
          fixed();
          break;
        case 2:
          dynamic();
          break;
        default:
          fail("a block of type 0, 1 or 2", "3");
      }
    }
  }

  /// At least `n` bits in hold_, zeros beyond the end of the input (whoever takes them fails).
  void refill() {
    if (in_.size() - at_ >= 8) {
      std::uint64_t word;
      std::memcpy(&word, in_.data() + at_, 8);
      hold_ |= word << held_;
      const int taken = (63 - held_) >> 3;
      at_ += static_cast<std::size_t>(taken);
      held_ += taken * 8;
      // bits above held_ are a preview of the next byte; the same bits are or-ed in again next time
    } else {
      while (held_ <= 56 && at_ < in_.size()) {
        hold_ |= static_cast<std::uint64_t>(in_[at_++]) << held_;
        held_ += 8;
      }
    }
  }
  void drop(int n) {
    if (n > held_) fail("more compressed data", "the end");
    hold_ >>= n;
    held_ -= n;
  }
  unsigned bits(int n) {
    if (held_ < n) refill();
    const unsigned value = static_cast<unsigned>(hold_ & ((std::uint64_t{1} << n) - 1));
    drop(n);
    return value;
  }

  /// The next symbol; the caller refills (48 bits serve a length, a distance and their extra bits).
  unsigned decode(const Huffman& h) {
    const unsigned entry = h.fast[hold_ & ((1U << kFastBits) - 1)];
    if (entry != 0) {
      drop(static_cast<int>(entry & 15));
      return entry >> 4;
    }
    int code = 0, first = 0, index = 0;
    for (int length = 1; length <= kMaxBits; ++length) {
      code |= static_cast<int>(hold_ >> (length - 1) & 1);
      const int count = h.count[length];
      if (code - count < first) {
        drop(length);
        return h.symbol[index + (code - first)];
      }
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    if (held_ < kMaxBits) fail("more compressed data", "the end");
    fail("a code of the block's alphabet", "another");
  }

  void reserve(std::size_t n) {
    if (written_ - start_ + n > limit_) {
      if (beyond_ == Beyond::fails) fail(std::string("at most ") + std::to_string(limit_) + " bytes of data", "more");
      if (written_ - start_ >= limit_) throw Enough{};
    }
    if (written_ + n <= out_->size()) return;
    const std::uint64_t roomy = std::min<std::uint64_t>(out_->size() - start_ + out_->size() / 2 + 65536, limit_);
    const std::size_t size = std::max(written_ + n, start_ + static_cast<std::size_t>(roomy));
    out_->reserve(size);  // resize() alone would double what is there
    out_->resize(size);
  }

  void stored() {
    drop(held_ % 8);
    const unsigned length = bits(16), complement = bits(16);
    if ((length ^ complement) != 0xFFFF)
      fail("a stored block's length twice, once inverted",
           std::to_string(length) + " and " + std::to_string(complement));
    at_ -= static_cast<std::size_t>(held_) / 8;
    hold_ = 0;
    held_ = 0;
    if (in_.size() - at_ < length)
      fail(std::string("a stored block of ") + std::to_string(length) + " bytes", std::to_string(in_.size() - at_));
    reserve(length);
    if (length != 0) std::memcpy(out_->data() + written_, in_.data() + at_, length);
    at_ += length;
    written_ += length;
  }

  void fixed() {
    std::uint8_t lengths[288 + 30];
    std::fill(lengths, lengths + 144, std::uint8_t{8});
    std::fill(lengths + 144, lengths + 256, std::uint8_t{9});
    std::fill(lengths + 256, lengths + 280, std::uint8_t{7});
    std::fill(lengths + 280, lengths + 288, std::uint8_t{8});
    literals_.build(lengths, 288);
    std::fill(lengths, lengths + 32, std::uint8_t{5});
    distances_.build(lengths, 32);
    codes();
  }

  void dynamic() {
    const int literals = static_cast<int>(bits(5)) + 257, distances = static_cast<int>(bits(5)) + 1,
              lengths_codes = static_cast<int>(bits(4)) + 4;
    if (literals > 286 || distances > 30)
      fail("at most 286 length and 30 distance codes", std::to_string(literals) + " and " + std::to_string(distances));
    static constexpr std::uint8_t kOrder[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    std::uint8_t lengths[286 + 30] = {};
    for (int i = 0; i < lengths_codes; ++i) lengths[kOrder[i]] = static_cast<std::uint8_t>(bits(3));
    if (!literals_.build(lengths, 19)) fail("a complete code of code lengths", "another");
    std::fill(lengths, lengths + 19, std::uint8_t{0});
    for (int n = 0; n < literals + distances;) {
      refill();
      const unsigned symbol = decode(literals_);
      if (symbol < 16) {
        lengths[n++] = static_cast<std::uint8_t>(symbol);
        continue;
      }
      if (symbol == 16 && n == 0) fail("a length to repeat", "none");
      const std::uint8_t repeated = symbol == 16 ? lengths[n - 1] : std::uint8_t{0};
      const unsigned times = symbol == 16 ? 3 + bits(2) : symbol == 17 ? 3 + bits(3) : 11 + bits(7);
      if (n + static_cast<int>(times) > literals + distances) fail("code lengths within the block's tables", "more");
      for (unsigned k = 0; k < times; ++k) lengths[n++] = repeated;
    }
    if (lengths[256] == 0) fail("a code for the end of the block", "none");
    if (!literals_.build(lengths, literals)) fail("a complete code of lengths and literals", "another");
    if (!distances_.build(lengths + literals, distances)) fail("a complete code of distances", "another");
    codes();
  }

  void codes() {
    static constexpr std::uint16_t kLength[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                                  31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static constexpr std::uint8_t kLengthBits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                     2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static constexpr std::uint16_t kDistance[30] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                                    33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                                    1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    static constexpr std::uint8_t kDistanceBits[30] = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                                       6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
    for (;;) {
      refill();
      unsigned symbol = decode(literals_);
      // Most data is runs of literals, and a refill is good for three codes of 15 bits.
      for (int left = 2; symbol < 256; --left) {
        if (written_ == out_->size() || written_ - start_ >= limit_) reserve(1);
        (*out_)[written_++] = static_cast<std::byte>(symbol);
        if (left == 0) {
          refill();
          left = 3;
        }
        symbol = decode(literals_);
      }
      refill();
      if (symbol == 256) return;
      if (symbol > 285) fail("a length code of at most 285", std::to_string(symbol));
      const unsigned length = kLength[symbol - 257] + bits(kLengthBits[symbol - 257]);
      refill();
      const unsigned code = decode(distances_);
      if (code > 29) fail("a distance code of at most 29", std::to_string(code));
      const std::size_t distance = kDistance[code] + bits(kDistanceBits[code]);
      if (distance > written_ - start_)
        fail(std::string("a distance of at most ") + std::to_string(written_ - start_), std::to_string(distance));
      reserve(length);
      std::byte* to = out_->data() + written_;
      if (distance >= length) {
        std::memcpy(to, to - distance, length);
      } else {
        for (unsigned k = 0; k < length; ++k)
          to[k] = (to - distance)[k];  // overlapping: the copy repeats what it writes
      }
      written_ += length;
    }
  }

  std::span<const std::byte> in_;
  const std::string& file_;
  std::size_t offset_;
  std::uint64_t limit_;
  Beyond beyond_;
  std::size_t at_ = 0;
  std::uint64_t hold_ = 0;
  int held_ = 0;
  std::vector<std::byte>* out_ = nullptr;
  std::size_t start_ = 0, written_ = 0;
  Huffman literals_, distances_;
};

std::uint32_t little32(std::span<const std::byte> data, std::size_t at) {
  std::uint32_t value;
  std::memcpy(&value, data.data() + at, 4);
  return value;
}

std::uint64_t bound(std::size_t compressed, std::uint64_t limit) {
  return std::min(limit, inflated_at_most(compressed));
}

std::string hex(std::uint32_t value) {
  std::string s;
  for (int shift = 28; shift >= 0; shift -= 4) s += "0123456789abcdef"[value >> shift & 15];
  return s;
}

}  // namespace

std::uint64_t inflated_at_most(std::uint64_t compressed) {
  return 1032 * std::min(compressed, UINT64_MAX / 1032 - 1) + 64;
}

std::uint32_t crc32(std::span<const std::byte> data) {
  std::uint32_t c = ~0U;
  std::size_t i = 0;
  for (; i + 8 <= data.size(); i += 8) {
    const std::uint32_t low = little32(data, i) ^ c, high = little32(data, i + 4);
    c = kCrc[7][low & 0xFF] ^ kCrc[6][low >> 8 & 0xFF] ^ kCrc[5][low >> 16 & 0xFF] ^ kCrc[4][low >> 24] ^
        kCrc[3][high & 0xFF] ^ kCrc[2][high >> 8 & 0xFF] ^ kCrc[1][high >> 16 & 0xFF] ^ kCrc[0][high >> 24];
  }
  for (; i < data.size(); ++i) c = (c >> 8) ^ kCrc[0][(c ^ static_cast<std::uint32_t>(data[i])) & 0xFF];
  return ~c;
}

std::uint32_t adler32(std::span<const std::byte> data) {
  std::uint32_t a = 1, b = 0;
  while (!data.empty()) {
    const std::size_t n = std::min<std::size_t>(data.size(), 5552);  // the most for which b stays below 2^32
    for (std::size_t i = 0; i < n; ++i) {
      a += static_cast<std::uint32_t>(data[i]);
      b += a;
    }
    a %= 65521;
    b %= 65521;
    data = data.subspan(n);
  }
  return b << 16 | a;
}

bool is_gzip(std::span<const std::byte> data) {
  return data.size() >= 2 && data[0] == std::byte{0x1F} && data[1] == std::byte{0x8B};
}

std::vector<std::byte> gunzip(std::span<const std::byte> in, const std::string& file, std::uint64_t most) {
  std::vector<std::byte> out;
  std::size_t at = 0;
  const auto fail = [&](const std::string& expected, const std::string& found) {
    throw Error(file, std::string("compressed byte ") + std::to_string(std::min(at, in.size())), expected, found);
  };
  const auto need = [&](std::size_t n, const char* what) {
    if (in.size() < at || in.size() - at < n) fail(what, "the end");
  };
  do {
    const std::size_t member = at;
    need(10, "a gzip header of 10 bytes");
    if (!is_gzip(in.subspan(at))) fail("a gzip header", "other data");
    if (in[at + 2] != std::byte{8}) fail("compression method 8", std::to_string(static_cast<int>(in[at + 2])));
    const auto flags = static_cast<unsigned>(in[at + 3]);
    if ((flags & 0xE0) != 0) fail("no reserved flags", std::to_string(flags));
    at += 10;
    if ((flags & 4) != 0) {  // extra field
      need(2, "an extra field");
      const std::size_t length = static_cast<std::size_t>(in[at]) | static_cast<std::size_t>(in[at + 1]) << 8;
      at += 2;
      need(length, "an extra field");
      at += length;
    }
    for (const unsigned flag : {8U, 16U}) {  // name, comment
      if ((flags & flag) == 0) continue;
      while (at < in.size() && in[at] != std::byte{0}) ++at;
      need(1, "a name or comment that ends");
      ++at;
    }
    if ((flags & 2) != 0) {
      need(2, "a header checksum");
      const std::uint32_t expected = crc32(in.subspan(member, at - member)) & 0xFFFF;
      const std::uint32_t found = static_cast<std::uint32_t>(in[at]) | static_cast<std::uint32_t>(in[at + 1]) << 8;
      if (expected != found) fail(std::string("header checksum ") + hex(expected), hex(found));
      at += 2;
    }
    const std::size_t before = out.size();
    const std::uint64_t limit = bound(in.size() - at, most - before);
    // The last four bytes of the file are the size of its last member: in the usual file of one member, the size. A
    // file that lies gets no more memory at once than usual data would need.
    const std::uint64_t usual = std::min(limit, std::uint64_t{16} * in.size());
    const auto hint = static_cast<std::size_t>(std::min<std::uint64_t>(usual, little32(in, in.size() - 4)));
    at += Inflater(in.subspan(at), file, at, limit, Beyond::stops).run(out, hint);
    if (out.size() == most) return out;
    need(8, "a gzip trailer of 8 bytes");
    const std::span<const std::byte> data = std::span<const std::byte>(out).subspan(before);
    if (const std::uint32_t found = crc32(data); found != little32(in, at))
      fail(std::string("checksum ") + hex(little32(in, at)), hex(found));
    if (little32(in, at + 4) != static_cast<std::uint32_t>(data.size()))
      fail(std::to_string(little32(in, at + 4)) + " bytes of data", std::to_string(data.size()));
    at += 8;
  } while (at < in.size());
  return out;
}

std::vector<std::byte> inflate_start(std::span<const std::byte> in, const std::string& file, std::size_t offset,
                                     std::uint64_t most) {
  std::vector<std::byte> out;
  Inflater(in, file, offset, bound(in.size(), most), Beyond::stops).run(out, 0);
  return out;
}

std::vector<std::byte> inflate(std::span<const std::byte> in, const std::string& file, std::size_t offset,
                               std::uint64_t size) {
  std::vector<std::byte> out;
  const std::uint64_t usual = std::min<std::uint64_t>(bound(in.size(), size), std::uint64_t{16} * in.size());
  const std::size_t taken =
      Inflater(in, file, offset, bound(in.size(), size)).run(out, static_cast<std::size_t>(usual));
  const std::string place = std::string("compressed byte ") + std::to_string(offset + taken);
  if (taken != in.size()) throw Error(file, place, "the end", std::to_string(in.size() - taken) + " bytes more");
  if (out.size() != size) throw Error(file, place, std::to_string(size) + " bytes of data", std::to_string(out.size()));
  return out;
}

std::vector<std::byte> zlib_inflate(std::span<const std::byte> in, const std::string& file, std::uint64_t limit) {
  if (in.size() < 6) throw Error(file, "zlib stream", "at least 6 bytes", std::to_string(in.size()));
  const auto method = static_cast<unsigned>(in[0]), flags = static_cast<unsigned>(in[1]);
  if ((method & 15) != 8 || method >> 4 > 7 || (method << 8 | flags) % 31 != 0)
    throw Error(file, "zlib stream", "a zlib header", "other data");
  if ((flags & 32) != 0) throw Error(file, "zlib stream", "no preset dictionary", "one");
  std::vector<std::byte> out;
  const std::size_t at = 2 + Inflater(in.subspan(2), file, 2, bound(in.size(), limit)).run(out, 0);
  if (in.size() - at != 4)
    throw Error(file, "zlib stream", "a checksum of 4 bytes at its end", std::to_string(in.size() - at) + " bytes");
  const std::uint32_t stored = __builtin_bswap32(little32(in, at)), found = adler32(out);
  if (stored != found) throw Error(file, "zlib stream", std::string("checksum ") + hex(stored), hex(found));
  return out;
}

}  // namespace graven::runtime
