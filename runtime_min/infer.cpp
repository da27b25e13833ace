#include "infer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>

#include "arguments.h"
#include "batch.h"
#include "dataset.h"
#include "execution.h"
#include "file.h"
#include "idx.h"
#include "image.h"
#include "json_writer.h"
#include "machine.h"
#include "npy.h"
#include "number.h"
#include "profiler.h"
#include "stopwatch.h"
#include "topk.h"

namespace graven::runtime {
namespace {

constexpr std::int64_t kMaxTopk = 100;

struct Options {
  DatasetOptions data;
  std::string weights, output, names, labels;
  std::int64_t topk = 5, show = 10, batch = 1, seed = 0;
  double bench_seconds = 0, rank_timeout = 600;
  std::string bench;
  bool softmax = false, json = false;
  Normalization normalization;
  Execution execution;
  ProfileOptions profile;
};

std::string describe_tensors(const char* title, const std::vector<TensorDescription>& tensors) {
  std::string text = title;
  for (const TensorDescription& tensor : tensors) {
    text += std::string("\n  ") + tensor.name + "  " + describe(tensor.dtype, tensor.shape);
    if (*tensor.comment != '\0') text += std::string("  ") + tensor.comment;
  }
  return text;
}

std::vector<std::string> read_lines(const std::string& path) {
  const MappedFile file(path);
  std::vector<std::string> lines;
  std::string line;
  for (const std::byte b : file.bytes()) {
    const char c = static_cast<char>(b);
    if (c == '\n') {
      lines.push_back(std::move(line));
      line.clear();
    } else if (c != '\r') {
      line += c;
    }
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

/// What becomes of the outputs of each sample: printed, compared with labels, written.
class Report {
 public:
  Report(const InferenceDescription& description, const Options& options, const Dataset& data)
      : description_(description), options_(options) {
    const TensorDescription& first = description.outputs.at(0);
    scores_ = count_of(first.sample_shape());
    const Dims sample = first.sample_shape();
    classifies_ = first.batched && is_floating(first.dtype) && scores_ > 1 &&
                  std::count_if(sample.begin(), sample.end(), [](auto d) { return d > 1; }) == 1;
    row_.resize(static_cast<std::size_t>(scores_));
    if (!options.names.empty()) names_ = read_lines(options.names);
    if (!classifies_ && (!options.names.empty() || !options.labels.empty()))
      throw UsageError(options.names.empty() ? "--labels" : "--names", "", "a model whose first output scores classes",
                       describe(first.dtype, first.shape));
    if (!names_.empty() && static_cast<std::int64_t>(names_.size()) != scores_)
      throw Error(options.names, "", std::to_string(scores_) + " lines, one a class", std::to_string(names_.size()));
    if (classifies_) read_labels(data);
    open_outputs(data.size());
  }

  void take(const Batch& outputs, std::int64_t first, std::int64_t count) {
    for (std::size_t t = 0; t < writers_.size(); ++t) {
      const TensorDescription& tensor = description_.outputs[t];
      if (!writers_[t] || (!tensor.batched && first != 0)) continue;
      writers_[t]->write(outputs.row(t, 0), sample_bytes_[t] * static_cast<std::size_t>(tensor.batched ? count : 1));
    }
    if (!picture_.empty() && first == 0) write_picture(outputs);
    for (std::int64_t i = 0; i < count; ++i) sample(outputs.row(0, i), first + i);
  }

  void finish(std::int64_t samples) {
    for (const auto& writer : writers_) {
      if (writer) writer->commit();
    }
    if (prints_ && options_.show > 0 && samples > options_.show)
      std::printf("... and %lld more (--show 0 prints all)\n", static_cast<long long>(samples - options_.show));
    if (!labels_.empty())
      std::printf("accuracy %.4f (%lld of %lld)\n", static_cast<double>(correct_) / static_cast<double>(samples),
                  static_cast<long long>(correct_), static_cast<long long>(samples));
  }

 private:
  void read_labels(const Dataset& data) {
    std::string from = options_.labels;
    std::vector<std::int64_t> values;
    if (!from.empty()) {
      Bytes file = Bytes::map(from);
      const HeaderCheck check = [&](DType dtype, const Dims& shape) {
        if (!is_integral(dtype) || shape.size() != 1)
          throw Error(from, "", "integers, one a sample", describe(dtype, shape));
        if (shape[0] != data.size())
          throw Error(from, "", std::to_string(data.size()) + " labels, one a sample", std::to_string(shape[0]));
      };
      const Array array = is_npy(file.view) ? read_npy(from, check) : read_idx(from, check);
      for (std::int64_t i = 0; i < array.shape[0]; ++i)
        values.push_back(static_cast<std::int64_t>(number_at(array.dtype, array.bytes.data(), i)));
    } else if (const int f = data.find("labels"); f >= 0) {
      from = data.path();
      const Field& field = data.fields()[static_cast<std::size_t>(f)];
      if (!is_integral(field.dtype) || !field.shape.empty()) return;
      for (std::int64_t i = 0; i < data.size(); ++i)
        values.push_back(
            static_cast<std::int64_t>(number_at(field.dtype, data.sample(static_cast<std::size_t>(f), i), 0)));
    } else {
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0 || values[i] >= scores_)
        throw Error(from, std::string("label ") + std::to_string(i), std::string("0 to ") + std::to_string(scores_ - 1),
                    std::to_string(values[i]));
    }
    labels_ = std::move(values);
  }

  void open_outputs(std::int64_t samples) {
    prints_ = options_.output.empty();
    if (prints_) return;
    std::vector<std::string> paths{""};
    for (const char c : options_.output) {
      if (c == ',') {
        paths.emplace_back();
      } else {
        paths.back() += c;
      }
    }
    if (paths.size() != description_.outputs.size() && paths.size() != 1)
      throw UsageError("--output", "", std::to_string(description_.outputs.size()) + " files, one for each output",
                       std::to_string(paths.size()));
    for (std::size_t t = 1; t < paths.size(); ++t) {
      if (std::find(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(t), paths[t]) !=
          paths.begin() + static_cast<std::ptrdiff_t>(t))
        throw UsageError("--output", "", "a file of its own for each output", printable(paths[t]) + " twice");
    }
    const bool png = paths[0].ends_with(".png"), ppm = paths[0].ends_with(".ppm"), pgm = paths[0].ends_with(".pgm");
    if (png || ppm || pgm) {
      const Dims shape = description_.outputs[0].sample_shape();
      const bool fits = shape.size() == 3 && ((shape[0] == 1 && !ppm) || (shape[0] == 3 && !pgm));
      if (!fits || samples != 1 || paths.size() != 1)
        throw UsageError("--output", "",
                         std::string("one picture of [") +
                             (png   ? "1 or 3"
                              : ppm ? "3"
                                    : "1") +
                             ",height,width] for a " + paths[0].substr(paths[0].size() - 3) + " file",
                         std::to_string(samples) + " samples of " + describe(shape));
      picture_ = paths[0];
      return;
    }
    for (std::size_t t = 0; t < paths.size(); ++t) {
      Dims shape = description_.outputs[t].shape;
      if (description_.outputs[t].batched) shape[0] = samples;
      sample_bytes_.push_back(description_.outputs[t].sample_bytes());
      writers_.push_back(std::make_unique<NpyWriter>(paths[t], description_.outputs[t].dtype, shape));
    }
  }

  void write_picture(const Batch& outputs) const {
    const TensorDescription& tensor = description_.outputs[0];
    const Dims shape = tensor.sample_shape();
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count_of(shape)));
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const double x = number_at(tensor.dtype, outputs.row(0, 0), static_cast<std::int64_t>(i)) *
                       (is_floating(tensor.dtype) ? 255 : 1);
      pixels[i] = x > 0 ? static_cast<std::uint8_t>(std::min(x + 0.5, 255.0)) : std::uint8_t{0};  // NaN becomes black
    }
    write_image(picture_, pixels.data(), shape[0], shape[1], shape[2]);
  }

  void sample(const std::byte* data, std::int64_t index) {
    const bool shown = prints_ && (options_.show == 0 || index < options_.show);
    if (!shown && labels_.empty()) return;
    const DType dtype = description_.outputs[0].dtype;
    for (std::int64_t i = 0; i < scores_; ++i) row_[static_cast<std::size_t>(i)] = number_at(dtype, data, i);
    if (!classifies_) {
      if (!description_.outputs[0].batched && index != 0) return;
      std::printf("%lld:", static_cast<long long>(index));
      for (std::int64_t i = 0; i < std::min<std::int64_t>(scores_, 8); ++i)
        std::printf(" %.6g", row_[static_cast<std::size_t>(i)]);
      std::printf(scores_ > 8 ? " ... (%lld numbers)\n" : "\n", static_cast<long long>(scores_));
      return;
    }
    std::int64_t best[kMaxTopk];
    const std::int64_t found = topk(row_.data(), scores_, std::max<std::int64_t>(options_.topk, 1), best);
    if (!labels_.empty() && labels_[static_cast<std::size_t>(index)] == best[0]) ++correct_;
    if (!shown) return;
    double sum = 0;
    for (const double x : row_) sum += std::exp(x - row_[static_cast<std::size_t>(best[0])]);
    std::printf("%lld:", static_cast<long long>(index));
    for (std::int64_t k = 0; k < std::min(found, options_.topk); ++k) {
      const double score = row_[static_cast<std::size_t>(best[k])];
      std::printf("%s %lld", k == 0 ? "" : ",", static_cast<long long>(best[k]));
      if (!names_.empty()) std::printf(" %s", names_[static_cast<std::size_t>(best[k])].c_str());
      std::printf(options_.softmax ? " (%.4f)" : " (%.4g)",
                  options_.softmax ? std::exp(score - row_[static_cast<std::size_t>(best[0])]) / sum : score);
    }
    std::printf("\n");
  }

  const InferenceDescription& description_;
  const Options& options_;
  std::int64_t scores_ = 0, correct_ = 0;
  bool classifies_ = false, prints_ = true;
  std::vector<double> row_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> labels_;
  std::vector<std::unique_ptr<NpyWriter>> writers_;
  std::vector<std::size_t> sample_bytes_;  ///< of what each writer takes
  std::string picture_;
};

/// What tells a file from others that were trained or cut otherwise: its size, and FNV-1a of its beginning, which has
/// the names and shapes, and of 4 KiB at each 256th of it. Weights of gigabytes are not read twice.
std::string fingerprint_of(const std::string& path) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::size_t from, std::size_t count) {
    for (const std::byte b : bytes.subspan(from, std::min(count, bytes.size() - from)))
      hash = (hash ^ static_cast<std::uint64_t>(b)) * 0x100000001b3;
  };
  constexpr std::size_t kPieces = 256, kHeader = std::size_t{1} << 20, kPiece = 4096;
  add(0, kHeader);
  for (std::size_t piece = 1; piece < kPieces; ++piece) add(bytes.size() / kPieces * piece, kPiece);
  char text[80];
  std::snprintf(text, sizeof text, "%llu bytes, FNV-1a of some %016llx", static_cast<unsigned long long>(bytes.size()),
                static_cast<unsigned long long>(hash));
  return text;
}

void start(InferenceModel& model, const Options& options, bool weights_needed) {
  const std::string path = find_beside_program(options.weights);
  if (path.empty() && weights_needed) {
    throw Error("--weights", "",
                std::string("a file ") + printable(options.weights) +
                    " beside the program, in the folder above it, in share/ there, or in this one",
                "none");
  }
  if (InferenceRanks* const ranks = model.ranks(); ranks != nullptr)
    ranks->require_same("the weights", path.empty() ? "none" : fingerprint_of(path));
  model.start(options.execution.number(), path);
  if (options.execution.no_cuda_graph) model.use_cuda_graph(false);
}

/// What is neither of samples nor shared by all of them is a whole call's: a sum over the batch, or rows in another
/// order. One call gives it, in its true size; an Error where more are needed, or a fixed batch would be filled up, for
/// an output that is written or printed.
void fit_to_call(InferenceDescription& description, const Options& options, const Dataset& data,
                 const std::vector<std::int64_t>& sizes) {
  const std::int64_t n = data.size();
  const bool fits = description.batch_is_symbolic ? n <= options.batch : n == options.batch;
  const bool all = options.output.find(',') != std::string::npos;
  for (std::size_t t = 0; t < description.outputs.size(); ++t) {
    TensorDescription& output = description.outputs[t];
    for (const ComputedDimension& d : output.computed) {
      const bool is_all = description.batch_is_symbolic && n <= options.batch;
      output.shape[d.dimension] = d.size(is_all ? n : options.batch, sizes.data());
    }
    if (output.batched || output.shared) continue;
    if (!fits && (t == 0 || all)) {
      throw Error(data.path(), std::string("output \"") + output.name + "\" " + output.type(),
                  std::string(description.batch_is_symbolic ? "at most " : "exactly ") + std::to_string(options.batch) +
                      " samples, those of one call, whose numbers these are: dimension 0 does not count samples",
                  std::to_string(n));
    }
    if (fits && description.batch_is_symbolic)
      for (const BatchDimension& d : output.batch_dimensions) output.shape[d.dimension] = d.coefficient * n + d.offset;
  }
}

/// The first rank's inputs for the others, those that all samples share with the first call.
void share_inputs(InferenceRanks& ranks, const std::vector<TensorDescription>& inputs, const Batch& batch,
                  std::int64_t rows, bool is_first_call) {
  for (std::size_t t = 0; t < inputs.size(); ++t)
    if (inputs[t].batched || is_first_call)
      ranks.broadcast(batch.row(t, 0),
                      inputs[t].sample_bytes() * static_cast<std::size_t>(inputs[t].batched ? rows : 1));
}

/// What ranks besides the first do, which reads the samples and writes the results: the same calls.
void follow(InferenceModel& model, InferenceRanks& ranks, const Options& options, bool weights_needed) {
  InferenceDescription description = model.description();
  start(model, options, weights_needed);
  std::vector<std::int64_t> sizes(description.symbols.size());
  ranks.broadcast(sizes.data(), sizes.size() * sizeof(std::int64_t));
  description.inputs = with_sizes(description.inputs, sizes);
  description.outputs = with_sizes(description.outputs, sizes);
  model.resize(sizes.data());
  const Batch inputs(description.inputs, options.batch), outputs(description.outputs, options.batch);
  for (bool is_first_call = true;; is_first_call = false) {
    std::int64_t rows = 0;
    ranks.broadcast(&rows, sizeof rows);
    if (rows == 0) return;
    share_inputs(ranks, description.inputs, inputs, rows, is_first_call);
    model.forward(inputs.pointers(), rows, outputs.writable());
  }
}

void run(InferenceModel& model, const Options& options, bool weights_given) {
  const InferenceDescription& described = model.description();
  require_samples(described.inputs);
  InferenceRanks* const ranks = model.ranks();
  if (ranks != nullptr && !ranks->is_first())
    return follow(model, *ranks, options, weights_given || described.has_weights);
  const bool weights_needed = weights_given || described.has_weights;
  // A set for training and a set for testing: the network is tried on the latter.
  const bool test = has_test_split(options.data, described.inputs);
  const Dataset data = open_dataset(options.data, described.inputs, test ? Split::test : Split::train);
  std::vector<std::int64_t> sizes = sizes_in(data, described.inputs, described.symbols);
  InferenceDescription description = described;
  description.inputs = with_sizes(described.inputs, sizes);
  description.outputs = with_sizes(described.outputs, sizes);
  fit_to_call(description, options, data, sizes);
  const BatchSource source(data, description.inputs, options.normalization);
  start(model, options, weights_needed);
  if (ranks != nullptr) ranks->broadcast(sizes.data(), sizes.size() * sizeof(std::int64_t));
  model.resize(sizes.data());
  Batch inputs(description.inputs, options.batch), outputs(description.outputs, options.batch);
  Report report(description, options, data);
  source.fill_shared(inputs);
  const std::int64_t n = data.size();
  double seconds = 0;
  for (std::int64_t first = 0; first < n; first += options.batch) {
    const std::int64_t count = std::min(options.batch, n - first);
    std::int64_t rows = description.batch_is_symbolic ? count : options.batch;
    source.fill(inputs, rows, [&](std::int64_t i) { return first + i % count; });
    const Stopwatch watch;
    if (ranks != nullptr) {
      ranks->broadcast(&rows, sizeof rows);
      share_inputs(*ranks, description.inputs, inputs, rows, first == 0);
    }
    model.forward(inputs.pointers(), rows, outputs.writable());
    seconds += watch.seconds();
    report.take(outputs, first, count);
  }
  std::int64_t no_more = 0;
  if (ranks != nullptr) ranks->broadcast(&no_more, sizeof no_more);
  report.finish(n);
  flush_output();
  std::fprintf(stderr, "%lld samples in %.3f s (%.0f a second)\n", static_cast<long long>(n), seconds,
               static_cast<double>(n) / std::max(seconds, 1e-9));
}

void bench(InferenceModel& model, const Options& options, bool weights_given) {
  const InferenceDescription& description = model.description();
  start(model, options, weights_given);
  Batch inputs(description.inputs, options.batch), outputs(description.outputs, options.batch);
  inputs.randomize(description.inputs, options.seed);
  Timings timings(200'000);
  double first = 0;
  const Stopwatch total;
  // Two calls warm up; then at least five, and as many as the time allows.
  for (std::int64_t i = -2;; ++i) {
    bool goes_on = i < 5 || (total.seconds() < options.bench_seconds && !timings.full());
    if (InferenceRanks* const ranks = model.ranks()) ranks->broadcast(&goes_on, sizeof goes_on);  // clocks differ
    if (!goes_on) break;
    const Stopwatch watch;
    model.forward(inputs.pointers(), options.batch, outputs.writable());
    const double seconds = watch.seconds();
    if (i == -2) first = seconds;
    if (i >= 0) timings.add(seconds);
  }
  const Execution& execution = options.execution;
  if (!options.json) {
    const std::string where = place_of(execution.on_device, execution.number(), 0, 1);
    std::printf("%s, batch %lld, %s: median %.5f ms, minimum %.5f ms a call, of %zu calls\n", description.name,
                static_cast<long long>(options.batch), where.c_str(), timings.median() * 1e3, timings.minimum() * 1e3,
                timings.count());
    flush_output();
    return;
  }
  JsonWriter json;
  json.begin_object()
      .key("peer")
      .value("graven")
      .key("workload")
      .value(description.name)
      .key(execution.name())
      .value(execution.number());
  json.key("batch")
      .value(options.batch)
      .key("runs")
      .value(timings.count())
      .key("median_ms")
      .value(timings.median() * 1e3);
  json.key("min_ms")
      .value(timings.minimum() * 1e3)
      .key("first_ms")
      .value(first * 1e3)
      .key("rss_mb")
      .value(peak_memory_mb())
      .end_object();
  std::printf("%s\n", json.text().c_str());
  flush_output();
}

/// On the first samples of the data, where there are some.
void profile(InferenceModel& model, const Options& options, bool weights_given) {
  InferenceRanks* const ranks = model.ranks();
  Profiler<InferenceModel> profiler(options.profile, ranks == nullptr ? -1 : ranks->rank());
  InferenceDescription description = model.description();
  std::vector<std::int64_t> sizes;
  std::optional<Dataset> data;
  if (!options.data.path.empty()) {
    if (ranks != nullptr)
      throw UsageError("--profile", "", "no --data, of several ranks: random numbers stand for it", "both");
    require_samples(description.inputs);
    const bool test = has_test_split(options.data, description.inputs);
    data.emplace(open_dataset(options.data, description.inputs, test ? Split::test : Split::train));
    sizes = sizes_in(*data, description.inputs, description.symbols);
    description.inputs = with_sizes(description.inputs, sizes);
    description.outputs = with_sizes(description.outputs, sizes);
  }
  std::optional<BatchSource> source;
  if (data) source.emplace(*data, description.inputs, options.normalization);
  start(model, options, weights_given);
  Batch inputs(description.inputs, options.batch), outputs(description.outputs, options.batch);
  std::int64_t rows = options.batch;
  if (data) {
    model.resize(sizes.data());
    const std::int64_t count = std::min(options.batch, data->size());
    if (description.batch_is_symbolic) rows = count;
    source->fill_shared(inputs);
    source->fill(inputs, rows, [&](std::int64_t i) { return i % count; });
  } else {
    inputs.randomize(description.inputs, options.seed);
  }
  const Execution& execution = options.execution;
  const int rank = ranks == nullptr ? 0 : ranks->rank(), size = ranks == nullptr ? 1 : ranks->size();
  profiler.begin(model, place_of(execution.on_device, execution.number(), rank, size), rows, sizes);
  while (!profiler.is_done()) {
    profiler.measure([&] { model.forward(inputs.pointers(), rows, outputs.writable()); }, rows);
    profiler.end_step();
  }
  profiler.finish();
}

}  // namespace

int infer_main(int argc, char** argv, InferenceModel& model, const InferDefaults& defaults) {
  fill_standard_streams();
  const InferenceDescription& description = model.description();
  Options o;
  o.weights = defaults.weights;
  o.data.format = defaults.data_format;
  o.topk = defaults.topk;
  o.execution = {.on_device = description.on_device, .threads = defaults.threads};
  o.normalization = {defaults.mean, defaults.std, false};
  o.batch = description.batch;
  std::string batch_text = description.batch_is_symbolic ? "any batch up to " : "a batch of ";
  batch_text += std::to_string(description.batch) + ":";

  Arguments a(description.name, std::string("Runs ") + description.name + ".\n\n" +
                                    describe_tensors(("Inputs, for " + batch_text).c_str(), description.inputs) + "\n" +
                                    describe_tensors("Outputs:", description.outputs));
  a.section("Data");
  a.text("data", o.data.path, "PATH",
         "samples: a file (npy, npz, IDX, CIFAR, PNG, PGM, PPM, safetensors, raw), one for each input with commas "
         "between, or a folder of them");
  a.text("data-format", o.data.format, "FORMAT",
         "auto, idx, cifar10, cifar100, npy, npz, safetensors, raw, text or tokens");
  a.numbers("mean", o.normalization.mean, "X[,X...]",
            "subtracted from 8-bit images, which are x / 255; one number or one a channel");
  a.numbers("std", o.normalization.std, "X[,X...]", "what they are then divided by");
  a.section("Results");
  a.text("output", o.output, "FILE",
         "write the outputs as npy (one file an output, commas between), or one picture as .png, .ppm or .pgm (numbers "
         "from 0 to 1), instead of "
         "printing");
  a.integer("topk", o.topk, 0, kMaxTopk, "K", "print the K classes with the largest scores");
  a.flag("softmax", o.softmax, "print probabilities instead of the scores themselves");
  a.text("names", o.names, "FILE", "the classes' names, one a line");
  a.text("labels", o.labels, "FILE", "true classes (IDX or npy), for the accuracy; a folder's own labels are found");
  a.integer("show", o.show, 0, INT64_MAX, "N", "samples to print; 0: all");
  a.section("Running");
  a.text("weights", o.weights, "FILE",
         "a bare name is looked for beside the program, in the folder above it, in share/ there, and here");
  a.integer("batch", o.batch, description.batch_is_symbolic ? 1 : description.batch, description.batch, "N",
            "samples a call, at the most");
  o.execution.add_option(a);
  if (description.tensor_ranks > 1)
    a.number("rank-timeout", o.rank_timeout, 1, 1e9, "S",
             "seconds that a rank waits for the others before it gives up");
  a.optional_text("bench", o.bench, "5", "SECONDS", "time calls on random data for so long (5 seconds) and stop");
  a.flag("json", o.json, "print the benchmark as one JSON line");
  o.profile.add_option(a, "calls", "on the first samples of --data, or on random data where there is none");
  InferenceRanks* ranks = nullptr;
  const auto fail = [&](const std::exception& error, int status) {
    std::fflush(stdout);
    if (ranks != nullptr) return ranks->fail(error, status);
    std::fprintf(stderr, "error: %s\n", error.what());
    return status;
  };
  try {
    ranks = model.ranks();
    if (ranks != nullptr && !ranks->is_first() && std::freopen("/dev/null", "w", stdout) == nullptr)
      throw system_error("/dev/null", "open");
    if (!a.parse(argc, argv)) return 0;
    if (ranks != nullptr) {
      ranks->set_time_limit(o.rank_timeout);
      if (ranks->size() != description.tensor_ranks)
        throw Error("ranks", "",
                    std::to_string(description.tensor_ranks) +
                        " ranks, which have the tensors of the model in parts (enable_tensor_parallel)",
                    std::to_string(ranks->size()));
      // Each rank has a device of its own, where nobody says which.
      if (description.on_device)
        if (const int place = ranks->place_on_machine(); !a.given("device"))
          o.execution.device = place % std::max(model.devices(), 1);
      ranks->require_same("the program",
                          std::string(description.generator) + ", graph " + std::string(description.graph_hash));
      ranks->require_same("the options",
                          std::string(a.given("bench") ? "--bench" : "--data") + ", batch " + std::to_string(o.batch));
    }
    o.profile.refuse(a, {"bench", "json", "output", "topk", "softmax", "names", "labels", "show"});
    o.normalization.required = a.given("mean") || a.given("std");
    if (a.given("profile")) {
      profile(model, o, a.given("weights"));
    } else if (a.given("bench")) {
      char* end = nullptr;
      o.bench_seconds = std::strtod(o.bench.c_str(), &end);
      if (o.bench.empty() || *end != '\0' || !(o.bench_seconds >= 0 && o.bench_seconds <= 1e6))
        throw UsageError("--bench", "", "a number of seconds from 0 to 1000000", printable(o.bench));
      bench(model, o, a.given("weights"));
    } else {
      if (o.data.path.empty())
        throw UsageError("--data", "", "samples to run on (or --bench; --help lists the options)", "nothing");
      run(model, o, a.given("weights"));
    }
    return 0;
  } catch (const UsageError& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}

}  // namespace graven::runtime
