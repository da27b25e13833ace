// The calls that evaluate a held-out set, and what comes of them. A fixed batch that the last samples do not fill is
// filled with copies of one of them, and further calls find what these add to the loss, where no label takes them out.
//
//   const std::vector<EvaluationCall> calls = evaluation_calls(description, samples, 64);
//   ...                                         // each is made by one rank: results[3 * c] and so on are what it gave
//   const EvaluatedSet set = total_of(description, calls, results);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train.h"

namespace graven::runtime {

/// The samples of a call: rows below `count` are those from `first` on, the others are sample `other`.
struct EvaluationCall {
  std::int64_t first, count, rows, other;
  bool is_looked_at;  ///< its labels, too: else only its loss
};

/// Of the batches of so many samples, and behind them of those that find what the rows of the last one add that are no
/// samples of their own.
std::vector<EvaluationCall> evaluation_calls(const TrainingDescription& description, std::int64_t samples,
                                             std::int64_t batch);

struct EvaluatedSet {
  Evaluation total{};
  std::string warning{};  ///< empty, or why the last samples are left out of the loss
};

/// `results`: of each call its loss, right answers and labels. They are added up in the order of the calls.
EvaluatedSet total_of(const TrainingDescription& description, const std::vector<EvaluationCall>& calls,
                      const std::vector<double>& results);

}  // namespace graven::runtime
