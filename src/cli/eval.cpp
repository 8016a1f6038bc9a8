// `tessera eval`: a trained model on a held-out set.
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/common.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/toml.h"
#include "data/loader.h"
#include "eval/classification.h"
#include "io/file.h"
#include "tasks/classify.h"
#include "train/device.h"
#include "train/open_model.h"
#include "train/recipe.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string weights, split = "validation", predictions, sizes, model, device = "auto", precision = "fp32";
  std::vector<std::string> settings;
  data::SourceConfig data;
  double crop = 0;
  int64_t batch = 64, threads = 0, loader_threads = 1;
  bool json = false, raw = false, per_class = false;
};

// The data of the run that made the weights; an empty path where they do not say.
data::SourceConfig data_of_run(const std::string& weights, const train::WeightsInfo& info) {
  if (info.recipe.empty()) return {};
  const Value recipe = parse_toml(info.recipe, weights);
  const Value* table = recipe.find("data");
  return table ? read_config<data::SourceConfig>(*table, "data") : data::SourceConfig{};
}

// "photos", "photos/" and "$PWD/photos" are one set.
bool same_path(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return one == other || std::filesystem::equivalent(one, other, ignored);
}

// The set that the run was validated on, unless the command line names another one. Of another set all is
// measured that it does not itself mark as training pictures: the run's share holds for the run's set.
data::SourceConfig data_of(const Options& options, const train::WeightsInfo& info) {
  data::SourceConfig config = data_of_run(options.weights, info);
  if (!options.data.path.empty() && !same_path(options.data.path, config.path)) {
    const std::string names = file_exists(config.class_names) ? config.class_names : "";
    config = {.path = options.data.path, .class_names = names};
    if (options.split == "validation") config.val_path = config.path;
  }
  if (!options.data.val_path.empty()) config.val_path = options.data.val_path;
  if (config.path.empty() && (config.val_path.empty() || options.split == "train"))
    fail_usage(options.weights, ": says nothing about its data; give --data");
  return config;
}

std::vector<int64_t> sizes_of(const Options& options, const train::OpenedModel& opened) {
  if (options.sizes.empty()) return {opened.info.preprocess.size};
  std::vector<int64_t> sizes;
  for (const std::string& part : split(options.sizes, ',')) {
    const auto size = parse_int(trim(part));
    if (!size || *size < 1 || *size > 8192)
      fail_usage("--size: '", part, "' is no side in pixels (1 to 8192), as in 160,224,384");
    sizes.push_back(*size);
  }
  return sizes;
}

// A model that was trained on other classes would be measured against the wrong names.
void check_classes(const data::Source& source, const train::WeightsInfo& info, const std::string& weights) {
  const auto& ours = info.class_names;
  const auto& theirs = source.class_names();
  if (ours == theirs) return;
  const int64_t classes = info.model.settings.find("classes")->as_int();
  if (classes != static_cast<int64_t>(theirs.size()))
    fail(weights, ": the model knows ", classes, " classes, the data has ", theirs.size());
  if (ours.empty()) return;  // weights of other programs name none
  if (ours.size() != theirs.size())
    fail(weights, ": its metadata name ", ours.size(), " classes, the model has ", classes);
  for (size_t i = 0; i < ours.size(); ++i)
    if (ours[i] != theirs[i])
      fail(weights, ": class ", i, " is '", ours[i], "' in the model and '", theirs[i], "' in the data");
}

// Pictures that cannot be decoded are left out and named in `broken`.
tasks::Evaluation evaluate_at(const Options& options, const data::Source& source,
                              const train::OpenedModel& opened, int64_t size, data::BadImages& broken) {
  data::Preprocess preprocess = opened.info.preprocess;
  preprocess.size = size;
  if (options.crop > 0) preprocess.crop = options.crop;
  data::LoaderConfig config;
  config.batch_size = options.batch;
  config.threads = options.loader_threads;
  config.shuffle = false;
  config.drop_last = false;
  config.max_bad = source.size();
  data::Loader loader(source, data::make_eval_transform(preprocess), config);
  const auto task =
      tasks::make_classify({}, static_cast<int64_t>(source.class_names().size()), source.multi_label());
  ProgressLine::Options bar;
  bar.label = text("evaluate at ", size);
  bar.total = source.size();
  ProgressLine progress(std::cerr, bar);
  const auto start = steady_seconds();
  auto result = task->evaluate(*opened.model, loader,
                               {.precision = tasks::parse_precision(options.precision),
                                .device = train::choose_device(options.device),
                                .progress = [&](int64_t done) {
                                  const double rate = static_cast<double>(done) / (steady_seconds() - start);
                                  progress.update(done, {{"images/s", fixed(rate, 0)}});
                                  return !interrupted();
                                }});
  progress.finish();
  broken = loader.bad_images();
  return result;
}

void write_predictions(AtomicFile& file, const data::Source& source, const train::WeightsInfo& info,
                       const tasks::Evaluation& evaluation) {
  std::string out = "sample,label,prediction,probability,correct\n";
  for (const auto& [index, verdict] : evaluation.rows) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted: no predictions were written");
    const std::vector<int64_t> labels = source.labels(index);
    std::vector<std::string> names;
    for (const int64_t label : labels) names.push_back(class_name(info, label));
    const bool correct = std::find(labels.begin(), labels.end(), verdict.best) != labels.end();
    out += text(csv_field(source.read(index).name), ",", csv_field(join(names, "|")), ",",
                csv_field(class_name(info, verdict.best)), ",", fixed(verdict.confidence, 6), ",",
                correct ? "1" : "0", "\n");
  }
  file.write(out);
  file.commit();
}

std::vector<eval::ClassScores> class_scores(const tasks::Evaluation& evaluation) {
  eval::ClassificationMeter meter(evaluation.classes);
  for (const tasks::EvaluatedSample& row : evaluation.rows) meter.add(row.verdict);
  return meter.per_class();
}

void print_per_class(const tasks::Evaluation& evaluation, const train::WeightsInfo& info) {
  const auto rows = class_scores(evaluation);
  size_t width = 5;
  for (int64_t c = 0; c < evaluation.classes; ++c) width = std::max(width, class_name(info, c).size());
  const auto column = static_cast<int>(width + 2);
  std::cout << "\n"
            << std::left << std::setw(column) << "class" << std::right << std::setw(9) << "samples"
            << std::setw(11) << "precision" << std::setw(9) << "recall" << std::setw(9) << "F1"
            << "\n";
  for (size_t c = 0; c < rows.size(); ++c)
    std::cout << std::left << std::setw(column) << class_name(info, static_cast<int64_t>(c)) << std::right
              << std::setw(9) << rows[c].samples << std::setw(11) << fixed(100 * rows[c].precision, 1)
              << std::setw(9) << fixed(100 * rows[c].recall, 1) << std::setw(9) << fixed(100 * rows[c].f1, 1)
              << "\n";
}

Json as_json(const Options& options, const data::Source& source, const tasks::Evaluation& evaluation,
             int64_t size, const train::WeightsInfo& info) {
  Json line = {{"weights", options.weights},
               {"data", source.describe()},
               {"size", size},
               {"samples", evaluation.samples}};
  for (const auto& [name, value] : evaluation.metrics) line[name] = value;
  line["images_per_s"] = static_cast<double>(evaluation.samples) / evaluation.seconds;
  if (options.per_class) {
    const auto rows = class_scores(evaluation);
    for (size_t c = 0; c < rows.size(); ++c)
      line["per_class"][class_name(info, static_cast<int64_t>(c))] = Json{{"samples", rows[c].samples},
                                                                          {"precision", rows[c].precision},
                                                                          {"recall", rows[c].recall},
                                                                          {"f1", rows[c].f1}};
  }
  return line;
}

void print_row(const tasks::Evaluation& evaluation, int64_t size, bool header) {
  if (header) {
    std::cout << std::right << std::setw(6) << "size" << std::setw(9) << "samples";
    for (const auto& [name, value] : evaluation.metrics) std::cout << std::setw(12) << name;
    std::cout << std::setw(11) << "images/s"
              << "\n";
  }
  std::cout << std::right << std::setw(6) << size << std::setw(9) << evaluation.samples;
  for (const auto& [name, value] : evaluation.metrics) std::cout << std::setw(12) << fixed(value, 4);
  std::cout << std::setw(11) << fixed(static_cast<double>(evaluation.samples) / evaluation.seconds, 0)
            << "\n";
}

// The model's settings among what --set says; there are no others.
Value model_settings(const Options& options) {
  Value all;
  for (const std::string& setting : options.settings) merge(all, train::parse_setting(setting));
  for (const auto& [section, values] : all.as_table())
    if (section != "model") fail_usage("--set ", section, ".…: only settings of the model, model.key=value");
  const Value* model = all.find("model");
  return model ? *model : Value();
}

void evaluate(const Options& options) {
  train::use_threads_beside(options.loader_threads, options.threads);
  train::OpenOptions how = {.model = options.model, .raw = options.raw, .settings = model_settings(options)};
  const auto closer = train::open_model(options.weights, how);
  const auto sizes = sizes_of(options, closer);
  if (sizes.size() > 1 && !options.predictions.empty()) fail_usage("--predictions goes with one --size");
  if (std::filesystem::is_directory(options.predictions))
    fail_usage("--predictions ", options.predictions, " is a folder, must be a file to be written");
  const data::Split which = options.split == "train" ? data::Split::train : data::Split::validation;
  const auto source = data::open_source(data_of(options, closer.info), which);
  check_classes(*source, closer.info, options.weights);
  if (options.per_class && source->multi_label()) fail_usage("--per-class needs single-label data");
  if (!options.json)
    std::cout << closer.file << ": " << closer.info.model.name << "\n" << source->describe() << "\n";
  bool header = true;
  data::BadImages broken;
  const Interruptible stretch;
  for (const int64_t size : sizes) {
    how.size = size;
    const auto opened =
        size == closer.info.preprocess.size ? closer : train::open_model(options.weights, how);
    for (const std::string& note : opened.notes) std::cerr << note << "\n";
    std::optional<AtomicFile> predictions;  // what cannot be written is said before the work
    if (!options.predictions.empty()) predictions.emplace(options.predictions);
    const auto evaluation = evaluate_at(options, *source, opened, size, broken);
    if (options.json) {
      std::cout << json_text(as_json(options, *source, evaluation, size, opened.info)) << "\n";
    } else {
      print_row(evaluation, size, header);
      if (options.per_class) print_per_class(evaluation, opened.info);
    }
    header = options.per_class;
    if (predictions) write_predictions(*predictions, *source, opened.info, evaluation);
  }
  for (const std::string& line : broken.lines) std::cerr << "tessera: left out: " << line << "\n";
  if (broken.count > 0) fail(broken.count, " of ", source->size(), " pictures could not be decoded");
}

}  // namespace

void add_eval(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  command
      .add("-w,--weights,--pretrained", options->weights,
           "a weights file of any form, a checkpoint or a run directory")
      .required();
  command.add("--data", options->data.path, "the pictures (default: the data of the run's recipe)");
  command.add("--val-data", options->data.val_path, "the held-out set, where it is another path");
  command.add("--split", options->split, "validation or train")
      .show_default()
      .one_of({"validation", "train"});
  command.add("--size", options->sizes, "input side in pixels, or several as 160,224,384 for a table");
  command.add("--crop", options->crop, "test-crop ratio (default: as the weights say)").range(0.01, 1.0);
  command.flag("--per-class", options->per_class, "a table of precision, recall and F1 by class");
  command.add("--predictions", options->predictions, "write a CSV line for every sample to this file");
  command.flag("--raw", options->raw, "checkpoints: the raw weights instead of their moving average");
  command.add("--model", options->model, "model name, where weights of other programs do not tell");
  command.add("--set", options->settings,
              "lay a setting that changes no tensor over the model's: --set model.rope_ntk=2");
  command.add("--batch", options->batch, "pictures at a time").show_default().range(1, 65536);
  command.add("--loader-threads", options->loader_threads, "decoding threads").show_default().range(1, 256);
  command.flag("--json", options->json, "one JSON object a size");
  add_compute_options(command, options->device, options->precision, options->threads);
  action = [options] { evaluate(*options); };
}

}  // namespace tessera::cli
