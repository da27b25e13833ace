// A host that opens libraries of emitted projects, all of one name, and closes them: tests/emit/versions.h.
//
//   versions LIBRARY WEIGHTS EXPECTED ... -- STEP ...
//
//   l0  opens the first library for itself (RTLD_LOCAL), g0 for all (RTLD_GLOBAL)
//   r0  makes a model of it, calls it, and compares what comes out with EXPECTED; prints it where that is empty
//   e0  has it report an error, which this thread then keeps
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
    auto* const step = function<int(void*, const float*, const std::int64_t*, const double*, std::int64_t, double*)>(library, "version_step");
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
    check(library, function<int(void*, const float*, std::int64_t, float*)>(library, "version_forward")(model, x.data(), batch, y.data()));
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

void report_error(const Library& library) {
  void* model = nullptr;
  const bool trains = dlsym(library.handle, "version_step") != nullptr;
  const int code = trains ? function<int(int, void**)>(library, "version_create")(-1, &model)
                          : function<int(const char*, void**)>(library, "version_load")("/absent", &model);
  const std::string text = function<const char*()>(library, "version_error")();
  if (code != 1 || text.find(trains ? "threads: expected 0 or more, found -1" : "/absent") == std::string::npos)
    fail(library.path + ": an error is told of as '" + text + "'");
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
  for (; at + 2 < argc && std::strcmp(argv[at], "--") != 0; at += 3) libraries.push_back({argv[at], argv[at + 1], argv[at + 2]});
  for (++at; at < argc; ++at) {
    const char step = argv[at][0];
    if (step == 't') {
      std::vector<std::thread> threads;
      for (const Library& library : libraries)
        for (int twice = 0; twice < 2 && library.handle != nullptr; ++twice) threads.emplace_back([&] { compare(library); });
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
