// The workloads that Graven is measured on: the networks of peers/workloads.py, written with the C++ frontend.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace graven::bench {

/// A workload, recorded: the graph and its initial weights by name.
struct Workload {
  ir::Graph graph;
  std::map<std::string, std::shared_ptr<const ir::TensorData>> weights;
  double trace_seconds = 0;  ///< recording build(), without making the network and its initial values
};

std::vector<std::string> workload_names();
/// User error naming the known ones when it is unknown.
Workload make_workload(const std::string& name);

}  // namespace graven::bench
