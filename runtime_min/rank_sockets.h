// Ranks that speak by sockets, with no library: for programs whose devices add up the gradients (kernels/cuda/nccl.cuh)
// and whose processes have little to tell each other. Whatever starts processes starts them, if it says in the
// environment which one each is:
//
//   torchrun, or anybody        RANK, WORLD_SIZE
//   mpirun of Open MPI          OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//   mpiexec of MPICH and kin    PMI_RANK, PMI_SIZE
//   srun                        SLURM_PROCID, SLURM_STEP_NUM_TASKS
//
// They meet at the first rank: MASTER_ADDR and MASTER_PORT say where, as PyTorch's programs have it; without them at
// port 29500 of this machine. Below torchrun, which waits at that port itself, they meet at the next one.
#pragma once

#include <memory>
#include <string>

#include "rank_engine.h"

namespace graven::runtime {

/// Where this process stands among those that were started together.
struct RankPlace {
  int rank = 0, size = 1;
  std::string address;
  int port = 0;
};
/// As the environment has it; an Error where this makes no sense. One rank where nobody has started several.
RankPlace rank_place();

/// Waits for the others, a minute at most; nullptr where there is one rank. For Ranks::use().
std::unique_ptr<RankEngine> connect_by_sockets();
std::unique_ptr<RankEngine> connect_by_sockets(const RankPlace& place, double limit);

}  // namespace graven::runtime
