#include "report/block.h"

#include <algorithm>

#include "core/error.h"
#include "report/markup.h"

namespace tessera::report {
namespace {

// For charts on a phone with about 304 pixels of width: letters of 11 pixels stay above 10.
constexpr double kNarrowWidth = 320, kNarrowHeight = 230;

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "–";
  return compact(100 * static_cast<double>(part) / static_cast<double>(whole), 3) + " %";
}

// Returns a row per class, hardest first.
std::vector<std::vector<std::string>> class_rows(const Confusion& confusion) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < confusion.classes(); ++i) {
    const int64_t total = confusion.row_total(i);
    order.emplace_back(
        total > 0 ? static_cast<double>(confusion.count(i, i)) / static_cast<double>(total) : 2.0, i);
  }
  std::stable_sort(order.begin(), order.end());
  for (const auto& [recall, i] : order) {
    size_t taken_for = i;
    int64_t most = 0;
    for (size_t j = 0; j < confusion.classes(); ++j)
      if (j != i && confusion.count(i, j) > most) most = confusion.count(i, j), taken_for = j;
    const int64_t total = confusion.row_total(i), right = confusion.count(i, i);
    rows.push_back({confusion.class_names[i], text(total), percent(right, total),
                    percent(right, confusion.column_total(i)),
                    most > 0 ? text(confusion.class_names[taken_for], " (", most, ")") : "–"});
  }
  return rows;
}

// Draws the mistakes of more classes than a matrix can show.
std::string frequent_mistakes(const Confusion& confusion) {
  std::vector<Bar> bars;
  for (const ConfusedPair& pair : most_confused(confusion, 20))
    bars.push_back({confusion.class_names[pair.truth] + " taken for " + confusion.class_names[pair.predicted],
                    pair.share, text("of the class, ", pair.count, "x")});
  ChartOptions options;
  options.title = "Most frequent mistakes";
  options.width = 760;
  options.percent = true;
  return bar_chart(bars, options);
}

struct Drawer {
  Page& page;

  void operator()(const ChartBlock& block) const {
    if (block.charts.empty()) return;
    page.section(block.heading, block.note);
    std::vector<Drawing> drawings;
    for (const Chart& chart : block.charts) {
      ChartOptions narrow = chart.options;
      narrow.width = kNarrowWidth, narrow.height = kNarrowHeight;
      drawings.push_back({line_chart(chart.curves, chart.options), line_chart(chart.curves, narrow)});
    }
    page.drawings(drawings);
  }
  void operator()(const TableBlock& block) const {
    if (block.heading.empty() || block.rows.empty()) return;
    page.section(block.heading, block.note);
    page.table(block.columns, block.rows);
  }
  void operator()(const PicturesBlock& block) const {
    if (block.pictures.empty()) return;
    page.section(block.heading, block.note);
    page.pictures(block.legend);
    page.pictures(block.pictures, block.together);
  }
  void operator()(const ConfusionBlock& block) const {
    const Confusion& confusion = block.confusion;
    if (confusion.classes() == 0) return;
    check_confusion(confusion);
    page.section("Mistakes", text("Validation ", block.counted, ": what each class was taken for."));
    page.large_drawing(confusion.classes() <= kMostClasses ? confusion_chart(confusion)
                                                           : frequent_mistakes(confusion));
    page.section("Recall and precision", "For each class, hardest first.");
    page.table({{"class"},
                {block.counted, true},
                {"found (recall)", true},
                {"right (precision)", true},
                {"most often taken for"}},
               class_rows(confusion));
  }
  void operator()(const TextBlock& block) const {
    if (block.text.empty()) return;
    page.section(block.heading);
    page.paragraph(block.text);
  }
};

}  // namespace

void draw(Page& page, const Block& block) { std::visit(Drawer{page}, block); }

const TableBlock* find_table(const std::vector<Block>& blocks, const std::string& name) {
  for (const Block& block : blocks)
    if (const auto* table = std::get_if<TableBlock>(&block); table && table->name == name) return table;
  return nullptr;
}

}  // namespace tessera::report
