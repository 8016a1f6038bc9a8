// `tessera analyse features`: how many directions each block's features use, and which pixels those at the centre depend on (Ding
// et al. 2022).
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <iostream>

#include "cli/analysis_input.h"
#include "cli/analysis_output.h"
#include "cli/command.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/text.h"
#include "eval/receptive_field.h"
#include "report/matrix_chart.h"
#include "tasks/representation.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyseFeaturesOptions {
  AnalysisInput input;
  AnalysisOutput output;
};

constexpr double kShares[] = {0.2, 0.3, 0.5, 0.99};  // as in RepLKNet's Table 10
constexpr int64_t kMostCells = 64;                   // on a side of the drawing

struct Looked {
  std::vector<torch::Tensor> features;  // by block, [images, channels]
  std::vector<double> contribution;     // [height, width], of the last block
};

Looked look(const AnalyseFeaturesOptions& options, const AnalysedModel& model, const AnalysedImages& images) {
  const torch::AutoGradMode on(true);
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < model.backbone().block_count(); ++i) blocks.push_back(i);
  std::vector<std::vector<torch::Tensor>> parts(blocks.size());
  Looked out;
  out.contribution.resize(static_cast<size_t>(images.images.size(2) * images.images.size(3)));
  ProgressLine::Options bar;
  bar.label = "features", bar.total = images.count();
  ProgressLine progress(std::cerr, bar);
  for (int64_t first = 0; first < images.count(); first += options.input.batch) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const torch::Tensor leaf =
        images.images.slice(0, first, first + options.input.batch).detach().clone().requires_grad_();
    const auto maps = model.backbone().features(leaf, blocks);
    const torch::Tensor& last = maps.back();
    const torch::Tensor centre = last.select(3, last.size(3) / 2).select(2, last.size(2) / 2);
    const torch::Tensor slope =
        torch::autograd::grad({centre.sum()}, {leaf}).at(0).to(torch::kCPU, torch::kFloat32).contiguous();
    const auto sums = eval::contribution({slope.const_data_ptr<float>(), static_cast<size_t>(slope.numel())},
                                         slope.size(2), slope.size(3));
    for (size_t i = 0; i < sums.size(); ++i) out.contribution[i] += sums[i];
    for (size_t i = 0; i < maps.size(); ++i)
      parts[i].push_back(maps[i].detach().mean({2, 3}).to(torch::kCPU, torch::kFloat64));
    progress.update(std::min(images.count(), first + options.input.batch), {});
  }
  progress.finish();
  for (const auto& part : parts) out.features.push_back(torch::cat(part));
  return out;
}

// The map, of larger images by means over squares of pixels.
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

void analyse(const AnalyseFeaturesOptions& options) {
  const AnalysedModel model(options.input);
  AnalysisWriter writer(options.output);
  const AnalysedImages images = read_images(options.input, model);
  const Interruptible stretch;
  const Looked looked = look(options, model, images);
  const int64_t height = images.images.size(2), width = images.images.size(3);
  AnalysisFindings out;
  out.title = "Features of " + model.info().model.name;
  out.subtitle = text(model.file(), "; ", counted(images.count(), "image"), " of ", images.source);
  AnalysisSection ranks{.heading = "Rank by block",
                        .note =
                            "exp of the entropy of the singular values' shares (RankMe) of the mean over "
                            "each block's places; at most the number of images."};
  ranks.table = {.name = "ranks", .columns = {{"block"}, {"channels", true}, {"RankMe", true}}};
  report::Curve curve{.name = "RankMe"};
  auto blocks = Json::array();
  for (size_t i = 0; i < looked.features.size(); ++i) {
    const double rank = tasks::rankme(looked.features[i]);
    curve.points.push_back({static_cast<double>(i), rank});
    ranks.table.rows.push_back({text("block ", i), text(looked.features[i].size(1)), fixed(rank, 2)});
    blocks.push_back({{"block", i}, {"channels", looked.features[i].size(1)}, {"rankme", rank}});
  }
  ranks.drawings = {
      line_drawing({curve}, {.title = "Rank by block", .x_label = "block", .y_label = "RankMe"})};
  AnalysisSection field{.heading = "Effective receptive field",
                        .note =
                            "Where the last block's features at the centre come from; the smallest centred "
                            "box that holds a share of it all."};
  field.table = {.name = "areas",
                 .columns = {{"share", true}, {"height", true}, {"width", true}, {"of the image", true}}};
  auto areas = Json::array();
  for (const double share : kShares) {
    const auto area = eval::receptive_area(looked.contribution, height, width, share);
    field.table.rows.push_back(
        {fixed(share, 2), text(area.box_height), text(area.box_width), fixed(area.area, 4)});
    areas.push_back(
        {{"share", share}, {"height", area.box_height}, {"width", area.box_width}, {"area", area.area}});
  }
  field.drawings = {field_drawing(looked.contribution, height, width)};
  out.json = {{"weights", model.file()},
              {"data", images.source},
              {"images", images.count()},
              {"blocks", blocks},
              {"receptive_field", areas}};
  out.sections = {std::move(ranks), std::move(field)};
  writer.write(out);
}

}  // namespace

void add_analyse_features(Arguments& command, Action& action) {
  auto options = std::make_shared<AnalyseFeaturesOptions>();
  add_input_options(command, options->input, 64);
  add_output_options(command, options->output);
  action = [options] { analyse(*options); };
}

}  // namespace tessera::cli
