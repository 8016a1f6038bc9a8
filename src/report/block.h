// What an evaluation or a run has to show, as data: tasks make blocks, pages and terminals draw them.
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

// `heading` opens a section of the page, `note` stands under it.
struct ChartBlock {
  std::string heading{}, note{};
  std::vector<Chart> charts{};
};

// `name` is what a command asks for ("classes", "samples"); a table without a heading is for files alone.
struct TableBlock {
  std::string name{}, heading{}, note{};
  std::vector<Column> columns{};
  std::vector<std::vector<std::string>> rows{};
};

// `legend` stands before the pictures, of which each `together` belong side by side.
struct PicturesBlock {
  std::string heading{}, note{};
  std::vector<Picture> pictures{}, legend{};
  size_t together = 1;
};

struct ConfusionBlock {
  Confusion confusion{};
  std::string counted = "images";  // what the matrix counts
};

struct TextBlock {
  std::string heading{}, text{};
};

using Block = std::variant<ChartBlock, TableBlock, PicturesBlock, ConfusionBlock, TextBlock>;

// Puts the block onto the page; a block without content leaves nothing. Fails on a confusion matrix that is
// not classes x classes.
void draw(Page& page, const Block& block);

// The table of that name among the blocks; null if there is none.
const TableBlock* find_table(const std::vector<Block>& blocks, const std::string& name);

}  // namespace tessera::report
