// Sample 9: a GPT-2 whose training step is larger than one processor likes. Emits the network three times:
//
//   gpt2_bf16    for one machine: products in bf16, a step of eight parts of a batch, and a budget for the memory of
//                its activations, of which what does not fit is computed again
//   gpt2_ranks   for several, by MPI: each rank has its share of the data, and its shards of the gradients and of the
//                optimizer's states (ZeRO, stage 2)
//   gpt2_stages  for two: each rank has half of the layers, and passes on what they make of a part of the batch
//
//   build/samples/09_gpt2_at_scale --out OUTPUT_DIRECTORY [--layers 12 --width 768 --budget 160]
//   cd OUTPUT_DIRECTORY
//   cmake -S gpt2_bf16 -B gpt2_bf16/build && cmake --build gpt2_bf16/build -j2
//   gpt2_bf16/build/gpt2_bf16 --data README.md --data-format text --epochs 4 --out run_bf16
//   cmake -S gpt2_ranks -B gpt2_ranks/build -DGRAVEN_MPI=ON && cmake --build gpt2_ranks/build -j2
//   mpirun -n 4 gpt2_ranks/build/gpt2_ranks --data README.md --data-format text --epochs 4 --out run_ranks
//   cmake -S gpt2_stages -B gpt2_stages/build -DGRAVEN_MPI=ON && cmake --build gpt2_stages/build -j2
//   mpirun -n 2 gpt2_stages/build/gpt2_stages --data README.md --data-format text --epochs 4 --out run_stages
//
// Twelve layers of width 768 are the layers of GPT-2 124M; without these options it is small enough to try. The budget
// is in MiB; one that cannot be met is an error that names the least. `graven show -f plan gpt2_bf16` says what is
// kept. The programs take any file, byte by byte, and go on with --resume: those of several ranks alone, too, and
// gpt2_ranks with any number that divides the batches of its step.
#include <graven/graven.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

using namespace graven;

constexpr std::int64_t kBatch = 4, kLength = 64, kVocabulary = 256, kHeadWidth = 64;

struct TrainGpt2 : nn::Graph<TrainGpt2> {
  models::GPT2LMHeadModel model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::AdamW optimizer{model.parameters(),
                         {.lr = 1e-3, .betas = {0.9, 0.95}, .weight_decay = 0.1, .clip_grad_max_norm = 1}};

  explicit TrainGpt2(models::GPT2LMHeadModel network) : model(child("model", network)) { add_optimizer(optimizer); }

  /// Both i64[batch,length]; the target of a token is the one that follows it.
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor loss = loss_fn(model(tokens).flatten(0, 1), targets.flatten());
    loss.backward();
    return loss;
  }

  /// Of so many parts of kBatch texts each.
  codegen::EmitReport emit(const std::filesystem::path& folder, const std::string& name, std::int64_t parts) {
    set_gradient_accumulation_steps(parts);
    compile(spec({parts * kBatch, kLength}, i64, "tokens"), spec({parts * kBatch, kLength}, i64, "targets"));
    return codegen::emit(*this, folder / name, {.name = name, .epochs = 4});
  }
};

std::int64_t number(std::string_view text) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > 100'000)
    throw UserError("expected a number from 1 to 100000, found " + std::string(text));
  return n;
}

int main(int argc, char** argv) try {
  std::filesystem::path output = ".";
  std::int64_t layers = 4, width = 128, budget = 5;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--out" && name != "--layers" && name != "--width" && name != "--budget"))
      throw UserError("usage: 09_gpt2_at_scale [--out OUTPUT_DIRECTORY] [--layers N] [--width N] [--budget MIB]");
    if (name == "--out")
      output = argv[i + 1];
    else
      (name == "--layers" ? layers : name == "--width" ? width : budget) = number(argv[i + 1]);
  }
  if (layers < 2) throw UserError("--layers: expected 2 or more, one for each stage");
  if (width % kHeadWidth != 0) throw UserError("--width: expected a multiple of 64, the width of a head");
  manual_seed(0);
  const models::GPT2LMHeadModel model({.n_layer = layers,
                                       .n_head = width / kHeadWidth,
                                       .n_embd = width,
                                       .n_positions = kLength,
                                       .vocab_size = kVocabulary});

  TrainGpt2 one(model);
  one.enable_amp();
  one.memory_budget(budget << 20);
  const codegen::EmitReport report = one.emit(output, "gpt2_bf16", 8);

  TrainGpt2 ranks(model);
  ranks.enable_zero(2);
  ranks.emit(output, "gpt2_ranks", 2);

  // The second half of the blocks, and what is behind them; the table of tokens both stages read.
  model.set_stage(0);
  for (std::size_t i = static_cast<std::size_t>(layers) / 2; i < static_cast<std::size_t>(layers); ++i)
    model.transformer.h[i].set_stage(1);
  model.transformer.ln_f.set_stage(1);
  model.lm_head.set_stage(1);
  TrainGpt2 stages(model);
  stages.emit(output, "gpt2_stages", 8);

  std::cout << "emitted gpt2_bf16, whose activations take " << report.arena_bytes << " bytes, gpt2_ranks and "
            << "gpt2_stages in " << output.string() << "\n";
  return 0;
} catch (const UserError& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
