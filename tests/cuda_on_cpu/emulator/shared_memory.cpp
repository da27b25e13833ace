#include "shared_memory.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
        image.shared.push_back({symbols[s].st_value, symbols[s].st_size});
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

}  // namespace cuda_on_cpu
