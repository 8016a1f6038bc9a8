#include "cli/base/analysis_output.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <optional>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "report/heat_map.h"

namespace tessera::cli {
namespace {

void print_table(const report::TableBlock& table) {
  std::vector<size_t> widths;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    size_t width = table.columns[c].name.size();
    for (const auto& row : table.rows) width = std::max(width, one_line(row.at(c)).size());
    widths.push_back(width);
  }
  const auto line = [&](const auto& cell) {
    std::string out;
    for (size_t c = 0; c < widths.size(); ++c) {
      const std::string words = one_line(cell(c));
      const std::string blanks(widths[c] - std::min(widths[c], words.size()), ' ');
      out += (c ? "  " : "") + (table.columns[c].number ? blanks + words : words + blanks);
    }
    while (out.ends_with(' ')) out.pop_back();
    std::cout << out << "\n";
  };
  line([&](size_t c) { return table.columns[c].name; });
  for (const auto& row : table.rows) line([&](size_t c) { return row[c]; });
}

// Returns an SVG: the section's own, else the first chart of its blocks, or the first matrix of classes; ""
// without any.
std::string first_drawing(const AnalysisSection& section) {
  if (!section.drawings.empty()) return section.drawings[0].wide;
  for (const report::Block& block : section.blocks) {
    if (const auto* charts = std::get_if<report::ChartBlock>(&block); charts && !charts->charts.empty())
      return line_drawing(charts->charts[0].curves, charts->charts[0].options).wide;
    const auto* matrix = std::get_if<report::ConfusionBlock>(&block);
    const size_t classes = matrix ? matrix->confusion.classes() : 0;
    if (classes > 0 && classes <= report::kMostClasses) return report::confusion_chart(matrix->confusion);
  }
  return "";
}

std::string page_of(const AnalysisFindings& findings) {
  report::Page page(findings.title, findings.subtitle);
  page.facts(findings.facts);
  for (const AnalysisSection& section : findings.sections) {
    if (!section.heading.empty()) page.section(section.heading, section.note);  // blocks open their own
    page.drawings(section.drawings);
    page.pictures(section.pictures);
    if (!section.table.rows.empty()) page.table(section.table.columns, section.table.rows);
    for (const report::Block& block : section.blocks) report::draw(page, block);
  }
  return page.finish();
}

}  // namespace

struct AnalysisWriter::Files {
  std::optional<AtomicFile> csv, svg, report;
};

void print_sections(const std::vector<AnalysisSection>& sections) {
  for (const AnalysisSection& section : sections)
    if (!section.table.columns.empty()) {
      std::cout << "\n" << section.heading << "\n";
      print_table(section.table);
    }
}

report::Drawing line_drawing(const std::vector<report::Curve>& curves, report::ChartOptions options) {
  options.width = 720;
  report::ChartOptions narrow = options;
  narrow.width = 320, narrow.height = 230;
  return {report::line_chart(curves, options), report::line_chart(curves, narrow)};
}

report::Drawing same_drawing(std::string svg) { return {svg, svg}; }

AnalysisWriter::AnalysisWriter(const AnalysisOutput& output)
    : output_(output), files_(std::make_unique<Files>()) {
  if (!output.csv.empty()) files_->csv.emplace(output.csv);
  if (!output.svg.empty()) files_->svg.emplace(output.svg);
  if (!output.report.empty()) files_->report.emplace(output.report);
}

AnalysisWriter::~AnalysisWriter() = default;

void AnalysisWriter::write(const AnalysisFindings& findings) {
  if (output_.json) {
    std::cout << json_text(findings.json) << "\n";
  } else {
    std::cout << one_line(findings.title) << "\n" << one_line(findings.subtitle) << "\n";
    print_sections(findings.sections);
  }
  write_files(findings);
}

void AnalysisWriter::write_files(const AnalysisFindings& findings) {
  const report::TableBlock* table = nullptr;
  std::string drawing;
  for (const AnalysisSection& section : findings.sections) {
    if (!table && !section.table.columns.empty()) table = &section.table;
    if (drawing.empty()) drawing = first_drawing(section);
  }
  // Both paths are checked before a file is written.
  if (files_->csv && !table) fail_usage("--csv: this analysis has no table");
  if (files_->svg && drawing.empty()) fail_usage("--svg: this analysis has no drawing");
  if (files_->csv) {
    files_->csv->write(csv_of(*table));
    files_->csv->commit();
  }
  if (files_->svg) {
    files_->svg->write(drawing + "\n");
    files_->svg->commit();
  }
  if (files_->report) {
    files_->report->write(page_of(findings));
    files_->report->commit();
  }
}

}  // namespace tessera::cli
