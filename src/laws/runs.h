// Points and curves from run directories and sweeps, by the files that a training leaves.
#pragma once

#include <string>
#include <vector>

#include "laws/points.h"

namespace tessera::laws {

struct RunOptions {
  std::string loss = "loss";        // the metric of an evaluation
  bool without_embeddings = false;  // excludes embeddings from the parameters (Kaplan et al. 2020)
};

// Reads every run below the directories: those with a metrics.jsonl and a recipe.toml. In a run's directory,
// other.json (`tessera eval --json` on other data) and probe.json (`tessera probe --json`) are optional. Runs that did not
// finish, and runs without a finite loss, are left out and named. Throws a usage error if there is no run, and
// with the known names if no evaluation has the loss.
Points read_runs(const std::vector<std::string>& directories, const RunOptions& options = {});

}  // namespace tessera::laws
