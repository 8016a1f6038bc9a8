#include "tasks/base/paired_findings.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "eval/captioning.h"
#include "eval/classification.h"
#include "eval/ranking.h"
#include "tasks/base/paired.h"
#include "tasks/base/report_blocks.h"
#include "tasks/base/zero_shot.h"

namespace tessera::tasks {

namespace {

constexpr int64_t kRowsAtOnce = 256;

std::vector<std::string> references_of(const data::Source& source, int64_t index, EvalCaptions which) {
  std::vector<std::string> captions = source.read(index).annotation.captions;
  const size_t most = which == EvalCaptions::first ? 1 : which == EvalCaptions::five ? 5 : captions.size();
  if (captions.size() > most) captions.resize(most);
  return captions;
}

// The captions of a validation set, and the images that each belongs to.
struct SearchedTexts {
  std::vector<std::string> texts;              // distinct
  std::vector<std::vector<int64_t>> of_image;  // for each image, in order
  std::vector<std::vector<int64_t>> images;    // for each text

  SearchedTexts(const data::Source& source, const std::vector<int64_t>& indices, EvalCaptions which) {
    std::map<std::string, int64_t> places;
    for (size_t i = 0; i < indices.size(); ++i) {
      std::set<int64_t> own;
      for (const std::string& caption : references_of(source, indices[i], which)) {
        const auto [found, is_new] = places.try_emplace(caption, std::ssize(texts));
        if (is_new) texts.push_back(caption), images.emplace_back();
        if (own.insert(found->second).second)
          images[static_cast<size_t>(found->second)].push_back(static_cast<int64_t>(i));
      }
      of_image.emplace_back(own.begin(), own.end());
    }
  }
};

// Similarities [queries, items] of a slice of the queries.
using Compare = std::function<torch::Tensor(const torch::Tensor& queries)>;

// Ranks the best relevant item of each query; similarities are computed in chunks of queries. Queries without
// a relevant item (images without a caption) are not counted.
eval::RetrievalMeter ranks_of(const torch::Tensor& queries, const Compare& compare,
                              const std::vector<std::vector<int64_t>>& relevant) {
  eval::RetrievalMeter meter;
  for (int64_t first = 0; first < queries.size(0); first += kRowsAtOnce) {
    const torch::Tensor scores =
        compare(queries.slice(0, first, std::min(queries.size(0), first + kRowsAtOnce))).contiguous();
    for (int64_t i = 0; i < scores.size(0); ++i)
      if (const auto& own = relevant[static_cast<size_t>(first + i)]; !own.empty())
        meter.add(eval::rank_of_first(
            {scores[i].const_data_ptr<float>(), static_cast<size_t>(scores.size(1))}, own));
  }
  return meter;
}

using Embed = std::function<torch::Tensor(const std::vector<std::string>&)>;

// Zero-shot classification by class names.
void add_zero_shot(Findings& out, const data::Source& source, const data::ClassLabels& labels,
                   const SampleRows& images, const PairedEmbedding& model, const EvaluateOptions& options,
                   const Embed& embed) {
  const std::vector<std::string>& names = labels.class_names();
  const std::vector<std::string> spoken = model.names_of(names);
  if (std::set<std::string>(spoken.begin(), spoken.end()).size() < spoken.size()) return;
  if (spoken != names)
    out.notes.push_back(text(source.describe(), ": its classes are named in texts: '", printable(names[0]),
                             "' is '", printable(spoken[0]), "'"));
  ClassRows classes = class_rows(model, spoken, model.templates(), embed);
  classes.rows = classes.rows.to(torch::kCPU, torch::kFloat32);
  std::vector<std::vector<int64_t>> own;
  for (const int64_t index : images.indices()) own.push_back({labels.label(index)});
  std::optional<eval::ClassificationMeter> by_class;
  if (options.wants("classes")) by_class.emplace(std::ssize(names));
  int64_t seen = 0;
  const auto compare = [&](const torch::Tensor& some) {
    const torch::Tensor scores = classes.similarities(model, some).contiguous();
    for (int64_t i = 0; by_class && i < scores.size(0); ++i)
      by_class->add({scores[i].const_data_ptr<float>(), names.size()}, own[static_cast<size_t>(seen++)]);
    return scores;
  };
  const eval::RetrievalMeter meter = ranks_of(images.rows(), compare, own);
  out.metrics.push_back({{"zero_shot_top1", Unit::share}, meter.recall(1)});
  out.metrics.push_back({{"zero_shot_top5", Unit::share}, meter.recall(5)});
  if (by_class) out.blocks.emplace_back(class_table(*by_class, names));
}

// The frame is green if the caption equals one of its references.
report::PicturesBlock captioned_pictures(const data::Source& source, const std::vector<int64_t>& indices,
                                         const std::vector<std::string>& captions, EvalCaptions which,
                                         uint64_t seed) {
  report::PicturesBlock block{
      .heading = "Captions",
      .note = "Below each caption the references; framed green if the caption equals one."};
  block.pictures = drawn_pictures(std::ssize(indices), seed, [&](int64_t i) {
    const auto place = static_cast<size_t>(i);
    const std::vector<std::string> references = references_of(source, indices[place], which);
    const bool right = std::ranges::find(references, captions[place]) != references.end();
    return report::Picture{thumbnail_of(source, indices[place]), captions[place],
                           references.empty() ? "" : references[0],
                           right ? report::Picture::Mark::good : report::Picture::Mark::none};
  });
  return block;
}

}  // namespace

void add_retrieval(Findings& out, const data::Source& source, const SampleRows& images, EvalCaptions which,
                   const PairedEmbedding& model, const EvaluateOptions& options, const Embed& embed) {
  const SearchedTexts searched(source, images.indices(), which);
  const torch::Tensor texts = embed(searched.texts).to(torch::kCPU, torch::kFloat32), rows = images.rows();
  const bool finite = torch::isfinite(rows).all().item<bool>() && torch::isfinite(texts).all().item<bool>();
  const eval::RetrievalMeter to_text = ranks_of(
      rows, [&](const torch::Tensor& some) { return model.similarities(some, texts); }, searched.of_image);
  const eval::RetrievalMeter to_image = ranks_of(
      texts, [&](const torch::Tensor& some) { return model.similarities(some, rows); }, searched.images);
  for (const auto& [name, meter] : {std::pair("image_to_text_r", &to_text), {"text_to_image_r", &to_image}})
    for (const int64_t k : {1, 5, 10})
      out.metrics.push_back({{name + std::to_string(k), Unit::share},
                             finite ? meter->recall(k) : std::numeric_limits<double>::quiet_NaN()});
  out.metrics.push_back({{"captions"}, static_cast<double>(searched.texts.size())});
  const data::ClassLabels* labels = source.class_labels();
  if (labels && !labels->multi_label() && labels->class_names().size() >= 2)
    add_zero_shot(out, source, *labels, images, model, options, embed);
}

void add_caption_scores(Findings& out, const data::Source& source, const std::vector<int64_t>& indices,
                        const std::vector<std::string>& captions, EvalCaptions which,
                        const EvaluateOptions& options) {
  std::vector<eval::CaptionedImage> images;
  report::TableBlock table{.name = "samples"};
  table.columns = {{"image"}, {"caption"}, {"reference"}};
  int64_t exact = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::vector<std::string> references = references_of(source, indices[i], which);
    if (references.empty()) continue;
    eval::CaptionedImage one{eval::caption_tokens(captions[i]), {}};
    for (const std::string& reference : references) one.references.push_back(eval::caption_tokens(reference));
    exact += std::find(one.references.begin(), one.references.end(), one.candidate) != one.references.end();
    images.push_back(std::move(one));
    table.rows.push_back({std::to_string(indices[i]), captions[i], references[0]});
  }
  if (images.empty()) {
    for (const MetricInfo& info :
         {MetricInfo{"cider"}, {"bleu4", Unit::share}, {"rouge_l", Unit::share}, {"exact", Unit::share}})
      out.metrics.push_back(unmeasured(info));
    return;
  }
  const eval::CaptionScores scores = eval::score_captions(images);
  out.metrics.push_back({{"cider"}, scores.cider});
  out.metrics.push_back({{"bleu4", Unit::share}, scores.bleu[3]});
  out.metrics.push_back({{"rouge_l", Unit::share}, scores.rouge_l});
  out.metrics.push_back(
      {{"exact", Unit::share}, static_cast<double>(exact) / static_cast<double>(images.size())});
  out.blocks.emplace_back(std::move(table));
  if (options.wants("pictures"))
    out.blocks.emplace_back(captioned_pictures(source, indices, captions, which, options.seed));
}

void CutTexts::add(const std::string& text, int64_t lost) {
  if (count++ > 0) return;
  first = text;
  first_lost = lost;
}

std::string CutTexts::line() const {
  const std::string begins = text("'", printable(first, 60), "'"), by = counted(first_lost, "token");
  if (count == 1) return text("the text ", begins, " is ", by, " longer than the model reads");
  return text(count, " texts are longer than the model reads, the first by ", by, ": ", begins);
}

void PairedEmbedding::set_templates(const std::vector<std::string>& given) {
  templates_ = given.size() == 1 && given[0] == "imagenet" ? imagenet_templates() : given;
  for (const std::string& pattern : templates_) fill_template(pattern, "");
}

std::vector<std::string> PairedEmbedding::names_of(const std::vector<std::string>& set_classes) const {
  if (class_names_.empty()) return data::spoken_names(set_classes);
  if (class_names_.size() != set_classes.size())
    fail_usage("there are ", class_names_.size(), " names for the ", set_classes.size(),
               " classes of the set, must be one for each, in their order");
  return class_names_;
}

}  // namespace tessera::tasks
