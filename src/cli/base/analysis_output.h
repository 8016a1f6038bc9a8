// The findings of an analysis as a table on the terminal, JSON, CSV, SVG and a self-contained page.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/base/arguments.h"
#include "report/block.h"
#include "report/html.h"

namespace tessera::cli {

struct AnalysisOutput {
  std::string csv, svg, report;
  bool json = false;

  template <class V>
  void visit_files(V& v) {
    v("csv", csv, {.writes = Writes::file}, "write the first table to this file");
    v("svg", svg, {.writes = Writes::file}, "write the first drawing to this file");
    v("report", report, {.writes = Writes::file}, "write a page with everything to this .html file");
  }
  template <class V>
  void visit(V& v) {
    v("json", json, "one JSON object instead of tables");
    visit_files(v);
  }
};

// A part of a page: drawings, then images, then a table, each optional; then blocks with their own headings.
struct AnalysisSection {
  std::string heading{}, note{};
  std::vector<report::Drawing> drawings{};
  std::vector<report::Picture> pictures{};
  report::TableBlock table{};
  std::vector<report::Block> blocks{};
};

struct AnalysisFindings {
  std::string title, subtitle;
  std::vector<report::Fact> facts;
  std::vector<AnalysisSection> sections;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
};

// The tables of sections with their headings, to the terminal.
void print_sections(const std::vector<AnalysisSection>& sections);

// Draws a line chart for both screen widths.
report::Drawing line_drawing(const std::vector<report::Curve>& curves, report::ChartOptions options);
// Uses the same drawing, as wide as it must be, for both screen widths.
report::Drawing same_drawing(std::string svg);

// Opens the output files before the work, so that errors come first; writes everything at the end.
class AnalysisWriter {
 public:
  explicit AnalysisWriter(const AnalysisOutput& output);
  ~AnalysisWriter();
  AnalysisWriter(const AnalysisWriter&) = delete;
  // Prints tables to the terminal, or one JSON object; --csv gets the first table, --svg the first drawing.
  void write(const AnalysisFindings& findings);
  // Writes the files only.
  void write_files(const AnalysisFindings& findings);

 private:
  struct Files;
  AnalysisOutput output_;
  std::unique_ptr<Files> files_;
};

}  // namespace tessera::cli
