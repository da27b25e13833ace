// What a program computes on, and the option that says so: threads of the processor, or a device.
//
//   Execution execution{.on_device = description.on_device, .threads = defaults.threads};
//   execution.add_option(arguments);   // --threads N, or --device N
//   model.start(execution.number(), ...);
#pragma once

#include <cstdint>

#include "arguments.h"
#include "machine.h"

namespace graven::runtime {

struct Execution {
  bool on_device = false;
  std::int64_t threads = 0;  ///< 0: one for each processor
  std::int64_t device = 0;
  bool no_cuda_graph = false;

  void add_option(Arguments& arguments) {
    if (on_device) {
      arguments.integer("device", device, 0, 4095, "N", "the CUDA device to compute on");
      arguments.flag("no-cuda-graph", no_cuda_graph,
                     "give the device each call by itself, instead of all as one recorded graph");
      arguments.refuse("threads", "all work is the CUDA device's; --device N chooses which");
    } else {
      arguments.integer("threads", threads, 0, 4096, "N", "0: one for each processor");
      for (const char* option : {"device", "no-cuda-graph"})
        arguments.refuse(option, "the program was emitted for the processor (emit with --target cuda for a device)");
    }
  }
  /// "threads" or "device", for reports.
  const char* name() const { return on_device ? "device" : "threads"; }
  int number() const {
    if (on_device) return static_cast<int>(device);
    return threads > 0 ? static_cast<int>(threads) : processor_count();
  }
};

}  // namespace graven::runtime
