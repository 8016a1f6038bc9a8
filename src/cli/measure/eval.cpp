// `tessera eval`: trained models on a validation set, at several sizes and with several settings side by side.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "cli/base/kept_temperature.h"
#include "cli/base/measure_options.h"
#include "cli/base/paired_images.h"
#include "cli/base/real_labels.h"
#include "cli/measure/eval_rows.h"
#include "cli/measure/eval_setups.h"
#include "cli/measure/eval_shots.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/loading/loader.h"
#include "data/sources/conversations.h"
#include "io/files/file.h"
#include "open/device.h"
#include "open/ready_task.h"
#include "open/run_data.h"
#include "tasks/base/paired.h"
#include "tasks/base/registry.h"
#include "tasks/base/validation_pass.h"
#include "tasks/classify/class_evaluation.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct EvalOptions : MeasureOptions {
  std::vector<std::string> weights;
  SetupRequest setups;
  std::string split = "validation", predictions, class_names, class_order, keep, scales;
  AnalysisOutput output;
  ShotsOptions shots;
  PredictionSettings measured;
  double crop = 0;
  int64_t crops = 1;
  tasks::CaptionBeams beams;
  std::vector<std::string> templates;
  std::optional<tasks::EvalCaptions> captions;
  bool json = false, per_class = false, measures = false, flip = false, bits = false,
       classes_in_order = false;
  bool views() const { return crops > 1 || flip || !scales.empty(); }
  bool wants_scores() const { return measures || measured.measures.temperature_share > 0; }

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights files of any format, checkpoints or run directories; several are compared on the same images");
    MeasureOptions::visit(v);
    v("split", split, {.choices = {"validation", "train"}}, "split of the set");
    v("size", setups.sizes, "input side in pixels, or several, 160,224,384, for a table");
    v("vary", setups.varied, "a row for each value: --vary model.rope_scale=1,0.5 precision=fp32,bf16");
    v("crop", crop, between(0.01, 1), "test-crop ratio (default: from the weights)");
    v("crops", crops, between(1, 5), "5: average the corners and the centre of each image");
    v("scales", scales,
      "segmenters and detectors: combine results at these factors of the size, 0.75,1,1.25");
    v("flip", flip, "average each image and its mirror image");
    visit_beams(v, beams);
    v("templates", templates,
      "models of images and texts: texts with {} for the name of a class, or imagenet for OpenAI's 80 "
      "(default: the weights')");
    v("captions", captions, choice<tasks::EvalCaptions>(),
      "captions of an image that count: its first, its first five, or all (default: the weights')");
    visit_class_names(v, class_names);
    visit_classes_in_order(v, classes_in_order);
    v("class_order", class_order, {.choices = {"alphabetical", "natural"}},
      "order of classes that folders or a table name (default: the run's)");
    v("bits", bits, "generators: also bits per dimension of every image, some hundred passes each");
    v("shots", shots, "");
    v("per_class", per_class,
      "a table by class: precision, recall and F1, IoU, or AP; for objects also by size");
    v("measures", measures,
      "balanced accuracy, kappa, MCC, AUROC, average precision, calibration, with their curves");
    v("measured", measured, "");
    v("keep_temperature", keep, {.writes = Writes::file},
      "write the weights with the fitted temperature to this .safetensors file");
    v("predictions", predictions, {.writes = Writes::file}, "write a CSV line for each sample to this file");
    v("set", setups.settings, "override settings of the model that change no tensor: --set model.rope_ntk=2");
    v("json", json, "one JSON object for each row");
    output.visit_files(v);
  }
};

// "photos", "photos/" and "$PWD/photos" are one set.
bool same_path(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return one == other || std::filesystem::equivalent(one, other, ignored);
}

// The run's validation set, unless the command line names another set. Of another set, all samples are
// measured except its own training split; the run's validation share applies only to the run's set.
data::SourceConfig data_of(const EvalOptions& options, const std::string& weights,
                           const train::WeightsInfo& info) {
  data::SourceConfig config = data_of_run(weights, info);
  if (!options.data.path.empty() && !same_path(options.data.path, config.path)) {
    const std::string names = file_exists(config.class_names) ? config.class_names : "";
    config = {.path = options.data.path, .class_names = names};
    if (options.split == "validation") config.val_path = config.path;
  }
  if (!options.data.val_path.empty()) config.val_path = options.data.val_path;
  if (!options.class_order.empty()) config.class_order = options.class_order;
  if (!options.class_names.empty()) config.class_names = options.class_names;
  if (config.path.empty() && (config.val_path.empty() || options.split == "train"))
    fail_usage(weights, ": has no record of its data; give --data");
  return tasks::data_for(tasks::find_task(tasks::task_name(info.task)), config);
}

// True if a set other than the run's has questions about its images; the run's file of questions does not
// apply to them.
bool asks_its_own(const EvalOptions& options, const std::string& weights, const train::WeightsInfo& info,
                  const data::Source& source) {
  const Value* file = info.task.find("conversations");
  if (!file || !data::image_questions(source)) return false;
  const data::SourceConfig own = data_of_run(weights, info);
  return !(options.data.val_path.empty() || same_path(options.data.val_path, own.val_path)) ||
         !(options.data.path.empty() || same_path(options.data.path, own.path));
}

// A trained task and its capabilities for evaluation; null if it lacks one.
struct EvaluatedTask : train::OpenedTask {
  explicit EvaluatedTask(train::OpenedTask opened)
      : OpenedTask(std::move(opened)),
        classes(ability_of<tasks::ClassEvaluation>(*task)),
        segmenter(ability_of<tasks::Segmenter>(*task)),
        finder(ability_of<tasks::ObjectFinder>(*task)),
        writer(ability_of<tasks::Captioner>(*task)),
        towers(ability_of<tasks::PairedEmbedding>(*task)) {}
  tasks::ClassEvaluation* classes;
  tasks::Segmenter* segmenter;
  tasks::ObjectFinder* finder;
  tasks::Captioner* writer;
  tasks::PairedEmbedding* towers;
};

// Applies --crops, --scales and --flip.
void look_several_times(const EvalOptions& options, EvaluatedTask& opened) {
  if (options.crops == 1 && opened.segmenter) {
    tasks::SegmentInference how = opened.segmenter->inference();
    choose_views(how, options.scales, options.flip);
    return opened.segmenter->set_inference(how);
  }
  if (options.crops == 1 && opened.finder) return choose_views(*opened.finder, options.scales, options.flip);
  if (!options.scales.empty())
    fail_usage("--scales: ", opened.file,
               " neither segments nor finds objects; --size measures at other sizes");
  train::require<tasks::ClassEvaluation>(opened, options.flip ? "--flip" : "--crops")
      .set_views({options.crops, options.flip});
}

// Leaves out images that cannot be decoded, and reports them in the findings.
tasks::Findings evaluate_at(const EvalOptions& options, const EvalSetup& setup, const data::Source& source,
                            EvaluatedTask& opened, int64_t size) {
  tasks::EvaluateOptions how = {.precision = tasks::parse_precision(setup.precision),
                                .device = train::choose_device(options.device)};
  how.open = [&](tasks::StreamSpec stream) {
    data::LoaderConfig config;
    config.batch_size = batch_that_fits(options.batch, size);
    config.threads = options.loader_threads;
    config.shuffle = false;
    config.drop_last = false;
    config.max_bad = stream.source->size();
    return std::make_unique<data::Loader>(*stream.source, stream.transform(size), config);
  };
  ProgressLine::Options bar;
  bar.label = text("evaluate at ", size);
  bar.total = source.size();
  ProgressLine progress(std::cerr, bar);
  const auto start = steady_seconds();
  how.progress = [&](int64_t done) {
    const double rate = static_cast<double>(done) / (steady_seconds() - start);
    progress.update(done, {{"images/s", fixed(rate, 0)}});
    return !interrupted();
  };
  if (options.per_class) how.blocks.emplace_back("classes");
  if (options.bits) how.blocks.emplace_back("bits");
  if (!options.predictions.empty()) how.blocks.emplace_back("samples");
  if (options.wants_scores()) how.blocks.emplace_back("scores");
  if (!options.output.report.empty())
    how.blocks.insert(how.blocks.end(), {"pictures", "completions", "confusion"});
  if (!options.output.svg.empty()) how.blocks.emplace_back("confusion");
  if (options.views()) look_several_times(options, opened);
  if (opened.writer) opened.writer->set_beams(options.beams);
  if (!options.templates.empty()) opened.towers->set_templates(options.templates);
  if (options.captions)
    train::require<tasks::CaptionEvaluation>(opened, "--captions").set_eval_captions(*options.captions);
  tasks::move(opened.task->parts(), how.device, train::parameter_type(how.precision));
  tasks::Findings findings;
  for (const auto& evaluator : opened.task->evaluators()) tasks::append(findings, evaluator->run(how));
  progress.finish();
  return findings;
}

void add_real(const RealLabels& real, const data::Source& source, const tasks::ScoredSamples& scored,
              EvaluatedRow& row) {
  const auto sample = [&](int64_t i) -> const tasks::EvaluatedSample& {
    return scored.rows[static_cast<size_t>(i)];
  };
  const RealLabels::Count count = real.count(
      scored.samples, [&](int64_t i) { return source.read(sample(i).index).name; },
      [&](int64_t i) { return sample(i).score.best; });
  row.findings.metrics.push_back({{"real_top1", tasks::Unit::share}, count.share()});
  row.intervals["real_top1"] = eval::wilson(count.right, count.counted);
}

bool has_classes_alone(const data::Source& source) {
  return source.class_labels() && source.size() > 0 && source.read(0).annotation.captions.empty();
}

data::SourceConfig by_class_names(data::SourceConfig config, data::Split split) {
  const bool own = split == data::Split::validation && !config.val_path.empty();
  std::string& path = own ? config.val_path : config.path;
  path = "named:" + path;
  return config;
}

// Throws for requests that the task of the weights cannot fulfil, before the work.
void check_task(const EvalOptions& options, const train::OpenedTask& opened) {
  if (options.wants_scores() || !options.measured.real.empty())
    train::require<tasks::ClassEvaluation>(opened, !options.measured.real.empty() ? "--real"
                                                   : options.measures             ? "--measures"
                                                                                  : "--temperature");
  const tasks::TaskKind& kind = tasks::find_task(tasks::task_name(opened.info.task));
  const auto need = [&](bool asked, const char* option, std::string_view table) {
    if (asked && std::ranges::find(kind.tables, table) == kind.tables.end())
      fail_usage(option, ": the task of these weights, ", kind.name, ", has no table of ", table);
  };
  need(options.per_class, "--per-class", "classes");
  need(!options.predictions.empty(), "--predictions", "samples");
  need(options.bits, "--bits", "bits");
  check_beams(options.beams);
  if (options.beams.beams > 1) train::require<tasks::Captioner>(opened, "--beams");
  if (!options.templates.empty()) train::require<tasks::PairedEmbedding>(opened, "--templates");
}

// Adds findings of tasks with one class per image: intervals, correct images, measures of all scores.
void add_class_findings(const EvalOptions& options, const RealLabels* real, const data::Source& source,
                        const EvaluatedTask& opened, EvaluatedRow& row) {
  const bool asked = options.wants_scores() || real;
  if (!opened.classes) return;
  const tasks::ScoredSamples& scored = opened.classes->last_scores();
  if (scored.rows[0].score.label < 0) {
    if (asked) fail_usage(opened.file, ": it gives images several classes, these measures need one");
    return;
  }
  std::vector<int64_t> labels;
  for (const tasks::EvaluatedSample& sample : scored.rows) {
    row.hits.push_back(sample.score.right);
    labels.push_back(sample.score.label);
  }
  for (const tasks::Metric& metric : row.findings.metrics)
    if (metric.info.name.starts_with("top"))
      row.intervals[metric.info.name] = interval_of_share(metric.value, row.findings.samples);
  if (real) add_real(*real, source, scored, row);
  if (!options.wants_scores()) return;
  eval::PredictionOptions how = options.measured.measures;
  how.seed = options.measured.draws();
  row.measures = eval::measure_predictions({scored.scores, labels, scored.classes}, how);
}

void check_options(const EvalOptions& options) {
  if (std::filesystem::is_directory(options.predictions))
    fail_usage("--predictions ", options.predictions, " is a folder, must be a file to be written");
  if (!options.keep.empty() && options.measured.measures.temperature_share <= 0)
    fail_usage("--keep-temperature goes with --temperature SHARE, the images that it is fitted on");
  if (!options.keep.empty() && !options.keep.ends_with(".safetensors"))
    fail_usage("--keep-temperature '", options.keep, "' must end in .safetensors");
  if (options.classes_in_order && !options.class_names.empty())
    fail_usage("--classes-in-order and --class-names both name the classes: give one");
  if (options.crops != 1 && options.crops != 5) fail_usage("--crops ", options.crops, ": there are 1 or 5");
}

// All rows, measured one after another on the set of the first weights.
class Evaluation {
 public:
  explicit Evaluation(const EvalOptions& options)
      : options_(options),
        weights_(describe_all(options.weights, options.model, options.raw, options.key)),
        setups_(setups_of(options.setups, options.precision, weights_)),
        columns_(columns_of(setups_, weights_)),
        writer_(options.output) {
    check_rows();
    if (!options.measured.real.empty()) real_.emplace(options.measured.real);
  }

  void run() {
    open_source();
    const RowPrinter printer(columns_);
    bool header = true;
    for (const EvalSetup& setup : setups_)
      for (const int64_t size : setup.sizes) {
        const EvaluatedRow& row = measure(setup, size);
        if (options_.json) print_json(row);
        if (!options_.json) printer.print(row, header);
        if (!options_.json && options_.per_class) print_classes(row.findings);
        header = options_.per_class;
      }
    finish();
  }

 private:
  // Files of one row.
  void check_rows() const {
    size_t rows = 0;
    for (const EvalSetup& setup : setups_) rows += setup.sizes.size();
    if (rows > 1 && !options_.predictions.empty())
      fail_usage("--predictions goes with one --weights and one --size");
    const tasks::TaskKind& kind = tasks::find_task(tasks::task_name(weights_[0].info.task));
    const bool has_classes = std::ranges::count(kind.tables, std::string_view("classes")) > 0;
    if (rows == 1 && !options_.output.svg.empty() && !options_.wants_scores() && !has_classes)
      fail_usage("--svg: one row of task ", kind.name, " has no drawing; several --size have a curve");
    if (options_.keep.empty()) return;
    if (rows > 1) fail_usage("--keep-temperature goes with one --weights and one --size");
    const AtomicFile can_be_written(options_.keep);
  }

  static const report::TableBlock& classes_of(const tasks::Findings& findings) {
    return named_table(findings, "classes", "--per-class");
  }

  static void print_classes(const tasks::Findings& findings) {
    print_table(classes_of(findings));
    if (const auto* sizes = report::find_table(findings.blocks, "sizes")) print_table(*sizes);
  }

  bool is_set_of_run() const {
    const data::SourceConfig& set = options_.data;
    const std::string given = set.path + set.val_path + options_.class_order + options_.class_names;
    return rows_.empty() && given.empty() && source_ == whole_ && options_.split == "validation";
  }

  void open_source() {
    const auto& [weights, file, info] = weights_.at(0);
    const data::Split which = options_.split == "train" ? data::Split::train : data::Split::validation;
    const data::SourceConfig config = data_of(options_, weights, info);
    refuse_corruptions(config.val_path.empty() ? config.path : config.val_path);
    whole_ = data::open_source(config, which);
    if (tasks::find_task(tasks::task_name(info.task)).names_classes && has_classes_alone(*whole_)) {
      std::cerr
          << "images with classes and without captions: they are measured by the names of their classes\n";
      whole_ = data::open_source(by_class_names(config, which), which);
    }
    if (asks_its_own(options_, weights, info, *whole_))
      whole_ = std::make_shared<data::Conversations>(whole_);
    std::vector<std::string> notes;
    source_ = without_fitted(whole_, weights_, notes);
    for (const std::string& note : notes) std::cerr << one_line(note) << "\n";
    if (options_.json) return;
    std::cout << one_line(file) << ": " << one_line(info.model.name);
    if (columns_.weights.size() > 1) std::cout << ", and " << columns_.weights.size() - 1 << " more";
    std::cout << "\n" << one_line(source_->describe()) << "\n";
  }

  const EvaluatedRow& measure(const EvalSetup& setup, int64_t size) {
    const auto& [weights, file, info] = weights_[setup.weights];
    train::OpenOptions how = {
        .model = options_.model, .key = options_.key, .raw = options_.raw, .settings = setup.model_settings};
    const bool by_names = tasks::find_task(tasks::task_name(info.task)).names_classes;
    std::vector<std::string> names;
    if (!options_.class_names.empty()) names = data::read_class_names(options_.class_names);
    if (!by_names) how.class_names = names;
    if (options_.classes_in_order) how.class_names = set_classes(info, weights);
    how.validation = source_, how.crop = options_.crop;
    how.size = size == info.preprocess.size ? 0 : size;
    EvaluatedTask opened(train::open_task(weights, how));
    if (is_set_of_run()) train::note_changed_data(opened, weights);
    for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
    check_task(options_, opened);
    if (by_names && !names.empty()) opened.towers->set_class_names(names);
    const data::ClassLabels* const labels = source_->class_labels();
    if (!options_.templates.empty() && (!labels || labels->multi_label() || labels->class_names().size() < 2))
      fail_usage("--templates: ", source_->describe(), " has no classes with different names");
    if (rows_.empty() && opened.classes) note_one_class(*source_);
    const bool by_number =
        opened.classes && (options_.classes_in_order || opened.classes->class_mapping() == "in their order");
    if (rows_.empty() && by_number) note_class_order(*source_);
    std::optional<AtomicFile> predictions;  // opened before the work
    if (!options_.predictions.empty()) predictions.emplace(options_.predictions);
    EvaluatedRow row{.weights = weights, .settings = setup.settings, .size = size};
    row.findings = evaluate_at(options_, setup, *source_, opened, size);
    if (!tasks::gives_numbers(row.findings, opened.task->main_metric()))
      fail(opened.file,
           ": the model's outputs are not finite: its training went astray, or the file is damaged");
    for (const std::string& note : row.findings.notes)
      if (notes_.insert(note).second) std::cerr << one_line(note) << "\n";
    if (predictions) write_table(*predictions, named_table(row.findings, "samples", "--predictions"));
    add_class_findings(options_, real_ ? &*real_ : nullptr, *source_, opened, row);
    if (row.measures) finish_temperature(weights_[setup.weights], opened, row.measures->temperature);
    rows_.push_back(std::move(row));
    return rows_.back();
  }

  void finish_temperature(const DescribedWeights& weights, const EvaluatedTask& opened, double fitted) const {
    if (const std::string line = search_end(fitted); !line.empty())
      std::cerr << one_line(weights.weights) << ": " << line << "\n";
    if (options_.keep.empty()) return;
    keep_temperature(options_.keep, weights, fitted,
                     fit_on(*whole_, *source_, opened.classes->last_scores(),
                            options_.measured.measures.temperature_share, options_.measured.seed));
  }

  // The set's own classes, by which the weights' are then called.
  std::vector<std::string> set_classes(const train::WeightsInfo& info, const std::string& weights) const {
    const std::vector<std::string>& names =
        data::require_labels(*source_, "--classes-in-order").class_names();
    data::map_classes({}, train::class_count(info), names, weights + ": the data",
                      /*in_order=*/true);  // as many, or refused
    return names;
  }

  // Pairs need the same images.
  bool paired(const EvaluatedRow& row) const {
    return !row.hits.empty() && row.hits.size() == rows_[0].hits.size();
  }

  void print_json(const EvaluatedRow& row) const {
    Json line = row_json(row, source_->describe());
    if (rows_.size() > 1 && paired(row)) {
      Json pairs = Json::array();
      pairs_section({{"", rows_[0].hits}, {row.weights, row.hits}}, options_.measured.draws(), pairs);
      pairs[0].erase("model");
      line["beside_first"] = pairs[0];
    }
    if (options_.per_class) {
      line["per_class"] = table_json(classes_of(row.findings));
      if (const auto* sizes = report::find_table(row.findings.blocks, "sizes"))
        line["per_size"] = table_json(*sizes);
    }
    std::cout << json_text(line) << "\n";
  }

  void finish() {
    std::vector<AnalysisSection> sections = row_sections(rows_, columns_, options_.measured);
    std::vector<NamedHits> hits;
    for (const EvaluatedRow& row : rows_)
      if (paired(row)) hits.push_back({row_label(row, rows_, columns_), row.hits});
    if (hits.size() > 1) {
      Json pairs = Json::array();
      sections.insert(sections.begin() + 1, pairs_section(hits, options_.measured.draws(), pairs));
    }
    if (!options_.json) print_sections({sections.begin() + 1, sections.end()});
    const EvaluatedRow& first = rows_.at(0);
    AnalysisFindings out{
        .title = text("Evaluation of ", rows_.size() > 1 ? text(rows_.size(), " rows") : first.weights),
        .subtitle = source_->describe(),
        .facts = {},
        .sections = std::move(sections)};
    writer_.write_files(out);
    fail_on_broken(first.findings.broken, source_->size());
  }

  const EvalOptions& options_;
  std::vector<DescribedWeights> weights_;
  std::vector<EvalSetup> setups_;
  RowColumns columns_;
  AnalysisWriter writer_;
  std::optional<RealLabels> real_;
  train::SharedSource whole_, source_;  // the named set, and its part on which no temperature was fitted
  std::vector<EvaluatedRow> rows_;
  std::set<std::string> notes_;  // printed ones
};

void evaluate(const EvalOptions& options) {
  if (options.shots.given()) {
    EvalOptions given = options, usual;
    refuse_other_options(option_fields(given), option_fields(usual));
    train::use_threads(options.threads);
    const Interruptible stretch;
    return evaluate_shots({.shots = options.shots,
                           .weights = options.weights,
                           .data = {.path = options.data.path, .val_path = options.data.val_path},
                           .device = options.device,
                           .precision = options.precision,
                           .seed = options.measured.draws(),
                           .json = options.json,
                           .output = options.output});
  }
  check_options(options);
  train::use_threads_beside(options.loader_threads, options.threads);
  const Interruptible stretch;
  Evaluation(options).run();
}

}  // namespace

void add_eval(Arguments& command, Action& action) { action = with_options<EvalOptions>(command, evaluate); }

}  // namespace tessera::cli
