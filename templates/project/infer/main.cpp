@{ banner }@
// The program: reads images or arrays, runs the model, writes or prints results. See --help.
#include <memory>
#include <vector>

#include "model.h"
#include "runtime/infer.h"
{% if tensor_ranks > 1 %}
{% if on_device %}
#include "runtime/rank_sockets.h"
{% endif %}
#include "runtime/ranks.h"
{% endif %}

namespace runtime = graven::runtime;

namespace {

#define GRAVEN_TEXT_OF(x) #x
#define GRAVEN_TEXT(x) GRAVEN_TEXT_OF(x)
/// SHA-256 of graph.json: what follows "graph_" in model.h.
constexpr const char* kGraphHash = &GRAVEN_TEXT(@{ constant_prefix }@_GRAPH)[6];

using graven::runtime::DType;

{% if tensor_ranks > 1 %}
/// Those that have the tensors in parts.
class AllRanks final : public runtime::InferenceRanks {
 public:
  bool is_first() const override { return ranks_.is_first(); }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int place_on_machine() const override { return ranks_.place_on_machine(); }
  void set_time_limit(double seconds) override { ranks_.set_time_limit(seconds); }
  void broadcast(void* data, std::size_t bytes) override { ranks_.broadcast(data, bytes); }
  void require_same(const char* what, const std::string& text) override { ranks_.require_same(what, text); }
  int fail(const std::exception& error, int status) override { return ranks_.fail(error, status); }

 private:
  runtime::Ranks& ranks_ = runtime::Ranks::all();
};

{% endif %}
class Program final : public runtime::InferenceModel {
 public:
{% if tensor_ranks > 1 %}
  runtime::InferenceRanks* ranks() override {
    if (!ranks_) ranks_ = std::make_unique<AllRanks>();
    return ranks_.get();
  }
{% endif %}
  const runtime::InferenceDescription& description() const override {
    static const runtime::InferenceDescription text{
        .name = @{ name_literal }@,
        .inputs = {
{% for input in inputs %}
            {.name = "@{ input.member }@", .dtype = DType::@{ input.element }@,
             .shape = {@{ input.maxima }@}, .batched = @{ input.batched }@@{ input.symbolic }@},
{% endfor %}
        },
        .outputs = {
{% for output in outputs %}
            {.name = "@{ output.member }@", .dtype = DType::@{ output.element }@,
             .shape = {@{ output.maxima }@}, .batched = @{ output.batched }@@{ output.symbolic }@},
{% endfor %}
        },
{% if length(other_symbols) > 0 %}
        .symbols = {@{ described_symbols }@},
{% endif %}
        .batch = @{ batch }@,
        .batch_is_symbolic = @{ batch_is_symbolic }@,
{% if not has_weights %}
        .has_weights = false,
{% endif %}
        .graph_hash = kGraphHash,
        .generator = "@{ generator }@",
{% if on_device %}
        .on_device = true,
{% endif %}
{% if tensor_ranks > 1 %}
        .tensor_ranks = @{ tensor_ranks }@,
{% endif %}
    };
    return text;
  }
{% if on_device %}
  void start(int device, const std::string& weights) override {
    model_ =
        std::make_unique<@{ namespace }@::Model>(std::make_shared<const @{ namespace }@::Weights>(weights, device));
  }
  void use_cuda_graph(bool on) override { model_->use_cuda_graph(on); }
{% if tensor_ranks > 1 %}
  int devices() const override { return @{ namespace }@::Model::device_count(); }
{% endif %}
{% else %}
  void start(int threads, const std::string& weights) override {
    model_ =
        std::make_unique<@{ namespace }@::Model>(std::make_shared<const @{ namespace }@::Weights>(weights), threads);
  }
{% endif %}
{% if length(other_symbols) > 0 %}
  void resize(const std::int64_t* sizes) override {
    for (std::size_t s = 0; s < @{ length(other_symbols) }@; ++s) sizes_[s] = sizes[s];
  }
{% endif %}
  void forward(const void* const* inputs, std::int64_t@{ batch_if_passed }@, void* const* outputs) override {
    model_->forward(@{ erased_arguments }@, @{ erased_outputs }@);
  }
@{ measuring_overrides }@

 private:
{% if tensor_ranks > 1 %}
  std::unique_ptr<AllRanks> ranks_;
{% endif %}
  std::unique_ptr<@{ namespace }@::Model> model_;
{% if length(other_symbols) > 0 %}
  std::int64_t sizes_[@{ length(other_symbols) }@] = {@{ largest_sizes }@};
{% endif %}
};

}  // namespace

int main(int argc, char** argv) {
{% if has_ranks and on_device %}
  runtime::Ranks::use(runtime::connect_by_sockets);
{% endif %}
  Program program;
  return runtime::infer_main(
      argc, argv, program,
      {.weights = "weights.safetensors", @{ threads_default }@.mean = {@{ mean }@}, .std = {@{ std }@}});
}
