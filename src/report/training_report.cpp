#include "report/training_report.h"

namespace tessera::report {

std::string render(const TrainingReport& report) {
  Page page(report.title, report.subtitle);
  page.facts(report.facts);
  if (!report.warnings.empty()) {
    page.section("Worth knowing");
    for (const std::string& warning : report.warnings) page.paragraph(warning);
  }
  draw(page, ChartBlock{.heading = "Curves", .charts = report.charts});
  for (const Block& block : report.blocks) draw(page, block);
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
