// `tessera eval`: a trained model on a validation set.
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/common.h"
#include "cli/measure_options.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/toml.h"
#include "data/class_names.h"
#include "data/loader.h"
#include "io/file.h"
#include "tasks/soundness.h"
#include "train/device.h"
#include "train/open_task.h"
#include "train/recipe_files.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options : MeasureOptions {
  std::string split = "validation", predictions, sizes, class_names;
  std::vector<std::string> settings;
  double crop = 0;
  bool json = false, per_class = false, bits = false;
};

// "photos", "photos/" and "$PWD/photos" are one set.
bool same_path(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return one == other || std::filesystem::equivalent(one, other, ignored);
}

// The set that the run was validated on, unless the command line names another one. Of another set all is
// measured that it does not itself mark as training images: the run's share holds for the run's set.
data::SourceConfig data_of(const Options& options, const train::WeightsInfo& info) {
  data::SourceConfig config = data_of_run(options.weights, info);
  if (!options.data.path.empty() && !same_path(options.data.path, config.path)) {
    const std::string names = file_exists(config.class_names) ? config.class_names : "";
    config = {.path = options.data.path, .class_names = names};
    if (options.split == "validation") config.val_path = config.path;
  }
  if (!options.data.val_path.empty()) config.val_path = options.data.val_path;
  if (!options.class_names.empty()) config.class_names = options.class_names;
  if (config.path.empty() && (config.val_path.empty() || options.split == "train"))
    fail_usage(options.weights, ": says nothing about its data; give --data");
  return config;
}

std::vector<int64_t> sizes_of(const Options& options, const train::WeightsInfo& info) {
  if (options.sizes.empty()) return {info.preprocess.size};
  std::vector<int64_t> sizes;
  for (const std::string& part : split(options.sizes, ',')) {
    const auto size = parse_int(trim(part));
    if (!size || *size < 1 || *size > 8192)
      fail_usage("--size: '", part, "' is no side in pixels (1 to 8192), as in 160,224,384");
    sizes.push_back(*size);
  }
  return sizes;
}

// Images that cannot be decoded are left out and named among the findings.
tasks::Findings evaluate_at(const Options& options, const data::Source& source, train::OpenedTask& opened,
                            int64_t size) {
  tasks::EvaluateOptions how = {.precision = tasks::parse_precision(options.precision),
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
  tasks::move(opened.task->parts(), how.device, train::parameter_type(how.precision));
  tasks::Findings findings;
  for (const auto& evaluator : opened.task->evaluators()) tasks::append(findings, evaluator->run(how));
  progress.finish();
  return findings;
}

const report::TableBlock& table_of(const tasks::Findings& findings, const char* name, const char* option) {
  const report::TableBlock* table = report::find_table(findings.blocks, name);
  if (!table) fail_usage(option, ": the task of these weights has no table of ", name);
  return *table;
}

void write_table(AtomicFile& file, const report::TableBlock& table) {
  std::string out;
  for (size_t c = 0; c < table.columns.size(); ++c) out += (c ? "," : "") + table.columns[c].name;
  for (const auto& row : table.rows) {
    out += "\n";
    for (size_t c = 0; c < row.size(); ++c) out += (c ? "," : "") + csv_field(row[c]);
  }
  file.write(out + "\n");
  file.commit();
}

// Shares of the table as percentages, counts as they are.
std::string as_percentage(const std::string& value) {
  const auto share = value.find('.') != std::string::npos ? parse_double(value) : std::nullopt;
  return share ? fixed(100 * *share, 1) : value;
}

void print_table(const report::TableBlock& table) {
  size_t width = table.columns[0].name.size();
  for (const auto& row : table.rows) width = std::max(width, one_line(row[0]).size());
  const auto line = [&](const std::vector<std::string>& cells) {
    std::cout << std::left << std::setw(static_cast<int>(width + 2)) << cells[0] << std::right;
    for (size_t c = 1; c < cells.size(); ++c)
      std::cout << std::setw(static_cast<int>(std::max<size_t>(9, table.columns[c].name.size() + 2)))
                << cells[c];
    std::cout << "\n";
  };
  std::vector<std::string> heads;
  for (const report::Column& column : table.columns) heads.push_back(column.name);
  std::cout << "\n";
  line(heads);
  for (const auto& row : table.rows) {
    std::vector<std::string> cells = {one_line(row[0])};
    for (size_t c = 1; c < row.size(); ++c) cells.push_back(as_percentage(row[c]));
    line(cells);
  }
}

// {"cat": {"samples": 10, "recall": 0.9}}, by the first column.
Json table_json(const report::TableBlock& table) {
  Json out = Json::object();
  for (const auto& row : table.rows)
    for (size_t c = 1; c < row.size(); ++c) {
      const auto count = parse_int(row[c]);
      const auto number = parse_double(row[c]);
      Json& cell = out[row[0]][table.columns[c].name];
      cell = count ? Json(*count) : number ? Json(*number) : Json(row[c]);
    }
  return out;
}

Json as_json(const Options& options, const data::Source& source, const tasks::Findings& findings,
             int64_t size) {
  Json line = {{"weights", options.weights},
               {"data", source.describe()},
               {"size", size},
               {"samples", findings.samples}};
  for (const tasks::Metric& metric : findings.metrics) line[metric.info.name] = metric.value;
  line["images_per_second"] = static_cast<double>(findings.samples) / findings.seconds;
  if (options.per_class) {
    line["per_class"] = table_json(table_of(findings, "classes", "--per-class"));
    if (const auto* sizes = report::find_table(findings.blocks, "sizes"))
      line["per_size"] = table_json(*sizes);
  }
  return line;
}

void print_row(const tasks::Findings& findings, int64_t size, bool header) {
  const auto column = [](const tasks::Metric& metric) {
    return std::setw(static_cast<int>(std::max<size_t>(12, metric.info.name.size() + 2)));
  };
  if (header) {
    std::cout << std::right << std::setw(6) << "size" << std::setw(9) << "samples";
    for (const tasks::Metric& metric : findings.metrics) std::cout << column(metric) << metric.info.name;
    std::cout << std::setw(11) << "images/s"
              << "\n";
  }
  std::cout << std::right << std::setw(6) << size << std::setw(9) << findings.samples;
  for (const tasks::Metric& metric : findings.metrics)
    std::cout << column(metric)
              << (metric.info.unit == tasks::Unit::share ? fixed(100 * metric.value, 2) + " %"
                                                         : fixed(metric.value, 4));
  std::cout << std::setw(11) << fixed(static_cast<double>(findings.samples) / findings.seconds, 0) << "\n";
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
  if (!options.class_names.empty()) how.class_names = data::read_class_names(options.class_names);
  const std::string file = train::weights_file_of(options.weights, options.raw);
  const train::WeightsInfo info = train::describe_weights(WeightFile(file), options.model);
  const auto sizes = sizes_of(options, info);
  if (sizes.size() > 1 && !options.predictions.empty()) fail_usage("--predictions goes with one --size");
  if (std::filesystem::is_directory(options.predictions))
    fail_usage("--predictions ", options.predictions, " is a folder, must be a file to be written");
  const data::Split which = options.split == "train" ? data::Split::train : data::Split::validation;
  const train::SharedSource source = data::open_source(data_of(options, info), which);
  how.validation = source, how.crop = options.crop;
  if (!options.json)
    std::cout << one_line(file) << ": " << one_line(info.model.name) << "\n"
              << one_line(source->describe()) << "\n";
  bool header = true;
  data::BadImages broken;
  const Interruptible stretch;
  for (const int64_t size : sizes) {
    how.size = size == info.preprocess.size ? 0 : size;
    train::OpenedTask opened = train::open_task(options.weights, how);
    for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
    std::optional<AtomicFile> predictions;  // what cannot be written is said before the work
    if (!options.predictions.empty()) predictions.emplace(options.predictions);
    const tasks::Findings findings = evaluate_at(options, *source, opened, size);
    const auto is_bits = [](const tasks::Metric& metric) { return metric.info.name == "bits_per_dim"; };
    if (options.bits && std::none_of(findings.metrics.begin(), findings.metrics.end(), is_bits))
      fail_usage("--bits: the task of these weights measures no bits a dimension; task diffuse does");
    if (options.json) {
      std::cout << json_text(as_json(options, *source, findings, size)) << "\n";
    } else {
      print_row(findings, size, header);
      if (options.per_class) {
        print_table(table_of(findings, "classes", "--per-class"));
        if (const auto* objects = report::find_table(findings.blocks, "sizes")) print_table(*objects);
      }
    }
    header = options.per_class;
    if (predictions) write_table(*predictions, table_of(findings, "samples", "--predictions"));
    broken = findings.broken;
    if (!tasks::gives_numbers(findings, opened.task->main_metric()))
      fail(opened.file,
           ": the model's outputs are not finite: its training went astray, or the file is damaged");
  }
  fail_on_broken(broken, source->size());
}

}  // namespace

void add_eval(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  add_measure_options(command, *options);
  command.add("--split", options->split, "validation or train")
      .show_default()
      .one_of({"validation", "train"});
  command.add("--size", options->sizes, "input side in pixels, or several as 160,224,384 for a table");
  command.add("--crop", options->crop, "test-crop ratio (default: as the weights say)").range(0.01, 1.0);
  add_class_names(command, options->class_names);
  command.flag("--bits", options->bits,
               "of a generator also the bits a dimension of every image, some hundred passes each");
  command.flag("--per-class", options->per_class,
               "a table by class: precision, recall and F1, IoU, or AP; of objects one by size too");
  command.add("--predictions", options->predictions, "write a CSV line for every sample to this file");
  command.add("--set", options->settings,
              "a setting that changes no tensor instead of the model's own: --set model.rope_ntk=2");
  command.flag("--json", options->json, "one JSON object a size");
  action = [options] { evaluate(*options); };
}

}  // namespace tessera::cli
