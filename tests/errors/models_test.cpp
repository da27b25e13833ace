// Models that must fail. Each case is a user's mistake; tests/errors/models/<case>.txt is the text that it gets, whole.
// `test_errors --bless` writes the texts anew. "line +3" is the third line after the one with the case's name, so that
// the texts show whether the right line is blamed.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "tests/frontend/member_lines.h"
#include "tests/patterns.h"

namespace graven {

bool bless = false;

namespace {

namespace fs = std::filesystem;

struct Case {
  const char* name;
  int line;
  void (*mistake)();
};

/// Two images and their labels, in a folder of this process that goes away: ctest runs cases side by side.
class TemporaryImages {
 public:
  TemporaryImages() : path_(fs::temp_directory_path() / ("graven_models_test_images_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    const auto write = [&](const char* name, const std::string& text) {
      std::ofstream(path_ / name, std::ios::binary) << text;
    };
    write("train-images-idx3-ubyte", std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02", 16) + "aaaabbbb");
    write("train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x02", 8) + "\x01\x02");
  }
  TemporaryImages(const TemporaryImages&) = delete;
  TemporaryImages& operator=(const TemporaryImages&) = delete;
  ~TemporaryImages() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(4, 3));
  nn::Linear logits = child("logits", nn::Linear(3, 2));
  Tensor forward(Tensor x) { return logits(relu(hidden(x))); }
};

/// A training graph whose build() is given: shapes are the case's.
template <class Derived>
struct Train : nn::Graph<Derived> {
  Mlp model = this->child("model", Mlp());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
  Train() { this->add_optimizer(optimizer); }
};

Tensor parameter_tensor() { return ones({2, 2}).requires_grad_(); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      // ---- shapes and dtypes, at once ----
      {"linear_features", __LINE__,
       [] {
         Mlp model;
         model(zeros({2, 5}));
       }},
      {"matmul_shapes", __LINE__, [] { matmul(zeros({2, 3}), zeros({4, 5})); }},
      {"add_shapes", __LINE__, [] { zeros({2, 3}) + zeros({4}); }},
      {"reshape_count", __LINE__, [] { zeros({2, 3}).reshape({4, 2}); }},
      {"softmax_dimension", __LINE__, [] { zeros({2, 3}).softmax(2); }},
      {"cat_shapes", __LINE__, [] { cat({zeros({2, 3}), zeros({2, 4})}); }},
      {"conv_channels", __LINE__, [] { nn::Conv2d(3, 8, 3)(zeros({1, 4, 8, 8})); }},
      {"conv_kernel_too_large", __LINE__, [] { nn::Conv2d(3, 8, 5)(zeros({1, 3, 4, 4})); }},
      {"linear_of_integers", __LINE__, [] { nn::Linear(4, 3)(zeros({2, 4}, i64)); }},
      {"linear_of_doubles", __LINE__, [] { nn::Linear(4, 3)(zeros({2, 4}, f64)); }},
      {"labels_of_floats", __LINE__, [] { cross_entropy(zeros({2, 3}), zeros({2})); }},
      {"labels_count", __LINE__, [] { cross_entropy(zeros({2, 3}), zeros({3}, i64)); }},
      {"mean_of_integers", __LINE__, [] { zeros({3}, i64).mean(); }},
      {"lerp_of_integers", __LINE__, [] { lerp(zeros({3}, i64), ones({3}, i64), 0.5); }},
      {"huber_loss_of_bytes", __LINE__, [] { huber_loss(zeros({3}, u8), ones({3}, u8)); }},
      {"smooth_l1_loss_of_bytes", __LINE__, [] { smooth_l1_loss(zeros({3}, u8), ones({3}, u8)); }},
      {"multi_margin_loss_of_bytes", __LINE__, [] { multi_margin_loss(zeros({2, 3}, u8), zeros({2}, i64)); }},
      {"searchsorted_in_a_number", __LINE__, [] { searchsorted(tensor(1.0), tensor(2.0)); }},
      {"select_out_of_range", __LINE__, [] { zeros({3})[3]; }},
      {"undefined_tensor", __LINE__, [] { relu(Tensor()); }},
      {"undefined_operand", __LINE__, [] { (void)(zeros({2}) + Tensor()); }},
      {"undefined_labels", __LINE__, [] { cross_entropy(zeros({2, 3}), Tensor()); }},
      {"undefined_weight", __LINE__, [] { linear(zeros({2, 3}), Tensor()); }},
      {"undefined_in_a_list", __LINE__, [] { cat({zeros({2}), Tensor(), zeros({2})}); }},
      {"undefined_in_a_layer", __LINE__, [] { nn::Linear(4, 3)(Tensor()); }},
      {"undefined_in_a_graph", __LINE__,
       [] {
         struct Lacks : nn::Graph<Lacks> {
           Tensor build(Tensor x) { return mse_loss(x, Tensor()); }
         };
         Lacks().compile(spec({2}));
       }},
      {"set_grad_shape", __LINE__, [] { parameter_tensor().set_grad(zeros({3})); }},
      {"from_data_null", __LINE__, [] { from_data<float>(nullptr, {2}); }},
      {"from_data_overflow", __LINE__, [] { from_data<float>(nullptr, {std::int64_t{1} << 62}); }},
      {"from_bytes_size", __LINE__, [] { from_bytes("1234", 4, f64, {1}); }},
      {"item_of_many", __LINE__, [] { (void)zeros({2}).item<float>(); }},
      {"data_of_another_type", __LINE__, [] { (void)zeros({2}).data<std::int64_t>(); }},
      {"negative_size", __LINE__, [] { zeros({2, -3}); }},
      {"size_overflow", __LINE__, [] { zeros({std::int64_t{1} << 40, std::int64_t{1} << 40}); }},
      {"ragged_lists", __LINE__, [] { tensor({{1, 2}, {3}}); }},

      // ---- layers and optimizers that cannot be ----
      {"linear_of_nothing", __LINE__, [] { nn::Linear(0, 3); }},
      {"conv_groups", __LINE__, [] { nn::Conv2d(3, 8, 3, {.groups = 2}); }},
      {"conv_stride", __LINE__, [] { nn::Conv2d(3, 8, 3, {.stride = 0}); }},
      {"batch_norm_of_one", __LINE__, [] { nn::BatchNorm1d(2)(zeros({1, 2})); }},
      {"batch_norm_of_one_in_graph", __LINE__,
       [] {
         struct One : nn::Graph<One> {
           nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(2));
           Tensor build(Tensor x) { return norm(x); }
         };
         One().compile(spec({1, 2}));
       }},
      {"dropout_probability", __LINE__, [] { nn::Dropout(1.5); }},
      {"dropout_probability_nan", __LINE__, [] { nn::Dropout{std::numeric_limits<double>::quiet_NaN()}; }},
      {"optimizer_without_parameters", __LINE__, [] { optim::SGD(std::vector<Tensor>{}); }},
      {"optimizer_negative_rate", __LINE__, [] { optim::SGD({parameter_tensor()}, {.lr = -1}); }},
      {"optimizer_rate_nan", __LINE__, [] { optim::Adam({parameter_tensor()}, {.lr = std::nan("")}); }},
      {"optimizer_nesterov", __LINE__, [] { optim::SGD({parameter_tensor()}, {.nesterov = true}); }},
      {"optimizer_parameter_twice", __LINE__,
       [] {
         const Tensor w = parameter_tensor();
         optim::SGD({w, w});
       }},
      {"optimizer_of_a_result", __LINE__, [] { optim::SGD({parameter_tensor() * 2}); }},
      {"optimizer_of_integers", __LINE__, [] { optim::SGD({zeros({2}, i64)}); }},
      {"optimizer_of_nothing", __LINE__, [] { optim::SGD({parameter_tensor(), Tensor()}); }},
      {"optimizer_group", __LINE__,
       [] { optim::SGD({{{parameter_tensor()}, {}}, {{parameter_tensor()}, {.clip_grad_norm_type = -1}}}); }},
      {"optimizer_set_rate", __LINE__, [] { optim::SGD({parameter_tensor()}).set_learning_rate(-1); }},
      {"optimizer_betas", __LINE__, [] { optim::Adam({parameter_tensor()}, {.betas = {0.9, 1.0}}); }},
      {"schedule_step_size", __LINE__,
       [] {
         optim::SGD sgd({parameter_tensor()});
         lr_scheduler::StepLR(sgd, {.step_size = 0});
       }},

      {"schedule_cosine_length", __LINE__,
       [] {
         optim::SGD sgd({parameter_tensor()});
         lr_scheduler::CosineAnnealingLR(sgd, {.T_max = 0});
       }},
      {"schedule_milestones", __LINE__,
       [] {
         optim::SGD sgd({parameter_tensor()});
         lr_scheduler::MultiStepLR(sgd, {.milestones = {5, 3}});
       }},
      {"schedule_gamma_nan", __LINE__,
       [] {
         optim::SGD sgd({parameter_tensor()});
         lr_scheduler::ExponentialLR(sgd, {.gamma = std::nan("")});
       }},

      // ---- gradients ----
      {"backward_twice", __LINE__,
       [] {
         const Tensor w = parameter_tensor(), loss = (w * w).sum();
         loss.backward();
         loss.backward();
       }},
      {"backward_of_many", __LINE__, [] { (parameter_tensor() * 2).backward(); }},
      {"backward_without_gradient", __LINE__, [] { zeros({}).backward(); }},
      {"backward_gradient_shape", __LINE__, [] { (parameter_tensor() * 2).backward(ones({3})); }},
      {"changed_before_backward", __LINE__,
       [] {
         Tensor w = parameter_tensor(), y = w * 1, loss = (y * y).sum();
         y.add_(1);
         loss.backward();
       }},
      {"changed_before_backward_in_graph", __LINE__,
       [] {
         struct Decays : nn::Module<Decays> {
           nn::Linear in = child("in", nn::Linear(2, 2));
           Tensor scale = buffer("scale", ones({2}));
           Tensor forward(Tensor x) {
             Tensor y = in(x)*scale;
             scale.mul_(0.5);
             return y;
           }
         };
         struct Trains : nn::Graph<Trains> {
           Decays model = child("model", Decays());
           optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
           Trains() { add_optimizer(optimizer); }
           Tensor build(Tensor x) {
             Tensor loss = model(x).sum();
             loss.backward();
             return loss;
           }
         };
         Trains()(zeros({1, 2}));
       }},
      {"parameter_in_place", __LINE__,
       [] {
         Tensor w = parameter_tensor();
         w.add_(1);
       }},
      {"gradient_of_integers", __LINE__, [] { zeros({2}, i64).requires_grad_(); }},

      // ---- registration ----
      {"child_twice", __LINE__,
       [] {
         struct Twice : nn::Module<Twice> {
           nn::Linear a = child("layer", nn::Linear(2, 2)), b = child("layer", nn::Linear(2, 2));
           Tensor forward(Tensor x) { return b(a(x)); }
         };
         Twice();
       }},
      {"child_with_a_dot", __LINE__,
       [] {
         struct Dotted : nn::Module<Dotted> {
           nn::Linear a = child("layer.0", nn::Linear(2, 2));
           Tensor forward(Tensor x) { return a(x); }
         };
         Dotted();
       }},
      {"parameter_without_name", __LINE__,
       [] {
         struct Nameless : nn::Module<Nameless> {
           Tensor w = parameter("", ones({2}));
           Tensor forward(Tensor x) { return x * w; }
         };
         Nameless();
       }},
      {"child_not_registered", __LINE__,
       [] {
         struct Forgetful : nn::Module<Forgetful> {
           nn::Linear a{2, 2};
           Tensor forward(Tensor x) { return a(x); }
         };
         Forgetful()(zeros({1, 2}));
       }},
      {"parameter_not_registered", __LINE__,
       [] {
         struct Forgetful : nn::Module<Forgetful> {
           nn::Linear a = child("a", nn::Linear(2, 2));
           Tensor w = parameter_tensor();
           Tensor forward(Tensor x) { return matmul(a(x), w); }
         };
         Forgetful()(zeros({1, 2}));
       }},
      {"module_not_registered_in_graph", __LINE__,
       [] {
         struct Unregistered : nn::Graph<Unregistered> {
           nn::Linear linear{2, 2};
           Tensor build(Tensor x) { return linear(x); }
         };
         Unregistered().compile(spec({1, 2}));
       }},
      {"parameter_not_registered_in_graph", __LINE__,
       [] {
         struct Captures : nn::Graph<Captures> {
           Tensor w = parameter_tensor();
           Tensor build(Tensor x) { return matmul(x, w); }
         };
         Captures().compile(spec({1, 2}));
       }},
      {"computed_from_no_parameter_in_graph", __LINE__,
       [] {
         struct Captures : nn::Graph<Captures> {
           Tensor w = parameter_tensor();
           Tensor build(Tensor x) { return matmul(x, w * 2); }
         };
         Captures().compile(spec({1, 2}));
       }},

      // ---- graphs ----
      {"graph_shapes", __LINE__,
       [] {
         struct Shapes : nn::Graph<Shapes> {
           nn::Sequential net = child("net", nn::Sequential(nn::Linear(2, 3), nn::ReLU(), nn::Linear(4, 1)));
           Tensor build(Tensor x) { return net(x); }
         };
         Shapes().compile(spec({1, 2}));
       }},
      {"graph_dtypes", __LINE__,
       [] {
         struct Dtypes : nn::Graph<Dtypes> {
           nn::Linear layer = child("layer", nn::Linear(2, 3));
           Tensor build(Tensor x) { return layer(x); }
         };
         Dtypes().compile(spec({1, 2}, i64));
       }},
      {"loss_not_scalar", __LINE__,
       [] {
         struct Vector : Train<Vector> {
           Tensor build(Tensor x) {
             Tensor loss = model(x);
             loss.backward();
             return loss;
           }
         };
         Vector().compile(spec({5, 4}));
       }},
      {"loss_without_parameters", __LINE__,
       [] {
         struct Detached : Train<Detached> {
           Tensor build(Tensor x) {
             Tensor loss = model(x).detach().sum();
             loss.backward();
             return loss;
           }
         };
         Detached().compile(spec({5, 4}));
       }},
      {"backward_twice_in_graph", __LINE__,
       [] {
         struct Double : Train<Double> {
           Tensor build(Tensor x) {
             Tensor loss = model(x).sum();
             loss.backward();
             loss.backward();
             return loss;
           }
         };
         Double().compile(spec({5, 4}));
       }},
      {"optimizer_without_backward", __LINE__,
       [] {
         struct NoBackward : Train<NoBackward> {
           Tensor build(Tensor x) { return model(x).sum(); }
         };
         NoBackward().compile(spec({5, 4}));
       }},
      {"backward_without_optimizer", __LINE__,
       [] {
         struct NoOptimizer : nn::Graph<NoOptimizer> {
           Mlp model = child("model", Mlp());
           Tensor build(Tensor x) {
             Tensor loss = model(x).sum();
             loss.backward();
             return loss;
           }
         };
         NoOptimizer().compile(spec({5, 4}));
       }},
      {"parameter_in_two_optimizers", __LINE__,
       [] {
         struct Two : Train<Two> {
           optim::Adam second{{model.logits.weight}};
           Two() { add_optimizer(second); }
           Tensor build(Tensor x) { return model(x); }
         };
         Two();
       }},
      {"parameter_not_in_the_graph", __LINE__,
       [] {
         struct Foreign : nn::Graph<Foreign> {
           Mlp model = child("model", Mlp());
           optim::SGD optimizer{nn::Linear(2, 2).parameters()};
           Foreign() { add_optimizer(optimizer); }
           Tensor build(Tensor x) { return model(x); }
         };
         Foreign();
       }},
      {"schedule_of_another_optimizer", __LINE__,
       [] {
         struct Mixed : nn::Graph<Mixed> {
           Mlp model = child("model", Mlp());
           optim::SGD first{model.hidden.parameters()}, second{model.logits.parameters()};
           lr_scheduler::StepLR schedule{second, {}};
           Mixed() { add_optimizer(first, schedule); }
           Tensor build(Tensor x) { return model(x); }
         };
         Mixed();
       }},
      {"item_in_build", __LINE__,
       [] {
         struct Peeks : nn::Graph<Peeks> {
           Tensor build(Tensor x) { return x * x.sum().item<float>(); }
         };
         Peeks().compile(spec({2}));
       }},
      {"traced_tensor_outside", __LINE__,
       [] {
         struct Keeps : nn::Graph<Keeps> {
           Tensor kept;
           Tensor build(Tensor x) { return kept = x * 2; }
         };
         Keeps graph;
         graph.compile(spec({2}));
         relu(graph.kept);
       }},
      {"returns_undefined", __LINE__,
       [] {
         struct Nothing : nn::Graph<Nothing> {
           Tensor build(Tensor) { return {}; }
         };
         Nothing().compile(spec({2}));
       }},
      {"spec_negative", __LINE__,
       [] {
         struct Negative : nn::Graph<Negative> {
           Tensor build(Tensor x) { return x; }
         };
         Negative().compile(spec({2, -1}));
       }},
      {"spec_two_maxima", __LINE__,
       [] {
         struct Maxima : nn::Graph<Maxima> {
           Tensor build(Tensor x, Tensor y) { return x + y; }
         };
         Maxima().compile(spec({Dim("batch", 4)}), spec({Dim("batch", 8)}));
       }},
      {"spec_two_symbols", __LINE__,
       [] {
         struct Symbols : nn::Graph<Symbols> {
           Tensor build(Tensor x) { return x * 2; }
         };
         Symbols().compile(spec({Dim("batch", 4) * Dim("length", 8), 3}, "tokens"));
       }},
      {"window_too_large_at_some_size", __LINE__,
       [] {
         struct Window : nn::Graph<Window> {
           nn::Conv2d conv = child("conv", nn::Conv2d(3, 4, 5));
           Tensor build(Tensor x) { return conv(x); }
         };
         Window().compile(spec({Dim("batch", 4), 3, Dim("height", 64), Dim("width", 8, 64)}));
       }},
      {"draws_in_inference", __LINE__,
       [] {
         struct Sampler : nn::Graph<Sampler> {
           Tensor build(Tensor x) { return x + randn({3}); }
         };
         Sampler().compile(spec({2, 3}));
       }},
      {"not_recorded_yet", __LINE__,
       [] {
         struct Fresh : nn::Graph<Fresh> {
           Tensor build(Tensor x) { return x; }
         };
         (void)Fresh().graph();
       }},
      {"input_shape_changed", __LINE__,
       [] {
         struct Shaped : nn::Graph<Shaped> {
           Tensor build(Tensor x) { return x * 2; }
         } graph;
         graph.compile(spec({2, 3}, "x"));
         graph(zeros({3, 3}));
       }},
      {"input_dtype_changed", __LINE__,
       [] {
         struct Typed : nn::Graph<Typed> {
           Tensor build(Tensor x) { return x * 2; }
         } graph;
         graph.compile(spec({2, 3}));
         graph(zeros({2, 3}, f64));
       }},
      {"batch_too_large", __LINE__,
       [] {
         struct Batched : nn::Graph<Batched> {
           Tensor build(Tensor x) { return x * 2; }
         } graph;
         graph.compile(spec({Dim("batch", 4), 3}));
         graph(zeros({5, 3}));
       }},
      {"input_tree_changed", __LINE__,
       [] {
         struct Listed : nn::Graph<Listed> {
           Tensor build(std::vector<Tensor> xs) { return xs.at(0); }
         } graph;
         graph.compile(std::vector<Spec>{spec({2}), spec({2})});
         graph(std::vector<Tensor>{zeros({2})});
       }},
      {"input_undefined", __LINE__,
       [] {
         struct Missing : nn::Graph<Missing> {
           Tensor build(Tensor x) { return x * 2; }
         } graph;
         graph.compile(spec({2}));
         graph(Tensor());
       }},

      // ---- state ----
      {"load_state_strict", __LINE__,
       [] {
         Mlp model;
         nn::StateDict state = nn::Linear(4, 3).state_dict();
         model.load_state_dict(state);
       }},
      {"load_state_shapes", __LINE__,
       [] {
         Mlp model;
         nn::StateDict state = model.state_dict();
         state[0].second = zeros({3, 5});
         state[1].second = zeros({3}, i64);
         model.load_state_dict(state);
       }},
      {"save_undefined", __LINE__, [] { nn::save({{"a", zeros({1})}, {"b", Tensor()}}, "model.safetensors"); }},
      {"save_name_not_utf8", __LINE__, [] { nn::save({{"a\xff", zeros({1})}}, "model.safetensors"); }},
      {"load_undefined", __LINE__,
       [] {
         Mlp model;
         nn::StateDict state = model.state_dict();
         state[0].second = Tensor();
         model.load_state_dict(state);
       }},
      {"loader_std", __LINE__,
       [] {
         const TemporaryImages images;
         data::DataLoader(images.path(), {.batch_size = 2, .std = {0}});
       }},
      {"loader_mean", __LINE__,
       [] {
         const TemporaryImages images;
         data::DataLoader(images.path(), {.batch_size = 2, .mean = {1, 2, 3}});
       }},
      {"loader_format", __LINE__, [] { data::DataLoader("images", {.format = "foo"}); }},
      {"loader_path", __LINE__, [] { data::DataLoader(""); }},
      {"loader_beside", __LINE__,
       [] {
         const data::DataLoader five(data::TensorDataset(arange(5)), {.batch_size = 2});
         data::DataLoader(data::TensorDataset(arange(4)), five);
       }},
      {"dataset_index", __LINE__, [] { (void)data::TensorDataset(arange(5)).get(-1); }},
      {"attention_padding_mask", __LINE__,
       [] {
         nn::MultiheadAttention attention(4, 2, {.batch_first = true});
         attention(zeros({3, 5, 4}), zeros({3, 6, 4}), zeros({3, 6, 4}),
                   nn::MultiheadAttentionCall{.key_padding_mask = zeros({3, 5}, boolean)});
       }},
      {"attention_mask", __LINE__,
       [] {
         nn::MultiheadAttention attention(4, 2, {.batch_first = true});
         attention(zeros({3, 5, 4}), zeros({3, 6, 4}), zeros({3, 6, 4}),
                   nn::MultiheadAttentionCall{.attn_mask = zeros({3, 5, 6})});
       }},
      {"adaptive_pool_size", __LINE__, [] { nn::AdaptiveAvgPool2d(0); }},
      {"load_nothing", __LINE__, [] { nn::load("/nonexistent/model.safetensors"); }},
      {"save_nowhere", __LINE__, [] { nn::save(Mlp().state_dict(), "/nonexistent/model.safetensors"); }},
      {"save_graph_nowhere", __LINE__,
       [] {
         struct Saved : nn::Graph<Saved> {
           Tensor build(Tensor x) { return x * 2; }
         } graph;
         graph.compile(spec({2}));
         graph.save("/dev/null/saved");
       }},
  };
  return all;
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// "models_test.cpp:123" as "models_test.cpp, line +3".
std::string relative(const std::string& text, int line) {
  std::string result;
  std::size_t from = 0;
  for (const tests::Match& place : tests::matches(text, "models_test\\.cpp:(\\d+)")) {
    result.append(text, from, place.position - from);
    const int offset = std::stoi(place.groups[1]) - line;
    result += std::string("models_test.cpp, line ") + (offset < 0 ? "" : "+") + std::to_string(offset);
    from = place.position + place.groups[0].size();
  }
  return result.append(text, from);
}

std::string outcome(const Case& c) {
  try {
    c.mistake();
    return "no error\n";
  } catch (const UserError& error) {
    return relative(error.what(), c.line) + "\n";
  } catch (const std::exception& error) {
    return std::string("not a user error: ") + error.what() + "\n";
  }
}

class ModelMistakes : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, ModelMistakes, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ModelMistakes, GiveTheirError) {
  const fs::path path = fs::path(GRAVEN_SOURCE_DIR) / "tests/errors/models" / (std::string(GetParam().name) + ".txt");
  const std::string found = outcome(GetParam());
  EXPECT_EQ(found.rfind("error: ", 0), 0U) << found;
  if (bless) std::ofstream(path, std::ios::binary) << found;
  // Where the compiler says other lines of members' initializers, lines are not compared.
  const auto compared = [](const std::string& text) {
    return test::members_have_lines() ? text : tests::replaced(text, ", line [-+0-9]+", "");
  };
  EXPECT_EQ(compared(found), compared(read_text(path)))
      << "If the change is meant, run: test_errors --bless, and read the difference";
}

TEST(Models, EveryTextHasItsCase) {
  std::size_t texts = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(GRAVEN_SOURCE_DIR) / "tests/errors/models"))
    texts += entry.path().extension() == ".txt";
  EXPECT_EQ(texts, cases().size());
}

TEST(Models, SayThatTheyAreOutOfMemory) {
  if (GRAVEN_SANITIZED) GTEST_SKIP() << "the sanitizers end a program that asks for so much";
  struct Wide : nn::Graph<Wide> {
    nn::Linear first = child("first", nn::Linear(3, 4)), second = child("second", nn::Linear(4, 2));
    Tensor build(Tensor x) { return second(relu(first(x))); }
  };
  Wide graph;
  graph.compile(spec({Dim("batch", std::int64_t{1} << 50), 3}));
  try {
    graph(ones({2, 3}));
    FAIL() << "buffers of 2^54 bytes were made";
  } catch (const UserError& e) {
    EXPECT_EQ(std::string(e.what()).rfind("error: Wide: out of memory: its buffers take 180143985094", 0), 0U)
        << e.what();
  }
}

}  // namespace
}  // namespace graven

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--bless") {
      std::cerr << "unknown argument " << argv[i] << "; --bless rewrites the texts\n";
      return 2;
    }
    graven::bless = true;
  }
  return RUN_ALL_TESTS();
}
