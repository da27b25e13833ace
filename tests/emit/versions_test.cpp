// Several versions of one emitted project in one process: each computes its own numbers, and goes when it is closed.
#include "tests/emit/versions.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "codegen/build/jit_cpu.h"
#include "runtime_min/file.h"
#include "tests/emit/graphs.h"
#include "tests/patterns.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

fs::path fresh(const std::string& name) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "emitted" / name;
  fs::remove_all(folder);
  return folder;
}

std::string output_of(const std::vector<std::string>& command, const fs::path& folder = {}) {
  const ProcessResult r = run_process(command, {.directory = folder.string(), .seconds = 500});
  std::string line;
  for (const auto& c : command) line += c + " ";
  EXPECT_EQ(r.exit_status, 0) << line << "\n" << r.output;
  return r.output;
}

/// What a library defines for others, read from its dynamic symbols.
struct Shown {
  std::set<std::string> names;
  std::vector<std::string> unique;  ///< of which the process has one, whatever libraries define it
};

Shown shown_by(const std::string& path) {
  const runtime::MappedFile file(path);
  const std::byte* const bytes = file.bytes().data();
  ElfW(Ehdr) header;
  std::memcpy(&header, bytes, sizeof header);
  const auto section = [&](std::size_t i) {
    ElfW(Shdr) s;
    std::memcpy(&s, bytes + header.e_shoff + i * sizeof s, sizeof s);
    return s;
  };
  Shown shown;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto symbols = section(i);
    if (symbols.sh_type != SHT_DYNSYM) continue;
    const auto* const texts = reinterpret_cast<const char*>(bytes + section(symbols.sh_link).sh_offset);
    for (std::size_t at = 0; at < symbols.sh_size; at += sizeof(ElfW(Sym))) {
      ElfW(Sym) symbol;
      std::memcpy(&symbol, bytes + symbols.sh_offset + at, sizeof symbol);
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) == STT_NOTYPE) continue;
      if (symbol.st_shndx == SHN_ABS) continue;  // the names of symbols' versions
      shown.names.insert(texts + symbol.st_name);
      if (ELF64_ST_BIND(symbol.st_info) == STB_GNU_UNIQUE) shown.unique.emplace_back(texts + symbol.st_name);
    }
  }
  EXPECT_FALSE(shown.names.empty()) << path;
  return shown;
}

/// Functions of the interface in C, and members of the two classes.
/// A training's types are called after its computation, too.
constexpr const char* kInterface =
    "^(version_[a-z]|_ZNK?7version(70graph_[0-9a-f]{64}|87graph_[0-9a-f]{64}_[0-9a-f]{16})(5Model|7Weights)"
    "(?!6Memory))";
/// What is in the project's namespaces, and not this version's by the graph in its name.
constexpr const char* kAnyVersion = "^_Z[A-Z]*(7version(?!(70|87)graph_)|14version_graven)";

bool shows_interface(const Shown& shown) {
  std::string all;
  for (const std::string& name : shown.names) all += name + "\n";
  return !tests::matches(all, "^version_forward$").empty() && !tests::matches(all, "5Model5levelEv$").empty();
}

/// What could be another version's as well.
std::vector<std::string> doubtful(const Shown& shown) {
  std::vector<std::string> others;
  for (const std::string& name : shown.names)
    if (!tests::matches(name, kAnyVersion).empty()) others.push_back(name);
  return others;
}

/// A compiler of each kind: for inference the oldest that is here, for training the newest.
std::vector<std::string> compilers(bool training) {
  std::vector<std::string> found;
  const auto first = [&](std::vector<const char*> names) {
    if (training) std::reverse(names.begin(), names.end());
    for (const char* name : names)
      if (const std::string path = find_program(name); !path.empty()) return found.push_back(path);
  };
  first({"g++-11", "g++", "g++-14"});
  first({"clang++-14", "clang++", "clang++-19"});
  return found;
}

/// Orders of opening, calling and closing that two versions go through.
const std::vector<std::vector<std::string>>& orders() {
  static const std::vector<std::vector<std::string>> all = {
      {"l0", "l1", "r0", "r1", "r0", "t", "e0", "e1", "u0", "r1", "t", "u1"},
      {"l1", "r1", "l0", "r0", "r1", "e1", "u1", "r0", "l1", "r1", "u0", "r1", "u1"},
      {"g0", "l1", "r1", "r0", "t", "u1", "r0", "u0"},
      {"g1", "g0", "t", "r0", "r1", "e0", "u0", "r1", "u1"},
      {"l0", "t", "u0", "l1", "t", "u1", "l0", "t", "u0"},
      {"g0", "g1", "r0", "t", "u0", "r1", "u1"},
  };
  return all;
}

void expect_apart(const std::string& host, std::vector<Version> versions) {
  for (Version& v : versions) v.alone = alone(host, v);
  EXPECT_NE(versions[0].alone, versions[1].alone);
  for (const auto& steps : orders()) EXPECT_EQ(fault_of_host(host, versions, steps), "");
}

TEST(Versions, CompiledByHandLiveInOneProcess) {
  const fs::path folder = fresh("versions_by_hand");
  const std::string host = build_host_of_versions(folder);
  for (const bool training : {false, true}) {
    for (const int size : {5, 2}) emit_version(size, training, folder / std::to_string(size));
    for (const std::string& compiler : compilers(training)) {
      SCOPED_TRACE(compiler + (training ? ", training" : ", inference"));
      // Nothing is inlined: all that could be shared is there. What g++ makes unique of the standard library is no
      // matter for numbers.
      std::vector<Version> versions;
      for (const std::string size : {"5", "2"}) {
        ByHand how{compiler, shares_nothing(compiler)};
        how.flags.emplace_back("-O0");
        versions.push_back(
            {library_by_hand(how, folder / size, "by_hand.so"), (folder / size / "weights.safetensors").string()});
        const Shown shown = shown_by(versions.back().library);
        EXPECT_EQ(shown.unique, std::vector<std::string>());
        EXPECT_TRUE(shows_interface(shown));
        EXPECT_EQ(doubtful(shown), std::vector<std::string>());
      }
      expect_apart(host, versions);
    }
  }
}

TEST(Versions, NumbersNeedNoFlagOfTheCompiler) {
  const fs::path folder = fresh("versions_without_flags");
  const std::string host = build_host_of_versions(folder);
  std::vector<Version> versions;
  for (const int size : {4, 3}) {
    const fs::path project = folder / std::to_string(size);
    emit_version(size, false, project);
    versions.push_back(
        {library_by_hand({GRAVEN_CXX, {"-O1"}}, project, "by_hand.so"), (project / "weights.safetensors").string()});
    EXPECT_EQ(doubtful(shown_by(versions.back().library)), std::vector<std::string>());
  }
  for (Version& v : versions) v.alone = alone(host, v);
  for (const auto& steps : {std::vector<std::string>{"l0", "l1", "r0", "r1", "t"},
                            {"l1", "l0", "r1", "r0", "t"},
                            {"g1", "g0", "r0", "r1", "t"}})
    EXPECT_EQ(fault_of_host(host, versions, steps), "");
}

/// Both versions in the libraries `first` and `second` of a host: what is computed, opened by path in any order and
/// linked in both orders.
void expect_apart_in_libraries_of_a_host(const fs::path& folder, bool training, bool shared) {
  const std::string host = build_host_of_versions(folder), source = GRAVEN_SOURCE_DIR "/tests/emit/host/versions";
  std::vector<Version> users, models;
  for (const std::string user : {"first", "second"}) {
    const fs::path project = folder / user;
    emit_version(user == "first" ? 3 : 6, training, project);
    const std::string build = (project / "build").string(), weights = (project / "weights.safetensors").string();
    output_of({"cmake", "-S", source, "-B", build, "-DPROJECT=" + project.string(), "-DUSER=" + user,
               "-DGRAVEN_LEVELS=base", std::string("-DTRAINING=") + (training ? "ON" : "OFF"),
               std::string("-DBUILD_SHARED_LIBS=") + (shared ? "ON" : "OFF")});
    output_of({"cmake", "--build", build, "-j2"});
    users.push_back({build + "/lib" + user + ".so", weights});
    const Shown shown = shown_by(users.back().library);
    if (shared) {
      const fs::path library = fs::canonical(build + "/project/libversion_model.so");
      EXPECT_NE(library.filename(), "libversion_model.so") << "its name says which version it is";
      models.push_back({library.string(), weights});
      const Shown of_model = shown_by(library.string());
      EXPECT_EQ(of_model.unique, std::vector<std::string>());
      EXPECT_TRUE(shows_interface(of_model));
      for (const std::string& name : of_model.names) EXPECT_FALSE(tests::matches(name, kInterface).empty()) << name;
    } else {
      EXPECT_TRUE(shows_interface(shown)) << "a host may show the interface in C";
      EXPECT_EQ(doubtful(shown), std::vector<std::string>());
    }
  }
  if (shared) expect_apart(host, models);
  for (Version& v : users) v.alone = alone(host, v);
  // By path, in any order, as far as the host's own libraries allow it: what g++ makes unique in these stays.
  for (const auto& steps : {std::vector<std::string>{"l0", "l1", "r0", "r1", "t"}, {"g1", "r1", "l0", "r0", "t"}})
    EXPECT_EQ(fault_of_host(host, users, steps), "");
  for (const bool turned : {false, true}) {
    const std::string program = (folder / (turned ? "turned" : "linked")).string();
    std::vector<std::string> command = {GRAVEN_CXX, "-std=c++17", "-pthread", source + "/linked.cpp", "-o", program};
    for (const int i : turned ? std::vector<int>{1, 0} : std::vector<int>{0, 1}) {
      command.push_back(users[static_cast<std::size_t>(i)].library);
      command.push_back("-Wl,-rpath," + fs::path(users[static_cast<std::size_t>(i)].library).parent_path().string());
    }
    output_of(command);
    EXPECT_EQ(output_of({program, users[0].weights, users[1].weights}), users[0].alone + "\n" + users[1].alone + "\n");
  }
}

TEST(Versions, WithinLibrariesOfAHostLiveInOneProcess) {
  expect_apart_in_libraries_of_a_host(fresh("versions_within"), false, false);
}
TEST(Versions, TrainingsWithinLibrariesOfAHostLiveInOneProcess) {
  expect_apart_in_libraries_of_a_host(fresh("versions_within_training"), true, false);
}
TEST(Versions, AsSharedLibrariesLiveInOneProcess) {
  expect_apart_in_libraries_of_a_host(fresh("versions_shared"), false, true);
}

TEST(Versions, LibrariesCompiledJustInTimeShowTheirEntriesAlone) {
  for (const Graph& graph : {mlp_training(), my_linear()}) {
    JitReport report;
    const auto executable = compile_on_cpu(graph, {}, &report);
    const Shown shown = shown_by(report.library);
    EXPECT_EQ(shown.unique, std::vector<std::string>());
    for (const std::string& name : shown.names)
      EXPECT_TRUE(name.rfind("graven_jit_", 0) == 0 ||
                  (name.find("graven") == std::string::npos && name.find("train_mlp") == std::string::npos &&
                   name.find("my_linear") == std::string::npos))
          << name;
  }
}

}  // namespace
}  // namespace graven::codegen
