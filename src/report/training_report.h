// The report of a finished training run: curves, results of its task, and recipe, in one page.
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
  std::vector<Block> blocks;                                     // from the task
  std::string recipe;                                            // TOML, as resolved
  std::vector<std::pair<std::string, std::string>> environment;  // "threads" -> "2"
  std::vector<std::string> warnings;  // important for readers: bad images, fallbacks
};

// Returns the whole page; leaves out sections without content.
std::string render(const TrainingReport& report);
// Returns a page of render() with a block appended that was measured later; replaces an older block of that
// `name`.
std::string with_later_block(std::string page, const std::string& name, const Block& block,
                             const std::string& heading);

}  // namespace tessera::report
