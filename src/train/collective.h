// A task's interface to the other processes of a run.
#pragma once

#include <memory>

#include "parallel/world.h"
#include "tasks/base/task.h"

namespace tessera::train {

// `world` must outlive it.
std::unique_ptr<tasks::Collective> make_collective(parallel::World& world);

}  // namespace tessera::train
