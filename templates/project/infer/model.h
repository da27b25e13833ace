@{ banner }@
// @{ name }@: inference. Weights holds what was learned, Model the memory of one caller; many Models may share one
// Weights.
//
{% if on_device %}
//   auto weights = std::make_shared<const @{ namespace }@::Weights>("weights.safetensors", /*device=*/0);
{% else %}
//   auto weights = std::make_shared<const @{ namespace }@::Weights>("weights.safetensors");
{% endif %}
//   @{ namespace }@::Model model(weights);
//   model.forward(@{ argument_names }@, @{ output_names }@);
//
{% for input in inputs %}
//   input   @{ input.name_padded }@ @{ input.type }@
{% endfor %}
{% for output in outputs %}
//   output  @{ output.name_padded }@ @{ output.type }@
{% endfor %}
//
// Inputs and outputs are row-major and must not overlap. forward() allocates nothing. Each thread needs a Model of its
// own; Weights may be shared by all, and replaced in a Model at any time. Errors arrive as std::runtime_error. A C
// interface follows at the end; it turns errors into codes.
{% if on_device %}
// Every call leaves the thread's current CUDA device as it was. Inputs and outputs may lie on the device; enqueue()
// does not wait, and use_stream() chooses the stream.
{% if length(symbols) > 0 %}
// Sizes below the largest have the libraries' descriptors made at their first forward(), and memory, should a library
// want more scratch for less.
{% endif %}
{% endif %}
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SHA-256 of graph.json, which checkpoints and saved weights name. */
#define @{ constant_prefix }@_GRAPH graph_@{ graph_hash }@

/* What a library shows of the project, where it is compiled; nothing to whoever uses it. */
#ifndef GRAVEN_API
#define GRAVEN_API
#endif

{% if on_device %}
struct CUstream_st; /* what a cudaStream_t points to */

{% endif %}
#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace @{ namespace }@ {
// Of this graph: what a program makes of these types, inline or of a template, is another's for another version.
inline namespace @{ constant_prefix }@_GRAPH {
{% for symbol in symbols %}

/// The largest @{ symbol.identifier }@; any from @{ symbol.given_least }@ on will do.
constexpr std::int64_t maximum_@{ symbol.identifier }@ = @{ symbol.maximum }@;
{% endfor %}

/// Parameters, and what is computed from them once. Never changes after it was made.
class GRAVEN_API Weights {
 public:
{% if on_device %}
  /// Reads a safetensors file, all or nothing, into the memory of this CUDA device. An empty path leaves all weights
  /// zero.
  explicit Weights(const std::string& path, int device = 0);
{% else %}
  /// Reads a safetensors file, all or nothing. An empty path leaves all weights zero.
  explicit Weights(const std::string& path);
{% endif %}
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

 private:
  friend class Model;
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

@{ call_times }@
class GRAVEN_API Model {
 public:
{% if tensor_ranks > 1 %}
{% if on_device %}
  /// A process is one of @{ tensor_ranks }@ ranks, started by mpirun, torchrun or srun, which make the same calls, of
  /// Weights, too, each on a device of its own: each has its part of each tensor. One that is none is an error; the
  /// self-test, which sets this, is the first rank, and takes what the others have for zeros.
{% else %}
  /// A process is one of @{ tensor_ranks }@ ranks, started by mpirun, which make the same calls, of Weights, too: each
  /// has its part of each tensor. One that is none is an error; the self-test, which sets this, is the first rank, and
  /// takes what the others have for zeros.
{% endif %}
  static inline bool is_first_rank_alone = false;
{% endif %}
{% if on_device %}
  /// On the device of the weights.
  explicit Model(std::shared_ptr<const Weights> weights);
{% else %}
  /// Runs on `threads` threads; 0: every processor.
  explicit Model(std::shared_ptr<const Weights> weights, int threads = 1);
{% endif %}
  ~Model();
  /// What was moved from can only be assigned to or destroyed.
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

{% if on_device %}
  /// Each of these lies on the host or on the device. Waits for the outputs.
  void forward(@{ parameters }@, @{ output_parameters }@);
  /// The same, but returns as soon as the stream has been given the work: it is done behind what the stream was given
  /// before. Until wait(), or until the caller's stream has come there, inputs stay as they are, and outputs are
  /// undefined. Memory of the host that is not page-locked makes this wait for its copies.
  void enqueue(@{ parameters }@, @{ output_parameters }@);
  /// Waits for what was enqueued; here the error arrives where a number in it was out of range.
  void wait();
  /// Has the device's work go to the caller's stream, which is ordered with what else the caller gives it and must
  /// outlive the model, or the next use_stream(); nullptr: to one of the model's own, as at first. Waits for what was
  /// given to the one before.
  void use_stream(CUstream_st* stream);
{% else %}
  void forward(@{ parameters }@, @{ output_parameters }@);
{% endif %}
{% if on_device %}
  /// Uses other weights, which must lie on the same device, from the next forward() on.
{% else %}
  /// Uses other weights from the next forward() on.
{% endif %}
  void use(std::shared_ptr<const Weights> weights);
{% if on_device %}
  /// Whether calls are recorded as a CUDA graph when they are first made and replayed from then on, as they are unless
  /// this says otherwise; false gives them to the device one by one, for profilers and debuggers.
  void use_cuda_graph(bool on);
{% if tensor_ranks > 1 %}
  /// How many CUDA devices the process sees.
  static int device_count();
{% endif %}
  /// "cuda".
{% else %}
  /// The instruction-set level that was chosen.
{% endif %}
  const char* level() const;

@{ measuring_declarations }@

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace @{ constant_prefix }@_GRAPH
}  // namespace @{ namespace }@

extern "C" {
#endif

/* The C interface: 0 is success; otherwise @{ namespace }@_error() says what happened, in this thread. */
typedef struct @{ namespace }@_weights @{ namespace }@_weights;
typedef struct @{ namespace }@_model @{ namespace }@_model;
enum {
  @{ constant_prefix }@_OK = 0,
  @{ constant_prefix }@_ERROR = 1,       /* a file, a call out of its turn, whatever else */
  @{ constant_prefix }@_NO_MEMORY = 2,
  @{ constant_prefix }@_BAD_ARGUMENT = 3 /* a NULL, or a number that cannot be; nothing was changed */
};

GRAVEN_API int @{ namespace }@_load(const char* path{% if on_device %}, int device{% endif %},
                                    @{ namespace }@_weights** weights);
/* Models that use the weights keep them alive. */
GRAVEN_API void @{ namespace }@_unload(@{ namespace }@_weights* weights);
GRAVEN_API int @{ namespace }@_create(const @{ namespace }@_weights* weights,
{% if not on_device %}
                                      int threads,
{% endif %}
                                      @{ namespace }@_model** model);
GRAVEN_API void @{ namespace }@_destroy(@{ namespace }@_model* model);
GRAVEN_API int @{ namespace }@_use(@{ namespace }@_model* model, const @{ namespace }@_weights* weights);
GRAVEN_API int @{ namespace }@_forward(@{ namespace }@_model* model, @{ c_parameters }@, @{ c_output_parameters }@);
{% if on_device %}
/* As forward(), without waiting for the outputs; wait; the stream that the work goes to, NULL: the model's own. */
GRAVEN_API int @{ namespace }@_enqueue(@{ namespace }@_model* model, @{ c_parameters }@, @{ c_output_parameters }@);
GRAVEN_API int @{ namespace }@_wait(@{ namespace }@_model* model);
GRAVEN_API int @{ namespace }@_use_stream(@{ namespace }@_model* model, struct CUstream_st* stream);
{% endif %}
{% for symbol in symbols %}
/* The largest @{ symbol.identifier }@; any from @{ symbol.least }@ on will do. */
GRAVEN_API int64_t @{ namespace }@_maximum_@{ symbol.identifier }@(void);
{% endfor %}
GRAVEN_API const char* @{ namespace }@_error(void);

#ifdef __cplusplus
}
#endif
#undef GRAVEN_API
