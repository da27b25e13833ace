// Compiles with the real NVRTC what just-in-time compilation gave to the stand-in, in a process of its own: NVRTC has
// no place beside the emulated device, which handles segmentation faults.
//
//   compile_with_nvrtc FOLDER ARCHITECTURE     FOLDER has the files, and program.txt and names.txt, a name a line
//
// What NVRTC says is printed. The status is 77 where there is none, 1 where it refuses the text, 3 where it warns.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/nvrtc_library.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string folder = argv[1];
  const cuda_on_cpu::Nvrtc nvrtc;
  if (!nvrtc) return 77;
  std::stringstream program;
  program << std::ifstream(folder + "/program.txt").rdbuf();
  std::vector<std::string> names;
  std::ifstream file(folder + "/names.txt");
  for (std::string line; std::getline(file, line);) names.push_back(line);
  if (names.empty()) return 2;
  const std::string said = nvrtc.compile(program.str(), names, argv[2], folder);
  std::printf("%s\n", said.c_str());
  return said.empty() ? 0 : said.starts_with("NVRTC_ERROR") ? 1 : 3;
}
