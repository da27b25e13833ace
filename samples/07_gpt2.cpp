// Sample 7: a small GPT-2 that learns a text byte by byte. Emits a project that trains it and one that computes its
// logits; samples/07_generate links the latter, and lets it write.
//
//   build/samples/07_gpt2 --out OUTPUT_DIRECTORY
//   cmake -S OUTPUT_DIRECTORY/gpt2_train -B OUTPUT_DIRECTORY/gpt2_train/build
//   cmake --build OUTPUT_DIRECTORY/gpt2_train/build -j2
//   OUTPUT_DIRECTORY/gpt2_train/build/gpt2_train --data README.md --data-format text --epochs 40 --out run
//   cmake -S samples/07_generate -B generate -DGPT2_PROJECT=OUTPUT_DIRECTORY/gpt2 && cmake --build generate -j2
//   generate/generate --weights run/latest/weights.safetensors --prompt "Graven " --temperature 0.8 --seed 1
//
// A token is a byte, so any file will do; token files of llm.c are read too. Weights that transformers' GPT2LMHeadModel
// of these sizes wrote may be loaded first: --weights model.safetensors.
#include <graven/graven.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

using namespace graven;

constexpr std::int64_t kBatch = 16, kLength = 64, kVocabulary = 256;

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
};

struct InferGpt2 : nn::Graph<InferGpt2> {
  models::GPT2LMHeadModel model;

  explicit InferGpt2(models::GPT2LMHeadModel trained) : model(child("model", trained)) {}  // shares the parameters

  Tensor build(Tensor tokens) { return model(tokens); }
};

int main(int argc, char** argv) try {
  std::filesystem::path output = ".";
  std::string weights;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--out" && name != "--weights"))
      throw UserError("usage: 07_gpt2 [--out OUTPUT_DIRECTORY] [--weights FILE]");
    if (name == "--out")
      output = argv[i + 1];
    else
      weights = argv[i + 1];
  }
  manual_seed(0);
  models::GPT2LMHeadModel model(
      {.n_layer = 2, .n_head = 4, .n_embd = 128, .n_positions = kLength, .vocab_size = kVocabulary});
  if (!weights.empty()) model.load_pretrained(nn::load(weights));

  TrainGpt2 train(model);
  train.compile(spec({kBatch, kLength}, i64, "tokens"),
                spec({kBatch, kLength}, i64, "targets"));  // records build(); computes nothing
  codegen::emit(train, output / "gpt2_train", {.name = "gpt2_train", .epochs = 40});

  model.eval();
  InferGpt2 infer(model);
  infer.compile(spec({1, kLength}, i64, "tokens"));
  codegen::emit(infer, output / "gpt2", {.name = "gpt2"});

  std::cout << "emitted " << (output / "gpt2_train").string() << " and " << (output / "gpt2").string() << "\n";
  return 0;
} catch (const UserError& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
