// Graphs: a network, its loss and its optimizer as one program.
//
//   struct TrainMlp : nn::Graph<TrainMlp> {
//     Mlp model = child("model", Mlp());
//     nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
//     optim::SGD optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
//     TrainMlp() { add_optimizer(optimizer); }
//     Tensor build(Tensor images, Tensor labels) {
//       Tensor loss = loss_fn(model(images), labels);
//       loss.backward();
//       return loss;
//     }
//   };
//
//   TrainMlp graph;
//   graph.compile(spec({64, 1, 28, 28}, "images"), spec({64}, i64, "labels"));   // records build(); computes nothing
//   std::cout << graph;
//   Tensor loss = graph(images, labels);   // one training step of the compiled program
//
// The first call (or compile, or trace) runs build() once, recording; later calls only run the program that came of it,
// and need inputs of the same types: shapes may differ only in a symbolic dimension, spec({Dim("batch", 64), 1, 28,
// 28}), unless the graph has with_dynamic_input_shape(). Parameters stay those of the modules: what either side writes,
// the other sees. Inputs and outputs are trees of tensors (tuple, pair, vector, array, map, optional). A tensor from
// outside that belongs to no module becomes a constant. In-place operations are recorded as new values; an input of the
// graph changed in place is changed within the graph only, the caller's tensor keeps its elements. What is recorded
// sees parameters as they are before the update, also behind backward(), but for what stands behind nn::AfterUpdate, as
// nn::utils::update_average_() does (utils/averaging.h).
#pragma once

#include <any>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "graven/grad_scaler.h"
#include "graven/lr_scheduler.h"
#include "graven/module.h"
#include "graven/optim.h"
#include "graven/profile.h"
#include "graven/tree.h"
#include "ir/graph.h"

namespace graven::nn {

struct GraphState;
class GraphRecording;  ///< while build() runs

/// Everything about a graph but its build().
class GraphBase {
 public:
  explicit GraphBase(std::string class_name);
  ~GraphBase();
  GraphBase(const GraphBase&) = delete;
  GraphBase& operator=(const GraphBase&) = delete;

  /// "TrainMlp_0": the class and how many of it there were.
  const std::string& name() const;
  const std::string& class_name() const;
  /// Whether build() has been recorded.
  bool is_compiled() const;
  /// Whether it has an optimizer.
  bool training() const;
  /// The recorded graph. User error before compile() or the first call.
  const ir::Graph& graph() const;
  /// The rates of the next step, by optimizer and parameter group.
  std::vector<double> learning_rates() const;
  /// Copies of the gradients of the last call, by the parameters' paths: those that its update read, the mean of a step
  /// in parts. A norm that is clipped over all parameters of an optimizer or group is not in them, which the update
  /// multiplies by as it reads; what is clipped otherwise is. User error before the first call, with
  /// update_in_backward(), of which no gradient is left, and with a GradScaler.
  StateDict gradients(Location where = Location::current()) const;
  /// The norm of gradients() as one vector, in double: norm_type 2, another positive order, or infinity.
  double gradient_norm(double norm_type = 2, Location where = Location::current()) const;
  /// Training calls so far; with a scaler those that updated: of several optimizers, of the one that did most often.
  std::int64_t train_step() const;

  /// Parameters and buffers by path ("model.hidden.weight"); when training also optimizer state
  /// ("model.hidden.weight-momentum"), "train_step" (i64[]), the "seed" (i64[]) that manual_seed() gave and random
  /// operators go by, and of each parameter group, counted through all optimizers, the rate of the next step, "lr.0"
  /// (f64[]), and what a schedule starts from, "initial_lr.0" (f64[]): all that a run is resumed with. A checkpoint of
  /// an emitted program has the parameters, buffers and states in two files, weights.safetensors and
  /// optimizer.safetensors, and its number of steps in manifest.json: it goes on here only with that as "train_step".
  StateDict state_dict() const;
  /// All or nothing, before or after the first call; where no loss depends on some of the optimizers' parameters,
  /// behind compile(), which finds out that these have no states. Seed and rates stay as they are where the dictionary
  /// has none; a seed that it has becomes the process's, as by manual_seed().
  LoadReport load_state_dict(const StateDict& state, bool strict = true, Location where = Location::current());

  /// Writes the recorded graph and its parameters and buffers as they are now: `directory`/graph.json and
  /// weights.safetensors, what the `graven` command works from, without this program. User error before compile() or
  /// the first call, or when the folder cannot be written.
  void save(const std::string& directory) const;

  /// How much is printed on stderr while recording and compiling: -1 nothing; 0 stages with their times, and warnings;
  /// 1 also modules with their inputs, parameters, buffers and outputs, and each pass with its time; 2 also each
  /// operator with its inputs and the types of its results, and the memory that the program takes; 3 also source lines,
  /// the program's order, and every buffer with its place and life.
  void debug(int v_level = 0);
  /// Threads of the program; 0: all. Before the first run.
  void set_threads(int threads);

  /// Each parameter is updated within backward, as soon as its gradient is there and the step has read the parameter
  /// for the last time: gradients then take the memory of one module's instead of all parameters' together, and those
  /// of large linear layers none at all: SGD and Adam use them where they are computed. The numbers are the same, bit
  /// for bit. An emitted Model has no backward(), update() and gradients() apart then, and its program's log no norm of
  /// them. Before compile() or the first call: user error after it.
  void update_in_backward(bool on = true, Location where = Location::current());

  /// One call is a step of `steps` parts of its batch: the inputs are cut into so many along dimension 0, each part
  /// runs forward and backward on its own, and the mean of their gradients, added up in f32 (of f64 parameters in f64),
  /// is clipped and updates once. build() is recorded for one part, and so are graph() and emitted programs. Of the
  /// results numbers are means over the parts, integers that stand alone are sums, and other tensors are put together
  /// along dimension 0; what depends on no input, and parameters and buffers, are what they are behind the last part.
  /// Random numbers of each part are its own. What forward changes, running statistics of batch norms, advances with
  /// each part. So a loss that is a mean trains as with the large batch, but for batch norms, within rounding. User
  /// error where an input has no dimension 0 or one that `steps` does not divide; together with update_in_backward();
  /// and behind compile() or the first call.
  void set_gradient_accumulation_steps(std::int64_t steps, Location where = Location::current());

  /// Several processes, ranks, train together, each on its share of the data: an emitted project that is built with
  /// -DGRAVEN_MPI=ON does so when it is started by mpirun or srun. Behind backward each gradient is the mean over the
  /// ranks, so that all of them clip and update by the same numbers; the sums run beside the rest of backward. A step
  /// of N ranks is one of N gradient accumulation steps of a single process on the same samples, with the same random
  /// numbers, within the rounding of the sums; running statistics of batch norms are those of rank 0. A step may have
  /// several parts on each rank as well (--accumulation-steps), and started alone the project is the program of one
  /// process. In the host's process graph() is one rank; user error from it where the process is one of several. User
  /// error together with update_in_backward(), without an optimizer, and behind compile() or the first call.
  void enable_data_parallel(bool on = true, Location where = Location::current());

  /// The ranks of a data parallel graph, which this makes it, share what each of them else has a copy of: from stage 1
  /// on the states of the optimizers, from stage 2 on the gradients that are added up, too, and with stage 3 the
  /// parameters, each of which is gathered in the arena for the modules that compute with it. Of a parameter of
  /// `shard_min_size` elements (2 at least) or more each rank updates its shard, a piece of the elements, and hands it
  /// to the others; smaller ones are updated by every rank. So with N ranks such tensors take 1 / N of the memory. A
  /// step is the same as without, within the rounding of sums; norms of gradients are those of all ranks; checkpoints
  /// are whole, and any number of ranks goes on with them. From stage 2 on every part of a step is sent. ZeRO
  /// (Rajbhandari et al. 2020). User error for an optimizer that looks at rows and columns (Adafactor), where
  /// something else reads a gradient of which ranks have shards, and where the graph returns a parameter of which they
  /// do; otherwise as enable_data_parallel().
  void enable_zero(int stage = 1, std::int64_t shard_min_size = 1024, Location where = Location::current());

  /// So many ranks have the tensors of the model in parts, where modules' parameters or inputs are marked so
  /// (Tensor::set_layout): each computes what its parts allow, and they exchange what else is needed, in layouts that
  /// are chosen so that they send the least; debug(2) prints them, and what changes from one to another. Marking the
  /// weights of linear layers gives layers by columns and rows, attention by heads, a table of words by rows and a
  /// cross entropy of parts of the classes (Shoeybi et al., Megatron-LM, 2019). All ranks compute one batch; with
  /// enable_data_parallel(), rows of so many ranks have batches of their own. A step is the same as without, within the
  /// rounding of sums; checkpoints are whole. The emitted program runs on as many ranks, or a multiple, and that of a
  /// graph that only infers on as many, of which the first reads and prints; in the host's process a graph is one rank,
  /// which has all. User error after the graph was recorded, for a number below 1, and with enable_zero() or
  /// set_stage().
  void enable_tensor_parallel(std::int64_t ranks, Location where = Location::current());

  /// The losses' gradients begin with the scaler's scale, and are divided by it before they are clipped. An optimizer
  /// of whose own gradients one is infinite or NaN is left as it is in that step: its parameters, states, count of
  /// steps and schedule; so of several one may step while another does not, as with torch.amp.GradScaler. Then the
  /// scale shrinks; else it grows after growth_interval steps. The scale is the scaler's own: get_scale() sees what
  /// steps make of it. state_dict() has it as "grad_scaler-scale" and "grad_scaler-growth_tracker", and how many steps
  /// each optimizer has skipped as "grad_scaler-skipped.0". A scaler that is not enabled changes nothing. User error
  /// together with update_in_backward(), and behind compile() or the first call.
  void set_grad_scaler(const amp::GradScaler& scaler, Location where = Location::current());

  /// Mixed precision, as PyTorch's autocast has it: matrix products, convolutions and what follows them are computed in
  /// `dtype`, bf16 or f16; losses, softmax, norms and their statistics, reductions, exp, log and their kin in f32, and
  /// so are parameters, gradients, optimizer state and what build() returns, so that checkpoints are as before. Each
  /// weight is cast once a step. Sums of products are f32. Which operator is of which kind: docs/operators.md. On a CPU
  /// products in bf16 use the processor's tiles (AMX) if it has them; on a device they are the library's. Before
  /// compile() or the first call: user error after it, or for another dtype.
  void enable_amp(DType dtype = bf16, bool on = true, Location where = Location::current());

  // ---- memory, order and fusions of the program. Each before compile() or the first call: user error after it ----
  /// Bytes that the arena of a training step may take: what is kept for backward, gradients on their way, results that
  /// the step returns, scratch memory. Not counted are what a step is given and leaves behind: parameters and their
  /// gradients (with update_in_backward() these lie in the arena), buffers, optimizer state, inputs. Of what the
  /// forward pass computes, that is kept which takes the longest to compute again for its bytes; the rest is computed
  /// again in the backward pass. All numbers stay what they are, bit for bit. User error when it is compiled, if it
  /// cannot be met: it names the fewest bytes that were found. 0: no limit. debug(2) and `graven show -f plan` print
  /// what it costs.
  void memory_budget(std::int64_t bytes, Location where = Location::current());
  /// The order in which the program runs what the graph has, within each phase.
  enum class Straighten : std::uint8_t {
    memory_first,  ///< few bytes alive at once; the program's own order where that costs no more than a twentieth
    disable,       ///< as build() has it
    speed_first,   ///< as build() has it, but that a result is read as soon as it is made, while it is in the cache
    overlap,       ///< what takes longest to be waited for first: the longest chains of work begin early
    delay_short,   ///< short work as late as it can be, right before what needs it
  };
  void enable_straighten_algorithm(Straighten mode = Straighten::memory_first, Location where = Location::current());
  /// Searches placements in the arena until it is no larger than the bytes alive at one time, or nothing gets better
  /// for long, instead of for a bounded time. The program's numbers and calls stay the same.
  void enable_compress_memory(bool on = true, Location where = Location::current());
  /// How many results of calls the graph holds on to, to use their memory again: a call writes into that of the oldest,
  /// where nobody else has it any more. 2 unless told otherwise; 0: memory of its own for each result.
  void set_outputs_buffer_size(int size, Location where = Location::current());
  /// Updates of all parameters of a group by one call, with the factor of clipping, and with the gradient that they
  /// take where update_in_backward() asks for it; off: a call a parameter, and a pass of its own for the factor.
  void allow_fuse_model_update_ops(bool on = true, Location where = Location::current());
  /// Additions of what alone reads a result in the epilogue of the product or convolution that makes it.
  void allow_fuse_add_to_output(bool on = true, Location where = Location::current());
  /// Casts and multiplications by a number in one loop with what they belong to.
  void allow_fuse_cast_scale(bool on = true, Location where = Location::current());

  /// How CUDA programs choose among the algorithms that the library of products has for a convolution and its
  /// gradients: by the library's own heuristic, or, when off, by measuring: the first call with a shape, for fixed
  /// shapes while the Model is made, tries those that the library recommends on memory of its own, some milliseconds
  /// each, and keeps the fastest. Algorithms differ in the order of their sums, so that with measured ones two runs of
  /// a program may differ in their last bits. The CPU's kernels are chosen by shapes alone: it changes nothing there.
  void enable_cudnn_conv_heuristic_search_algo(bool on = true, Location where = Location::current());

  /// Whether products and convolutions of f32 may round what they multiply to TF32 on a device, as cuda::allow_tf32,
  /// which holds where this is not called. It changes nothing on the CPU.
  void allow_tf32(bool on = true, Location where = Location::current());

  /// A file of measured choices, "tuning.json" of `graven tune`: the program, and what codegen::emit() writes of this
  /// graph, take the algorithms that were the fastest where it was measured, if that was on such a device with these
  /// versions; one line on stderr says what does not hold. Results may differ by rounding. User error when the graph is
  /// compiled or emitted, where the file cannot be read or is damaged. Empty: heuristics choose.
  void set_tuning(const std::string& file, Location where = Location::current());
  const std::string& tuning() const;

  /// Calls with inputs of other shapes, dtypes or another number record build() again and compile a program of their
  /// own, instead of being an error. Programs share parameters, buffers, optimizer state and the count of steps; the
  /// `size` that were used last are kept. graph(), save() and repr() show the one used last. Where only a batch varies,
  /// a symbolic dimension does with one program. Before compile() or the first call: user error after it, or when size
  /// is not positive.
  void with_dynamic_input_shape(int size = 10, Location where = Location::current());

  /// OneFlow's print: modules, parameters and buffers; once recorded, inputs and outputs too.
  std::string repr() const;

 protected:
  void add_optimizer(const optim::Optimizer& optimizer, Location where = Location::current());
  /// The schedule advances after every call.
  void add_optimizer(const optim::Optimizer& optimizer, const lr_scheduler::LRScheduler& scheduler,
                     Location where = Location::current());
  template <class T>
    requires std::is_same_v<T, optim::LBFGS>
  void add_optimizer(const T&) {
    static_assert(sizeof(T) == 0,
                  "LBFGS is eager only: it evaluates the loss as often as it needs, and a graph's call is one "
                  "evaluation and update");
  }
  /// The training program of the emitted project reduces the rates after an epoch; graph() does so when the program
  /// that calls it calls step() of the plateau, for it knows of no epochs. The rates, and what a schedule starts from,
  /// stand in state_dict(); what the plateau counts stands in its own.
  void add_optimizer(const optim::Optimizer& optimizer, const lr_scheduler::ReduceLROnPlateau& plateau,
                     Location where = Location::current());
  /// The same beside a schedule; user error for one that sets each step's rate anew.
  void add_optimizer(const optim::Optimizer& optimizer, const lr_scheduler::LRScheduler& scheduler,
                     const lr_scheduler::ReduceLROnPlateau& plateau, Location where = Location::current());
  void register_child(Name name, const ModuleBase& module);

  // ---- what Graph<Derived> is made of. No types, and no names that a build() might call functions of its own by ----
  std::shared_ptr<GraphRecording> begin_recording(Location where);
  Tensor add_input(GraphRecording& recording, const Spec& spec, const std::string& path, ir::Tree& tree);
  Tensor add_input(GraphRecording& recording, const Tensor& example, const std::string& path, ir::Tree& tree);
  void add_output(GraphRecording& recording, const Tensor& value, const std::string& path, ir::Tree& tree);
  void end_recording(GraphRecording& recording, ir::Tree inputs, ir::Tree outputs, std::any result);
  const std::any& recorded_result() const;
  /// Checks the inputs against the recorded types, and runs the program.
  std::vector<Tensor> run_program(const std::vector<Tensor>& inputs, const std::vector<std::string>& paths,
                                  const ir::Tree& tree, Location where);
  void warn_compiled_twice(Location where) const;
  /// What calls of the graph take while `work` is done, so many times; and of those after the first `options.warmup`.
  Profile profile_calls(const std::function<void()>& work, Location where);
  Profile profile_calls(const ProfileOptions& options, const std::function<void()>& work);
  /// Whether there is a program for these inputs; with dynamic input shapes it becomes the one that run_program() runs.
  bool is_ready(const std::vector<Tensor>& inputs, const ir::Tree& tree);

 private:
  std::unique_ptr<GraphState> state_;
};

std::ostream& operator<<(std::ostream& out, const GraphBase& graph);

/// The base of every graph: `struct TrainMlp : nn::Graph<TrainMlp>`. Derived has `build(...)`, which takes and returns
/// trees of tensors.
template <class Derived>
class Graph : public GraphBase {
 public:
  Graph() : GraphBase(detail::class_name_of<Derived>()) {}

  /// Records build() for inputs of these types (Spec, Tensor, or trees of them). Compiling twice warns and changes
  /// nothing. The program is built when it is first called.
  template <class... Inputs>
  void compile(const Inputs&... inputs) {
    if (is_compiled())
      warn_compiled_twice({});
    else
      record_build(Location{}, inputs...);
  }
  /// The same, and returns the recorded graph.
  template <class... Inputs>
  const ir::Graph& trace(const Inputs&... inputs) {
    if (!is_compiled()) record_build(Location{}, inputs...);
    return graph();
  }

  auto operator()(Location where = Location::current()) { return call_program(where); }
  template <class A>
  auto operator()(const A& a, Location where = Location::current()) {
    return call_program(where, a);
  }
  template <class A, class B>
  auto operator()(const A& a, const B& b, Location where = Location::current()) {
    return call_program(where, a, b);
  }
  template <class A, class B, class C>
  auto operator()(const A& a, const B& b, const C& c, Location where = Location::current()) {
    return call_program(where, a, b, c);
  }
  template <class A, class B, class C, class D>
  auto operator()(const A& a, const B& b, const C& c, const D& d, Location where = Location::current()) {
    return call_program(where, a, b, c, d);
  }
  template <class A, class B, class C, class D, class E>
  auto operator()(const A& a, const B& b, const C& c, const D& d, const E& e, Location where = Location::current()) {
    return call_program(where, a, b, c, d, e);
  }
  template <class A, class B, class C, class D, class E, class F>
  auto operator()(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
                  Location where = Location::current()) {
    return call_program(where, a, b, c, d, e, f);
  }
  template <class A, class B, class C, class D, class E, class F, class G>
  auto operator()(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
                  Location where = Location::current()) {
    return call_program(where, a, b, c, d, e, f, g);
  }
  template <class A, class B, class C, class D, class E, class F, class G, class H>
  auto operator()(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g, const H& h,
                  Location where = Location::current()) {
    return call_program(where, a, b, c, d, e, f, g, h);
  }
  template <class... Inputs>
    requires(sizeof...(Inputs) > 9 || (sizeof...(Inputs) == 9 && !detail::kEndsWithLocation<Inputs...>))
  Tensor operator()(const Inputs&...) {
    static_assert(sizeof...(Inputs) == 0,
                  "a graph is called with at most eight inputs; put some of them into a tuple, a vector or a map");
    return {};
  }

  /// Where the time of a call goes, by module and operator (profile.h). It makes options.warmup and then options.steps
  /// calls with these inputs, each of which is what graph(inputs...) is: of a training graph a step, which trains. Only
  /// the latter count. On a device the calls of kernels are given to it one by one, not as a recorded graph.
  template <class... Inputs>
  Profile profile(const ProfileOptions& options, const Inputs&... inputs) {
    return profile_calls(options, [&] { (void)call_program(Location{}, inputs...); });
  }
  template <class... Inputs>
    requires((detail::IsTree<Inputs>::value && ...))
  Profile profile(const Inputs&... inputs) {
    return profile(ProfileOptions{}, inputs...);
  }
  /// The same of the calls that `work`, which is done once, makes of this graph, and of nothing else: what a training
  /// loop does anyway. User error where it makes none.
  template <std::invocable Work>
  Profile profile(const Work& work, Location where = Location::current()) {
    return profile_calls([&] { work(); }, where);
  }

  /// Registers a module under a name and returns it. Public for the same reason as a module's.
  template <class M>
  M child(Name name, M module) {
    constexpr bool is_module = std::is_base_of_v<ModuleBase, M>;
    static_assert(is_module, "a child must be a module");
    if constexpr (is_module) {
      register_child(name, module);
      detail::note_extra_repr(module);
    }
    return module;
  }

 private:
  template <class T>
  using GraphTreeOf = typename detail::TensorTree<std::remove_cvref_t<T>>::type;
  /// Whether build() can be called with tensors in the places of these inputs. D is Derived, named late, when it is
  /// complete.
  template <class D, class... Inputs>
  static constexpr bool build_takes() {
    if constexpr ((detail::IsTree<Inputs>::value && ...))
      return requires { std::declval<D&>().build(std::declval<GraphTreeOf<Inputs>>()...); };
    return false;
  }
  /// Whether it then also returns what a graph can return.
  template <class D, class... Inputs>
  static constexpr bool build_returns_tree() {
    if constexpr (build_takes<D, Inputs...>()) {
      using Result = decltype(std::declval<D&>().build(std::declval<GraphTreeOf<Inputs>>()...));
      return std::is_void_v<Result> || detail::IsTree<Result>::value;
    }
    return false;
  }
  /// What build() returns for these inputs; a mistake is one error of the compiler's.
  template <class D, class... Inputs>
  static constexpr auto build_result_of() {
    constexpr bool trees = (detail::IsTree<Inputs>::value && ...), takes_them = build_takes<D, Inputs...>(),
                   callable = build_returns_tree<D, Inputs...>();
    static_assert(trees,
                  "a graph's inputs are tensors, specs, and tuples, vectors, maps or optionals of them; other values "
                  "belong into its members");
    static_assert(!trees || takes_them,
                  "the graph has no public build() that takes a tensor for each tensor or spec it is called with");
    static_assert(!takes_them || callable, "build() returns tensors, or tuples, vectors, maps or optionals of them");
    if constexpr (callable)
      return std::type_identity<decltype(std::declval<D&>().build(std::declval<GraphTreeOf<Inputs>>()...))>();
    else
      return std::type_identity<void>();
  }
  template <class D, class... Inputs>
  using GraphResultOf = typename decltype(build_result_of<D, Inputs...>())::type;

  template <class D = Derived, class... Inputs>
  void record_build(Location where, const Inputs&... inputs) {
    using Result = GraphResultOf<D, Inputs...>;
    if constexpr (build_returns_tree<D, Inputs...>()) record_build_as<Result>(where, inputs...);
  }
  template <class Result, class... Inputs>
  void record_build_as(Location where, const Inputs&... inputs) {
    const std::shared_ptr<GraphRecording> recording = begin_recording(where);
    ir::Tree input_tree, output_tree;
    auto arguments = detail::map_tree(std::tuple<Inputs...>(inputs...), std::string(), input_tree,
                                      [&](const auto& leaf, const std::string& path, ir::Tree& t) {
                                        return add_input(*recording, leaf, path.empty() ? path : path.substr(1), t);
                                      });
    auto& self = static_cast<Derived&>(*this);
    if constexpr (std::is_void_v<Result>) {
      std::apply([&](auto&&... a) { self.build(std::move(a)...); }, std::move(arguments));
      output_tree.kind = ir::Tree::Kind::none;
      end_recording(*recording, std::move(input_tree), std::move(output_tree), {});
    } else {
      Result result = std::apply([&](auto&&... a) { return self.build(std::move(a)...); }, std::move(arguments));
      detail::map_tree(result, std::string(), output_tree,
                       [&](const Tensor& leaf, const std::string& path, ir::Tree& t) {
                         add_output(*recording, leaf, path, t);
                         return leaf;
                       });
      end_recording(*recording, std::move(input_tree), std::move(output_tree), std::any(std::move(result)));
    }
  }

  template <class D = Derived, class... Inputs>
  GraphResultOf<D, Inputs...> call_program(Location where, const Inputs&... inputs) {
    if constexpr (build_returns_tree<D, Inputs...>())
      return call_program_as<GraphResultOf<D, Inputs...>>(where, inputs...);
  }
  template <class Result, class... Inputs>
  Result call_program_as(Location where, const Inputs&... inputs) {
    std::vector<Tensor> tensors;
    std::vector<std::string> paths;
    ir::Tree tree;
    detail::map_tree(std::tuple<Inputs...>(inputs...), std::string(), tree,
                     [&](const Tensor& leaf, const std::string& path, ir::Tree& t) {
                       t.index = static_cast<std::int32_t>(tensors.size());
                       tensors.push_back(leaf);
                       paths.push_back(path.empty() ? path : path.substr(1));
                       return leaf;
                     });
    if (!is_ready(tensors, tree)) record_build(where, inputs...);
    const std::vector<Tensor> outputs = run_program(tensors, paths, tree, where);
    if constexpr (!std::is_void_v<Result>) {
      std::size_t next = 0;
      ir::Tree ignored;
      return detail::map_tree(std::any_cast<const Result&>(recorded_result()), std::string(), ignored,
                              [&](const Tensor&, const std::string&, ir::Tree&) { return outputs.at(next++); });
    }
  }
};

}  // namespace graven::nn
