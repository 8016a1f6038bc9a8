// `tessera analyse features`: how many directions each block's features use, and which pixels those at the centre depend on (Ding
// et al. 2022).
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "cli/analyse/model_places.h"
#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "eval/receptive_field.h"
#include "report/matrix_chart.h"
#include "tasks/base/representation.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyseFeaturesOptions {
  AnalysisInput input = 64;
  AnalysisOutput output;
  PlaceOptions places;

  template <class V>
  void visit(V& v) {
    v("input", input, "");
    v("places", places, "");
    v("output", output, "");
  }
};

constexpr double kShares[] = {0.2, 0.3, 0.5, 0.99};  // as in RepLKNet's Table 10
constexpr int64_t kMostCells = 64;                   // cells on a side of the drawing

struct Looked {
  std::vector<std::string> names;       // block names, or the places in --tap
  std::vector<torch::Tensor> features;  // one for each name, [images, channels]
  // [height, width] at the last tap with values on a grid; empty if there is none.
  std::vector<double> contribution;
  std::string contributed_to;
};

// The requested taps of a model, which read batches of images.
class Places {
 public:
  Places(const AnalyseFeaturesOptions& options, const AnalysedModel& model) : model_(model) {
    if (!options.places.taps.empty()) {
      taps_.emplace(model);
      names_ = taps_->chosen(options.places.taps);
      return;
    }
    for (int64_t i = 0; i < model.backbone().block_count(); ++i)
      blocks_.push_back(i), names_.push_back(text("block ", i));
  }
  const std::vector<std::string>& names() const { return names_; }
  std::vector<PlaceFeatures> look(const torch::Tensor& images) const {
    if (taps_) return taps_->look(images, names_);
    std::vector<PlaceFeatures> out;
    for (const torch::Tensor& map : model_.backbone().features(images, blocks_))
      out.push_back({map, map.mean({2, 3})});
    return out;
  }

 private:
  const AnalysedModel& model_;
  std::optional<ModelPlaces> taps_;
  std::vector<int64_t> blocks_;
  std::vector<std::string> names_;
};

// How much each pixel adds to the features at the centre of the map, summed over the images.
std::vector<double> contribution_of(const torch::Tensor& map, const torch::Tensor& leaf) {
  const torch::Tensor centre = map.select(3, map.size(3) / 2).select(2, map.size(2) / 2);
  const torch::Tensor slope =
      torch::autograd::grad({centre.sum()}, {leaf}).at(0).to(torch::kCPU, torch::kFloat32).contiguous();
  return eval::contribution({slope.const_data_ptr<float>(), static_cast<size_t>(slope.numel())},
                            slope.size(2), slope.size(3));
}

Looked look(const AnalyseFeaturesOptions& options, const AnalysedModel& model, const AnalysedImages& images) {
  const torch::AutoGradMode on(true);
  const Places places(options, model);
  std::vector<std::vector<torch::Tensor>> parts(places.names().size());
  Looked out;
  out.names = places.names();
  ProgressLine::Options bar;
  bar.label = "features", bar.total = images.count();
  ProgressLine progress(std::cerr, bar);
  for (int64_t first = 0; first < images.count(); first += options.input.batch) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const torch::Tensor leaf =
        images.images.slice(0, first, first + options.input.batch).detach().clone().requires_grad_();
    const std::vector<PlaceFeatures> found = places.look(leaf);
    for (size_t i = 0; i < found.size(); ++i)
      parts[i].push_back(found[i].mean.detach().to(torch::kCPU, torch::kFloat64));
    const auto last = std::find_if(found.rbegin(), found.rend(),
                                   [](const PlaceFeatures& place) { return place.map.defined(); });
    if (last != found.rend()) {
      out.contributed_to = out.names[static_cast<size_t>(found.rend() - last) - 1];
      const auto sums = contribution_of(last->map, leaf);
      out.contribution.resize(sums.size());
      for (size_t i = 0; i < sums.size(); ++i) out.contribution[i] += sums[i];
    }
    progress.update(std::min(images.count(), first + options.input.batch), {});
  }
  progress.finish();
  for (const auto& part : parts) out.features.push_back(torch::cat(part));
  return out;
}

// Draws the map; for larger images, means over squares of pixels.
report::Drawing field_drawing(const std::vector<double>& contribution, int64_t height, int64_t width) {
  const std::vector<double> map = eval::contribution_map(contribution);
  torch::Tensor cells = torch::tensor(map, torch::kFloat64).view({1, height, width});
  if (height > kMostCells || width > kMostCells)
    cells = torch::adaptive_avg_pool2d(cells, {std::min(height, kMostCells), std::min(width, kMostCells)});
  cells = cells.contiguous();
  report::Matrix matrix;
  for (int64_t y = 0; y < cells.size(1); ++y)
    matrix.rows.push_back(std::to_string(y * height / cells.size(1)));
  for (int64_t x = 0; x < cells.size(2); ++x)
    matrix.columns.push_back(std::to_string(x * width / cells.size(2)));
  matrix.values = {cells.const_data_ptr<double>(), cells.const_data_ptr<double>() + cells.numel()};
  return same_drawing(report::matrix_chart(matrix, {.title = "Effective receptive field",
                                                    .note = "log10(contribution + 1) over its maximum",
                                                    .row_label = "pixel",
                                                    .column_label = "pixel"}));
}

// `what`: "block" or "place".
AnalysisSection ranks_section(const Looked& looked, const std::string& what, Json& json) {
  AnalysisSection section{
      .heading = "Rank by " + what,
      .note =
          "exp of the entropy of the singular values' shares (RankMe) of the mean over the "
          "tokens or cells of each " +
          what + "; at most the number of images."};
  section.table = {.name = "ranks", .columns = {{what}, {"channels", true}, {"RankMe", true}}};
  report::Curve curve{.name = "RankMe"};
  json = Json::array();
  for (size_t i = 0; i < looked.features.size(); ++i) {
    const double rank = tasks::rankme(looked.features[i]);
    const int64_t channels = looked.features[i].size(1);
    curve.points.push_back({static_cast<double>(i), rank});
    section.table.rows.push_back({looked.names[i], text(channels), fixed(rank, 2)});
    Json line;
    what == "block" ? line["block"] = i : line["place"] = looked.names[i];
    line["channels"] = channels, line["rankme"] = rank;
    json.push_back(std::move(line));
  }
  section.drawings = {
      line_drawing({curve}, {.title = section.heading, .x_label = what, .y_label = "RankMe"})};
  return section;
}

AnalysisSection field_section(const Looked& looked, int64_t height, int64_t width, Json& json) {
  AnalysisSection section{
      .heading = "Effective receptive field",
      .note = "Where the features of " + looked.contributed_to +
              " at the centre come from; the smallest centred box that holds a share of it "
              "all."};
  section.table = {.name = "areas",
                   .columns = {{"share", true}, {"height", true}, {"width", true}, {"of the image", true}}};
  json = Json::array();
  for (const double share : kShares) {
    const auto area = eval::receptive_area(looked.contribution, height, width, share);
    section.table.rows.push_back(
        {fixed(share, 2), text(area.box_height), text(area.box_width), fixed(area.area, 4)});
    json.push_back(
        {{"share", share}, {"height", area.box_height}, {"width", area.box_width}, {"area", area.area}});
  }
  section.drawings = {field_drawing(looked.contribution, height, width)};
  return section;
}

void analyse(const AnalyseFeaturesOptions& options) {
  const AnalysedModel model(options.input);
  AnalysisWriter writer(options.output);
  if (options.places.list) return writer.write(ModelPlaces(model).findings());
  const AnalysedImages images = read_images(options.input, model);
  const Interruptible stretch;
  const Looked looked = look(options, model, images);
  AnalysisFindings out;
  out.title = "Features of " + model.info().model.name;
  out.subtitle = text(model.file(), "; ", counted(images.count(), "image"), " of ", images.source);
  Json blocks, areas;
  out.sections.push_back(ranks_section(looked, options.places.taps.empty() ? "block" : "place", blocks));
  if (!looked.contribution.empty())
    out.sections.push_back(field_section(looked, images.images.size(2), images.images.size(3), areas));
  out.json = {{"weights", model.file()}, {"data", images.source}, {"images", images.count()}};
  out.json[options.places.taps.empty() ? "blocks" : "places"] = blocks;
  if (!looked.contribution.empty()) out.json["receptive_field"] = areas;
  writer.write(out);
}

}  // namespace

void add_analyse_features(Arguments& command, Action& action) {
  action = with_options<AnalyseFeaturesOptions>(command, analyse);
}

}  // namespace tessera::cli
