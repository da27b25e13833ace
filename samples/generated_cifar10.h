// A stand-in for CIFAR-10 where the real one is not at hand: the same files, the same format, ten kinds of coloured
// stripes.
#pragma once

#include <graven/graven.h>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

/// Writes `folder`/data_batch_1.bin and test_batch.bin: records of a label byte, 1024 red, 1024 green and 1024 blue
/// bytes, row by row. A class has a direction, a width and a colour of stripes; place and noise differ from image to
/// image.
inline void write_generated_cifar10(const std::filesystem::path& folder, int training_images, int test_images) {
  std::filesystem::create_directories(folder);
  std::uint64_t state = 1;
  const auto random = [&](std::uint64_t below) {  // xorshift (Marsaglia 2003)
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<int>((state >> 16) % below);
  };
  for (const auto& [name, count] :
       {std::pair(folder / "data_batch_1.bin", training_images), std::pair(folder / "test_batch.bin", test_images)}) {
    std::ofstream file(name, std::ios::binary);
    for (int i = 0; i < count; ++i) {
      const int label = random(10), shift = random(16), width = 3 + label % 5;
      std::array<char, 3073> record{};
      record[0] = static_cast<char>(label);
      for (int channel = 0; channel < 3; ++channel)
        for (int y = 0; y < 32; ++y)
          for (int x = 0; x < 32; ++x) {
            const bool bright = ((label < 5 ? x : y) + shift) / width % 2 == 0;
            const int base = bright ? 90 + 50 * ((label + channel) % 3) : 40;
            record[static_cast<std::size_t>(1 + channel * 1024 + y * 32 + x)] = static_cast<char>(base + random(50));
          }
      file.write(record.data(), record.size());
    }
    if (!file.flush()) throw graven::UserError(name.string() + ": cannot be written");
  }
}
