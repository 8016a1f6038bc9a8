// `tessera predict IMAGES… --weights FILE`: classify images with a weights file.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_batches.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/transforms/transform.h"
#include "io/files/json.h"
#include "open/device.h"
#include "open/open_task.h"
#include "tasks/base/soundness.h"

namespace tessera::cli {
namespace {

struct PredictOptions : ComputeOptions {
  std::string weights;
  std::vector<std::string> images;
  int64_t top = 5, batch = 16;
  bool json = false, csv = false, raw = false;
  std::string model, class_names;
  double crop = 0;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("images", images, {.argument = "IMAGES", .required = true}, "images or folders of images");
    v("top", top, "classes to print for each image");
    v("json", json, "one JSON object for each image");
    v("csv", csv, "one line for each image and rank");
    v("crop", crop, between(0.01, 1), "test-crop ratio (default: from the weights)");
    visit_class_names(v, class_names);
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("model", model, "model name, if weights of other programs do not name it");
    v("batch_size", batch, {.range = between(1, 4096), .names = "--batch"}, "images at a time");
    ComputeOptions::visit(v);
  }
};

// Throws for weights of a task that cannot predict: the error of the task has no file name.
[[noreturn]] void refuse(const train::OpenedTask& opened, const Error& error) {
  const tasks::TaskKind &first = tasks::task_kinds().front(),
                        &own = tasks::find_task(tasks::task_name(opened.info.task));
  if (&own == &first || error.kind != ErrorKind::usage)
    throw Error(error.kind, opened.file + ": " + error.what());
  fail_usage("'", opened.file, "' was trained for task ", own.name,
             "; `tessera predict` needs weights of task ", first.name,
             own.command ? text(", `tessera ", own.command, "` takes these") : "");
}

class PredictionPrinter {
 public:
  PredictionPrinter(const PredictOptions& options, int64_t images)
      : options_(options), single_(images == 1) {}

  void print(const std::string& file, const tasks::Prediction& prediction) {
    if (options_.json) return print_json(file, prediction);
    if (options_.csv) return print_csv(file, prediction);
    if (!single_) std::cout << one_line(file) << "\n";
    for (const tasks::PredictionLine& line : prediction) std::cout << one_line(line.words) << "\n";
  }

 private:
  static void print_json(const std::string& file, const tasks::Prediction& prediction) {
    nlohmann::ordered_json line = {{"file", file}, {"predictions", nlohmann::ordered_json::array()}};
    for (const tasks::PredictionLine& one : prediction) {
      nlohmann::ordered_json values;
      for (const auto& [name, value] : one.values)
        values[name] = nlohmann::ordered_json::parse(json_text(value));
      line["predictions"].push_back(values);
    }
    std::cout << json_text(line) << "\n";
  }

  void print_csv(const std::string& file, const tasks::Prediction& prediction) {
    if (!headed_ && !prediction.empty()) {
      std::cout << "file,rank";
      for (const auto& [name, value] : prediction.front().values) std::cout << "," << name;
      std::cout << "\n";
      headed_ = true;
    }
    for (size_t rank = 0; rank < prediction.size(); ++rank) {
      std::cout << csv_field(file) << "," << rank + 1;
      for (const auto& [name, value] : prediction[rank].values)
        std::cout << ","
                  << (value.is_double()   ? fixed(value.as_double(), 6)
                      : value.is_string() ? csv_field(value.as_string())
                                          : toml_text(value));
      std::cout << "\n";
    }
  }

  const PredictOptions& options_;
  bool single_, headed_ = false;
};

void predict(const PredictOptions& options) {
  if (options.json && options.csv) fail_usage("--json and --csv: choose one");
  if (options.top < 1) fail_usage("--top is ", options.top, ", must be at least 1");
  const int workers = std::max(1, train::use_threads(options.threads) / 8);  // a tenth of the work is theirs
  train::use_threads_beside(workers, options.threads);
  const data::ImageFiles images(options.images);
  for (const std::string& note : images.notes()) std::cerr << one_line(note) << "\n";
  const torch::Device device = train::choose_device(options.device);
  const tasks::Precision precision = tasks::parse_precision(options.precision);
  train::OpenOptions how = {.model = options.model, .raw = options.raw, .crop = options.crop};
  if (!options.class_names.empty()) how.class_names = data::read_class_names(options.class_names);
  const train::OpenedTask opened = train::open_task(options.weights, how);
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  tasks::move(opened.task->parts(), device, train::parameter_type(precision));
  const auto transform = data::make_eval_transform(opened.info.preprocess);
  const torch::InferenceMode inference;
  PredictionPrinter printer(options, images.size());

  const int64_t at_once = batch_that_fits(options.batch, opened.info.preprocess.size);
  int64_t broken = 0;
  const Interruptible stretch;
  ImageBatches batches(images, *transform, at_once, workers);
  while (const auto batch = batches.next()) {
    std::vector<tasks::Prediction> predictions;
    try {
      const tasks::AutocastScope autocast(device, precision);
      predictions =
          opened.task->predict(batch->images.to(device, train::parameter_type(precision)), options.top);
    } catch (const Error& error) {
      refuse(opened, error);
    }
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    for (size_t i = 0; i < batch->errors.size(); ++i) {
      if (batch->errors[i].empty()) {
        const std::string& path = images.paths()[static_cast<size_t>(batch->first) + i];
        if (!tasks::gives_numbers(predictions[i]))
          fail(opened.file, ": the model's output for '", path,
               "' is not finite: its training went astray, or the file is damaged");
        printer.print(path, predictions[i]);
      } else {
        ++broken;
        std::cerr << "tessera: " << one_line(batch->errors[i]) << "\n";
      }
    }
  }
  if (broken > 0) fail(broken, " of ", counted(images.size(), "image"), " could not be read");
}

}  // namespace

void add_predict(Arguments& command, Action& action) {
  action = with_options<PredictOptions>(command, predict);
}

}  // namespace tessera::cli
