// The data of a run, found and checked by the record that its newest checkpoint has of them.
//
//   "started_in": "../..",               the working folder, relative to the run's
//   "validation_data": "c626dc420ff0b339"
//
// A relative path is searched in the working folder first, then in the folder in which the run was started.
#pragma once

#include <string>

#include "core/value.h"
#include "data/base/source.h"
#include "open/ready_task.h"

namespace tessera::train {

// Returns the state in the newest checkpoint of the run that weights belong to (a run directory, or a file in it); null if
// there is none that can be read.
Value recorded_state(const std::string& weights);

// Returns the folder that relative paths of a run in `output` start at, relative to `output`, for the record.
std::string started_in(const std::string& output);

// Replaces relative paths that do not exist here by those from the folder in which the run was started. Returns a line that
// names them; "" if all paths are unchanged.
std::string find_run_data(data::SourceConfig& config, const std::string& weights);

// Adds a note if the validation set is not the one that the run recorded; none without a record.
void note_changed_data(OpenedTask& opened, const std::string& weights);

}  // namespace tessera::train
