// `tessera predict IMAGES… --weights FILE`: what a model says of images, with nothing but a weights file.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/common.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/toml.h"
#include "data/transform.h"
#include "io/file.h"
#include "train/device.h"
#include "train/json_value.h"
#include "train/open_task.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string weights;
  std::vector<std::string> images;
  int64_t top = 5, batch = 16, threads = 0;
  bool json = false, csv = false, raw = false;
  std::string device = "auto", precision = "fp32", model;
};

struct Decoded {
  torch::Tensor images;             // [images, 3, size, size]; rows of broken ones are zero
  std::vector<std::string> errors;  // one a picture, "" where it could be read
};

// Files as given, folders by all pictures below them in the order of their names.
std::vector<std::string> collect(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    if (!fs::exists(argument)) fail(argument, ": no such file or folder");
    if (!fs::is_directory(argument)) {
      files.push_back(argument);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(argument)) {
      if (data::has_picture_extension(entry.path().string())) found.push_back(entry.path().string());
    }
    if (found.empty()) fail(argument, ": no images (.jpg, .jpeg, .png, .webp) in this folder");
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

// By `workers` threads beside the compute threads: as compute threads of their own they would be a second
// OpenMP pool, and two pools on the same cores wait for each other.
Decoded decode(const data::Transform& transform, std::span<const std::string> files, int workers) {
  const auto count = static_cast<int64_t>(files.size());
  const data::Field& image = transform.fields().at(0);
  const int64_t stride = image.numel();
  Decoded out{torch::empty({count, image.shape.at(0), image.shape.at(1), image.shape.at(2)}),
              std::vector<std::string>(files.size())};
  float* pixels = out.images.data_ptr<float>();
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t k = next++; k < files.size(); k = next++) {
      float* row = pixels + static_cast<int64_t>(k) * stride;
      try {
        RandomStream unused(0, "predict");
        const data::Slot slot{reinterpret_cast<std::byte*>(row), nullptr};
        transform.apply({files[k], read_file(files[k])}, unused, {&slot, 1});
      } catch (const Error& error) {
        std::fill_n(row, stride, 0.0f);
        out.errors[k] = error.what();
      }
    }
  };
  std::vector<std::future<void>> others;
  for (int i = 1; i < workers; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  return out;
}

class Printer {
 public:
  Printer(const Options& options, size_t images) : options_(options), single_(images == 1) {}

  void print(const std::string& file, const tasks::Prediction& prediction) {
    if (options_.json) return print_json(file, prediction);
    if (options_.csv) return print_csv(file, prediction);
    if (!single_) std::cout << file << "\n";
    for (const tasks::PredictionLine& line : prediction) std::cout << line.words << "\n";
  }

 private:
  static void print_json(const std::string& file, const tasks::Prediction& prediction) {
    nlohmann::ordered_json line = {{"file", file}, {"predictions", nlohmann::ordered_json::array()}};
    for (const tasks::PredictionLine& one : prediction) {
      nlohmann::ordered_json values;
      for (const auto& [name, value] : one.values)
        values[name] = nlohmann::ordered_json::parse(train::json_text(value));
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

  const Options& options_;
  bool single_, headed_ = false;
};

void predict(const Options& options) {
  if (options.json && options.csv) fail_usage("--json and --csv: choose one");
  if (options.top < 1) fail_usage("--top is ", options.top, ", must be at least 1");
  const int workers = std::max(1, train::use_threads(options.threads) / 8);  // a tenth of the work is theirs
  train::use_threads_beside(workers, options.threads);
  const std::vector<std::string> files = collect(options.images);
  const torch::Device device = train::choose_device(options.device);
  const tasks::Precision precision = tasks::parse_precision(options.precision);
  const train::OpenedTask opened =
      train::open_task(options.weights, {.model = options.model, .raw = options.raw});
  for (const std::string& note : opened.notes) std::cerr << note << "\n";
  tasks::move(opened.task->parts(), device, train::parameter_type(precision));
  const auto transform = data::make_eval_transform(opened.info.preprocess);
  const torch::InferenceMode inference;
  Printer printer(options, files.size());

  const auto chunk = [&](size_t begin) {
    return std::span(files).subspan(begin,
                                    std::min(files.size() - begin, static_cast<size_t>(options.batch)));
  };
  size_t broken = 0;
  const Interruptible stretch;
  // The next batch is decoded while the model works on this one.
  auto next = std::async(std::launch::async, [&] { return decode(*transform, chunk(0), workers); });
  for (size_t begin = 0; begin < files.size(); begin += static_cast<size_t>(options.batch)) {
    const Decoded batch = next.get();
    const size_t after = begin + static_cast<size_t>(options.batch);
    if (after < files.size())
      next = std::async(std::launch::async, [&, after] { return decode(*transform, chunk(after), workers); });
    std::vector<tasks::Prediction> predictions;
    try {
      const tasks::AutocastScope autocast(device, precision);
      predictions =
          opened.task->predict(batch.images.to(device, train::parameter_type(precision)), options.top);
    } catch (const Error& error) {  // what the weights cannot do: a task knows no files
      throw Error(error.kind, opened.file + ": " + error.what());
    }
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    for (size_t i = 0; i < batch.errors.size(); ++i) {
      if (batch.errors[i].empty()) {
        printer.print(files[begin + i], predictions[i]);
      } else {
        ++broken;
        std::cerr << "tessera: " << batch.errors[i] << "\n";
      }
    }
  }
  if (broken) fail(broken, " of ", files.size(), " images could not be read");
}

}  // namespace

void add_predict(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  command
      .add("-w,--weights,--pretrained", options->weights,
           "a weights file of any form, a checkpoint or a run directory")
      .required();
  command.add("IMAGES", options->images, "images, or folders of images").required();
  command.add("--top", options->top, "lines to show an image").show_default();
  command.flag("--json", options->json, "one JSON object an image");
  command.flag("--csv", options->csv, "one line an image and rank");
  command.flag("--raw", options->raw, "checkpoints: the raw weights instead of their moving average");
  command.add("--model", options->model, "model name, where weights of other programs do not tell");
  command.add("--batch", options->batch, "images at a time").show_default().range(1, 4096);
  add_compute_options(command, options->device, options->precision, options->threads);
  action = [options] { predict(*options); };
}

}  // namespace tessera::cli
