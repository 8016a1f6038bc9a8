#include "report/training_report.h"

#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "report/markup.h"

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

std::string with_later_block(std::string page, const std::string& name, const Block& block,
                             const std::string& heading) {
  constexpr std::string_view kBegin = "<section id=\"", kEnd = "</section>\n", kMain = "</main>",
                             kNav = "</nav>";
  Page alone(name);
  draw(alone, block);
  const std::string drawn = alone.finish();
  const size_t begin = drawn.find(kBegin), words = drawn.find("\">", begin), end = drawn.rfind(kEnd);
  if (begin == std::string::npos || end == std::string::npos) return page;  // a block without content
  const std::string opening = text(kBegin, name, "\">");
  const std::string section = opening + drawn.substr(words + 2, end - words - 2) + std::string(kEnd);
  if (const size_t older = page.find(opening); older != std::string::npos)
    return page.replace(older, page.find(kEnd, older) + kEnd.size() - older, section);
  check(page.find(kMain) != std::string::npos, "the report is not a page of a run: it has no '", kMain, "'");
  page.insert(page.rfind(kMain), section);
  if (const size_t contents = page.find(kNav); contents != std::string::npos)
    page.insert(contents, text("<a href=\"#", name, "\">", escape(heading), "</a>"));
  return page;
}

}  // namespace tessera::report
