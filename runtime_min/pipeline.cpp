#include "pipeline.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "error.h"
#include "stopwatch.h"
#ifdef GRAVEN_MPI
#include <mpi.h>
#endif

namespace graven::runtime {

namespace {

#ifdef GRAVEN_MPI

/// Between the memory of processes. What waits on the host is the host: calls that follow are made when it is done.
class MpiMessages final : public StageMessages {
 public:
  MpiMessages(int slots, double limit) : sent_(static_cast<std::size_t>(slots)), time_limit_(limit) {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
  }
  ~MpiMessages() override {
    int finished = 0;
    MPI_Finalized(&finished);
    if (finished == 0) MPI_Comm_free(&ranks_);
  }
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;

  void send(int slot, int to, int tag, const void* data, std::size_t bytes) override {
    in_pieces(bytes, [&](std::size_t at, int count) {
      MPI_Isend(static_cast<const std::byte*>(data) + at, count, MPI_BYTE, to, tag, ranks_,
                &sent_[static_cast<std::size_t>(slot)].emplace_back());
    });
  }
  void receive(int from, int tag, void* data, std::size_t bytes) override {
    in_pieces(bytes, [&](std::size_t at, int count) {
      MPI_Irecv(static_cast<std::byte*>(data) + at, count, MPI_BYTE, from, tag, ranks_, &received_.emplace_back());
    });
  }
  void finish_receiving() override { wait(received_); }
  void finish_sending(int slot) override { wait(sent_[static_cast<std::size_t>(slot)]); }

 private:
  /// Counts are ints.
  template <class F>
  static void in_pieces(std::size_t bytes, const F& piece) {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    for (std::size_t done = 0; done < bytes; done += kMost)
      piece(done, static_cast<int>(std::min(kMost, bytes - done)));
  }
  void wait(std::vector<MPI_Request>& requests) const {
    const Stopwatch watch;
    for (int spins = 0, done = 0;; ++spins) {
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) break;
      if (spins < 100) continue;
      ::sched_yield();
      if (watch.seconds() > time_limit_)
        throw Error(
            "ranks", "",
            "an answer of the other ranks within " + std::to_string(std::int64_t(time_limit_)) + " s (--rank-timeout)",
            "none: one of them hangs, or has died");
    }
    requests.clear();
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;              // of its own: nobody else's messages are taken for these
  std::vector<std::vector<MPI_Request>> sent_;  // by slot
  std::vector<MPI_Request> received_;
  double time_limit_;
};

std::unique_ptr<StageMessages> messages_of_engine(int slots, double time_limit) {
  return std::make_unique<MpiMessages>(slots, time_limit);
}

#else

std::unique_ptr<StageMessages> messages_of_engine(int, double) {
  throw Error("ranks", "", "a program that is built with -DGRAVEN_MPI=ON, whose stages send each other values", "none");
}

#endif

}  // namespace

StagePipeline::StagePipeline(StagedModel& model) : model_(model), stage_(ranks_.rank() % model.stages()) {
  Ranks::divide(model.stages());
}
StagePipeline::~StagePipeline() = default;

void StagePipeline::start(const std::vector<Variable>& weights, const std::vector<Variable>& states,
                          double time_limit) {
  Ranks::peers().set_time_limit(time_limit);
  const auto hold = [&](const std::vector<Variable>& variables) {
    std::vector<Held> held;
    for (const Variable& v : variables) {
      held.push_back({v, Change::fixed, {}});
      for (const StagesOfVariable& known : model_.stages_of_variables())
        if (v.path == known.path) held.back().change = known.change, held.back().stages = known.stages;
    }
    return held;
  };
  weights_ = hold(weights);
  states_ = hold(states);
  model_.set_slots(stage_, slots());
  messages_ = model_.messages();
  if (messages_ == nullptr) {
    own_messages_ = messages_of_engine(slots(), time_limit);
    messages_ = own_messages_.get();
  }
}

void StagePipeline::send(int slot, Crossing::Phase phase) {
  const std::vector<Crossing>& crossings = model_.crossings(slot);
  for (std::size_t c = 0; c < crossings.size(); ++c)
    if (crossings[c].from == stage_ && crossings[c].phase == phase)
      messages_->send(slot, rank_of(crossings[c].to), static_cast<int>(c), crossings[c].data, crossings[c].bytes);
}

void StagePipeline::receive(int slot, Crossing::Phase phase) {
  const std::vector<Crossing>& crossings = model_.crossings(slot);
  for (std::size_t c = 0; c < crossings.size(); ++c)
    if (crossings[c].to == stage_ && crossings[c].phase == phase)
      messages_->receive(rank_of(crossings[c].from), static_cast<int>(c), crossings[c].data, crossings[c].bytes);
  messages_->finish_receiving();
}

void StagePipeline::forward(std::int64_t part, std::int64_t parts, const StageParts& parts_of_step) {
  const int slot = slot_of(part, parts);
  messages_->finish_sending(slot);
  model_.prepare(slot, parts_of_step(part, slot));
  receive(slot, Crossing::Phase::forward);
  model_.forward(stage_, slot);
  send(slot, Crossing::Phase::forward);
}

void StagePipeline::backward(std::int64_t part, std::int64_t parts) {
  const int slot = slot_of(part, parts);
  receive(slot, Crossing::Phase::backward);
  messages_->finish_sending(slot);  // backward may write where they lie
  model_.backward(stage_, slot);
  send(slot, Crossing::Phase::backward);
}

void StagePipeline::collect(std::int64_t before, std::int64_t parts, double* numbers) {
  for (; collected_ < before; ++collected_) loss_ += model_.results(stage_, slot_of(collected_, parts), numbers);
}

double StagePipeline::step(std::int64_t parts, const StageParts& part, double* numbers) {
  const std::int64_t ahead = std::min<std::int64_t>(slots() - 1, parts);
  collected_ = 0;
  loss_ = 0;
  for (std::int64_t p = 0; p < parts + ahead; ++p) {
    if (p < parts) {
      collect(p + 1 - slots(), parts, numbers);  // of the part that has had the slot
      forward(p, parts, part);
    }
    if (p >= ahead) backward(p - ahead, parts);
  }
  model_.finish_gradients();
  collect(parts, parts, numbers);
  // The update may write where the last part's gradients lie, which are still on their way to other stages.
  messages_->finish_sending(0);
  model_.begin_update(stage_);
  send(0, Crossing::Phase::update);
  receive(0, Crossing::Phase::update);
  messages_->finish_sending(0);
  model_.update(stage_);
  share_changed_weights();
  model_.end_step();
  return loss_;
}

/// Who reads a parameter of another stage gets what it is now.
void StagePipeline::share_changed_weights() {
  for (std::size_t w = 0; w < weights_.size(); ++w) {
    const Held& held = weights_[w];
    if (held.change == Change::fixed || held.stages.size() < 2 || !has(held)) continue;
    void* const place = model_.place_of(held.variable);
    const int tag = static_cast<int>(w), owner = held.stages[0];
    if (owner != stage_) {
      messages_->receive(rank_of(owner), tag, place, held.variable.bytes());
      continue;
    }
    for (std::size_t s = 1; s < held.stages.size(); ++s)
      messages_->send(0, rank_of(held.stages[s]), tag, place, held.variable.bytes());
  }
  messages_->finish_receiving();
  messages_->finish_sending(0);
}

bool StagePipeline::has(const Held& held) const {
  return std::find(held.stages.begin(), held.stages.end(), stage_) != held.stages.end();
}

/// The first rank's weights and states for the stages that have them.
void StagePipeline::hand_out() {
  if (ranks_.size() == 1) return;
  for (const std::vector<Held>* list : {&weights_, &states_})
    for (const Held& held : *list)
      for (const int stage : held.stages)
        for (int rank = stage; rank < ranks_.size(); rank += stages()) ranks_.bring(0, rank, held.variable);
  model_.weights_changed();
}

/// The first rank has what their owners have, and replicas what the first one has: behind a checkpoint those running
/// statistics that it holds.
void StagePipeline::bring_to_first() {
  if (ranks_.size() == 1) return;
  share_statistics();
  model_.weights_needed();
  for (const std::vector<Held>* list : {&weights_, &states_})
    for (const Held& held : *list)
      if (held.change != Change::fixed && !held.stages.empty()) ranks_.bring(held.stages[0], 0, held.variable);
}

void StagePipeline::share_statistics() {
  if (replicas() == 1) return;
  model_.weights_needed();
  for (const Held& held : weights_) {
    if (held.change != Change::observed) continue;
    ranks_.bring(held.stages[0], 0, held.variable);
    for (const int stage : held.stages)
      for (int rank = stage + stages(); rank < ranks_.size(); rank += stages()) ranks_.bring(0, rank, held.variable);
  }
  model_.weights_changed();
}

void StagePipeline::evaluate(std::int64_t parts, const StageParts& part, const EvaluatedPart& result) {
  const auto own_slots = std::int64_t{slots()};
  std::vector<StagePart> under_way(static_cast<std::size_t>(own_slots));
  for (std::int64_t p = 0; p < parts + own_slots; ++p) {
    const auto slot = static_cast<int>(p % own_slots);
    StagePart& own = under_way[static_cast<std::size_t>(slot)];
    if (p >= own_slots) result(p - own_slots, model_.evaluated(stage_, slot, own));
    messages_->finish_sending(slot);
    if (p >= parts) continue;
    own = part(p, slot);
    model_.prepare(slot, own);
    receive(slot, Crossing::Phase::evaluate);
    model_.evaluate(stage_, slot);
    send(slot, Crossing::Phase::evaluate);
  }
  model_.end_step();
}

bool StagePipeline::has_gradient(const std::string& parameter) const {
  for (const Held& held : weights_)
    if (held.variable.path == parameter) return replica() == 0 && stage_ == (held.stages.empty() ? 0 : held.stages[0]);
  return false;
}

}  // namespace graven::runtime
