// A program that is linked with two libraries, first and second, each with a version of one project.
//   linked FIRST_WEIGHTS SECOND_WEIGHTS        prints what each computes, by itself and while both do
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

extern "C" int first(const char* path, char* text, std::size_t size);
extern "C" int second(const char* path, char* text, std::size_t size);

int main(int, char** argv) {
  char of_first[8192], of_second[8192];
  const int failed = first(argv[1], of_first, sizeof of_first) + second(argv[2], of_second, sizeof of_second);
  std::printf("%s\n%s\n", of_first, of_second);
  bool same = true;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      char again[8192];
      for (int round = 0; round < 20; ++round) {
        (i % 2 == 0 ? first : second)(argv[1 + i % 2], again, sizeof again);
        if (std::strcmp(again, i % 2 == 0 ? of_first : of_second) != 0)
          __atomic_store_n(&same, false, __ATOMIC_RELAXED);
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (!same) std::puts("other numbers where both compute");
  return failed;
}
