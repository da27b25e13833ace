#include "checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "error.h"
#include "file.h"
#include "json_reader.h"
#include "json_writer.h"
#include "safetensors.h"
#include "sha256.h"

namespace graven::runtime {
namespace {

constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kStates = "optimizer.safetensors";
constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kFormat = "graven checkpoint";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kCheck = ",\n\"manifest_sha256\":\"";

/// A checkpoint that cannot be used because it is damaged, not because it is another graph's: load_newest looks
/// further.
class Damaged : public Error {
 public:
  using Error::Error;
};

/// A checkpoint of a format that this program does not know yet. It is no damage: an older one is not silently gone on
/// from.
class Newer : public Error {
 public:
  using Error::Error;
};

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMost = std::int64_t{1} << 53;  // of counts: doubles hold all below, and no sum of two overflows

std::string folder_name(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%08lld", static_cast<long long>(step));
  return text;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string hash;
};

std::string manifest_text(const TrainingState& state, const std::vector<FileRecord>& files) {
  JsonWriter json;
  json.begin_object();
  json.line().key("format").value(kFormat).line().key("version").value(kVersion);
  json.line()
      .key("model")
      .value(state.model)
      .line()
      .key("graph")
      .value(state.graph_hash)
      .line()
      .key("computation")
      .value(state.computation)
      .line()
      .key("generator")
      .value(state.generator);
  json.line().key("ranks").value(1);
  json.line()
      .key("step")
      .value(state.step)
      .line()
      .key("epoch")
      .value(state.epoch)
      .line()
      .key("position")
      .value(state.position);
  json.line().key("samples").value(state.samples).line().key("loss_sum").value(state.loss_sum);
  if (state.counted != state.position) json.line().key("counted").value(state.counted);
  json.line().key("seed").value(state.seed).line().key("batch").value(state.batch);
  json.line().key("shuffle").value(state.shuffle).line().key("drop_last").value(state.drop_last);
  json.line()
      .key("lr")
      .value(state.lr)
      .line()
      .key("warmup")
      .value(state.warmup)
      .line()
      .key("total_steps")
      .value(state.total_steps);
  if (state.accumulation_steps != 1 || state.draws != state.step)
    json.line().key("accumulation_steps").value(state.accumulation_steps).line().key("draws").value(state.draws);
  if (state.has_best)
    json.line().key("best_metric").value(state.best_metric).line().key("best_step").value(state.best_step);
  if (state.has_watched || state.waited > 0) {
    if (state.has_watched)
      json.line().key("watched_loss").value(state.watched_loss).line().key("watched_step").value(state.watched_step);
    json.line().key("waited").value(state.waited);
  }
  const auto list = [&json](const char* key, const std::vector<double>& numbers) {
    if (numbers.empty()) return;
    json.line().key(key).begin_array();
    for (const double x : numbers) json.value(x);
    json.end_array();
  };
  if (state.position > 0) list("result_sums", state.result_sums);
  if (!state.plateaus.empty()) {
    json.line().key("plateaus").begin_array();
    for (const PlateauState& plateau : state.plateaus) {
      json.begin_object().key("epochs").value(plateau.epochs).key("bad_epochs").value(plateau.bad_epochs);
      json.key("cooldown").value(plateau.cooldown);
      if (plateau.has_best && std::isfinite(plateau.best)) json.key("best").value(plateau.best);
      json.end_object();
    }
    json.end_array();
  }
  list("reduced_lrs", state.reduced_lrs);
  json.line().key("files").begin_array();
  for (const FileRecord& file : files) {
    json.line("\n  ")
        .begin_object()
        .key("name")
        .value(file.name)
        .key("bytes")
        .value(file.bytes)
        .key("sha256")
        .value(file.hash)
        .end_object();
  }
  json.end_array();
  const std::string& body = json.text();
  return body + std::string(kCheck) + sha256(bytes_of(body)) + "\"}\n";
}

/// Reads and verifies the manifest; the files that it names are not looked at.
TrainingState read_manifest(const std::string& path, std::vector<FileRecord>& files) {
  const MappedFile file(path);
  if (file.size() > (std::size_t{1} << 20))
    throw Error(path, "", "at most 1 MB", std::to_string(file.size()) + " bytes");
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  const std::size_t check = text.rfind(kCheck);
  if (check == std::string_view::npos ||
      text.substr(check + kCheck.size()) != sha256(bytes_of(text.substr(0, check))) + "\"}\n")
    throw Error(path, "", "a manifest that agrees with its checksum", "one that does not");

  std::string key;
  JsonReader first(text, path);  // for the version, before all that a newer one may say otherwise
  first.begin_object();
  while (first.next_key(key)) {
    if (key != "version") {
      first.skip();
    } else if (const std::int64_t version = first.integer(); version > kVersion) {
      throw Newer(path, "", "version " + std::to_string(kVersion) + " of the checkpoint's format",
                  std::to_string(version) + ": it was written by a program of a newer generator");
    }
  }

  TrainingState state;
  bool has_draws = false, has_counted = false;
  JsonReader json(text, path);
  std::vector<std::string> due = {"epoch",   "files", "format", "graph",  "position",
                                  "samples", "seed",  "step",   "version"};
  json.begin_object();
  while (json.next_key(key)) {
    due.erase(std::remove(due.begin(), due.end(), key), due.end());
    const auto count = [&json] {
      const std::int64_t n = json.integer();
      if (n < 0 || n > kMost) json.fail("a number from 0 to " + std::to_string(kMost), std::to_string(n));
      return n;
    };
    if (key == "format") {
      if (const std::string format = json.string(); format != kFormat) json.fail(printable(kFormat), printable(format));
    } else if (key == "version") {
      if (const std::int64_t version = json.integer(); version != kVersion)
        json.fail("version 1", std::to_string(version));
    } else if (key == "model") {
      state.model = json.string();
    } else if (key == "graph") {
      state.graph_hash = json.string();
    } else if (key == "computation") {
      state.computation = json.string();
    } else if (key == "generator") {
      state.generator = json.string();
    } else if (key == "ranks") {
      if (const std::int64_t ranks = json.integer(); ranks != 1) json.fail("1 rank", std::to_string(ranks));
    } else if (key == "step") {
      state.step = count();
    } else if (key == "epoch") {
      state.epoch = count();
    } else if (key == "position") {
      state.position = count();
    } else if (key == "samples") {
      state.samples = count();
    } else if (key == "loss_sum") {
      state.loss_sum = json.number();
    } else if (key == "counted") {
      state.counted = count();
      has_counted = true;
    } else if (key == "seed") {
      state.seed = json.integer();
    } else if (key == "batch") {
      state.batch = count();
    } else if (key == "shuffle") {
      state.shuffle = json.boolean();
    } else if (key == "drop_last") {
      state.drop_last = json.boolean();
    } else if (key == "lr") {
      state.lr = json.number();
    } else if (key == "warmup") {
      state.warmup = count();
    } else if (key == "total_steps") {
      state.total_steps = count();
    } else if (key == "accumulation_steps") {
      state.accumulation_steps = std::max<std::int64_t>(count(), 1);
    } else if (key == "draws") {
      state.draws = count();
      has_draws = true;
    } else if (key == "best_metric") {
      state.best_metric = json.number();
      state.has_best = true;
    } else if (key == "best_step") {
      state.best_step = count();
    } else if (key == "watched_loss") {
      state.watched_loss = json.number();
      state.has_watched = true;
    } else if (key == "watched_step") {
      state.watched_step = count();
    } else if (key == "waited") {
      state.waited = count();
    } else if (key == "result_sums" || key == "reduced_lrs") {
      std::vector<double>& numbers = key == "result_sums" ? state.result_sums : state.reduced_lrs;
      json.begin_array();
      while (json.next_item()) {  // of a result that is no number, there is none
        if (json.peek() == JsonReader::Kind::null) {
          json.null();
          numbers.push_back(std::numeric_limits<double>::quiet_NaN());
        } else {
          numbers.push_back(json.number());
        }
      }
    } else if (key == "plateaus") {
      json.begin_array();
      while (json.next_item()) {
        PlateauState& plateau = state.plateaus.emplace_back();
        std::string inner;
        json.begin_object();
        while (json.next_key(inner)) {
          if (inner == "epochs") {
            plateau.epochs = count();
          } else if (inner == "bad_epochs") {
            plateau.bad_epochs = count();
          } else if (inner == "cooldown") {
            plateau.cooldown = count();
          } else if (inner == "best") {
            plateau.best = json.number();
            plateau.has_best = true;
          } else {
            json.fail("\"epochs\", \"bad_epochs\", \"cooldown\" or \"best\"", printable(inner));
          }
        }
      }
    } else if (key == "files") {
      json.begin_array();
      while (json.next_item()) {
        FileRecord record;
        std::string inner;
        json.begin_object();
        while (json.next_key(inner)) {
          if (inner == "name") {
            record.name = json.string();
          } else if (inner == "bytes") {
            record.bytes = json.unsigned_integer();
          } else if (inner == "sha256") {
            record.hash = json.string();
          } else {
            json.fail("\"name\", \"bytes\" or \"sha256\"", printable(inner));
          }
        }
        files.push_back(std::move(record));
      }
    } else if (key == "manifest_sha256") {
      json.skip();
    } else {
      json.fail("a key of version 1", printable(key));
    }
  }
  json.end();
  if (!has_draws) state.draws = state.step;  // each step was one batch
  if (!has_counted) state.counted = state.position;
  if (!due.empty()) throw Error(path, "", std::string("a key ") + printable(due[0]), "none");
  if (state.position > state.samples)
    throw Error(path, "", std::string("a position of at most ") + std::to_string(state.samples),
                std::to_string(state.position));
  if (state.counted > state.position)
    throw Error(path, "counted", std::string("at most ") + std::to_string(state.position),
                std::to_string(state.counted));
  return state;
}

/// A file that is there and cannot be opened is an error of the machine, and no damage: nothing older is gone on with,
/// and nothing of it removed.
void require_readable(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file >= 0) {
    ::close(file);
    return;
  }
  if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENXIO) throw system_error(path, "open");
}
void require_readable_files(const std::string& checkpoint) {
  for (const char* name : {kManifest, kWeights, kStates}) require_readable(join(checkpoint, name));
}

/// Opens a file of the checkpoint after comparing size and hash.
SafetensorsFile open_verified(const std::string& folder, const std::vector<FileRecord>& files,
                              const std::string& name) {
  const auto record = std::find_if(files.begin(), files.end(), [&](const FileRecord& r) { return r.name == name; });
  if (record == files.end()) throw Error(join(folder, kManifest), "files", printable(name), "none of that name");
  {
    const MappedFile file(join(folder, name));
    if (file.size() != record->bytes)
      throw Error(file.path(), "", std::to_string(record->bytes) + " bytes", std::to_string(file.size()));
    if (sha256(file.bytes()) != record->hash)
      throw Error(file.path(), "", "content with the hash in the manifest", "another");
  }
  return SafetensorsFile(join(folder, name));
}

bool is_link(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

/// Whether save() writes a file of that name into a checkpoint.
bool is_own(const std::string& name) {
  for (const std::string own : {kManifest, kWeights, kStates})
    if (name == own || name.starts_with(own + ".graven-tmp")) return true;
  return false;
}

/// Removes of a checkpoint what save() writes, the manifest first, and the folder unless a user has put something into
/// it. Returns whether it is such a folder, and stays.
bool remove_checkpoint(const std::string& path) {
  if (is_link(path) || kind_of(path) != FileKind::directory) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw system_error(path, "remove");
    return false;
  }
  const std::string manifest = join(path, kManifest);
  if (::unlink(manifest.c_str()) != 0 && errno != ENOENT && errno != EISDIR && errno != EPERM)
    throw system_error(manifest, "remove");
  bool others = false;
  for (const std::string& name : list_directory(path)) {
    const std::string file = join(path, name);
    if (is_own(name) && !is_link(file) && kind_of(file) == FileKind::directory) {  // somebody's, unless it is empty
      others = others || ::rmdir(file.c_str()) != 0;
      continue;
    }
    others = others || !is_own(name);
    if (is_own(name) && ::unlink(file.c_str()) != 0) throw system_error(file, "remove");
  }
  if (!others && ::rmdir(path.c_str()) != 0) throw system_error(path, "remove");
  return others;
}

/// What a user has put into the checkpoint that `to` takes the place of.
void move_others(const std::string& from, const std::string& to) {
  if (is_link(from) || kind_of(from) != FileKind::directory) return;
  for (const std::string& name : list_directory(from))
    if (!is_own(name) && ::rename(join(from, name).c_str(), join(to, name).c_str()) != 0)
      throw system_error(join(to, name), "create");
}

/// Gives the folder `from` the name `to`. One that has it already (a damaged one, or the same step with its evaluation
/// still to come) is left under `from`; where the system can exchange names, there is a whole one under `to` at every
/// moment.
void replace(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) throw system_error(to, "create");
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return move_others(from, to);
#endif
  move_others(to, from);
  remove_checkpoint(to);
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error(to, "create");
}

/// Removes the link `name`, or the copy of a checkpoint that it has become where a folder was copied with its links
/// followed. False when it is something else, or a user has put something into it.
bool remove_pointer(const std::string& folder, const std::string& name) {
  const std::string path = join(folder, name);
  if (is_link(path)) return ::unlink(path.c_str()) == 0;
  if (kind_of(path) == FileKind::absent) return true;
  return kind_of(join(path, kManifest)) == FileKind::regular && !remove_checkpoint(path);
}

/// Makes `name` in `folder` a link to `target`, at once. File systems without links do without.
void point(const std::string& folder, const std::string& name, const std::string& target) {
  if (!is_link(join(folder, name)) && !remove_pointer(folder, name))
    throw Error(join(folder, name), "", "a link to a checkpoint", "something else, which is left alone");
  const std::string temporary = join(folder, std::string(kTemporary) + name);
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    if (errno == EPERM || errno == ENOTSUP) return;
    throw system_error(temporary, "create the link");
  }
  if (::rename(temporary.c_str(), join(folder, name).c_str()) != 0)
    throw system_error(join(folder, name), "create the link");
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string path, Report report)
    : path_(std::move(path)), report_(std::move(report)) {
  make_directories(path_);
  const std::string lock = join(path_, ".lock");
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) throw system_error(lock, "create");
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;
    const Error error = taken ? Error(path_, "another run is training into this folder") : system_error(lock, "lock");
    ::close(lock_);
    throw error;
  }
  try {
    for (const std::string& name : list_directory(path_)) {
      if (!name.starts_with(kTemporary)) continue;
      try {
        remove(join(path_, name));
      } catch (const Error& error) {
        tell(error.what());
      }
    }
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

CheckpointFolder::~CheckpointFolder() {
  if (lock_ >= 0) ::close(lock_);
}

std::string weights_file(const std::string& checkpoint) { return join(checkpoint, kWeights); }
std::string states_file(const std::string& checkpoint) { return join(checkpoint, kStates); }

std::string CheckpointFolder::save(const TrainingState& state, std::span<const Variable> weights,
                                   std::span<const Variable> states, std::int64_t keep,
                                   const std::function<const void*(const Variable&)>& whole) {
  const std::string name = folder_name(state.step), target = join(path_, name);
  // What could not be removed of an earlier one, a user's files, is left where it is.
  std::string temporary = join(path_, std::string(kTemporary) + name);
  remove(temporary);
  for (int more = 1; kind_of(temporary) != FileKind::absent; ++more) {
    temporary = join(path_, std::string(kTemporary) + name + "-" + std::to_string(more));
    remove(temporary);
  }
  make_directories(temporary);
  try {
    const std::string metadata_step = std::to_string(state.step);
    const std::vector<std::pair<std::string, std::string>> metadata = {
        {"generator", state.generator}, {"graph", state.graph_hash}, {"model", state.model}, {"step", metadata_step}};
    save_variables(join(temporary, kWeights), weights, metadata, false, whole);
    save_variables(join(temporary, kStates), states, metadata, false, whole);
    std::vector<FileRecord> files;
    for (const char* file : {kWeights, kStates}) {
      const MappedFile written(join(temporary, file));
      files.push_back({file, written.size(), sha256(written.bytes())});
    }
    AtomicFile manifest(join(temporary, kManifest));
    manifest.write(manifest_text(state, files));
    manifest.commit();  // and with it the folder
    replace(temporary, target);
    sync_directory(path_);
  } catch (...) {
    try {
      remove(temporary);
    } catch (const Error&) {  // the first error is the one to tell
    }
    throw;
  }
  try {
    remove(temporary);
  } catch (const Error& error) {  // the new one is safe
    tell(error.what());
  }
  tidy(state, keep);
  return target;
}

/// The checkpoint is safe: what cannot be put in order around it is told, and the run goes on.
void CheckpointFolder::tidy(const TrainingState& state, std::int64_t keep) {
  const auto attempt = [&](const auto& body) {
    try {
      body();
    } catch (const Error& error) {
      tell(error.what());
    }
  };
  attempt([&] { point(path_, "latest", folder_name(state.step)); });
  if (state.has_best && kind_of(join(path_, folder_name(state.best_step))) == FileKind::directory)
    attempt([&] { point(path_, "best", folder_name(state.best_step)); });
  std::int64_t kept = 0;
  for (const std::string& checkpoint : list_checkpoints(path_)) {
    const std::int64_t step = step_of(checkpoint);
    const bool later = step > state.step, best = state.has_best && step == state.best_step;
    // What is left of a folder that holds a user's files is no checkpoint any more.
    const bool counts = !later && kind_of(join(checkpoint, kManifest)) == FileKind::regular;
    if (counts) ++kept;
    if (later || (keep > 0 && kept + (counts ? 0 : 1) > keep && !best)) attempt([&] { remove(checkpoint); });
  }
}

void CheckpointFolder::clear() {
  for (const char* link : {"latest", "best"}) remove_pointer(path_, link);
  for (const std::string& checkpoint : list_checkpoints(path_)) remove(checkpoint);
}

void CheckpointFolder::remove(const std::string& checkpoint) {
  const bool checkpoint_like = kind_of(join(checkpoint, kManifest)) == FileKind::regular;
  if (remove_checkpoint(checkpoint) && checkpoint_like)
    tell(checkpoint + ": is removed but for the files in it that are not the checkpoint's");
}

void CheckpointFolder::tell(const std::string& text) {
  if (report_ && told_.insert(text).second) report_(text);
}

std::int64_t step_of(const std::string& checkpoint) {
  const std::size_t slash = checkpoint.rfind('/');
  const std::string name = slash == std::string::npos ? checkpoint : checkpoint.substr(slash + 1);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!name.starts_with("step-") || name.size() < 6 || name.size() > 23 ||
      !std::all_of(name.begin() + 5, name.end(), digit))
    return -1;
  return std::stoll(name.substr(5));
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> found;
  if (kind_of(folder) != FileKind::directory) return found;
  for (const std::string& name : list_directory(folder)) {
    if (step_of(name) >= 0) found.push_back(join(folder, name));
  }
  std::sort(found.begin(), found.end(),
            [](const std::string& a, const std::string& b) { return step_of(a) > step_of(b); });
  return found;
}

bool is_whole_checkpoint(const std::string& path) {
  try {
    require_readable_files(path);
  } catch (const Error&) {
    return true;  // for those who can open it
  }
  try {
    std::vector<FileRecord> files;
    read_manifest(join(path, kManifest), files);
    open_verified(path, files, kWeights);
    open_verified(path, files, kStates);
    return true;
  } catch (const Newer&) {
    return true;  // for those who can read it
  } catch (const Error&) {
    return false;
  }
}

TrainingState load_checkpoint(const std::string& path, std::string_view computation, std::span<const Variable> weights,
                              std::span<const Variable> states) {
  TrainingState state;
  require_readable_files(path);
  try {
    std::vector<FileRecord> files;
    state = read_manifest(join(path, kManifest), files);
    const SafetensorsFile weights_file = open_verified(path, files, kWeights),
                          states_file = open_verified(path, files, kStates);
    if (state.computation == computation) {
      check_variables(weights_file, weights);
      check_variables(states_file, states);
      load_variables(weights_file, weights);
      load_variables(states_file, states);
      return state;
    }
  } catch (const Newer&) {
    throw;
  } catch (const Error& error) {
    throw Damaged("damaged checkpoint", error.what());
  }
  if (state.computation.empty())
    throw Error(path, "computation", std::string(computation), "none: the checkpoint is of an earlier version");
  throw Error(path, "computation", std::string(computation),
              printable(state.computation) + ": the checkpoint is of " + printable(state.model) +
                  " as it was, or of another model: a layer, the loss, the optimizer or one of its options is not the "
                  "same. A new run from its weights: --weights " +
                  weights_file(path));
}

TrainingState load_newest(const std::string& folder, std::string_view computation, std::span<const Variable> weights,
                          std::span<const Variable> states, const std::function<void(const std::string&)>& report,
                          std::string* loaded) {
  for (const std::string& checkpoint : list_checkpoints(folder)) {
    try {
      TrainingState state = load_checkpoint(checkpoint, computation, weights, states);
      if (loaded != nullptr) *loaded = checkpoint;
      return state;
    } catch (const Damaged& error) {
      report(error.what());
    }
  }
  throw Error(folder, "", "a checkpoint to resume from", "none that is whole");
}

}  // namespace graven::runtime
