// How a launcher started this process, read from the environment; without LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::parallel {

struct Start {
  std::string launcher{};  // "mpirun", "srun" or "torchrun" (torchrun or a PyTorchJob)
  int64_t rank = 0, size = 1;
  int64_t local_rank = -1, local_size = -1;  // -1: processes of one machine find each other by its name
  // The store, where all processes meet. With `port_file` the first process chooses a free port and writes it
  // there.
  std::string host{};
  int64_t port = 0;
  std::string port_file{};
  bool served = false;   // the launcher serves the store; otherwise the first process does
  std::string prefix{};  // of the keys of this attempt
};

// Returns how this process was started; empty without a launcher, or if it is the only process. Throws a usage
// error for variables that contradict each other, are incomplete, or belong to two launchers.
std::optional<Start> read_start();

// Returns the number of processes that a launcher started with this one; 1 without a launcher. Never throws.
int64_t started_processes();

// Returns the first machine of a list of Slurm: "node003" of "node[003-010,12],gpu1".
std::string first_machine(const std::string& list);

}  // namespace tessera::parallel
