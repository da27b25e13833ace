// A host that opens libraries of emitted projects, all of one name, and closes them: tests/emit/versions.h.
//
//   versions LIBRARY WEIGHTS EXPECTED ... -- STEP ...
//
//   l0  opens the first library for itself (RTLD_LOCAL), g0 for all (RTLD_GLOBAL)
//   r0  makes a model of it, calls it, and compares what comes out with EXPECTED; prints it where that is empty
//   e0  calls it wrongly in every way: it reports errors, the last of which this thread then keeps
//   t   r of every open library, each in two threads, all at once
//   u0  closes it: nothing of it stays in the process
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Library {
  std::string path, weights, expected;
  void* handle = nullptr;
};

[[noreturn]] void fail(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::exit(1);
}

template <class Function>
Function* function(const Library& library, const char* name) {
  void* const found = dlsym(library.handle, name);
  if (found == nullptr) fail(library.path + ": " + dlerror());
  return reinterpret_cast<Function*>(found);
}

void check(const Library& library, int code) {
  if (code != 0) fail(library.path + ": " + function<const char*()>(library, "version_error")());
}

constexpr std::size_t kNumbers = 4096;

/// The numbers that it computes, each digit of them.
std::string run(const Library& library) {
  std::vector<float> x(kNumbers), y(kNumbers);
  for (std::size_t i = 0; i < kNumbers; ++i) x[i] = static_cast<float>(i % 13) / 4 - 1;
  std::string text;
  const auto add = [&](double number) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%s%a", text.empty() ? "" : ",", number);
    text += digits;
  };
  void* model = nullptr;
  if (dlsym(library.handle, "version_step") != nullptr) {
    const std::int64_t labels[2] = {2, 0};
    const double rates[1] = {0.05};
    check(library, function<int(int, void**)>(library, "version_create")(2, &model));
    check(library, function<int(void*, const char*)>(library, "version_load")(model, library.weights.c_str()));
    auto* const step = function<int(void*, const float*, const std::int64_t*, const double*, std::int64_t, double*)>(
        library, "version_step");
    for (std::int64_t number = 1; number <= 4; ++number) {
      double loss = 0;
      check(library, step(model, x.data(), labels, rates, number, &loss));
      add(loss);
    }
  } else {
    void* weights = nullptr;
    const std::int64_t batch = function<std::int64_t()>(library, "version_maximum_batch")();
    check(library, function<int(const char*, void**)>(library, "version_load")(library.weights.c_str(), &weights));
    check(library, function<int(const void*, int, void**)>(library, "version_create")(weights, 2, &model));
    function<void(void*)>(library, "version_unload")(weights);
    check(library, function<int(void*, const float*, std::int64_t, float*)>(library, "version_forward")(
                       model, x.data(), batch, y.data()));
    add(static_cast<double>(batch));
    for (std::int64_t i = 0; i < 3 * batch; ++i) add(static_cast<double>(y[static_cast<std::size_t>(i)]));
  }
  function<void(void*)>(library, "version_destroy")(model);
  return text;
}

void compare(const Library& library) {
  const std::string found = run(library);
  if (library.expected.empty())
    std::printf("%s\n", found.c_str());
  else if (found != library.expected)
    fail(library.path + ": expected " + library.expected + ", found " + found);
}

/// Wrong calls of the interface in C: each returns a code, and tells why. What is there afterwards works.
void report_error(const Library& library) {
  const auto refused = [&](const char* what, int code, int expected, const char* part) {
    const std::string text = function<const char*()>(library, "version_error")();
    if (code != expected || text.find(part) == std::string::npos)
      fail(library.path + ": " + what + " gives " + std::to_string(code) + ", '" + text + "'");
  };
  constexpr int kError = 1, kBadArgument = 3;
  std::vector<float> x(kNumbers), y(kNumbers);
  void* model = nullptr;
  if (dlsym(library.handle, "version_step") != nullptr) {
    auto* const create = function<int(int, void**)>(library, "version_create");
    auto* const load = function<int(void*, const char*)>(library, "version_load");
    auto* const save = function<int(const void*, const char*)>(library, "version_save");
    auto* const step = function<int(void*, const float*, const std::int64_t*, const double*, std::int64_t, double*)>(
        library, "version_step");
    auto* const forward = function<int(void*, const float*, const std::int64_t*, double*)>(library, "version_forward");
    const std::int64_t labels[2] = {2, 0}, none[2] = {2, 77};
    const double rates[1] = {0.05};
    refused("create", create(1, nullptr), kBadArgument, "model is NULL");
    refused("create", create(-1, &model), kBadArgument, "threads: expected 0 or more, found -1");
    refused("load", load(nullptr, "x"), kBadArgument, "model is NULL");
    function<void(void*)>(library, "version_destroy")(nullptr);
    check(library, create(1, &model));
    refused("load", load(model, nullptr), kBadArgument, "path is NULL");
    for (const char* path : {"/absent", "/", "", "/dev/null", "/proc/self/maps"})
      refused("load", load(model, path), kError, path);
    refused("save", save(model, nullptr), kBadArgument, "path is NULL");
    for (const char* path : {"/absent/x", "/", ""}) refused("save", save(model, path), kError, path);
    refused("step", step(nullptr, x.data(), labels, rates, 1, nullptr), kBadArgument, "model is NULL");
    refused("step", step(model, nullptr, labels, rates, 1, nullptr), kBadArgument, "x is NULL");
    refused("step", step(model, x.data(), nullptr, rates, 1, nullptr), kBadArgument, "labels is NULL");
    refused("step", step(model, x.data(), labels, nullptr, 1, nullptr), kBadArgument, "learning_rates is NULL");
    for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN})
      refused("step", step(model, x.data(), labels, rates, number, nullptr), kBadArgument, "step: expected 1 or more");
    refused("step", step(model, x.data(), none, rates, 1, nullptr), kError, "77");
    refused("forward", forward(model, x.data(), none, nullptr), kError, "77");
    refused("forward", forward(nullptr, x.data(), labels, nullptr), kBadArgument, "model is NULL");
    check(library, forward(model, x.data(), labels, nullptr));
  } else {
    auto* const load = function<int(const char*, void**)>(library, "version_load");
    auto* const create = function<int(const void*, int, void**)>(library, "version_create");
    auto* const use = function<int(void*, const void*)>(library, "version_use");
    auto* const forward = function<int(void*, const float*, std::int64_t, float*)>(library, "version_forward");
    const std::int64_t batch = function<std::int64_t()>(library, "version_maximum_batch")();
    void* weights = nullptr;
    refused("load", load(nullptr, &weights), kBadArgument, "path is NULL");
    refused("load", load("", nullptr), kBadArgument, "weights is NULL");
    for (const char* path : {"/absent", "/", "/dev/null", "/proc/self/maps"})
      refused("load", load(path, &weights), kError, path);
    refused("create", create(nullptr, 1, &model), kBadArgument, "weights is NULL");
    function<void(void*)>(library, "version_destroy")(nullptr);
    function<void(void*)>(library, "version_unload")(nullptr);
    check(library, load("", &weights));
    refused("create", create(weights, 1, nullptr), kBadArgument, "model is NULL");
    refused("create", create(weights, INT32_MIN, &model), kBadArgument, "threads: expected 0 or more");
    check(library, create(weights, 1, &model));
    refused("use", use(model, nullptr), kBadArgument, "weights is NULL");
    refused("use", use(nullptr, weights), kBadArgument, "model is NULL");
    function<void(void*)>(library, "version_unload")(weights);
    refused("forward", forward(nullptr, x.data(), 1, y.data()), kBadArgument, "model is NULL");
    refused("forward", forward(model, nullptr, 1, y.data()), kBadArgument, "x is NULL");
    refused("forward", forward(model, x.data(), 1, nullptr), kBadArgument, "output is NULL");
    for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{-1}, batch + 1, INT64_MAX, INT64_MIN})
      refused("forward", forward(model, x.data(), rows, y.data()), kBadArgument, "batch: expected 1 to");
    check(library, forward(model, x.data(), batch, y.data()));
  }
  function<void(void*)>(library, "version_destroy")(model);
}

bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.size() >= path.size() && line.compare(line.size() - path.size(), path.size(), path) == 0) return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Library> libraries;
  int at = 1;
  for (; at + 2 < argc && std::strcmp(argv[at], "--") != 0; at += 3)
    libraries.push_back({argv[at], argv[at + 1], argv[at + 2]});
  for (++at; at < argc; ++at) {
    const char step = argv[at][0];
    if (step == 't') {
      std::vector<std::thread> threads;
      for (const Library& library : libraries)
        for (int twice = 0; twice < 2 && library.handle != nullptr; ++twice)
          threads.emplace_back([&] { compare(library); });
      for (std::thread& thread : threads) thread.join();
      continue;
    }
    Library& library = libraries.at(static_cast<std::size_t>(std::atoi(argv[at] + 1)));
    if (step == 'l' || step == 'g') {
      library.handle = dlopen(library.path.c_str(), RTLD_NOW | (step == 'l' ? RTLD_LOCAL : RTLD_GLOBAL));
      if (library.handle == nullptr) fail(dlerror());
      if (!is_mapped(library.path)) fail(library.path + ": is not mapped by this name");
    } else if (step == 'r') {
      compare(library);
    } else if (step == 'e') {
      report_error(library);
    } else {
      if (dlclose(library.handle) != 0) fail(dlerror());
      library.handle = nullptr;
      if (is_mapped(library.path)) fail(library.path + ": is mapped after dlclose()");
    }
  }
  std::puts("as it should be");
}
