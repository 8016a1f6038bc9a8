// Which GPU each of several processes trains on.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera::parallel {

// The GPU of process `local_rank` of the `local_size` on this machine, which sees `gpus` of them: that of its
// number; the only one where the launcher shows each process its own (srun --gpus-per-task=1); else -1.
int gpu_of(int local_rank, int local_size, int gpus);

// Whether this build exchanges gradients between GPUs.
bool has_nccl();
// The same in every process that sees this GPU, and only there; "" where the build is without NCCL.
std::string name_of_gpu(int index);

// Why processes, by rank, cannot train on the GPUs with these names ("" for none); empty if they can.
std::string why_no_gpu_each(std::span<const std::string> names);

}  // namespace tessera::parallel
