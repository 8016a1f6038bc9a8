#include "report/training_report.h"

#include <algorithm>

#include "core/error.h"
#include "report/markup.h"

namespace tessera::report {
namespace {

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "–";
  return compact(100 * static_cast<double>(part) / static_cast<double>(whole), 3) + " %";
}

void add_curves(Page& page, const std::vector<Chart>& charts) {
  if (charts.empty()) return;
  page.section("Curves");
  std::vector<std::string> drawings;
  for (const Chart& chart : charts) drawings.push_back(line_chart(chart.curves, chart.options));
  page.drawings(drawings);
}

void add_class_table(Page& page, const Confusion& confusion) {
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
  page.table({{"class"},
              {"pictures", true},
              {"found (recall)", true},
              {"right (precision)", true},
              {"most often taken for"}},
             rows);
}

void add_confusion(Page& page, const Confusion& confusion) {
  if (confusion.classes() == 0) return;
  check_confusion(confusion);
  page.section("Mistakes", "Held-out pictures: what each class was taken for.");
  if (confusion.classes() <= kMostClasses) {
    page.drawings({confusion_chart(confusion)});
  } else {
    std::vector<Bar> bars;
    for (const ConfusedPair& pair : most_confused(confusion, 20))
      bars.push_back(
          {confusion.class_names[pair.truth] + " taken for " + confusion.class_names[pair.predicted],
           pair.share, text("of the class, ", pair.count, "x")});
    ChartOptions options;
    options.title = "Most frequent mistakes";
    options.width = 760;
    options.percent = true;
    page.drawings({bar_chart(bars, options)});
  }
  page.section("Classes", "Hardest first.");
  add_class_table(page, confusion);
}

void add_examples(Page& page, const std::vector<ExamplePrediction>& examples) {
  if (examples.empty()) return;
  const auto wrong =
      std::count_if(examples.begin(), examples.end(), [](const ExamplePrediction& e) { return !e.right; });
  page.section("Predictions",
               text(examples.size(), " held-out pictures, ", wrong, " of them wrong (framed red)."));
  std::vector<Picture> pictures;
  for (const ExamplePrediction& example : examples) {
    const std::string sure = compact(example.probability * 100, 3) + " % sure";
    pictures.push_back({example.picture, example.predicted,
                        example.right ? sure : sure + ", is " + example.label,
                        example.right ? Picture::Mark::good : Picture::Mark::bad});
  }
  page.pictures(pictures);
}

}  // namespace

std::string render(const TrainingReport& report) {
  Page page(report.title, report.subtitle);
  page.facts(report.facts);
  if (!report.warnings.empty()) {
    page.section("Worth knowing");
    for (const std::string& warning : report.warnings) page.paragraph(warning);
  }
  add_curves(page, report.charts);
  add_examples(page, report.examples);
  add_confusion(page, report.confusion);
  if (!report.recipe.empty()) {
    page.section("Recipe", "As resolved, every setting included; `tessera train` takes it as it is.");
    page.code(report.recipe);
  }
  if (!report.environment.empty()) {
    page.section("Made with");
    page.pairs(report.environment);
  }
  return page.finish();
}

}  // namespace tessera::report
