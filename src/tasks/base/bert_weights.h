// First weights of a BERT (models/language/bert.h) that a task trains.
#pragma once

#include <string>

#include "models/language/bert.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

// Copies the weights at `path`: a run of task bert, or a folder or file of a published model. Heads that the file lacks
// keep their values. Throws Error for other tensors that are missing or have other shapes than those of `key`, the
// encoder's settings.
void begin_bert(models::Bert& bert, const std::string& path, const WeightsOpener& opener,
                const std::string& key);

}  // namespace tessera::tasks
