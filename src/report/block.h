// The results of an evaluation or a run as data: tasks make blocks, pages and terminals draw them.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "report/charts.h"
#include "report/heat_map.h"
#include "report/html.h"

namespace tessera::report {

struct Chart {
  ChartOptions options{};
  std::vector<Curve> curves{};
};

// `heading` opens a section of the page; `note` follows it.
struct ChartBlock {
  std::string heading{}, note{};
  std::vector<Chart> charts{};
};

// Commands select a table by `name` ("classes", "samples"); without a heading it is only in files.
struct TableBlock {
  std::string name{}, heading{}, note{};
  std::vector<Column> columns{};
  std::vector<std::vector<std::string>> rows{};
};

// `legend` comes before the pictures; each group of `together` pictures stays side by side.
struct PicturesBlock {
  std::string heading{}, note{};
  std::vector<Picture> pictures{}, legend{};
  size_t together = 1;
};

struct ConfusionBlock {
  Confusion confusion{};
  std::string counted = "images";  // the unit of the counts
};

struct TextBlock {
  std::string heading{}, text{};
};

using Block = std::variant<ChartBlock, TableBlock, PicturesBlock, ConfusionBlock, TextBlock>;

// Adds the block to the page; a block without content adds nothing. Throws on a confusion matrix that is not
// classes x classes.
void draw(Page& page, const Block& block);

// Returns the table of that name among the blocks, or null.
const TableBlock* find_table(const std::vector<Block>& blocks, const std::string& name);

}  // namespace tessera::report
