// What a power cut leaves: files and folders must be on the disk before they get the names under which they are looked
// for. No test can cut the power; here the order of the calls is looked at. The program's own fsync() and rename() are
// these, which note what they are called with.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

#include "fixture.h"
#include "runtime_min/checkpoint.h"
#include "runtime_min/file.h"
#include "runtime_min/safetensors.h"

#ifdef __linux__

namespace {

std::vector<std::string>* journal = nullptr;

}  // namespace

extern "C" int fsync(int descriptor) {
  if (journal != nullptr) {
    char path[PATH_MAX];
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
    journal->push_back("sync " + std::string(path, n < 0 ? 0 : static_cast<std::size_t>(n)));
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (journal != nullptr) journal->push_back("rename " + std::string(from) + " to " + to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace graven::runtime {
namespace {

/// What `write` syncs and renames, in order, without the folder's path and the number of the process.
template <class Write>
std::vector<std::string> calls_of(const std::string& folder, const Write& write) {
  std::vector<std::string> calls;
  journal = &calls;
  write();
  journal = nullptr;
  for (std::string& call : calls)
    for (const std::string& part : {folder + "/", "." + std::to_string(::getpid())})
      for (std::size_t at = call.find(part); at != std::string::npos; at = call.find(part)) call.erase(at, part.size());
  return calls;
}

TEST(Durability, AFileIsOnTheDiskBeforeItHasItsName) {
  const TemporaryFolder temporary;
  const std::string folder = std::filesystem::canonical(temporary.path()).string();
  const auto calls = calls_of(folder, [&] {
    AtomicFile file(folder + "/f");
    file.write("text");
    file.commit();
  });
  EXPECT_EQ(calls, (std::vector<std::string>{"sync f.graven-tmp", "rename f.graven-tmp to f", "sync " + folder}));
}

TEST(Durability, AFileOfWeightsIsOnTheDiskBeforeItHasItsName) {
  const TemporaryFolder temporary;
  const std::string folder = std::filesystem::canonical(temporary.path()).string();
  float weight = 0;
  const std::vector<Variable> weights = {{"w", DType::f32, {}, &weight}};
  const auto calls = calls_of(folder, [&] { save_variables(folder + "/f", weights); });
  EXPECT_EQ(calls, (std::vector<std::string>{"sync f.graven-tmp", "rename f.graven-tmp to f", "sync " + folder}));
}

TEST(Durability, AFileMayHaveTheNumberOfAClosedStandardInput) {
  const TemporaryFolder temporary;
  const int kept = ::dup(0);
  ::close(0);
  {
    AtomicFile file(temporary / "f");
    file.write("text");
    file.commit();
  }
  if (kept >= 0) {
    ::dup2(kept, 0);
    ::close(kept);
  }
  EXPECT_EQ(std::filesystem::file_size(temporary / "f"), 4u);
  EXPECT_FALSE(std::filesystem::exists(temporary / "f.graven-tmp"));
}

TEST(Durability, ACheckpointIsOnTheDiskBeforeItHasItsName) {
  const TemporaryFolder temporary;
  const std::string folder = std::filesystem::canonical(temporary.path()).string();
  float weight = 0, momentum = 0;
  const std::vector<Variable> weights = {{"w", DType::f32, {}, &weight}},
                              states = {{"w-momentum", DType::f32, {}, &momentum}};
  TrainingState state;
  state.step = 1;
  CheckpointFolder checkpoints(folder);
  const auto calls = calls_of(folder, [&] { checkpoints.save(state, weights, states, 0); });
  EXPECT_EQ(
      calls,
      (std::vector<std::string>{
          "sync .tmp-step-00000001/weights.safetensors.graven-tmp",
          "rename .tmp-step-00000001/weights.safetensors.graven-tmp to .tmp-step-00000001/weights.safetensors",
          "sync .tmp-step-00000001/optimizer.safetensors.graven-tmp",
          "rename .tmp-step-00000001/optimizer.safetensors.graven-tmp to .tmp-step-00000001/optimizer.safetensors",
          "sync .tmp-step-00000001/manifest.json.graven-tmp",
          "rename .tmp-step-00000001/manifest.json.graven-tmp to .tmp-step-00000001/manifest.json",
          "sync .tmp-step-00000001",
          "rename .tmp-step-00000001 to step-00000001",
          "sync " + folder,
          "rename .tmp-latest to latest",
      }));
}

}  // namespace
}  // namespace graven::runtime

#endif
