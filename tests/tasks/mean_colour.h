// The task that tests bring themselves.
#pragma once

#include "tasks/base/registry.h"

namespace tessera::tasks {

TaskKind mean_colour_kind();

}  // namespace tessera::tasks
