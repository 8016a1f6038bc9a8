// The picture of a finished run: report.html in its directory.
#pragma once

#include <string>

#include "train/trainer.h"

namespace tessera::cli {

// Writes report.html (self-contained) into the run directory; returns its path.
std::string write_training_report(const train::RunSummary& summary);

}  // namespace tessera::cli
