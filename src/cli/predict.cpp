// `tessera predict IMAGES… --weights FILE`: classify pictures with nothing but a weights file.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/common.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/transform.h"
#include "io/file.h"
#include "train/device.h"
#include "train/open_model.h"

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
  torch::Tensor images;             // [pictures, 3, size, size]; rows of broken ones are zero
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
    if (found.empty()) fail(argument, ": no pictures (.jpg, .jpeg, .png, .webp) in this folder");
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

// By `workers` threads beside the compute threads: as compute threads of their own they would be a second
// OpenMP pool, and two pools on the same cores wait for each other.
Decoded decode(const data::Transform& transform, std::span<const std::string> files, int workers) {
  const auto count = static_cast<int64_t>(files.size());
  const int64_t stride = 3 * transform.height() * transform.width();
  Decoded out{torch::empty({count, 3, transform.height(), transform.width()}),
              std::vector<std::string>(files.size())};
  float* pixels = out.images.data_ptr<float>();
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t k = next++; k < files.size(); k = next++) {
      float* row = pixels + static_cast<int64_t>(k) * stride;
      try {
        RandomStream unused(0, "predict");
        transform.apply({files[k], read_file(files[k])}, unused, row);
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
  Printer(const Options& options, const train::WeightsInfo& info, size_t pictures)
      : options_(options), info_(info), single_(pictures == 1) {
    if (options_.csv) std::cout << "file,rank,class,index,probability\n";
  }

  void print(const std::string& file, const torch::Tensor& probabilities) const {
    const auto [values, indices] = probabilities.topk(std::min(options_.top, probabilities.size(0)));
    const float* p = values.data_ptr<float>();
    const int64_t* c = indices.data_ptr<int64_t>();
    nlohmann::ordered_json line = {{"file", file}, {"predictions", nlohmann::ordered_json::array()}};
    if (!options_.json && !options_.csv) std::cout << (single_ ? "" : file + "\n");
    for (int64_t rank = 0; rank < values.size(0); ++rank) {
      const std::string name = class_name(info_, c[rank]);
      if (options_.json)
        line["predictions"].push_back({{"class", name}, {"index", c[rank]}, {"probability", p[rank]}});
      else if (options_.csv)
        std::cout << csv_field(file) << "," << rank + 1 << "," << csv_field(name) << "," << c[rank] << ","
                  << fixed(p[rank], 6) << "\n";
      else
        std::cout << std::setw(7) << fixed(100 * p[rank], 2) << " %  " << name << "\n";
    }
    if (options_.json) std::cout << json_text(line) << "\n";
  }

 private:
  const Options& options_;
  const train::WeightsInfo& info_;
  bool single_;
};

void predict(const Options& options) {
  if (options.json && options.csv) fail_usage("--json and --csv: choose one");
  if (options.top < 1) fail_usage("--top is ", options.top, ", must be at least 1");
  const int workers = std::max(1, train::use_threads(options.threads) / 8);  // a tenth of the work is theirs
  train::use_threads_beside(workers, options.threads);
  const std::vector<std::string> files = collect(options.images);
  const torch::Device device = train::choose_device(options.device);
  const tasks::Precision precision = tasks::parse_precision(options.precision);
  const train::OpenedModel opened =
      train::open_model(options.weights, {.model = options.model, .raw = options.raw});
  for (const std::string& note : opened.notes) std::cerr << note << "\n";
  if (opened.info.model.settings.find("classes")->as_int() == 0)
    fail(opened.file,
         ": holds no head, so it knows no classes; must be weights that were trained to classify");
  opened.model->to(device);
  if (precision == tasks::Precision::fp64) opened.model->to(torch::kFloat64);
  const auto transform = data::make_eval_transform(opened.info.preprocess);
  const torch::InferenceMode inference;
  const Printer printer(options, opened.info, files.size());

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
    torch::Tensor probabilities;
    {
      const tasks::AutocastScope autocast(device, precision);
      const auto type = precision == tasks::Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
      const torch::Tensor logits =
          opened.model->forward(batch.images.to(device, type)).to(torch::kFloat32).cpu();
      probabilities = opened.info.multi_label ? logits.sigmoid() : logits.softmax(1);
    }
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    for (size_t i = 0; i < batch.errors.size(); ++i) {
      if (batch.errors[i].empty()) {
        printer.print(files[begin + i], probabilities[static_cast<int64_t>(i)]);
      } else {
        ++broken;
        std::cerr << "tessera: " << batch.errors[i] << "\n";
      }
    }
  }
  if (broken) fail(broken, " of ", files.size(), " pictures could not be read");
}

}  // namespace

void add_predict(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  command
      .add("-w,--weights,--pretrained", options->weights,
           "a weights file of any form, a checkpoint or a run directory")
      .required();
  command.add("IMAGES", options->images, "pictures, or folders of pictures").required();
  command.add("--top", options->top, "classes to show a picture").show_default();
  command.flag("--json", options->json, "one JSON object a picture");
  command.flag("--csv", options->csv, "one line a picture and rank");
  command.flag("--raw", options->raw, "checkpoints: the raw weights instead of their moving average");
  command.add("--model", options->model, "model name, where weights of other programs do not tell");
  command.add("--batch", options->batch, "pictures at a time").show_default().range(1, 4096);
  add_compute_options(command, options->device, options->precision, options->threads);
  action = [options] { predict(*options); };
}

}  // namespace tessera::cli
