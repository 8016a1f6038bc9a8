#include "tasks/base/report_blocks.h"

#include <algorithm>

#include "core/error.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text.h"
#include "data/transforms/resize.h"
#include "report/markup.h"

namespace tessera::tasks {

namespace {

constexpr int kLongestSide = 160;
constexpr int64_t kPictures = 24;

}  // namespace

Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess) {
  const torch::Tensor std = torch::tensor(preprocess.std), mean = torch::tensor(preprocess.mean);
  const torch::Tensor pixels = image.cpu().to(torch::kFloat32).permute({1, 2, 0});
  const torch::Tensor bytes =
      ((pixels * std + mean) * 255).round().clamp(0, 255).to(torch::kUInt8).contiguous();
  Image picture(static_cast<int>(bytes.size(1)), static_cast<int>(bytes.size(0)));
  std::copy_n(bytes.const_data_ptr<uint8_t>(), picture.pixels.size(), picture.pixels.begin());
  return picture;
}

Image thumbnail_of(const data::Source& source, int64_t index) {
  return data::shrunk_to_fit(data::decode_sample(source.read(index)), kLongestSide);
}

std::vector<report::Picture> drawn_pictures(int64_t samples, uint64_t seed,
                                            const std::function<report::Picture(int64_t sample)>& make) {
  std::vector<report::Picture> pictures;
  RandomStream random(seed, "report");
  for (const int64_t sample : random.permutation(samples)) {
    if (std::ssize(pictures) == kPictures) break;
    try {
      pictures.push_back(make(sample));
    } catch (const Error&) {
      continue;
    }
  }
  return pictures;
}

namespace {

constexpr int64_t kMostTabled = 4096;  // largest number of classes for which the confusion matrix is shown

bool single_label(const ScoredSamples& scored) {
  return !scored.rows.empty() && scored.rows[0].score.label >= 0;
}

report::ConfusionBlock confusion_of(const ScoredSamples& scored, const std::vector<std::string>& names) {
  report::ConfusionBlock block;
  if (!single_label(scored) || scored.classes > kMostTabled) return block;
  for (int64_t c = 0; c < scored.classes; ++c) block.confusion.class_names.push_back(class_name(names, c));
  block.confusion.counts.resize(static_cast<size_t>(scored.classes * scored.classes));
  for (const auto& [index, score] : scored.rows)
    ++block.confusion.counts[static_cast<size_t>(score.label * scored.classes + score.best)];
  return block;
}

// One picture of the grid; its frame is green if the best class is one of the labels.
report::Picture picture_of(const data::Source& source, const EvaluatedSample& row,
                           const std::vector<std::string>& names) {
  const std::vector<int64_t> labels = source.class_labels()->labels(row.index);
  const bool right = std::count(labels.begin(), labels.end(), row.score.best) > 0;
  std::vector<std::string> label_names;
  for (const int64_t label : labels) label_names.push_back(class_name(names, label));
  const std::string sure = report::compact(row.score.confidence * 100, 3) + " % sure";
  return {thumbnail_of(source, row.index), class_name(names, row.score.best),
          right ? sure : sure + ", is " + join(label_names, ", "),
          right ? report::Picture::Mark::good : report::Picture::Mark::bad};
}

report::PicturesBlock pictures_of(const ScoredSamples& scored, const data::Source& source,
                                  const std::vector<std::string>& names, uint64_t seed) {
  report::PicturesBlock block{.heading = "Predictions"};
  block.pictures = drawn_pictures(scored.samples, seed, [&](int64_t row) {
    return picture_of(source, scored.rows[static_cast<size_t>(row)], names);
  });
  const auto wrong = std::count_if(block.pictures.begin(), block.pictures.end(), [](const auto& picture) {
    return picture.mark == report::Picture::Mark::bad;
  });
  block.note = text(block.pictures.size(), " validation images, ", wrong, " of them wrong (framed red).");
  return block;
}

// Single-label only.
report::TableBlock classes_of(const ScoredSamples& scored, const std::vector<std::string>& names) {
  eval::ClassificationMeter meter(scored.classes);
  for (const EvaluatedSample& row : scored.rows) meter.add(row.score);
  return class_table(meter, names);
}

// A class without samples has no average precision and no threshold.
report::TableBlock labels_of(const ScoredSamples& scored, const std::vector<std::string>& names) {
  report::TableBlock table{
      .name = "classes",
      .heading = "Classes",
      .note =
          "For each class its average precision, and the least probability to predict it with the best F1."};
  table.columns = {{"class"},           {"samples", true}, {"average_precision", true},
                   {"threshold", true}, {"best_f1", true}, {"precision", true},
                   {"recall", true}};
  for (size_t c = 0; c < scored.labels.size(); ++c) {
    const ScoredLabel& label = scored.labels[c];
    const auto number = [&](double value) { return label.average_precision < 0 ? "-" : fixed(value, 4); };
    table.rows.push_back({class_name(names, static_cast<int64_t>(c)), text(label.samples),
                          number(label.average_precision),
                          label.average_precision < 0 ? "-" : shortest(label.best.threshold),
                          number(label.best.f1), number(label.best.precision), number(label.best.recall)});
  }
  return table;
}

report::TableBlock samples_of(const ScoredSamples& scored, const data::Source& source,
                              const std::vector<std::string>& names) {
  report::TableBlock table{.name = "samples"};
  table.columns = {{"sample"}, {"label"}, {"prediction"}, {"probability", true}, {"correct", true}};
  for (const auto& [index, score] : scored.rows) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted: no predictions were written");
    const std::vector<int64_t> labels = source.class_labels()->labels(index);
    std::vector<std::string> label_names;
    for (const int64_t label : labels) label_names.push_back(class_name(names, label));
    const bool right = std::find(labels.begin(), labels.end(), score.best) != labels.end();
    table.rows.push_back({source.read(index).name, join(label_names, "|"), class_name(names, score.best),
                          fixed(score.confidence, 6), right ? "1" : "0"});
  }
  return table;
}

}  // namespace

report::TableBlock class_table(const eval::ClassificationMeter& meter,
                               const std::vector<std::string>& names) {
  report::TableBlock table{.name = "classes"};
  table.columns = {{"class"}, {"samples", true}, {"precision", true}, {"recall", true}, {"f1", true}};
  const auto scores = meter.per_class();
  for (size_t c = 0; c < scores.size(); ++c)
    table.rows.push_back({class_name(names, static_cast<int64_t>(c)), text(scores[c].samples),
                          shortest(scores[c].precision), shortest(scores[c].recall), shortest(scores[c].f1)});
  return table;
}

std::string class_name(const std::vector<std::string>& names, int64_t index) {
  const auto i = static_cast<size_t>(index);
  return i < names.size() ? names[i] : text("class ", index);
}

std::vector<Prediction> most_likely(const torch::Tensor& probabilities, const std::vector<std::string>& names,
                                    int64_t most) {
  const auto [values, indices] = probabilities.topk(std::min(most, probabilities.size(1)));
  std::vector<Prediction> out;
  for (int64_t i = 0; i < probabilities.size(0); ++i) {
    Prediction lines;
    for (int64_t rank = 0; rank < values.size(1); ++rank) {
      const auto probability = static_cast<double>(values[i][rank].item<float>());
      const int64_t index = indices[i][rank].item<int64_t>();
      const std::string name = class_name(names, index), percent = fixed(100 * probability, 2);
      lines.push_back(
          {{{"class", name}, {"index", index}, {"probability", probability}},
           std::string(percent.size() < 7 ? 7 - percent.size() : 0, ' ') + percent + " %  " + name});
    }
    out.push_back(std::move(lines));
  }
  return out;
}

std::vector<report::Block> classify_blocks(const ScoredSamples& scored, const data::Source& source,
                                           const std::vector<std::string>& class_names,
                                           const EvaluateOptions& options) {
  std::vector<report::Block> blocks;
  if (options.wants("pictures")) blocks.emplace_back(pictures_of(scored, source, class_names, options.seed));
  const bool several = !scored.labels.empty();  // classes an image
  if (several) blocks.emplace_back(labels_of(scored, class_names));
  if (options.wants("confusion") && !several) blocks.emplace_back(confusion_of(scored, class_names));
  if (options.wants("classes") && !several) blocks.emplace_back(classes_of(scored, class_names));
  if (options.wants("samples")) blocks.emplace_back(samples_of(scored, source, class_names));
  return blocks;
}

}  // namespace tessera::tasks
