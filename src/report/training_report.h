// What a finished training run leaves for people: curves, what its task shows, recipe, in one page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/block.h"

namespace tessera::report {

struct TrainingReport {
  std::string title;     // the run's name
  std::string subtitle;  // one line: model, data, result
  std::vector<Fact> facts;
  std::vector<Chart> charts;
  std::vector<Block> blocks;                                     // of the task
  std::string recipe;                                            // TOML, as resolved
  std::vector<std::pair<std::string, std::string>> environment;  // "threads" -> "2"
  std::vector<std::string> warnings;  // bad images, fallbacks: what a reader must know
};

// The whole page as text; sections without content are left out.
std::string render(const TrainingReport& report);
// A page of render() with a block at its end that was measured afterwards, in the place of an older one of that `name`.
std::string with_later_block(std::string page, const std::string& name, const Block& block,
                             const std::string& heading);

}  // namespace tessera::report
