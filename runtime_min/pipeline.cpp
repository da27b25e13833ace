#include "pipeline.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "error.h"
#include "stopwatch.h"
#ifdef GRAVEN_MPI
#include <mpi.h>
#endif

namespace graven::runtime {

#ifdef GRAVEN_MPI

/// What goes from one rank to another. Sends are begun and go on beside the calls that follow; whoever writes where
/// they read waits for them first.
struct StagePipeline::Messages {
  MPI_Comm ranks = MPI_COMM_NULL;              // of its own: nobody else's messages are taken for these
  std::vector<std::vector<MPI_Request>> sent;  // by slot
  std::vector<MPI_Request> others;
  double time_limit;

  Messages(int slots, double limit) : sent(static_cast<std::size_t>(slots)), time_limit(limit) {
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
  }
  ~Messages() {
    int finished = 0;
    MPI_Finalized(&finished);
    if (finished == 0) MPI_Comm_free(&ranks);
  }

  /// Counts are ints.
  template <class F>
  static void in_pieces(void* data, std::size_t bytes, const F& piece) {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    for (std::size_t done = 0; done < bytes; done += kMost)
      piece(static_cast<std::byte*>(data) + done, static_cast<int>(std::min(kMost, bytes - done)));
  }
  void send(std::vector<MPI_Request>& requests, int to, int tag, void* data, std::size_t bytes) {
    in_pieces(data, bytes, [&](std::byte* at, int count) {
      MPI_Isend(at, count, MPI_BYTE, to, tag, ranks, &requests.emplace_back());
    });
  }
  void receive(int from, int tag, void* data, std::size_t bytes) {
    in_pieces(data, bytes, [&](std::byte* at, int count) {
      MPI_Irecv(at, count, MPI_BYTE, from, tag, ranks, &others.emplace_back());
    });
  }
  void broadcast(int from, void* data, std::size_t bytes) {
    in_pieces(data, bytes,
              [&](std::byte* at, int count) { MPI_Ibcast(at, count, MPI_BYTE, from, ranks, &others.emplace_back()); });
    wait(others);
  }
  void wait(std::vector<MPI_Request>& requests) {
    const Stopwatch watch;
    for (int spins = 0, done = 0;; ++spins) {
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) break;
      if (spins < 100) continue;
      ::sched_yield();
      if (watch.seconds() > time_limit)
        throw Error(
            "ranks", "",
            "an answer of the other ranks within " + std::to_string(std::int64_t(time_limit)) + " s (--rank-timeout)",
            "none: one of them hangs, or has died");
    }
    requests.clear();
  }
};

#else

/// One rank: there is nobody to send to.
struct StagePipeline::Messages {
  std::vector<std::vector<int>> sent;
  std::vector<int> others;
  Messages(int slots, double) : sent(static_cast<std::size_t>(slots)) {}
  void send(std::vector<int>&, int, int, void*, std::size_t) {}
  void receive(int, int, void*, std::size_t) {}
  void broadcast(int, void*, std::size_t) {}
  void wait(std::vector<int>&) {}
};

#endif

StagePipeline::StagePipeline(StagedModel& model) : model_(model), stage_(ranks_.rank() % model.stages()) {
  Ranks::divide(model.stages());
}
StagePipeline::~StagePipeline() = default;

void StagePipeline::start(const std::vector<Variable>& weights, const std::vector<Variable>& states,
                          double time_limit) {
  messages_ = std::make_unique<Messages>(slots(), time_limit);
  Ranks::peers().set_time_limit(time_limit);
  const auto hold = [&](const std::vector<Variable>& variables) {
    std::vector<Held> held;
    for (const Variable& v : variables) {
      held.push_back({v, false, {}});
      for (const StagesOfVariable& known : model_.stages_of_variables())
        if (v.path == known.path) held.back().changes = known.changes, held.back().stages = known.stages;
    }
    return held;
  };
  weights_ = hold(weights);
  states_ = hold(states);
  model_.set_slots(slots());
}

void StagePipeline::send(int slot, Crossing::Phase phase) {
  const std::vector<Crossing>& crossings = model_.crossings(slot);
  for (std::size_t c = 0; c < crossings.size(); ++c)
    if (crossings[c].from == stage_ && crossings[c].phase == phase)
      messages_->send(messages_->sent[static_cast<std::size_t>(slot)], rank_of(crossings[c].to), static_cast<int>(c),
                      crossings[c].data, crossings[c].bytes);
}

void StagePipeline::receive(int slot, Crossing::Phase phase) {
  const std::vector<Crossing>& crossings = model_.crossings(slot);
  for (std::size_t c = 0; c < crossings.size(); ++c)
    if (crossings[c].to == stage_ && crossings[c].phase == phase)
      messages_->receive(rank_of(crossings[c].from), static_cast<int>(c), crossings[c].data, crossings[c].bytes);
  messages_->wait(messages_->others);
}

double StagePipeline::forward(std::int64_t part, std::int64_t parts, const StageParts& parts_of_step, double* numbers) {
  const int slot = slot_of(part, parts);
  messages_->wait(messages_->sent[static_cast<std::size_t>(slot)]);
  const StagePart given = parts_of_step(part, slot);
  model_.prepare(slot, given);
  receive(slot, Crossing::Phase::forward);
  const double loss = model_.forward(stage_, slot, numbers);
  send(slot, Crossing::Phase::forward);
  return loss;
}

void StagePipeline::backward(std::int64_t part, std::int64_t parts) {
  const int slot = slot_of(part, parts);
  receive(slot, Crossing::Phase::backward);
  messages_->wait(messages_->sent[static_cast<std::size_t>(slot)]);  // backward may write where they lie
  model_.backward(stage_, slot);
  send(slot, Crossing::Phase::backward);
}

double StagePipeline::step(std::int64_t parts, const StageParts& part, double* numbers) {
  const std::int64_t ahead = std::min<std::int64_t>(slots() - 1, parts);
  double loss = 0;
  for (std::int64_t p = 0; p < ahead; ++p) loss += forward(p, parts, part, numbers);
  for (std::int64_t p = ahead; p < parts; ++p) {
    loss += forward(p, parts, part, numbers);
    backward(p - ahead, parts);
  }
  for (std::int64_t p = parts - ahead; p < parts; ++p) backward(p, parts);
  Ranks::peers().finish();  // now each gradient is the mean of all replicas'
  // The update may write where the last part's gradients lie, which are still on their way to other stages.
  messages_->wait(messages_->sent[0]);
  model_.begin_update(stage_);
  send(0, Crossing::Phase::update);
  receive(0, Crossing::Phase::update);
  messages_->wait(messages_->sent[0]);
  model_.update(stage_);
  // Who reads a parameter of another stage gets what it is now.
  for (std::size_t w = 0; w < weights_.size(); ++w) {
    const Held& held = weights_[w];
    if (!held.changes || held.stages.size() < 2 || !has(held)) continue;
    const Variable& v = held.variable;
    if (held.stages[0] != stage_) {
      messages_->receive(rank_of(held.stages[0]), static_cast<int>(w), v.data, v.bytes());
      continue;
    }
    for (std::size_t s = 1; s < held.stages.size(); ++s)
      messages_->send(messages_->others, rank_of(held.stages[s]), static_cast<int>(w), v.data, v.bytes());
  }
  messages_->wait(messages_->others);
  return loss;
}

bool StagePipeline::has(const Held& held) const {
  return std::find(held.stages.begin(), held.stages.end(), stage_) != held.stages.end();
}

/// The first rank's weights and states for the stages that have them.
void StagePipeline::hand_out() {
  if (ranks_.size() == 1) return;
  for (const std::vector<Held>* list : {&weights_, &states_})
    for (const Held& held : *list) {
      const Variable& v = held.variable;
      for (const int stage : held.stages)
        for (int rank = stage; rank < ranks_.size(); rank += stages()) {
          if (rank == 0) continue;
          if (ranks_.is_first()) messages_->send(messages_->others, rank, 0, v.data, v.bytes());
          if (rank == ranks_.rank()) messages_->receive(0, 0, v.data, v.bytes());
        }
      messages_->wait(messages_->others);
    }
}

/// The first rank has what their owners have, and replicas what the first one has: running statistics are each one's
/// own while it trains, and behind a checkpoint those that it holds.
void StagePipeline::bring_to_first() {
  if (ranks_.size() == 1) return;
  if (replicas() > 1)
    for (const Held& held : weights_)
      if (held.changes && has(held)) Ranks::peers().broadcast(held.variable.data, held.variable.bytes());
  for (const std::vector<Held>* list : {&weights_, &states_})
    for (const Held& held : *list) {
      const int owner = held.stages.empty() ? 0 : held.stages[0];
      if (!held.changes || owner == 0) continue;
      const Variable& v = held.variable;
      if (ranks_.is_first()) messages_->receive(owner, 0, v.data, v.bytes());
      if (owner == ranks_.rank()) messages_->send(messages_->others, 0, 0, v.data, v.bytes());
      messages_->wait(messages_->others);
    }
}

/// Every rank has all weights: each then evaluates samples of its own.
void StagePipeline::bring_to_all() {
  if (ranks_.size() == 1) return;
  for (const Held& held : weights_)
    messages_->broadcast(held.stages.empty() ? 0 : held.stages[0], held.variable.data, held.variable.bytes());
}

bool StagePipeline::has_gradient(const std::string& parameter) const {
  for (const Held& held : weights_)
    if (held.variable.path == parameter) return replica() == 0 && stage_ == (held.stages.empty() ? 0 : held.stages[0]);
  return false;
}

}  // namespace graven::runtime
