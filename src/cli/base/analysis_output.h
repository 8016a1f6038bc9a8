// What an analysis found, as a table on the terminal, JSON, CSV, SVG and one self-contained page: each kind of analysis makes the
// findings, this draws them.
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
    v("csv", csv, "write the first table to this file");
    v("svg", svg, "write the first drawing to this file");
    v("report", report, "write a page with everything to this .html file");
  }
  template <class V>
  void visit(V& v) {
    v("json", json, "one JSON object instead of tables");
    visit_files(v);
  }
};

// A part of a page: drawings, then images, then a table, each of which may be missing; then blocks with headings of their own.
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

// A line chart for both widths of screen.
report::Drawing line_drawing(const std::vector<report::Curve>& curves, report::ChartOptions options);
// A drawing that is as wide as it must be on both.
report::Drawing same_drawing(std::string svg);

// Files that will be written, opened before the work so that what cannot be written is said first; then everything is put out.
class AnalysisWriter {
 public:
  explicit AnalysisWriter(const AnalysisOutput& output);
  ~AnalysisWriter();
  AnalysisWriter(const AnalysisWriter&) = delete;
  // Tables to the terminal, or one JSON object; --csv gets the first table, --svg the first drawing.
  void write(const AnalysisFindings& findings);
  // The files alone.
  void write_files(const AnalysisFindings& findings);

 private:
  struct Files;
  AnalysisOutput output_;
  std::unique_ptr<Files> files_;
};

}  // namespace tessera::cli
