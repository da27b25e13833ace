#include "evaluation_calls.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace graven::runtime {

std::vector<EvaluationCall> evaluation_calls(const TrainingDescription& description, std::int64_t samples,
                                             std::int64_t batch) {
  std::vector<EvaluationCall> calls;
  for (std::int64_t first = 0; first < samples; first += batch) {
    // A fixed batch that the last samples do not fill: the first of them stands in the other rows.
    const std::int64_t count = std::min(batch, samples - first);
    calls.push_back({first, count, description.batch_is_symbolic ? count : batch, first, true});
  }
  if (calls.empty()) return calls;
  const EvaluationCall last = calls.back();
  if (last.rows == last.count || description.ignorable_labels >= 0) return calls;
  // A batch of that sample alone says what it adds there.
  calls.push_back({last.first, 0, last.rows, last.first, false});
  if (last.count == 1) return calls;
  // A mean or a sum over samples is the same whatever fills the batch. Another loss is told by this: of one sample
  // alone, whose copies fill it, nothing else is to be known.
  calls.push_back({last.first, last.count, last.rows, last.first + 1, false});
  calls.push_back({last.first, 0, last.rows, last.first + 1, false});
  return calls;
}

EvaluatedSet total_of(const TrainingDescription& description, const std::vector<EvaluationCall>& calls,
                      const std::vector<double>& results) {
  EvaluatedSet set;
  Evaluation& total = set.total;
  const auto loss_of = [&](std::size_t c) { return results[3 * c]; };
  for (std::size_t c = 0; c < calls.size() && calls[c].is_looked_at; ++c) {
    const EvaluationCall& call = calls[c];
    total.correct += static_cast<std::int64_t>(results[3 * c + 1]);
    total.labels += static_cast<std::int64_t>(results[3 * c + 2]);
    double loss_sum = loss_of(c);
    if (call.rows > call.count && description.ignorable_labels >= 0) {
      // The loss is that of the samples alone. Of a mean, evaluate() has made a sum over all rows.
      if (!description.loss_is_sum) loss_sum *= static_cast<double>(call.count) / static_cast<double>(call.rows);
    } else if (call.rows > call.count) {
      const double part_of_batch = static_cast<double>(call.rows - call.count) / static_cast<double>(call.rows);
      const double share = loss_of(c + 1) * part_of_batch;
      std::string unknown =
          std::isfinite(share) ? "" : "of a batch of sample " + std::to_string(call.first) + " alone is not finite";
      loss_sum -= share;
      if (call.count > 1) {
        const double others = loss_of(c + 2), other_share = loss_of(c + 3) * part_of_batch;
        const double apart = std::abs(loss_sum - (others - other_share));
        if (unknown.empty() && !(apart <= 1e-5 * (std::abs(loss_of(c)) + std::abs(others))))
          unknown = "is neither a mean nor a sum over the samples";
      }
      if (!unknown.empty()) {
        set.warning = "the test loss leaves out the last " + std::to_string(call.count) + " of " +
                      std::to_string(call.first + call.count) + " samples: they do not fill a batch of " +
                      std::to_string(call.rows) + ", and the loss " + unknown;
        if (call.first == 0)
          total = {.loss_sum = std::nan(""), .samples = call.count, .correct = total.correct, .labels = total.labels};
        break;
      }
    }
    total.loss_sum += loss_sum;
    total.samples += call.count;
  }
  return set;
}

}  // namespace graven::runtime
