#include "cli/measure/eval_shots.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/measure/eval_rows.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "open/device.h"
#include "open/open_language.h"
#include "tasks/language/few_shot.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostShots = 10000;

std::vector<int64_t> parse_shots(const std::string& list) {
  std::vector<int64_t> shots;
  for (const std::string& word : split(list, ',')) {
    const auto one = parse_int(trim(word));
    if (!one || *one < 0 || *one > kMostShots)
      fail_usage("--shots '", printable(list), "' must be numbers of examples from 0 to ", kMostShots,
                 ", such as 0,1,4,16");
    if (std::ranges::find(shots, *one) != shots.end()) fail_usage("--shots names ", *one, " twice");
    shots.push_back(*one);
  }
  return shots;
}

constexpr const char* kPattern = "{text}\nLabel: {label}\n\n";

// "\n" in an option of a shell is a line break.
std::string with_line_breaks(std::string pattern) {
  if (pattern.empty()) return kPattern;
  for (size_t at = 0; (at = pattern.find("\\n", at)) != std::string::npos; ++at) pattern.replace(at, 2, "\n");
  return pattern;
}

struct ShotRow {
  std::string weights;
  int64_t shots = 0;
  tasks::ShotScores scores;
  double seconds = 0;
  double top1() const { return static_cast<double>(scores.right) / static_cast<double>(scores.samples); }
  double rate() const { return static_cast<double>(scores.samples) / seconds; }
  eval::Interval interval() const { return interval_of_share(top1(), scores.samples); }
};

void print_row(const ShotRow& row, bool header) {
  if (header) std::cout << " shots  samples        top1    95 % of it        loss    texts/s\n";
  const eval::Interval interval = row.interval();
  std::cout << std::setw(6) << row.shots << std::setw(9) << row.scores.samples << std::setw(12)
            << fixed(100 * row.top1(), 2) + " %" << std::setw(14)
            << fixed(100 * interval.low, 2) + "-" + fixed(100 * interval.high, 2) << std::setw(12)
            << fixed(row.scores.loss, 4) << std::setw(11) << fixed(row.rate(), 1) << "\n";
}

Json json_of_row(const ShotRow& row, const std::string& data) {
  const eval::Interval interval = row.interval();
  return {{"weights", row.weights},
          {"data", data},
          {"shots", row.shots},
          {"samples", row.scores.samples},
          {"top1", row.top1()},
          {"top1_low", interval.low},
          {"top1_high", interval.high},
          {"loss", row.scores.loss},
          {"texts_per_second", row.rate()}};
}

AnalysisFindings findings_of(const std::vector<ShotRow>& rows, const std::string& data) {
  report::TableBlock table{.name = "rows"};
  table.columns = {{"weights"},        {"shots", true},     {"samples", true}, {"top1", true},
                   {"top1_low", true}, {"top1_high", true}, {"loss", true},    {"texts_per_second", true}};
  std::vector<report::Curve> curves;
  for (const ShotRow& row : rows) {
    const eval::Interval interval = row.interval();
    table.rows.push_back({row.weights, text(row.shots), text(row.scores.samples), fixed(row.top1(), 4),
                          fixed(interval.low, 4), fixed(interval.high, 4), fixed(row.scores.loss, 4),
                          fixed(row.rate(), 1)});
    if (curves.empty() || curves.back().name != row.weights) curves.push_back({.name = row.weights});
    curves.back().points.push_back({static_cast<double>(row.shots), row.top1()});
  }
  AnalysisSection section{
      .heading = "Few-shot prompts",
      .note = "Intervals of accuracies are Wilson's at 95 %; shares are written as 0 to 1.",
      .table = std::move(table)};
  section.drawings = {line_drawing(curves, {.title = "top1 over examples in the prompt",
                                            .x_label = "examples",
                                            .y_label = "top1",
                                            .percent = true})};
  AnalysisFindings out{.title = "Few-shot prompts", .subtitle = data, .facts = {}, .sections = {}};
  out.sections.push_back(std::move(section));
  return out;
}

train::OpenedLanguage opened_decoder(const std::string& path, const ShotsRequest& request) {
  for (const auto& [name, type] :
       {std::pair("fp32", torch::kFloat32), {"bf16", torch::kBFloat16}, {"fp64", torch::kFloat64}})
    if (request.precision == name) return train::open_decoder(path, type);
  fail_usage("--precision ", printable(request.precision), ": --shots computes in fp32, bf16 or fp64");
}

// Tokenises the prompts of the most examples, and checks that they fit the model's context.
tasks::FewShot open_questions(const ShotsRequest& request, const train::OpenedLanguage& opened, int64_t most,
                              const data::Source& examples, const data::Source& questions) {
  ProgressLine progress(std::cerr, {.label = "tokenise", .total = questions.size()});
  tasks::FewShot few({.pattern = with_line_breaks(request.shots.prompt),
                      .shots = most,
                      .context = opened.context,
                      .seed = request.seed},
                     opened.tokeniser.value(), examples, questions, [&](int64_t done) {
                       progress.update(done, {});
                       return !interrupted();
                     });
  progress.finish();
  return few;
}

}  // namespace

void refuse_other_options(const std::vector<OptionField>& given, const std::vector<OptionField>& usual) {
  const std::vector<std::string> taken = {"weights", "data",  "val_data", "device", "precision",
                                          "threads", "shots", "prompt",   "seed",   "json",
                                          "csv",     "svg",   "report"};
  for (size_t i = 0; i < given.size(); ++i)
    if (std::ranges::find(taken, given[i].key) == taken.end() && given[i].get() != usual[i].get())
      fail_usage(given[i].name(), " does not apply to --shots");
}

void evaluate_shots(const ShotsRequest& request) {
  if (request.shots.shots.empty()) fail_usage("--prompt goes with --shots, the numbers of examples");
  if (request.data.path.empty())
    fail_usage("--shots needs texts with labels: give --data text:classes,FILE.jsonl");
  const std::vector<int64_t> shots = parse_shots(request.shots.shots);
  const auto examples = data::open_source(request.data, data::Split::train),
             questions = data::open_source(request.data, data::Split::validation);
  const torch::Device device = train::choose_device(request.device);
  AnalysisWriter writer(request.output);
  std::vector<ShotRow> rows;
  for (const std::string& weights : request.weights) {
    const torch::NoGradGuard no_grad;
    const train::OpenedLanguage opened = opened_decoder(weights, request);
    opened.language->to(device);
    const tasks::FewShot few =
        open_questions(request, opened, *std::ranges::max_element(shots), *examples, *questions);
    for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
    if (!request.json) std::cout << one_line(opened.file) << "\n" << one_line(questions->describe()) << "\n";
    for (const int64_t count : shots) {
      ProgressLine::Options bar;
      bar.label = text("evaluate with ", counted(count, "example"));
      bar.total = questions->size();
      ProgressLine progress(std::cerr, bar);
      const double start = steady_seconds();
      ShotRow row{.weights = weights, .shots = count, .scores = {}, .seconds = 0};
      row.scores = few.measure(*opened.language, device, count, [&](int64_t done) {
        progress.update(done, {});
        return !interrupted();
      });
      row.seconds = steady_seconds() - start;
      progress.finish();
      if (!std::isfinite(row.scores.loss))
        fail(opened.file,
             ": the model's outputs are not finite: its training went astray, or the file is damaged");
      if (request.json)
        std::cout << json_text(json_of_row(row, questions->describe())) << "\n";
      else
        print_row(row, count == shots.front());
      rows.push_back(row);
    }
  }
  writer.write_files(findings_of(rows, questions->describe()));
}

}  // namespace tessera::cli
