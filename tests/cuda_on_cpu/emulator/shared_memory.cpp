#include "shared_memory.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_on_cpu/device.h"

namespace cuda_on_cpu {
namespace {

struct MappedFile {
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
      void* p = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
      if (p != MAP_FAILED) {
        data = static_cast<const char*>(p);
        bytes = static_cast<std::size_t>(status.st_size);
      }
    }
    if (file >= 0) close(file);
  }
  ~MappedFile() {
    if (data != nullptr) munmap(const_cast<char*>(data), bytes);
  }
  const char* data = nullptr;
  std::size_t bytes = 0;
};

struct Loaded {
  const char* path = nullptr;  // empty: the program itself, which is always listed first
  std::size_t load_address = 0;
  char* thread_local_block = nullptr;
};

/// Where an image lies, for the calling thread.
Loaded loaded(const std::string& path) {
  Loaded result{path.c_str()};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& found = *static_cast<Loaded*>(data);
        if (*found.path != 0 && std::strcmp(info->dlpi_name, found.path) != 0) return 0;
        found.load_address = info->dlpi_addr;
        found.thread_local_block = static_cast<char*>(info->dlpi_tls_data);
        return 1;
      },
      &result);
  return result;
}

std::string demangle(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

}  // namespace

Symbols::Image Symbols::read(const char* path) {
  const MappedFile file(path);
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(file.data);
  if (file.bytes < sizeof(*header) || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
    throw Failure(std::string("cuda_on_cpu: cannot read ") + path);
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(file.data + header->e_shoff);
  bool found = false;
  Image image;
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    found = true;
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(file.data + sections[i].sh_offset);
    const char* names = file.data + sections[sections[i].sh_link].sh_offset;
    for (std::size_t s = 0; s < sections[i].sh_size / sizeof(ElfW(Sym)); ++s) {
      const char* name = names + symbols[s].st_name;
      if (symbols[s].st_shndx == SHN_UNDEF) continue;
      if (ELF64_ST_TYPE(symbols[s].st_info) == STT_TLS && std::strncmp(name, "_ZZ", 3) == 0)
        image.shared.push_back({symbols[s].st_value, symbols[s].st_size, name});
      else if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC && std::strncmp(name, "_Z", 2) == 0)
        image.functions.push_back({symbols[s].st_value, name});
    }
  }
  if (!found)
    throw Failure(
        "cuda_on_cpu: the program has no symbol table, which lists its __shared__ variables: link it without -s, and "
        "don't strip it");
  std::sort(image.functions.begin(), image.functions.end(),
            [](const Function& a, const Function& b) { return a.offset < b.offset; });
  return image;
}

Symbols::Symbols() { images_.push_back(read("/proc/self/exe")); }
Symbols::Symbols(const std::string& path, void (*touch)()) {
  images_.push_back(read(path.c_str()));
  images_.back().path = path;
  images_.back().touch = touch;
}
void Symbols::add(Symbols other) {
  for (Image& image : other.images_) images_.push_back(std::move(image));
}

void Symbols::poison_shared() const {
  for (const Image& image : images_) {
    if (image.shared.empty()) continue;
    if (image.touch != nullptr) image.touch();
    char* block = loaded(image.path).thread_local_block;
    for (const Variable& v : image.shared) std::memset(block + v.offset, 0xff, v.bytes);
  }
}

std::vector<std::pair<const char*, const char*>> Symbols::shared_ranges() const {
  std::vector<std::pair<const char*, const char*>> ranges;
  for (const Image& image : images_) {
    if (image.shared.empty()) continue;
    if (image.touch != nullptr) image.touch();
    const char* block = loaded(image.path).thread_local_block;
    const char *begin = nullptr, *end = nullptr;
    for (const Variable& v : image.shared) {
      if (begin == nullptr || block + v.offset < begin) begin = block + v.offset;
      if (end == nullptr || block + v.offset + v.bytes > end) end = block + v.offset + v.bytes;
    }
    ranges.emplace_back(begin, end);
  }
  return ranges;
}

std::string Symbols::shared_name(const void* address) const {
  const auto* p = static_cast<const char*>(address);
  for (const Image& image : images_) {
    const char* block = loaded(image.path).thread_local_block;
    for (const Variable& v : image.shared) {
      if (p < block + v.offset || p >= block + v.offset + v.bytes) continue;
      const std::string name = demangle(v.name.c_str());
      const std::size_t at = name.rfind("::");
      return at == std::string::npos ? name : name.substr(at + 2);
    }
  }
  return "";
}

std::string Symbols::function_name(const void* address) const {
  for (const Image& image : images_) {
    const std::size_t offset = reinterpret_cast<std::size_t>(address) - loaded(image.path).load_address;
    auto it = std::lower_bound(image.functions.begin(), image.functions.end(), offset,
                               [](const Function& f, std::size_t o) { return f.offset < o; });
    if (it != image.functions.end() && it->offset == offset) {
      std::string name = demangle(it->name.c_str());
      return name.starts_with("void ") ? name.substr(5) : name;
    }
  }
  char text[32];
  std::snprintf(text, sizeof text, "kernel at %p", address);
  return text;
}

std::string source_lines(const void* after) {
  struct Found {
    std::size_t address;  // of the instruction, not of the one behind it
    std::string path;
    std::size_t load_address = 0;
    bool is_found = false;
  } found{reinterpret_cast<std::size_t>(after) - 1, "", 0, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& f = *static_cast<Found*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const std::size_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
          if (info->dlpi_phdr[i].p_type != PT_LOAD || f.address < begin ||
              f.address >= begin + info->dlpi_phdr[i].p_memsz)
            continue;
          f.path = info->dlpi_name;
          f.load_address = info->dlpi_addr;
          f.is_found = true;
          return 1;
        }
        return 0;
      },
      &found);
  if (!found.is_found) return "an unknown place";
  if (found.path.empty()) {  // the program itself
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    if (length > 0) found.path.assign(path, static_cast<std::size_t>(length));
  }
  std::string quoted = "'";
  for (char c : found.path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  char number[32];
  std::snprintf(number, sizeof number, "0x%zx", found.address - found.load_address);
  std::string text;
  if (FILE* lines = popen(("addr2line -i -e " + quoted + "' " + number + " 2>/dev/null").c_str(), "r");
      lines != nullptr) {
    char line[4096];
    while (std::fgets(line, sizeof line, lines) != nullptr) {
      std::string place = line;
      place = place.substr(0, place.find_first_of(" \n"));  // and not "(discriminator 2)"
      if (place.starts_with("?") || place.find("/cuda_on_cpu/include/") != std::string::npos) continue;
      const std::string file = place.substr(place.find_last_of('/') + 1);
      // The launch, through which a kernel is called, is no kernel's.
      if (file.find("functional") != std::string::npos || file.starts_with("invoke.h") ||
          file.starts_with("std_function.h"))
        break;
      text += (text.empty() ? "" : ", in ") + file;
    }
    pclose(lines);
  }
  return text.empty() ? std::string("an unknown line (compile with -g)") : text;
}

}  // namespace cuda_on_cpu
