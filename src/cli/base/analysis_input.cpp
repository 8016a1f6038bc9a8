#include "cli/base/analysis_input.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <span>
#include <utility>
#include <variant>

#include "cli/base/common.h"
#include "cli/base/measure_options.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/image_files.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "models/base/encoder.h"
#include "open/image_walk.h"
#include "open/ready_task.h"
#include "tasks/base/registry.h"

namespace tessera::cli {
namespace {

data::SourceConfig config_of(const AnalysisInput& input, const AnalysedModel& model) {
  data::SourceConfig config;
  if (!input.data.empty()) {
    config.path = input.data;
    if (input.split == "all") config.val_share = 0;
  } else {
    config = data_of_run(model.file(), model.info());
  }
  if (config.path.empty())
    fail_usage(model.file(), ": has no record of its data; name images, or give --data");
  return tasks::data_for(tasks::find_task(tasks::task_name(model.info().task)), config);
}

std::unique_ptr<data::Source> source_of(const AnalysisInput& input, const AnalysedModel& model) {
  if (!input.images.empty() && !input.data.empty())
    fail_usage("IMAGES and --data both name the images: give one");
  if (input.images.empty())
    return data::open_source(config_of(input, model),
                             input.split == "validation" ? data::Split::validation : data::Split::train);
  return std::make_unique<data::ImageFiles>(given_images(input.images));
}

// Returns the numbers in a tap's name.
std::vector<int64_t> numbers_in(const std::string& name) {
  std::vector<int64_t> out;
  for (const std::string& part : split(name, '.'))
    if (const auto number = parse_int(part)) out.push_back(*number);
  return out;
}

// Returns the checksum of the file's bytes, or of pixels and shape if the source generates or stores pixels.
std::string raw_checksum(const data::RawSample& sample) {
  if (const auto* bytes = std::get_if<std::vector<std::byte>>(&sample.picture)) return checksum_of(*bytes);
  const Image& image = std::get<Image>(sample.picture);
  return text(image.width, "x", image.height, "x", image.channels, " ",
              checksum_of(std::as_bytes(std::span(image.pixels))));
}

const ComputeOptions& checked(const ComputeOptions& compute, AnalysisPrecisions allowed) {
  const tasks::Precision precision = tasks::parse_precision(compute.precision);
  if (allowed == AnalysisPrecisions::exact && precision != tasks::Precision::fp32 &&
      precision != tasks::Precision::fp64)
    fail_usage("--precision ", compute.precision, ": this analysis computes in fp32 or fp64");
  return compute;
}

}  // namespace

AnalysedModel::AnalysedModel(const AnalysisInput& input, AnalysisPrecisions allowed)
    : ImageModel({.weights = input.weights,
                  .how = {.model = input.model, .key = input.key, .raw = input.raw, .size = input.size},
                  .compute = checked(input, allowed)}) {}

models::Classifier& AnalysedModel::classifier() const {
  const auto classifier = task().classifier();
  if (!classifier || classifier->classes() == 0)
    fail_usage(file(), ": these weights do not classify, and this analysis needs their scores");
  return *classifier;
}

std::vector<std::string> AnalysedModel::class_names() const {
  std::vector<std::string> names;
  if (const Value* list = info().task_metadata.find("class_names"); list && list->is_array())
    for (const Value& name : list->as_array()) names.push_back(name.as_string());
  return names;
}

bool AnalysedModel::has_layout() const { return ability_of<models::TokenEncoder>(backbone()) != nullptr; }

analysis::TokenLayout AnalysedModel::layout(const torch::Tensor& images) const {
  auto* encoder = ability_of<models::TokenEncoder>(backbone());
  if (!encoder)
    fail_usage(file(), ": ", info().model.name, " has no one sequence of tokens for this analysis");
  const torch::NoGradGuard no_grad;
  const models::TokenPlaces places = encoder->tokenise(images.slice(0, 0, 1));
  if (places.middle > 0)
    fail_usage(file(), ": ", info().model.name, " has tokens among its patches, for which there are no maps");
  analysis::TokenLayout layout{places.rows, places.columns, places.before, -1};
  if (places.behind > 0)
    layout.class_token = places.count() - 1;
  else if (places.before > 0)
    layout.class_token = 0;
  return layout;
}

std::map<std::string, torch::Tensor> AnalysedModel::tapped(
    const torch::Tensor& images, const std::function<bool(const std::string&)>& wanted) const {
  models::Taps taps{.wanted = wanted, .kept = {}};
  models::Context context;
  context.taps = &taps;
  backbone().embed(images, context);
  return std::move(taps.kept);
}

AnalysedImages read_images(const AnalysisInput& input, const AnalysedModel& model) {
  const auto source = source_of(input, model);
  if (source->size() == 0) fail(source->describe(), ": there is no image");
  const auto transform = data::make_eval_transform(model.info().preprocess);
  const int64_t count = std::min(input.count, source->size());
  const data::ClassLabels* labels = source->class_labels();
  AnalysedImages out;
  out.source = source->describe();
  std::vector<torch::Tensor> rows;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t index = k * source->size() / count;
    try {
      data::RawSample sample = source->read(index);
      std::string name = sample.name, checksum = raw_checksum(sample);
      rows.push_back(train::prepared_images(*transform, 1, [&](int64_t) { return std::move(sample); }));
      out.names.push_back(std::move(name));
      out.checksums.push_back(std::move(checksum));
      out.labels.push_back(labels && !labels->multi_label() ? labels->label(index) : -1);
    } catch (const Error& error) {
      std::cerr << "tessera: left out: " << one_line(error.what()) << "\n";
    }
  }
  if (rows.empty()) fail(out.source, ": none of ", counted(count, "image"), " could be read");
  const torch::Tensor parameter = model.backbone().parameters().at(0);
  out.images = torch::cat(rows).to(parameter.device(), parameter.scalar_type());
  return out;
}

bool by_number(const std::string& a, const std::string& b) {
  const auto x = numbers_in(a), y = numbers_in(b);
  return x != y ? x < y : a < b;
}

std::vector<std::string> taps_ending(const AnalysedModel& model, const torch::Tensor& image,
                                     const std::string& ending, const std::string& what) {
  const torch::NoGradGuard no_grad;
  std::vector<std::string> names;
  const auto all = model.tapped(image, [&](const std::string& name) { return name.ends_with(ending); });
  for (const auto& [name, value] : all) names.push_back(name);
  std::sort(names.begin(), names.end(), by_number);
  if (names.empty()) fail_usage(model.file(), ": ", model.info().model.name, " has no ", what);
  return names;
}

Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess) {
  const auto numbers = torch::TensorOptions(torch::kFloat32);
  const torch::Tensor mean = torch::tensor(preprocess.mean, numbers).view({3, 1, 1}),
                      std = torch::tensor(preprocess.std, numbers).view({3, 1, 1});
  const torch::Tensor bytes = ((image.detach().to(torch::kCPU, torch::kFloat32) * std + mean) * 255)
                                  .round()
                                  .clamp(0, 255)
                                  .to(torch::kUInt8)
                                  .permute({1, 2, 0})
                                  .contiguous();
  Image out(static_cast<int>(bytes.size(1)), static_cast<int>(bytes.size(0)), 3);
  std::copy_n(bytes.const_data_ptr<uint8_t>(), out.pixels.size(), out.pixels.begin());
  return out;
}

}  // namespace tessera::cli
