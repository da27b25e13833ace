// The readers of runtime_min.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime_min/arguments.h"
#include "runtime_min/batch.h"
#include "runtime_min/checkpoint.h"
#include "runtime_min/cifar.h"
#include "runtime_min/dataset.h"
#include "runtime_min/error.h"
#include "runtime_min/idx.h"
#include "runtime_min/image.h"
#include "runtime_min/json_reader.h"
#include "runtime_min/npy.h"
#include "runtime_min/npz.h"
#include "runtime_min/safetensors.h"
#include "runtime_min/sha256.h"
#include "tests/fuzz/file_in_memory.h"
#include "tests/fuzz/targets.h"

namespace graven::fuzz {
namespace {

using namespace graven::runtime;

/// Reads every byte, so that a view beyond the file is found.
void touch(std::span<const std::byte> bytes) {
  volatile unsigned sum = 0;
  for (const std::byte b : bytes) sum = sum + static_cast<unsigned>(b);
}

/// Errors name the file and stay short, whatever the file holds.
void check_error(const Error& error, const std::string& file) {
  const std::string text = error.what();
  GRAVEN_FUZZ_CHECK(text.find(file) != std::string::npos);
  GRAVEN_FUZZ_CHECK(text.size() < 4096);
  for (const char c : text) GRAVEN_FUZZ_CHECK(c == '\n' || (c >= 0x20 && c < 0x7f));
}

template <class Read>
bool read_file(Input input, const Read& read) {
  const FileInMemory file(input);
  try {
    read(file.path());
    return true;
  } catch (const Error& error) {
    check_error(error, file.path());
    return false;
  }
}

void check_array(const Array& array) {
  const auto bytes = checked_count(array.shape, static_cast<std::int64_t>(size_of(array.dtype)));
  GRAVEN_FUZZ_CHECK(bytes && static_cast<std::uint64_t>(*bytes) == array.bytes.size());
  touch(array.bytes);
}

std::string text_of(Input input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }

}  // namespace

bool safetensors(Input input) {
  return read_file(input, [](const std::string& path) {
    const SafetensorsFile file(path);
    for (const SafetensorsEntry& entry : file.entries()) {
      GRAVEN_FUZZ_CHECK(file.find(entry.name) == &entry);
      touch(file.bytes(entry));
    }
    float values[4] = {};
    const Variable variables[] = {{"w", DType::f32, {2, 2}, values}};
    load_variables(file, variables);
  });
}

bool npy(Input input) {
  return read_file(input, [](const std::string& path) { check_array(read_npy(path)); });
}

bool npz(Input input) {
  return read_file(input, [](const std::string& path) {
    const NpzFile file(path);
    for (const std::string& name : file.names()) {
      GRAVEN_FUZZ_CHECK(file.has(name));
      try {
        check_array(file.read(name));
      } catch (const Error& error) {  // the next one may be sound
        check_error(error, path);
      }
    }
    file.read("images");
  });
}

bool idx(Input input) {
  return read_file(input, [](const std::string& path) { check_array(read_idx(path)); });
}

bool cifar(Input input) {
  if (input.empty()) return false;
  const CifarKind kind = input[0] % 2 == 0 ? CifarKind::cifar10 : CifarKind::cifar100;
  return read_file(input.subspan(1), [kind](const std::string& path) {
    const CifarFile file = read_cifar(path, kind);
    GRAVEN_FUZZ_CHECK(file.bytes.view.size() ==
                      static_cast<std::size_t>(file.records * (label_bytes(kind) + kCifarImageBytes)));
    touch(file.bytes.view);
  });
}

bool image(Input input) {
  return read_file(input, [](const std::string& path) { check_array(read_image(path)); });
}

bool json(Input input) {
  const std::string text = text_of(input);
  bool sound = true;
  try {
    JsonReader reader(text, "file.json");
    reader.skip();
    reader.end();
  } catch (const Error& error) {
    check_error(error, "file.json");
    sound = false;
  }
  try {
    JsonReader reader(text, "file.json");
    if (reader.peek() == JsonReader::Kind::number) {
      GRAVEN_FUZZ_CHECK(std::isfinite(reader.number()));
    } else {
      reader.string();
    }
  } catch (const Error& error) {
    check_error(error, "file.json");
  }
  return sound;
}

bool manifest(Input input) {
  // Behind the right checksum, or nothing but the comparison would ever be tried.
  const std::string body = text_of(input);
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("graven_fuzz_" + std::to_string(::getpid()))).string();
  std::filesystem::create_directories(folder);
  {
    std::ofstream out(folder + "/manifest.json", std::ios::binary);
    out << body << ",\n\"manifest_sha256\":\"" << sha256(std::as_bytes(std::span(body.data(), body.size()))) << "\"}\n";
  }
  float value = 0;
  const Variable weights[] = {{"w", DType::f32, {}, &value}};
  try {
    load_checkpoint(folder, "hash", weights, {});
    GRAVEN_FUZZ_CHECK(!"a checkpoint without its files was loaded");
  } catch (const Error& error) {
    check_error(error, folder);
  }
  std::filesystem::remove_all(folder);
  return false;
}

bool arguments(Input input) {
  std::vector<std::string> words = {"program"};
  for (const std::uint8_t c : input) {
    if (c == '\n') {
      words.emplace_back();
    } else if (c != 0) {
      words.back() += static_cast<char>(c);
    }
  }
  words[0] = "program";
  std::vector<const char*> argv;
  for (const std::string& word : words) {
    if (word != "--help" && word != "-h") argv.push_back(word.c_str());  // which only prints
  }
  std::int64_t steps = 1;
  double rate = 0.5;
  bool shuffle = true;
  std::vector<double> mean;
  std::string data = "none", bench;
  Arguments parser("program", "Does something.");
  parser.section("Options");
  parser.integer("steps", steps, 0, 1000, "N", "steps");
  parser.number("lr", rate, 0, 10, "X", "rate");
  parser.numbers("mean", mean, "X[,X...]", "means");
  parser.flag("shuffle", shuffle, "order");
  parser.text("data", data, "PATH", "data");
  parser.optional_text("bench", bench, "5", "SECONDS", "time");
  bool sound = true;
  try {
    GRAVEN_FUZZ_CHECK(parser.parse(static_cast<int>(argv.size()), argv.data()));
  } catch (const UsageError& error) {
    GRAVEN_FUZZ_CHECK(std::string(error.what()).size() < 4096);
    sound = false;
  }
  GRAVEN_FUZZ_CHECK(steps >= 0 && steps <= 1000);
  GRAVEN_FUZZ_CHECK(rate >= 0 && rate <= 10);
  for (const double x : mean) GRAVEN_FUZZ_CHECK(std::isfinite(x));
  return sound;
}

bool dataset(Input input) {
  static const std::vector<TensorDescription> inputs = {
      {.name = "images", .dtype = DType::f32, .shape = {8, 1, 2, 2}, .batched = true, .classes = 0},
      {.name = "labels", .dtype = DType::i64, .shape = {8}, .batched = true, .classes = 3}};
  static constexpr const char* kFormats[] = {"idx", "npy", "raw", "auto"};
  if (input.size() < 2) return false;
  const char* format = kFormats[input[0] % 4];
  const std::size_t images_bytes = std::min<std::size_t>(input[1], input.size() - 2);
  const FileInMemory images(input.subspan(2, images_bytes)), labels(input.subspan(2 + images_bytes));
  const std::string path = images.path() + "," + labels.path();
  try {
    const Dataset data = open_dataset({.path = path, .format = format}, inputs, Split::train);
    const BatchSource source(data, inputs, {});
    Batch batch(inputs, 8);
    source.fill_shared(batch);
    source.fill(batch, 8, [&](std::int64_t i) { return i % data.size(); });
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t label = reinterpret_cast<const std::int64_t*>(batch.row(1, 0))[i];
      GRAVEN_FUZZ_CHECK(label >= 0 && label < 3);
    }
    return true;
  } catch (const Error& error) {
    check_error(error, "/proc/self/fd/");
    return false;
  }
}

bool tokens(Input input) {
  static const std::vector<TensorDescription> inputs = {
      {.name = "tokens", .dtype = DType::i64, .shape = {2, 3}, .batched = true, .classes = 50},
      {.name = "targets", .dtype = DType::i64, .shape = {2, 3}, .batched = true, .classes = 50}};
  if (input.empty()) return false;
  const char* format = input[0] % 2 == 0 ? "tokens" : "text";
  const FileInMemory file(input.subspan(1));
  try {
    const Dataset data = open_dataset({.path = file.path(), .format = format}, inputs, Split::train);
    const BatchSource source(data, inputs, {});
    Batch batch(inputs, 2);
    source.fill(batch, 2, [&](std::int64_t i) { return (data.size() - 1) * i; });
    const auto token = [&](std::size_t field, std::size_t row, std::size_t i) {
      return reinterpret_cast<const std::int64_t*>(batch.row(field, static_cast<std::int64_t>(row)))[i];
    };
    for (std::size_t row = 0; row < 2; ++row)
      for (std::size_t i = 0; i < 3; ++i) {
        GRAVEN_FUZZ_CHECK(token(0, row, i) >= 0 && token(0, row, i) < 50);
        GRAVEN_FUZZ_CHECK(i == 2 || token(1, row, i) == token(0, row, i + 1));
      }
    return true;
  } catch (const Error& error) {
    check_error(error, file.path());
    return false;
  }
}

}  // namespace graven::fuzz
