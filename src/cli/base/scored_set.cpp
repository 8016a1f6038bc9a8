#include "cli/base/scored_set.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "cli/base/common.h"
#include "cli/base/measure_options.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "data/transforms/transform.h"
#include "eval/predictions.h"
#include "open/image_walk.h"
#include "tasks/base/inputs.h"
#include "tasks/base/registry.h"

namespace tessera::cli {
namespace {

// Evenly spaced samples of a source.
class SpreadSource final : public data::Source {
 public:
  SpreadSource(const data::Source& source, int64_t count) : source_(source), count_(count) {}
  int64_t size() const override { return count_; }
  int64_t place(int64_t index) const { return index * source_.size() / count_; }
  data::RawSample read(int64_t index) const override { return source_.read(place(index)); }
  uint64_t fingerprint() const override { return source_.fingerprint(); }
  std::string describe() const override { return source_.describe(); }

 private:
  const data::Source& source_;
  int64_t count_;
};

// In the precision of --precision.
torch::Tensor scores_of(const AnalysedModel& model, const torch::Tensor& images) {
  const tasks::AutocastScope autocast = model.autocast();
  return model.classifier().forward(model.moved(images));
}

}  // namespace

std::vector<bool> ScoredSet::hits() const { return eval::hits({logits, labels, classes}); }

ScoredSet score_set(const AnalysedModel& model, const data::Source& source, int64_t batch, int64_t most,
                    const std::string& label, bool classes_in_order) {
  const data::ClassLabels& labels = data::require_labels(source, "this measurement");
  if (labels.multi_label())
    fail_usage(source.describe(), ": its images have several classes each, this measurement needs one");
  if (source.size() == 0) fail(source.describe(), ": there is no image");
  ScoredSet out;
  out.class_names = labels.class_names(), out.source = source.describe();
  const data::ClassMapping mapping = data::map_classes(model.class_names(), model.classifier().classes(),
                                                       out.class_names, source.describe(), classes_in_order);
  out.mapping = mapping.how, out.classes = std::ssize(out.class_names);
  const torch::Tensor chosen = torch::tensor(mapping.model_class, torch::kInt64);
  const SpreadSource spread(source, most > 0 ? std::min(most, source.size()) : source.size());
  const auto transform = data::make_eval_transform(model.info().preprocess);
  const Value* kept = model.info().task_metadata.find("temperature");
  const double temperature = kept ? kept->as_double() : 1;
  const torch::InferenceMode inference;
  ProgressLine progress(std::cerr, {.label = label, .total = spread.size()});
  const train::ImageWalk walk{
      .batch = batch_that_fits(batch, model.info().preprocess.size),
      .broken = [&](const std::string& error) { progress.print("tessera: left out: " + one_line(error)); },
      .progress = [&](int64_t done) { progress.update(done, {}); }};
  train::for_each_batch(spread, *transform, walk, [&](const train::WalkedBatch& loaded) {
    const torch::Tensor scores = scores_of(model, loaded.images)
                                     .to(torch::kCPU, torch::kFloat32)
                                     .div(temperature)
                                     .index_select(1, chosen)
                                     .contiguous();
    const float* rows = scores.const_data_ptr<float>();
    for (int64_t i = 0; i < loaded.size(); ++i) {
      if (!loaded.readable(i)) continue;
      const float* row = rows + i * out.classes;
      if (!std::isfinite(*std::max_element(row, row + out.classes)))
        fail(model.file(),
             ": the model's outputs are not finite: its training went astray, or the file is damaged");
      out.logits.insert(out.logits.end(), row, row + out.classes);
      out.labels.push_back(labels.label(spread.place(loaded.first + i)));
      out.names.push_back(loaded.names[static_cast<size_t>(i)]);
    }
  });
  progress.finish();
  if (out.labels.empty()) fail(out.source, ": none of ", counted(spread.size(), "image"), " could be read");
  return out;
}

std::shared_ptr<const data::Source> open_set(const AnalysisInput& input, const AnalysedModel& model) {
  data::SourceConfig config{.path = input.data};
  if (input.data.empty()) config = data_of_run(model.file(), model.info());
  if (config.path.empty()) fail_usage(model.file(), ": has no record of its data; give --data");
  const bool held_out = input.split == "validation";
  if (!input.data.empty() && held_out) config.val_path = config.path;
  if (input.split == "all") config.val_share = 0;
  const tasks::TaskKind& kind = tasks::find_task(tasks::task_name(model.info().task));
  return data::open_source(tasks::data_for(kind, config),
                           held_out ? data::Split::validation : data::Split::train);
}

void say_whose_set(const AnalysisInput& input, const std::vector<std::string>& weights,
                   const data::Source& source) {
  if (weights.size() > 1 && input.data.empty())
    std::cerr << "tessera: all weights are measured on the set of " << one_line(weights[0]) << ": "
              << one_line(source.describe()) << "\n";
}

}  // namespace tessera::cli
