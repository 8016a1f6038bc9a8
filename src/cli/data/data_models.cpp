#include <algorithm>
#include <cmath>

#include "cli/data/data_models.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/annotations.h"
#include "data/loading/loader.h"
#include "data/sources/annotated_source.h"
#include "open/ready_task.h"
#include "recipe/recipe.h"
#include "tasks/dense/detect.h"
#include "train/setup.h"

namespace tessera::cli {

namespace {

// Converts normalised pixels [3, height, width] to an image, each pixel `times` times as wide and high.
Image enlarged(const torch::Tensor& planes, const data::Preprocess& preprocess, int times) {
  const auto height = static_cast<int>(planes.size(1)), width = static_cast<int>(planes.size(2));
  const torch::Tensor host = planes.to(torch::kFloat64).contiguous();
  const double* values = host.const_data_ptr<double>();
  Image out(width * times, height * times, 3);
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x)
      for (int c = 0; c < 3; ++c) {
        const auto channel = static_cast<size_t>(c);
        const double value = values[(static_cast<int64_t>(c) * height + y / times) * width + x / times] *
                                 preprocess.std[channel] +
                             preprocess.mean[channel];
        out.row(y)[3 * x + c] = static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0)));
      }
  return out;
}

// Draws a box [4], `inset` pixels inside its edges.
data::DrawnObject drawn(const torch::Tensor& box, int64_t colour, int times, double inset) {
  const auto at = [&](int64_t i) { return box[i].item<double>() * times; };
  return {at(0) + inset, at(1) + inset, at(2) - inset, at(3) - inset, colour, nullptr};
}

report::Cell cell_of(const torch::Tensor& planes, const torch::Tensor& boxes,
                     const models::AnchorMatches& matched, const data::Preprocess& preprocess, int side) {
  const int times = std::max<int>(1, side / static_cast<int>(std::max(planes.size(1), planes.size(2))));
  std::vector<data::DrawnObject> objects;
  for (int64_t i = 0; i < matched.anchors.size(0); ++i)
    objects.push_back(drawn(matched.anchors[i], matched.truth[static_cast<size_t>(i)], times, 0));
  constexpr int kThick = 3;
  for (int64_t k = 0; k < boxes.size(0); ++k)
    for (int inset = 0; inset < kThick; ++inset) objects.push_back(drawn(boxes[k], k, times, inset));
  return {data::draw_objects(enlarged(planes, preprocess, times), objects),
          text(counted(boxes.size(0), "object"), ", ", matched.anchors.size(0), " of ",
               counted(matched.all, "anchor"))};
}

}  // namespace

std::vector<report::Cell> matched_cells(const std::string& recipe_file, const data::SourceConfig& source,
                                        int64_t count, int64_t seed, int side) {
  train::Recipe recipe = train::load_recipe(recipe_file, {"data.path=" + toml_text(Value(source.path)),
                                                          text("train.seed=", seed), "train.device=cpu"});
  const train::RunData data = train::open_data(recipe);
  const train::WeightsInfo info = train::describe_run(recipe, data);
  tasks::TaskSetup setup = train::task_setup(recipe, data, info, train::choose_compute(recipe.train));
  setup.meta = true;
  const std::unique_ptr<tasks::Task> task = tasks::find_task(tasks::task_name(recipe.task)).make(setup);
  const auto* matching = ability_of<tasks::AnchorMatching>(*task);
  if (!matching)
    fail_usage("--matches ", recipe_file, ": task ", tasks::task_name(recipe.task),
               " has no anchors; task detect has");
  const tasks::StreamSpec stream = task->streams().at(0);
  data::LoaderConfig loading = train::loader_config(recipe.train, stream, true);
  loading.batch_size = std::min(count, stream.source->size());
  data::Loader loader(*stream.source, stream.transform(recipe.preprocess.size), loading);
  const auto batch = loader.next();
  check(batch.has_value(), "there is no image in ", stream.source->describe());
  tasks::Inputs inputs;
  inputs.streams.push_back(tasks::to_device(*batch, stream.name, torch::kCPU, tasks::Precision::fp32));
  const std::vector<models::AnchorMatches> matched = matching->match_anchors(inputs);
  const tasks::FieldTensor* boxes = nullptr;
  for (const tasks::FieldTensor& field : inputs.main().fields)
    if (field.name == "boxes") boxes = &field;
  check(boxes, "the task's images have no boxes");
  std::vector<report::Cell> cells;
  for (size_t i = 0; i < matched.size(); ++i) {
    const int64_t from = boxes->offsets[i], objects = boxes->offsets[i + 1] - from;
    cells.push_back(cell_of(inputs.at("image")[static_cast<int64_t>(i)],
                            boxes->values.narrow(0, from, objects), matched[i], recipe.preprocess, side));
  }
  return cells;
}

TextReader::TextReader(const std::string& weights)
    : opened_(train::open_task(weights)), limit_(train::require<tasks::TextLimit>(opened_, "--weights")) {}

void TextReader::add_long_texts(const data::SourceConfig& config, data::CheckReport& report) const {
  data::OpenSplits splits = data::open_splits(config);
  const Interruptible stretch;
  for (const auto* source : {splits.train.get(), splits.validation.get()}) {
    if (source == nullptr) continue;
    const auto annotations = source->annotations();
    if (&annotations->images() != source) continue;  // documents
    for (int64_t i = 0; i < source->size(); ++i) try {
        if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
        const data::RawSample sample = source->read(i);
        for (const tasks::LongText& one : limit_.long_texts(sample))
          report.captions.add(one.line(sample.name));
      } catch (const Error& error) {
        if (error.kind != ErrorKind::failed) throw;  // the check has named it
      }
    if (config.val_path.empty() && annotations->one_split()) break;
  }
}

}  // namespace tessera::cli
