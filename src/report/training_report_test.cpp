#include "report/training_report.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "report/report_testing.h"

namespace tessera::report {
namespace {

using testing::XmlReader;

TrainingReport small_report(const std::vector<std::string>& classes) {
  TrainingReport report;
  report.title = "runs/" + classes[0];
  report.subtitle = "vit on " + classes[1];
  report.facts = {{"top-1", "95.4 %", "of " + classes[2]}};
  report.charts = {
      {{.title = "Loss " + classes[0], .x_label = classes[1]}, {{classes[2], {{0, 2}, {1, 1}}}}}};
  PicturesBlock pictures{.heading = "Predictions", .note = "of " + classes[1]};
  pictures.pictures = {{Image(8, 8), classes[0], "90 % sure", Picture::Mark::good},
                       {Image(8, 8), classes[2], "50 % sure, is " + classes[1], Picture::Mark::bad}};
  TableBlock table{.name = "best", .heading = "Best " + classes[0]};
  table.columns = {{"class " + classes[1]}, {"score", true}};
  table.rows = {{classes[2], "1"}};
  report.blocks = {pictures, ConfusionBlock{{classes, {5, 1, 0, 0, 6, 0, 2, 0, 4}}}, table,
                   TextBlock{"Words of " + classes[0], "more of " + classes[1]}};
  report.recipe = "[data]\npath = \"" + classes[0] + "\"\n";
  report.environment = {{classes[0], classes[1]}};
  report.warnings = {"2 bad images in " + classes[1]};
  return report;
}

TEST(TrainingReport, HoldsWhatItWasGiven) {
  const std::string page = render(small_report({"circle", "square", "star"}));
  const XmlReader xml(page);
  EXPECT_EQ(xml.problem, "");
  for (const char* part : {"runs/circle", "95.4 %", "Loss circle", "star taken for circle: 2 of 6 (33.3 %)",
                           "50 % sure, is square", "path = &quot;circle&quot;", "2 bad images in square",
                           "class square", "more of square"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(std::count(xml.tags.begin(), xml.tags.end(), "img"), 2);
  EXPECT_EQ(std::count(xml.tags.begin(), xml.tags.end(), "svg"), 3);  // a chart in two widths, and the matrix
}

// FID over the checkpoints of a run is added after its report is written; a second result replaces the first.
TEST(TrainingReport, TakesABlockLater) {
  const std::string page = render(small_report({"circle", "square", "star"}));
  const auto block = [](const char* words) { return TextBlock{"FID over the checkpoints", words}; };
  const std::string once =
                        with_later_block(page, "checkpoints", block("round 1"), "FID over the checkpoints"),
                    twice =
                        with_later_block(once, "checkpoints", block("round 2"), "FID over the checkpoints");
  const XmlReader xml(twice);
  EXPECT_EQ(xml.problem, "");
  EXPECT_NE(once.find("round 1"), std::string::npos);
  EXPECT_EQ(twice.find("round 1"), std::string::npos);
  EXPECT_NE(twice.find("<a href=\"#checkpoints\">FID over the checkpoints</a></nav>"), std::string::npos);
  EXPECT_EQ(twice.size(), once.size());
  EXPECT_THROW(with_later_block("no page", "checkpoints", block("round 1"), ""), Error);
}

TEST(TrainingReport, PicturesThatBelongTogetherStaySideBySide) {
  PicturesBlock block{.heading = "Masks", .legend = {{Image(8, 8), "sky", ""}}, .together = 3};
  for (int i = 0; i < 6; ++i) block.pictures.push_back({Image(8, 8), text("picture ", i), ""});
  Page page("t");
  draw(page, block);
  const std::string markup = page.finish();
  const XmlReader xml(markup);
  EXPECT_EQ(xml.problem, "");
  size_t groups = 0;
  for (size_t at = 0; (at = markup.find("<div class=\"together\">", at)) != std::string::npos; ++at) ++groups;
  EXPECT_EQ(groups, 2u);
  const size_t second = markup.rfind("<div class=\"together\">");
  EXPECT_LT(markup.find("picture 2"), second);
  EXPECT_GT(markup.find("picture 3"), second);
  EXPECT_LT(markup.find("sky"), markup.find("<div class=\"together\">"));
  block.together = 4;
  EXPECT_THROW(draw(page, block), Error);
}

// A phone leaves about 304 pixels for a chart; charts scaled down to that must stay readable.
TEST(TrainingReport, LettersOfChartsAreLargeEnoughOnATelephone) {
  const std::string page = render(small_report({"circle", "square", "star"}));
  const size_t narrow = page.find("class=\"narrow\"><svg");
  ASSERT_NE(narrow, std::string::npos);
  const double width = std::stod(page.substr(page.find(" width=\"", narrow) + 8));
  EXPECT_GE(11.0 * 304 / width, 10.0);
  for (const char* rule : {".narrow{display:none}", ".wide{display:none}.narrow{display:block}",
                           ".drawings.scrolled{overflow-x:auto}", "td{padding:6px 28px 6px 0"})
    EXPECT_NE(page.find(rule), std::string::npos) << rule;
  const size_t cells = page.find("td{padding:6px 28px 6px 0");
  EXPECT_NE(page.substr(cells, 200).find("overflow-wrap:break-word"), std::string::npos)
      << "names break between words";
}

TEST(TrainingReport, TablesAreFoundByName) {
  const TrainingReport report = small_report({"circle", "square", "star"});
  ASSERT_NE(find_table(report.blocks, "best"), nullptr);
  EXPECT_EQ(find_table(report.blocks, "best")->rows[0][0], "star");
  EXPECT_EQ(find_table(report.blocks, "worst"), nullptr);
}

TEST(TrainingReport, HostileNamesStayWords) {
  const std::string page = render(small_report({"</style><script>alert(1)</script>", "\" onload=\"alert(2)",
                                                "<img src=x onerror=alert(3)>\xFF\x01&"}));
  const XmlReader xml(page);
  EXPECT_EQ(xml.problem, "");
  EXPECT_EQ(std::count(xml.tags.begin(), xml.tags.end(), "script"), 0);
  EXPECT_EQ(std::count(xml.tags.begin(), xml.tags.end(), "img"), 2);
  EXPECT_EQ(page.find("onload=\""), std::string::npos);
}

TEST(TrainingReport, AsksNothingOfTheNetwork) {
  const std::string page = render(small_report({"a", "b", "c"}));
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  for (const std::string& value : XmlReader(page).values) {
    const bool namespace_name = value == "http://www.w3.org/2000/svg";
    EXPECT_TRUE(namespace_name || value.find("//") == std::string::npos || value.starts_with("data:image/"))
        << value;
  }
  for (const char* loader : {"<script", "<link", "@import", "url("})
    EXPECT_EQ(page.find(loader), std::string::npos) << loader;
}

TEST(TrainingReport, SectionsWithoutContentAreLeftOut) {
  TrainingReport report;
  report.title = "empty";
  const XmlReader xml(render(report));
  EXPECT_EQ(xml.problem, "");
  EXPECT_EQ(std::count(xml.tags.begin(), xml.tags.end(), "section"), 0);
}

TEST(TrainingReport, ManyClassesGetAListInsteadOfAMatrix) {
  TrainingReport report;
  report.title = "imagenet";
  constexpr size_t kClasses = 1000;
  Confusion confusion;
  for (size_t i = 0; i < kClasses; ++i) confusion.class_names.push_back("class " + std::to_string(i));
  confusion.counts.assign(kClasses * kClasses, 0);
  for (size_t i = 0; i < kClasses; ++i) confusion.counts[i * kClasses + (i * 7) % kClasses] = 50;
  report.blocks = {ConfusionBlock{confusion}};
  const std::string page = render(report);
  EXPECT_EQ(XmlReader(page).problem, "");
  EXPECT_LT(page.size(), 400000u);
  EXPECT_NE(page.find("Most frequent mistakes"), std::string::npos);
}

TEST(TrainingReport, RefusesAMatrixOfAnotherSize) {
  TrainingReport report = small_report({"a", "b", "c"});
  std::get<ConfusionBlock>(report.blocks[1]).confusion.counts.pop_back();
  EXPECT_THROW(render(report), Error);
}

}  // namespace
}  // namespace tessera::report
