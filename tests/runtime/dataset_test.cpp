#include "runtime_min/dataset.h"

#include "fixture.h"
#include "runtime_min/batch.h"
#include "runtime_min/cifar.h"
#include "runtime_min/half.h"
#include "runtime_min/idx.h"
#include "runtime_min/image.h"
#include "runtime_min/inflate.h"
#include "runtime_min/raw.h"
#include "runtime_min/safetensors.h"
#include "runtime_min/tokens.h"

namespace graven::runtime {
namespace {

std::string idx(unsigned char type, const std::vector<std::uint32_t>& dims, const std::string& data) {
  std::string s{'\0', '\0', static_cast<char>(type), static_cast<char>(dims.size())};
  for (const std::uint32_t d : dims) s += big_endian32(d);
  return s + data;
}

/// Wrapped, and stored: nothing is compressed.
std::string gzipped(const std::string& data) {
  const auto size = static_cast<std::uint16_t>(data.size());
  return from_hex("1f8b0800000000000003 01") + little_endian(size) + little_endian(static_cast<std::uint16_t>(~size)) +
         data + little_endian(crc32(as_span(data))) + little_endian(static_cast<std::uint32_t>(size));
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(text.size()) + std::string(1, '\0') + text + data;
}

/// `n` records of CIFAR-10: record i has label i % 10 and pixels i.
std::string cifar10(int n) {
  std::string s;
  for (int i = 0; i < n; ++i) s += static_cast<char>(i % 10) + std::string(3072, static_cast<char>(i));
  return s;
}

std::vector<TensorDescription> images_and_labels() {
  return {{.name = "images", .dtype = DType::f32, .shape = {8, 1, 2, 2}},
          {.name = "labels", .dtype = DType::i64, .shape = {8}, .classes = 10}};
}

TEST(Idx, ReadsAndRefuses) {
  const TemporaryFolder folder;
  const std::string path = folder / "x-idx";
  write_file(path, idx(0x08, {2, 3}, "abcdef"));
  Array a = read_idx(path);
  EXPECT_EQ(a.dtype, DType::u8);
  EXPECT_EQ(a.shape, (Dims{2, 3}));
  EXPECT_EQ(static_cast<char>(a.bytes[5]), 'f');
  write_file(path, idx(0x0D, {1}, from_hex("3fc00000")));
  a = read_idx(path);
  float x;
  std::memcpy(&x, a.bytes.data(), 4);
  EXPECT_EQ(x, 1.5F) << "big-endian";
  write_file(path, idx(0x08, {0, 28}, ""));
  EXPECT_EQ(read_idx(path).shape, (Dims{0, 28}));
  for (const std::string& data :
       {std::string("7"), std::string(5000, '7')}) {  // more than is read for the header, and less
    const std::string plain = idx(0x08, {static_cast<std::uint32_t>(data.size())}, data), first = plain.substr(0, 5);
    for (const std::string& good : {gzipped(plain), gzipped(first) + gzipped("") + gzipped(plain.substr(5))}) {
      write_file(path, good);
      a = read_idx(path);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size()), data);
      std::string bad = good;
      bad[bad.size() - 5] = static_cast<char>(bad[bad.size() - 5] ^ 1);
      write_file(path, bad);
      EXPECT_ERROR(read_idx(path), "checksum");
    }
  }

  const struct {
    const char* note;
    std::string content;
    const char* error;
  } cases[] = {
      {"empty", "", "4 bytes, found 0"},
      {"other magic", "abcd", "two zero bytes"},
      {"unknown type", idx(0x0A, {1}, "1"), "an element type"},
      {"no dimensions", idx(0x08, {}, ""), "at least one dimension"},
      {"cut in the dimensions", idx(0x08, {1, 2, 3}, "").substr(0, 10), "16 bytes, found 10"},
      {"255 dimensions of 2^32 - 1", idx(0x08, std::vector<std::uint32_t>(255, 0xFFFFFFFFU), ""), "can be counted"},
      {"short", idx(0x08, {2, 3}, "abcde"), "6 bytes for u8[2,3], found 5"},
      {"long", idx(0x08, {2, 3}, "abcdefg"), "6 bytes for u8[2,3], found 7"},
      {"huge", idx(0x0E, {0xFFFFFFFFU}, "abcdefg"), "found 7"},
      {"short, gzipped", gzipped(idx(0x08, {2}, "7")), "2 bytes for u8[2], found 1"},
      {"long, gzipped", gzipped(idx(0x08, {2}, "777")), "2 bytes for u8[2], found more"},
      {"long, in a second member", gzipped(idx(0x08, {2}, "77")) + gzipped("7"), "2 bytes for u8[2], found more"},
      {"long, beyond what is read for the header", gzipped(idx(0x08, {2000}, std::string(2001, '7'))),
       "2000 bytes for u8[2000], found more"},
      {"huge, gzipped", gzipped(idx(0x08, {0xFFFFFFFFU}, "7")),
       "4294967295 bytes for u8[4294967295], found a file of 32 bytes, compressed"},
      {"without its header", gzipped(idx(0x08, {2}, "").substr(0, 7)), "8 bytes, found 7"},
      {"a bomb", from_hex("1f8b0800000000000003") + deflate_bomb(idx(0x08, {4}, "abcd")),
       "4 bytes for u8[4], found more"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    write_file(path, c.content);
    largest_allocation = 0;
    EXPECT_ERROR(read_idx(path), c.error);
    EXPECT_LT(largest_allocation, 100'000U);
  }
}

TEST(Cifar, ReadsAndRefuses) {
  const TemporaryFolder folder;
  write_file(folder / "c.bin", cifar10(3));
  EXPECT_EQ(read_cifar(folder / "c.bin", CifarKind::cifar10).records, 3);
  EXPECT_ERROR(read_cifar(folder / "c.bin", CifarKind::cifar100), "records of 3074 bytes");
  write_file(folder / "c.bin", cifar10(3).substr(0, 5000));
  EXPECT_ERROR(read_cifar(folder / "c.bin", CifarKind::cifar10), "5000 bytes (1927 after the last record)");
  write_file(folder / "c.bin", "");
  EXPECT_ERROR(read_cifar(folder / "c.bin", CifarKind::cifar10), "found 0 bytes");
  std::string bad = cifar10(3);
  bad[3073] = 10;
  write_file(folder / "c.bin", bad);
  EXPECT_ERROR(read_cifar(folder / "c.bin", CifarKind::cifar10), "record 1: expected a label from 0 to 9, found 10");
  write_file(folder / "c.bin", std::string("\x14\x00", 2) + std::string(3072, 'x'));
  EXPECT_ERROR(read_cifar(folder / "c.bin", CifarKind::cifar100), "a label from 0 to 19, found 20");
}

TEST(Raw, ReadsAndRefuses) {
  const TemporaryFolder folder;
  write_file(folder / "r.bin", std::string(24, 'x'));
  EXPECT_EQ(read_raw(folder / "r.bin", DType::f32, {3}).shape, (Dims{2, 3}));
  EXPECT_ERROR(read_raw(folder / "r.bin", DType::f64, {2}),
               "samples of 16 bytes, f64[2], found 24 bytes (8 after the last sample)");
  EXPECT_ERROR(read_raw(folder / "r.bin", DType::f32, {0}), "at least one byte");
}

TEST(Image, ReadsAndRefuses) {
  const TemporaryFolder folder;
  const std::uint8_t pixels[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  write_image(folder / "p.ppm", pixels, 3, 2, 2);
  EXPECT_EQ(read_file(folder / "p.ppm").substr(0, 14), std::string("P6\n2 2\n255\n\x01\x05\x09"));
  const Array a = read_image(folder / "p.ppm");
  EXPECT_EQ(a.shape, (Dims{1, 3, 2, 2}));
  EXPECT_EQ(std::memcmp(a.bytes.data(), pixels, 12), 0);
  const struct {
    const char* note;
    std::string content;
    const char* error;
  } cases[] = {
      {"empty", "", "P5 or P6"},
      {"text picture", "P2\n1 1\n255\n0", "P5 or P6"},
      {"no width", "P5\n", "a number"},
      {"huge", "P5\n99999999999 1\n255\n", "at most 1000000"},
      {"zero", "P5\n0 4\n255\n", "at least one pixel"},
      {"16 bits", "P5\n1 1\n65535\nxx", "255 (8 bits)"},
      {"short", "P5\n2 2\n255\nxyz", "4 bytes for 2 x 2, found 3"},
      {"long", "P5\n2 2\n255\nwxyz1", "found 5"},
      {"no space", "P5\n1 1\n255", "white space"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    write_file(folder / "bad.pgm", c.content);
    EXPECT_ERROR(read_image(folder / "bad.pgm"), c.error);
  }
  write_file(folder / "comment.pgm", "P5 # a comment\n#another\n1 1 255\nx");
  EXPECT_EQ(read_image(folder / "comment.pgm").shape, (Dims{1, 1, 1, 1}));
}

TEST(Dataset, OpensFoldersAndFiles) {
  const TemporaryFolder folder;
  const std::vector<TensorDescription> inputs = images_and_labels();
  const std::string images = "aaaabbbbcccc", labels = std::string("\x01\x02\x09", 3);

  write_file(folder / "idx/train-images-idx3-ubyte", idx(8, {3, 2, 2}, images));
  write_file(folder / "idx/train-labels-idx1-ubyte", idx(8, {3}, labels));
  EXPECT_FALSE(has_test_split({folder / "idx"}, inputs));
  EXPECT_ERROR(open_dataset({folder / "idx"}, inputs, Split::test), "a test set");
  write_file(folder / "idx/t10k-images.idx3-ubyte", idx(8, {1, 2, 2}, "dddd"));
  EXPECT_ERROR(open_dataset({folder / "idx"}, inputs, Split::test), "both t10k-images and t10k-labels");
  write_file(folder / "idx/t10k-labels.idx1-ubyte", idx(8, {1}, labels.substr(0, 1)));
  EXPECT_TRUE(has_test_split({folder / "idx"}, inputs));
  EXPECT_EQ(open_dataset({folder / "idx"}, inputs, Split::test).size(), 1);
  const Dataset train = open_dataset({folder / "idx"}, inputs, Split::train);
  EXPECT_EQ(train.size(), 3);
  EXPECT_EQ(static_cast<char>(*train.sample(0, 1)), 'b');
  EXPECT_EQ(static_cast<int>(*train.sample(1, 2)), 9);

  const std::string pair = (folder / "idx/train-images-idx3-ubyte") + "," + (folder / "idx/train-labels-idx1-ubyte");
  EXPECT_EQ(open_dataset({pair}, inputs, Split::train).size(), 3);
  EXPECT_ERROR(open_dataset({folder / "idx/train-images-idx3-ubyte"}, inputs, Split::train),
               "a file for each of the model's 2 inputs (images, labels)");

  write_file(folder / "idx/t10k-labels.idx1-ubyte", idx(8, {2}, labels.substr(0, 2)));
  EXPECT_ERROR(open_dataset({folder / "idx"}, inputs, Split::test), "1 samples");

  write_file(folder / "cifar/data_batch_1.bin", cifar10(4));
  write_file(folder / "cifar/data_batch_2.bin", cifar10(3));
  write_file(folder / "cifar/test_batch.bin", cifar10(2));
  const Dataset cifar = open_dataset({folder / "cifar"}, inputs, Split::train);
  EXPECT_EQ(cifar.size(), 7);
  EXPECT_EQ(static_cast<int>(*cifar.sample(1, 3)), 3);
  EXPECT_EQ(static_cast<int>(*cifar.sample(1, 4)), 0) << "the second file begins";
  EXPECT_EQ(static_cast<int>(cifar.sample(0, 6)[3071]), 2);
  EXPECT_EQ(open_dataset({folder / "cifar"}, inputs, Split::test).size(), 2);
  EXPECT_EQ(open_dataset({folder / "cifar/test_batch.bin"}, inputs, Split::train).size(), 2);

  const std::string record = std::string("\x13\x63", 2) + std::string(3072, 'x');
  write_file(folder / "cifar100/train.bin", record + record);
  const Dataset fine = open_dataset({folder / "cifar100"}, inputs, Split::train);
  EXPECT_EQ(static_cast<int>(*fine.sample(static_cast<std::size_t>(fine.find("labels")), 1)), 99);
  EXPECT_EQ(static_cast<int>(*fine.sample(static_cast<std::size_t>(fine.find("coarse_labels")), 1)), 19);

  write_file(folder / "npy/train/images.npy", npy("|u1", "(3, 2, 2)", images));
  write_file(folder / "npy/train/labels.npy", npy("|u1", "(3,)", labels));
  EXPECT_EQ(open_dataset({folder / "npy"}, inputs, Split::train).size(), 3);
  EXPECT_FALSE(has_test_split({folder / "npy"}, inputs));
  std::filesystem::remove(folder / "npy/train/labels.npy");
  EXPECT_ERROR(open_dataset({folder / "npy"}, inputs, Split::train), "labels.npy: cannot open");

  const Variable tensors[] = {{"images", DType::u8, {3, 2, 2}, const_cast<char*>(images.data())},
                              {"labels", DType::u8, {3}, const_cast<char*>(labels.data())}};
  save_variables(folder / "set.safetensors", tensors);
  EXPECT_EQ(open_dataset({folder / "set.safetensors"}, inputs, Split::train).size(), 3);
  save_variables(folder / "set.safetensors", std::span(tensors, 1));
  EXPECT_ERROR(open_dataset({folder / "set.safetensors"}, inputs, Split::train), "a tensor \"labels\"");

  EXPECT_ERROR(open_dataset({folder / "none"}, inputs, Split::train), "none: cannot open: No such file or directory");
  EXPECT_ERROR(open_dataset({""}, inputs, Split::train), "--data: expected a path");
  std::filesystem::create_directory(folder / "empty");
  EXPECT_ERROR(open_dataset({folder / "empty"}, inputs, Split::train), "none of these");
  EXPECT_ERROR(open_dataset({folder / "idx", "gif"}, inputs, Split::train), "--data-format: expected auto");
  write_file(folder / "zero.npy", npy("|u1", "(0, 2, 2)", ""));
  EXPECT_ERROR(open_dataset({(folder / "zero.npy") + "," + (folder / "zero.npy")}, inputs, Split::train),
               "at least one sample");
  write_file(folder / "scalar.npy", npy("|u1", "()", "x"));
  EXPECT_ERROR(open_dataset({(folder / "scalar.npy") + "," + (folder / "scalar.npy")}, inputs, Split::train),
               "a first dimension");
}

// Whose header says that it cannot be the input's is not decompressed: what follows the headers here is damaged, and
// would be the error.
TEST(Dataset, ComparesShapesBeforeItDecompresses) {
  const TemporaryFolder folder;
  const std::vector<TensorDescription> both = images_and_labels(), images = {both[0]};
  std::string header = big_endian32(60000) + big_endian32(60000) + from_hex("0800000000");
  header = "IHDR" + header;
  write_file(folder / "a.png", from_hex("89504e470d0a1a0a") + big_endian32(13) + header +
                                   big_endian32(crc32(as_span(header))) + "damage");
  write_file(folder / "a.ppm", "P6 60000 60000 255\ndamage");
  write_file(folder / "a-idx.gz", gzipped(idx(8, {3, 60000, 60000}, "damage")));
  write_file(folder / "idx/train-images-idx3-ubyte.gz", gzipped(idx(8, {3, 60000, 60000}, "damage")));
  write_file(folder / "idx/train-labels-idx1-ubyte.gz", gzipped(idx(8, {3}, "abc")));
  write_file(folder / "labels/train-images-idx3-ubyte.gz", gzipped(idx(8, {3, 2, 2}, "aaaabbbbcccc")));
  write_file(folder / "labels/train-labels-idx1-ubyte.gz", gzipped(idx(8, {3, 60000, 60000}, "damage")));
  const struct {
    const char* name;
    const std::vector<TensorDescription>& inputs;
    const char* error;
  } cases[] = {
      {"a.png", images,
       "a.png: field \"images\": expected samples of [1,2,2] for the model's input \"images\", found [1,60000,60000]"},
      {"a.ppm", images,
       "a.ppm: field \"images\": expected samples of [1,2,2] for the model's input \"images\", found [3,60000,60000]"},
      {"a-idx.gz", images,
       "a-idx.gz: field \"images\": expected samples of [1,2,2] for the model's input \"images\", found [60000,60000]"},
      {"idx", both, "train-images-idx3-ubyte.gz: field \"images\": expected samples of [1,2,2]"},
      {"idx", images, "train-images-idx3-ubyte.gz: field \"images\": expected samples of [1,2,2]"},
      {"labels", both,
       "train-labels-idx1-ubyte.gz: field \"labels\": expected samples of [] for the model's input \"labels\""},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    largest_allocation = 0;
    EXPECT_ERROR(open_dataset({folder / c.name}, c.inputs, Split::train), c.error);
    EXPECT_LT(largest_allocation, std::size_t{1} << 20);
  }
}

/// One field of one dtype read into one input; the first sample's values as doubles.
std::vector<double> convert(const std::string& descr, const std::string& data, TensorDescription input,
                            const Normalization& normalization = {}) {
  const TemporaryFolder folder;
  const std::int64_t n = count_of(input.sample_shape());
  write_file(folder / "x.npy", npy(descr, "(1, " + std::to_string(n) + ")", data));
  input.shape = {4, n};
  const std::vector<TensorDescription> inputs = {input};
  const Dataset set = open_dataset({folder / "x.npy"}, inputs, Split::train);
  const BatchSource source(set, inputs, normalization);
  Batch batch(inputs, 4);
  source.fill(batch, 1, [](std::int64_t) { return 0; });
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::byte* at = batch.row(0, 0) + static_cast<std::size_t>(i) * size_of(input.dtype);
    if (input.dtype == DType::f32) values.push_back(*reinterpret_cast<const float*>(at));
    if (input.dtype == DType::f64) values.push_back(*reinterpret_cast<const double*>(at));
    if (input.dtype == DType::f16) values.push_back(float_from_half(*reinterpret_cast<const std::uint16_t*>(at)));
    if (input.dtype == DType::i64) values.push_back(static_cast<double>(*reinterpret_cast<const std::int64_t*>(at)));
    if (input.dtype == DType::i8) values.push_back(*reinterpret_cast<const std::int8_t*>(at));
    if (input.dtype == DType::u8) values.push_back(*reinterpret_cast<const std::uint8_t*>(at));
  }
  return values;
}

std::string little_endian32(std::uint32_t x) {
  return {static_cast<char>(x), static_cast<char>(x >> 8), static_cast<char>(x >> 16), static_cast<char>(x >> 24)};
}
std::string token_file(std::uint32_t magic, std::uint32_t version, std::uint32_t count, const std::string& tokens) {
  const std::string numbers = little_endian32(magic) + little_endian32(version) + little_endian32(count);
  return numbers + std::string(1024 - numbers.size(), '\0') + tokens;
}
std::vector<TensorDescription> tokens_and_targets(std::int64_t length) {
  return {{.name = "tokens", .dtype = DType::i64, .shape = {2, length}, .classes = 256},
          {.name = "targets", .dtype = DType::i64, .shape = {2, length}, .classes = 256}};
}

TEST(Tokens, AreWindowsWithTargetsMovedOnByOne) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "abcdefghij");
  write_file(folder / "a.md", "abcdefghij");
  std::string narrow, wide;
  for (char c = 'a'; c <= 'j'; ++c) narrow += {c, '\0'}, wide += {c, '\0', '\0', '\0'};
  write_file(folder / "narrow.bin", token_file(20240520, 1, 10, narrow));
  write_file(folder / "wide.bin", token_file(20240801, 7, 10, wide));
  const std::vector<TensorDescription> inputs = tokens_and_targets(3);
  const DatasetOptions files[] = {{.path = folder / "a.txt"},
                                  {.path = folder / "a.md", .format = "text"},
                                  {.path = folder / "narrow.bin"},
                                  {.path = folder / "wide.bin"}};
  for (const DatasetOptions& options : files) {
    SCOPED_TRACE(options.path);
    const Dataset data = open_dataset(options, inputs, Split::train);
    ASSERT_EQ(data.size(), 3);  // "abc" to "ghi"; the targets of the last are "hij"
    const BatchSource source(data, inputs, {});
    Batch batch(inputs, 2);
    source.fill(batch, 2, [](std::int64_t i) { return i + 1; });
    const auto text = [&](std::size_t input, std::int64_t row) {
      std::string s;
      for (int i = 0; i < 3; ++i) {
        std::int64_t token = 0;
        std::memcpy(&token, batch.row(input, row) + 8 * i, 8);
        s += static_cast<char>(token);
      }
      return s;
    };
    EXPECT_EQ(text(0, 0), "def");
    EXPECT_EQ(text(1, 0), "efg");
    EXPECT_EQ(text(0, 1), "ghi");
    EXPECT_EQ(text(1, 1), "hij");
  }
  // Without targets no token is wanted for them.
  EXPECT_EQ(open_dataset({.path = folder / "a.txt"}, {tokens_and_targets(5)[0]}, Split::train).size(), 2);
}

TEST(Tokens, RefuseWhatIsNone) {
  const TemporaryFolder folder;
  const std::string path = folder / "x.bin";
  const struct {
    const char* note;
    std::string content;
    const char* error;
  } cases[] = {
      {"empty", "", "1024 bytes, found 0"},
      {"cut header", token_file(20240520, 1, 0, "").substr(0, 1023), "1024 bytes, found 1023"},
      {"other magic", token_file(1, 1, 0, ""), "20240520 or 20240801"},
      {"other version", token_file(20240520, 7, 0, ""), "version 1, found 7"},
      {"other version, wide", token_file(20240801, 1, 0, ""), "version 7, found 1"},
      {"short", token_file(20240520, 1, 5, std::string(9, 'a')), "10 bytes for 5 tokens, found 9"},
      {"long", token_file(20240801, 7, 1, std::string(5, 'a')), "4 bytes for 1 tokens, found 5"},
      {"huge", token_file(20240801, 7, 0xFFFFFFFFU, "abcd"), "17179869180 bytes"},
      {"too few", token_file(20240520, 1, 3, "abcdef"), "4 tokens at least, found 3"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    write_file(path, c.content);
    EXPECT_ERROR(open_dataset({.path = path, .format = "tokens"}, tokens_and_targets(3), Split::train), c.error);
  }
  write_file(path, token_file(20240520, 1, 4, std::string(8, '\1')));  // 257 is no byte
  const std::vector<TensorDescription> inputs = tokens_and_targets(3);
  const Dataset data = open_dataset({.path = path}, inputs, Split::train);
  EXPECT_ERROR(BatchSource(data, inputs, {}), "257");
  write_file(folder / "a.txt", "abcdef");
  EXPECT_ERROR(open_dataset({.path = folder / "a.txt"}, images_and_labels(), Split::train), "tokens and targets");
}

TEST(Batch, Converts) {
  const auto input = [](DType dtype, std::int64_t n, std::int64_t classes = 0) {
    return TensorDescription{.name = "x", .dtype = dtype, .shape = {1, n}, .classes = classes};
  };
  using V = std::vector<double>;
  EXPECT_EQ(convert("|u1", from_hex("00ff80"), input(DType::f32, 3)), (V{0, 1, 128.0F / 255.0F}))
      << "as ToTensor has it";
  EXPECT_EQ(convert("|u1", from_hex("00ff"), input(DType::f32, 2), {{0.5}, {0.25}}), (V{-2, 2}));
  EXPECT_EQ(convert("|u1", from_hex("00ff"), input(DType::f16, 2)), (V{0, 1}));
  EXPECT_EQ(convert("|u1", from_hex("ff"), input(DType::f32, 1)), (V{255})) << "a single number is no picture";
  EXPECT_EQ(convert("|u1", from_hex("ff01"), input(DType::u8, 2)), (V{255, 1}));
  EXPECT_EQ(convert("<f8", little_endian(0.1) + little_endian(-2.0), input(DType::f32, 2)), (V{0.1F, -2}));
  EXPECT_EQ(convert("<f4", little_endian(0.1F) + little_endian(-2.0F), input(DType::f64, 2)), (V{0.1F, -2}));
  EXPECT_EQ(convert("<f2", from_hex("003c00c0"), input(DType::f32, 2)), (V{1, -2}));
  EXPECT_EQ(convert("<i8", little_endian<std::int64_t>(-7), input(DType::f32, 1)), (V{-7}));
  EXPECT_EQ(convert("|u1", from_hex("0709"), input(DType::i64, 2, 10)), (V{7, 9}));
  EXPECT_EQ(convert("<i8", little_endian<std::int64_t>(-128), input(DType::i8, 1)), (V{-128}));
  EXPECT_EQ(convert("<f8", std::string(8 * 1000, '\0'), input(DType::f32, 1000)), V(1000, 0.0)) << "more than a piece";

  EXPECT_ERROR(convert("|u1", from_hex("070a"), input(DType::i64, 2, 10)),
               "sample 0 of \"x\": expected a number from 0 to 9, found 10");
  EXPECT_ERROR(convert("<i8", little_endian<std::int64_t>(-1), input(DType::i64, 1, 10)), "found -1");
  EXPECT_ERROR(convert("<i8", little_endian<std::int64_t>(128), input(DType::i8, 1)), "from -128 to 127, found 128");
  EXPECT_ERROR(convert("<u8", little_endian(~0ULL), input(DType::i64, 1)), "expected a number");
  EXPECT_ERROR(convert("|i1", from_hex("ff"), input(DType::u8, 1)), "from 0 to 255, found -1");
  EXPECT_ERROR(convert("|b1", from_hex("0102"), input(DType::boolean, 2)), "from 0 to 1, found 2");
  EXPECT_ERROR(convert("<f4", little_endian(1.0F), input(DType::i64, 1)),
               "integers for the model's input \"x\", i64, found f32");
  EXPECT_ERROR(convert("<f4", little_endian(1.0F), input(DType::f32, 1), {{0.5}, {}}), "8-bit images");
  EXPECT_EQ(convert("<f4", little_endian(1.0F), input(DType::f32, 1), {{0.5}, {}, false}), (std::vector<double>{1}))
      << "the project's defaults";
  EXPECT_ERROR(convert("|u1", from_hex("00ff"), input(DType::f32, 2), {{0.5, 0.5}, {}}),
               "--mean: expected one number, found 2");
  EXPECT_ERROR(convert("|u1", from_hex("00ff"), input(DType::f32, 2), {{}, {0}}), "--std: expected numbers above 0");
}

TEST(Batch, NormalisesByChannelAndMatchesFields) {
  const TemporaryFolder folder;
  write_file(folder / "d/images.npy", npy("|u1", "(2, 3, 1, 2)", from_hex("00ff00ff00ff 112233445566")));
  write_file(folder / "d/labels.npy", npy("<i4", "(2,)", little_endian(3) + little_endian(5)));
  write_file(folder / "d/scale.npy", npy("<f4", "(2,)", little_endian(0.5F) + little_endian(2.0F)));
  const std::vector<TensorDescription> inputs = {
      {.name = "labels", .dtype = DType::i64, .shape = {2}, .classes = 6},
      {.name = "images", .dtype = DType::f32, .shape = {2, 3, 1, 2}},
      {.name = "scale", .dtype = DType::f32, .shape = {2}, .batched = false}};
  const Dataset data = open_dataset({folder / "d"}, inputs, Split::train);
  const BatchSource source(data, inputs, {{0, 0.5, 1}, {1, 0.5, 2}});
  Batch batch(inputs, 2);
  source.fill_shared(batch);
  source.fill(batch, 2, [](std::int64_t i) { return 1 - i; });
  const auto* labels = static_cast<const std::int64_t*>(batch.pointers()[0]);
  EXPECT_EQ(labels[0], 5);
  EXPECT_EQ(labels[1], 3);
  const auto* images = static_cast<const float*>(batch.pointers()[1]);
  EXPECT_EQ((std::vector<float>(images + 6, images + 12)), (std::vector<float>{0, 1, -1, 1, -0.5, 0}));
  EXPECT_EQ(static_cast<const float*>(batch.pointers()[2])[1], 2.0F);
  EXPECT_EQ(source.bindings()[1], "images f32[3,1,2] from u8[3,1,2] / 255, mean 0,0.5,1, std 1,0.5,2");

  std::vector<TensorDescription> wrong = inputs;
  wrong[1].shape = {2, 3, 2, 2};
  EXPECT_ERROR(BatchSource(data, wrong, {}),
               "field \"images\": expected samples of [3,2,2] for the model's input \"images\", found [3,1,2]");
  wrong = inputs;
  wrong[0].classes = 5;
  EXPECT_ERROR(BatchSource(data, wrong, {}), "sample 1 of \"labels\": expected a number from 0 to 4, found 5");
  // Before anything is trained, whatever sample it is, also where nothing but the dtype bounds the numbers.
  write_file(folder / "d/labels.npy", npy("<i4", "(2,)", little_endian(3) + little_endian(300)));
  wrong[0] = {.name = "labels", .dtype = DType::u8, .shape = {2}};
  EXPECT_ERROR(BatchSource(open_dataset({folder / "d"}, wrong, Split::train), wrong, {}),
               "sample 1 of \"labels\": expected a number from 0 to 255, found 300");
}

// Padded targets are -100 unless the loss ignores another label, such as the 255 of segmentations.
TEST(Batch, LetsInLabelsThatDoNotCount) {
  const TemporaryFolder folder;
  write_file(folder / "d/labels.npy", npy("<i4", "(3,)", little_endian(3) + little_endian(-100) + little_endian(255)));
  const auto labels = [&](DType dtype, std::int64_t ignored) {
    const std::vector<TensorDescription> inputs = {
        {.name = "labels", .dtype = dtype, .shape = {2}, .classes = 6, .ignored = ignored}};
    const Dataset data = open_dataset({folder / "d"}, inputs, Split::train);
    const BatchSource source(data, inputs, {});
    Batch batch(inputs, 2);
    source.fill(batch, 2, [](std::int64_t i) { return i; });
    return *(static_cast<const std::int64_t*>(batch.pointers()[0]) + 1);
  };
  EXPECT_ERROR(labels(DType::i64, -100), "sample 2 of \"labels\": expected a number from 0 to 5, found 255");
  EXPECT_ERROR(labels(DType::i64, 255), "sample 1 of \"labels\": expected a number from 0 to 5, found -100");
  write_file(folder / "d/labels.npy", npy("<i4", "(2,)", little_endian(3) + little_endian(-100)));
  EXPECT_EQ(labels(DType::i64, -100), -100);
  EXPECT_ERROR(labels(DType::u8, -100), "sample 1 of \"labels\": expected a number from 0 to 5, found -100");
  write_file(folder / "d/labels.npy", npy("|u1", "(2,)", from_hex("03ff")));
  EXPECT_EQ(labels(DType::i64, 255), 255);
}

TEST(Batch, NamesWhatIsToBlame) {
  const TemporaryFolder folder;
  const std::vector<TensorDescription> inputs = images_and_labels();
  write_file(folder / "train-images-idx3-ubyte", idx(8, {2, 2, 2}, "aaaabbbb"));
  write_file(folder / "train-labels-idx1-ubyte", idx(8, {2}, "\x01\x0b"));
  const Dataset data = open_dataset({folder.path()}, inputs, Split::train);
  EXPECT_ERROR(BatchSource(data, inputs, {}),
               "train-labels-idx1-ubyte: sample 1 of \"labels\": expected a number from 0 to 9, found 11");
  write_file(folder / "train-labels-idx1-ubyte", idx(8, {2, 3}, "abcdef"));
  EXPECT_ERROR(
      BatchSource(open_dataset({folder.path()}, inputs, Split::train), inputs, {}),
      "train-labels-idx1-ubyte: field \"labels\": expected samples of [] for the model's input \"labels\", found [3]");
  // What was chosen rather than read.
  write_file(folder / "train-labels-idx1-ubyte", idx(8, {2}, "\x01\x02"));
  const Dataset good = open_dataset({folder.path()}, inputs, Split::train);
  for (const Normalization& chosen :
       {Normalization{{}, {0.0}}, Normalization{{1, 2, 3}, {}}, Normalization{{}, {1, 2}}})
    EXPECT_THROW(BatchSource(good, inputs, chosen), UsageError);
  EXPECT_ERROR(BatchSource(good, inputs, {{}, {0.0}}), "--std: expected numbers above 0, found 0");
  EXPECT_ERROR(BatchSource(good, inputs, {{1, 2, 3}, {}}), "--mean: expected one number, found 3");
}

TEST(Half, RoundsToNearestEven) {
  // Every half there is, to float and back; and values between two halves go to the even one.
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const float x = float_from_half(static_cast<std::uint16_t>(h));
    if (x != x) continue;
    EXPECT_EQ(half_from_float(x), h);
  }
  const struct {
    float x;
    std::uint16_t half, bfloat16;
  } cases[] = {{1.0F, 0x3C00, 0x3F80},           {1.0F + 0x1p-11F, 0x3C00, 0x3F80}, {1.0F + 0x3p-11F, 0x3C02, 0x3F80},
               {1.0F + 0x1p-8F, 0x3C04, 0x3F80}, {1.0F + 0x3p-8F, 0x3C0C, 0x3F82},  {65519.0F, 0x7BFF, 0x4780},
               {65520.0F, 0x7C00, 0x4780},       {0x1p-25F, 0x0000, 0x3300},        {0x1.8p-25F, 0x0001, 0x3340},
               {-0.0F, 0x8000, 0x8000},          {0x1p-14F, 0x0400, 0x3880}};
  for (const auto& c : cases) {
    EXPECT_EQ(half_from_float(c.x), c.half) << c.x;
    EXPECT_EQ(bfloat16_from_float(c.x), c.bfloat16) << c.x;
  }
  // NaN stays NaN, also where its bits are those that are cut off.
  for (const std::uint32_t bits : {0x7FC00000U, 0x7F800001U, 0xFF800001U}) {
    float nan;
    std::memcpy(&nan, &bits, sizeof nan);
    EXPECT_NE(float_from_half(half_from_float(nan)), float_from_half(half_from_float(nan))) << bits;
    EXPECT_NE(float_from_bfloat16(bfloat16_from_float(nan)), float_from_bfloat16(bfloat16_from_float(nan))) << bits;
  }
}

}  // namespace
}  // namespace graven::runtime
