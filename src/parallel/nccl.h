// Private to this folder: gradients over GPUs by NCCL. nccl.cpp, or no_nccl.cpp in a build without it.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "parallel/collective_log.h"

namespace tessera::parallel {

c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            int gpu, std::shared_ptr<CollectiveLog> log);
// Logs the collectives that the GPU has completed.
void collect_nccl(c10d::Backend& backend);

}  // namespace tessera::parallel
