// The GPU of each of several training processes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera::parallel {

// Returns the GPU of process `local_rank` of the `local_size` on this machine, which sees `gpus` GPUs. That
// is the GPU of its number; the only one if the launcher gives each process its own (srun --gpus-per-task=1);
// else -1.
int gpu_of(int local_rank, int local_size, int gpus);

// True if this build can exchange gradients between GPUs.
bool has_nccl();
// Returns a name that is the same in all processes with this GPU, and unique to it; "" without NCCL.
std::string name_of_gpu(int index);

// Returns why the processes, by rank, cannot train on the GPUs with these names ("" for none); empty if they
// can.
std::string why_no_gpu_each(std::span<const std::string> names);

}  // namespace tessera::parallel
