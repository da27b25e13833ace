// What is fuzzed: every reader of what a user hands in. A target takes any bytes; it says whether they are sound, or
// fails the run by a crash, by an exception that is not the reader's own error, or by a broken promise
// (GRAVEN_FUZZ_CHECK). libFuzzer drives one target a program (fuzzer.cpp); the plain tests run the saved corpus through
// all of them (corpus_test.cpp).
//
//   for (const fuzz::Target& target : fuzz::kReaders) target.run(bytes);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace graven::fuzz {

using Input = std::span<const std::uint8_t>;

bool safetensors(Input input);
bool npy(Input input);
bool npz(Input input);
bool idx(Input input);
bool cifar(Input input);
bool image(Input input);
bool json(Input input);
bool manifest(Input input);
bool arguments(Input input);
bool dataset(Input input);
bool tokens(Input input);
bool graph(Input input);

struct Target {
  const char* name;
  bool (*run)(Input input);  ///< whether it was taken; else it was refused
};

/// Of the run time, and of what is compiled around it.
inline constexpr Target kReaders[] = {{"safetensors", safetensors},
                                      {"npy", npy},
                                      {"npz", npz},
                                      {"idx", idx},
                                      {"cifar", cifar},
                                      {"image", image},
                                      {"json", json},
                                      {"manifest", manifest},
                                      {"arguments", arguments},
                                      {"dataset", dataset},
                                      {"tokens", tokens}};
inline constexpr Target kGraphs[] = {{"graph", graph}};

}  // namespace graven::fuzz

/// A promise that holds for every input.
#define GRAVEN_FUZZ_CHECK(condition)                                                       \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)
