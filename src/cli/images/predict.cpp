// `tessera predict IMAGES… --weights FILE`: classify images, or texts, with a weights file.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "answer/predict.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "open/device.h"
#include "open/open_task.h"
#include "tasks/base/validation_pass.h"
#include "tasks/language/bert.h"

namespace tessera::cli {
namespace {

constexpr uint64_t kLongestText = uint64_t{1} << 20;  // bytes

struct PredictOptions : ComputeOptions {
  std::string weights;
  std::vector<std::string> images, texts;
  std::string pair;
  answer::PredictOptions predict;
  int64_t batch = 16;
  std::string key;
  bool json = false, csv = false, raw = false;
  std::string model, class_names;
  double crop = 0;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("images", images, {.argument = "IMAGES"}, "images or folders of images");
    v("text", texts,
      "texts instead of images, for weights of task bert; - reads one from each line of standard input");
    v("pair", pair, "second text of a pair");
    predict.visit(v);
    v("json", json, "one JSON object for each image or text");
    v("csv", csv, "one line for each image or text and rank");
    v("crop", crop, between(0.01, 1), "test-crop ratio (default: from the weights)");
    visit_class_names(v, class_names);
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("model", model, "model name, if weights of other programs do not name it");
    v("batch_size", batch, {.range = between(1, 4096), .names = "--batch"}, "images or texts at a time");
    ComputeOptions::visit(v);
  }
};

class PredictionPrinter {
 public:
  // `key` names the inputs: "file" or "text".
  PredictionPrinter(const PredictOptions& options, const char* key, bool single)
      : options_(options), key_(key), single_(single) {}

  // Throws an Error that names the weights if a value is not finite.
  void print(const std::string& weights, const std::string& file, const tasks::Prediction& prediction) {
    if (!tasks::gives_numbers(prediction))
      fail(weights, ": the model's output for '", printable(file, 256),
           "' is not finite: its training went astray, or the file is damaged");
    if (options_.json) return print_json(file, prediction);
    if (options_.csv) return print_csv(file, prediction);
    if (!single_) std::cout << one_line(file) << "\n";
    for (const tasks::PredictionLine& line : prediction) std::cout << one_line(line.words) << "\n";
  }

 private:
  void print_json(const std::string& file, const tasks::Prediction& prediction) const {
    std::cout << json_text({{key_, file}, {"predictions", answer::json_of(prediction)}}) << "\n";
  }

  // Prints control characters of a path as they are, except on a terminal. A text is no path of another program.
  void print_input(const std::string& file) const {
    if (!options_.texts.empty())
      std::cout << csv_field(file);
    else if (isatty(STDOUT_FILENO))
      std::cout << csv_path(file);
    else
      std::ostream(unfiltered(std::cout << std::flush)) << csv_path(file) << std::flush;
  }

  void print_csv(const std::string& file, const tasks::Prediction& prediction) {
    if (!headed_ && !prediction.empty()) {
      std::cout << key_ << ",rank";
      for (const auto& [name, value] : prediction.front().values) std::cout << "," << name;
      std::cout << "\n";
      headed_ = true;
    }
    for (size_t rank = 0; rank < prediction.size(); ++rank) {
      print_input(file);
      std::cout << "," << rank + 1;
      for (const auto& [name, value] : prediction[rank].values)
        std::cout << ","
                  << (value.is_double()   ? fixed(value.as_double(), 6)
                      : value.is_string() ? csv_field(value.as_string())
                                          : toml_text(value));
      std::cout << "\n";
    }
  }

  const PredictOptions& options_;
  const char* key_;
  bool single_, headed_ = false;
};

// Calls `see` for each text of the options, or for each line of standard input.
void for_each_text(const PredictOptions& options, const std::function<void(const std::string&)>& see) {
  if (options.texts != std::vector<std::string>{std::string(data::kStandardInput)}) {
    std::ranges::for_each(options.texts, see);
    return;
  }
  std::string line;
  while (read_line(std::cin, line, "the text", kLongestText))
    if (!trim(line).empty()) see(line);
}

void predict_texts(const PredictOptions& options) {
  train::use_threads(options.threads);
  const train::ReadyTask model(options.weights,
                               {.model = options.model, .key = options.key, .raw = options.raw},
                               options.device, options.precision);
  for (const std::string& note : model.opened().notes) std::cerr << one_line(note) << "\n";
  tasks::TextClasses& classes = model.require<tasks::TextClasses>("`tessera predict --text`");
  const torch::InferenceMode inference;
  PredictionPrinter printer(options, "text",
                            options.texts.size() == 1 && options.texts[0] != data::kStandardInput);
  std::vector<tasks::GivenText> batch;
  const auto predict_batch = [&] {
    const tasks::AutocastScope autocast = model.autocast();
    const auto predictions = classes.predict_texts(batch, options.predict.top);
    for (size_t i = 0; i < batch.size(); ++i) printer.print(model.file(), batch[i].text, predictions[i]);
    batch.clear();
  };
  for_each_text(options, [&](const std::string& text) {
    batch.push_back({text, options.pair});
    if (std::ssize(batch) == options.batch) predict_batch();
  });
  if (!batch.empty()) predict_batch();
}

void predict_images(const PredictOptions& options) {
  const data::ImageFiles images = given_images(options.images);
  ImageModelRequest request{
      .weights = options.weights,
      .how = {.model = options.model, .key = options.key, .raw = options.raw, .crop = options.crop},
      .compute = options,
      .batch = options.batch};
  if (!options.class_names.empty()) request.how.class_names = data::read_class_names(options.class_names);
  const ImageModel model(request);
  if (ability_of<tasks::TextClasses>(model.task()))
    fail_usage("'", model.file(), "' classifies texts: give them by --text");
  const torch::InferenceMode inference;
  PredictionPrinter printer(options, "file", images.size() == 1);
  const int64_t broken = model.for_each_batch(images, [&](const train::WalkedBatch& batch) {
    const std::vector<tasks::Prediction> predictions =
        answer::predictions_of(model, batch.images, options.predict.top);
    for (int64_t i = 0; i < batch.size(); ++i) {
      if (!batch.readable(i)) continue;
      printer.print(model.file(), images.name(batch.first + i), predictions[static_cast<size_t>(i)]);
    }
  });
  fail_for_broken(broken, images.size());
}

void predict(const PredictOptions& options) {
  if (options.json && options.csv) fail_usage("--json and --csv: choose one");
  if (options.predict.top < 1) fail_usage("--top is ", options.predict.top, ", must be at least 1");
  if (options.images.empty() == options.texts.empty())
    fail_usage(options.images.empty()
                   ? "no images: give files or folders of them, or --text for weights of task bert"
                   : "IMAGES and --text: choose one");
  if (!options.texts.empty() && (options.crop > 0 || !options.class_names.empty()))
    fail_usage("--crop and --class-names are for images, not for --text");
  if (options.texts.size() != 1 && !options.pair.empty()) fail_usage("--pair needs one --text");
  options.texts.empty() ? predict_images(options) : predict_texts(options);
}

}  // namespace

void add_predict(Arguments& command, Action& action) {
  action = with_options<PredictOptions>(command, predict);
}

}  // namespace tessera::cli
