// The inference program: everything of it but the model. main.cpp of an emitted project wraps its model and hands it
// over:
//
//   class Servable : public InferenceModel {
//    public:
//     const InferenceDescription& description() const override { return kDescription; }
//     void start(int threads, const std::string& weights) override {
//       model_ = std::make_unique<Model>(weights, threads);
//     }
//     void forward(const void* const* inputs, std::int64_t batch, void* const* outputs) override {
//       model_->forward(static_cast<const float*>(inputs[0]), batch, static_cast<float*>(outputs[0]));
//     }
//   };
//
//   int main(int argc, char** argv) {
//     Servable model;
//     return graven::runtime::infer_main(argc, argv, model, {});
//   }
//
//   $ lenet --data t10k-images-idx3-ubyte.gz --topk 3 --labels names.txt
//   $ lenet --data images.npy --output logits.npy
//   $ lenet --bench
//
// Samples are read, cut into batches (any batch up to the maximum; a model with a fixed batch gets its last one filled
// up, and the surplus outputs are dropped), and run. An output that has no rows of samples is a whole call's: it needs
// all samples in one call, and a fixed batch that they fill. Nothing allocates between the first call of forward() and
// the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "profile.h"
#include "tensor.h"

namespace graven::runtime {

struct InferenceDescription {
  const char* name = "model";  ///< "lenet"
  std::vector<TensorDescription> inputs{}, outputs{};
  std::vector<SymbolDescription> symbols{};  ///< besides the batch: the files say what they stand for
  std::int64_t batch = 1;                    ///< samples of a call at the most
  bool batch_is_symbolic = false;            ///< any batch from 1 to `batch` will do; otherwise it is exactly `batch`
  bool has_weights = true;                   ///< results need a weights file; a benchmark does without
  const char* graph_hash = "";
  const char* generator = "";  ///< "graven 0.1.0"
  bool on_device = false;      ///< it computes on a device: --device chooses which, and there is no --threads
  int tensor_ranks = 1;        ///< processes that have the tensors in parts
};

/// The processes that have the tensors of one model in parts (runtime/ranks.h): each makes the same calls.
class InferenceRanks {
 public:
  virtual ~InferenceRanks() = default;
  virtual bool is_first() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// How many before this one run on the same machine.
  virtual int place_on_machine() const = 0;
  virtual void set_time_limit(double seconds) = 0;
  /// The first one's bytes for everybody.
  virtual void broadcast(void* data, std::size_t bytes) = 0;
  /// An Error on the ranks where the text of `what` is not the first one's.
  virtual void require_same(const char* what, const std::string& text) = 0;
  /// Prints the error as one line and ends all of them; alone it returns the status.
  virtual int fail(const std::exception& error, int status) = 0;
};

class InferenceModel {
 public:
  virtual ~InferenceModel() = default;
  virtual const InferenceDescription& description() const = 0;
  /// Nullptr: one process has all of it.
  virtual InferenceRanks* ranks() { return nullptr; }
  /// Allocates everything and loads the weights, all or nothing. `threads` is 1 or more; of a model on a device it is
  /// the device's number, from 0. `weights` is a path, empty when the program found no file and none was asked for: a
  /// model without weights, or a benchmark, whose weights are then all zero.
  virtual void start(int threads, const std::string& weights) = 0;
  /// Called after start(), of a model on a device alone: whether it records its calls as a CUDA graph, as it does.
  virtual void use_cuda_graph(bool /* on */) {}
  /// How many devices there are for it.
  virtual int devices() const { return 1; }
  /// What the symbols of the description stand for in the calls that follow; the largest before.
  virtual void resize(const std::int64_t* /* sizes */) {}
  /// Inputs and outputs in the order of the description, 64-byte aligned, `batch` samples each.
  virtual void forward(const void* const* inputs, std::int64_t batch, void* const* outputs) = 0;
  /// Measures each kernel's call in the calls from here on, or no longer.
  virtual void measure_calls(bool /* on */) {}
  /// Those since it was last asked.
  virtual std::vector<ProfiledCall> call_times() { return {}; }
  /// What the machine reaches, measured now.
  virtual Limits machine_limits() { return {}; }
};

/// Defaults of the options, chosen when the project was emitted.
struct InferDefaults {
  /// --weights, looked for beside the program, above it (also in share/PROGRAM), and here.
  std::string weights = "weights.safetensors";
  std::string data_format = "auto";  ///< --data-format
  std::int64_t topk = 5;             ///< --topk
  std::int64_t threads = 0;          ///< --threads; 0: one for each processor.
  std::vector<double> mean{},
      std{};  ///< --mean, --std: of 8-bit images after scaling to [0, 1], one number or one a channel
};

/// Reads the options, runs, and returns the exit status: 0 done, 1 error (on stderr), 2 wrong options.
int infer_main(int argc, char** argv, InferenceModel& model, const InferDefaults& defaults);

}  // namespace graven::runtime
