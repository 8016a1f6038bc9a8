// The processes of a run as a task's loss sees them.
#pragma once

#include <memory>

#include "parallel/world.h"
#include "tasks/base/task.h"

namespace tessera::train {

// `world` must outlive it.
std::unique_ptr<tasks::Collective> make_collective(parallel::World& world);

}  // namespace tessera::train
