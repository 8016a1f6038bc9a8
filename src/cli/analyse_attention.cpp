// `tessera analyse attention`: the rank of attention matrices (Wang et al. 2024, Figures 4 and 11), how far heads look
// (Dosovitskiy et al. 2021, Figure 7) and how evenly.
#include <cmath>
#include <iostream>

#include "analysis/attention.h"
#include "cli/analysis_input.h"
#include "cli/analysis_output.h"
#include "cli/command.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/text.h"
#include "models/encoder.h"

namespace tessera::cli {
namespace {

struct Options {
  AnalysisInput input;
  AnalysisOutput output;
  double threshold = 0.8;
};

// Sums over images, by head.
struct LayerSums {
  std::string name;
  // [heads], [heads, values], [heads], [heads] or undefined.
  torch::Tensor rank = {}, cumulative = {}, entropy = {}, distance = {};
  int64_t tokens = 0;
};

void add(torch::Tensor& sum, const torch::Tensor& more) { sum = sum.defined() ? sum + more : more; }

// Attention of one layer for some images, [images (and windows), heads, queries, keys].
void measure(const torch::Tensor& attention, const Options& options, const analysis::TokenLayout* layout,
             double patch, double images, LayerSums& sums) {
  // Windows of an image count as one: their mean.
  const double windows = static_cast<double>(attention.size(0)) / images;
  const analysis::AttentionRank rank = analysis::attention_rank(attention, options.threshold);
  add(sums.rank, rank.rank.to(torch::kFloat64).sum(0) / windows);
  add(sums.cumulative, rank.cumulative.sum(0) / windows);
  add(sums.entropy, analysis::attention_entropy(attention).mean(-1).sum(0) / windows);
  sums.tokens = rank.cumulative.size(-1);
  if (layout && layout->patches() > 0 && attention.size(-2) == attention.size(-1) &&
      attention.size(-1) >= layout->first_patch + layout->patches())
    add(sums.distance, analysis::attention_distance(attention, *layout, patch).sum(0));
}

std::vector<LayerSums> measure_all(const Options& options, const AnalysedModel& model,
                                   const AnalysedImages& images) {
  std::vector<LayerSums> layers;
  for (const std::string& name : taps_ending(model, images.images.slice(0, 0, 1), ".attention",
                                             "attention that can be looked at: Vision-LSTM and convolutional "
                                             "networks mix their tokens otherwise"))
    layers.push_back({.name = name});
  analysis::TokenLayout layout;
  double patch = 0;
  const bool placed = model.has_layout();
  if (placed) {
    layout = model.layout(images.images);
    patch = static_cast<double>(images.images.size(2)) / static_cast<double>(layout.rows);
  }
  ProgressLine::Options bar;
  bar.label = "attention", bar.total = images.count();
  ProgressLine progress(std::cerr, bar);
  const torch::NoGradGuard no_grad;
  for (int64_t first = 0; first < images.count(); first += options.input.batch) {
    const torch::Tensor batch = images.images.slice(0, first, first + options.input.batch);
    const auto kept =
        model.tapped(batch, [](const std::string& name) { return name.ends_with(".attention"); });
    for (LayerSums& layer : layers) {
      if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
      measure(kept.at(layer.name).to(torch::kCPU), options, placed ? &layout : nullptr, patch,
              static_cast<double>(batch.size(0)), layer);
    }
    progress.update(std::min(images.count(), first + options.input.batch), {});
  }
  progress.finish();
  for (LayerSums& layer : layers)
    for (torch::Tensor* sum : {&layer.rank, &layer.cumulative, &layer.entropy, &layer.distance})
      if (sum->defined()) *sum = *sum / static_cast<double>(images.count());
  return layers;
}

std::vector<double> numbers(const torch::Tensor& tensor) {
  const torch::Tensor wide = tensor.to(torch::kCPU, torch::kFloat64).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

std::string layer_name(const std::string& tap) {
  return "block " + tap.substr(7, tap.size() - 7 - std::string(".attention").size());
}

// One chart: a curve for the mean of the heads, faint dots of each head.
report::Drawing by_depth(const std::vector<LayerSums>& layers, torch::Tensor LayerSums::*what,
                         const std::string& title, const std::string& label) {
  report::Curve mean{.name = "mean of the heads"}, low{.name = "least"}, high{.name = "largest"};
  for (size_t i = 0; i < layers.size(); ++i) {
    const torch::Tensor& heads = layers[i].*what;
    if (!heads.defined()) continue;
    const auto x = static_cast<double>(i + 1);
    mean.points.push_back({x, heads.mean().item<double>()});
    low.points.push_back({x, heads.min().item<double>()});
    high.points.push_back({x, heads.max().item<double>()});
  }
  return line_drawing({mean, low, high}, {.title = title, .x_label = "layer", .y_label = label});
}

report::Drawing cumulative_chart(const std::vector<LayerSums>& layers) {
  std::vector<report::Curve> curves;
  for (const LayerSums& layer : layers) {
    report::Curve curve{.name = layer_name(layer.name)};
    const std::vector<double> values = numbers(layer.cumulative.mean(0));
    for (size_t k = 0; k < values.size(); ++k)
      curve.points.push_back({static_cast<double>(k + 1), values[k]});
    curves.push_back(std::move(curve));
  }
  return line_drawing(curves, {.title = "Singular values, summed up",
                               .x_label = "index",
                               .y_label = "share",
                               .y_min = 0,
                               .y_max = 1});
}

AnalysisFindings findings_of(const Options& options, const AnalysedModel& model, const AnalysedImages& images,
                             const std::vector<LayerSums>& layers) {
  AnalysisFindings out;
  out.title = "Attention of " + model.info().model.name;
  out.subtitle = text(model.file(), "; ", counted(images.count(), "image"), " of ", images.source);
  report::TableBlock table{.name = "attention"};
  table.columns = {{"layer"},      {"head"},          {"tokens", true},
                   {"rank", true}, {"entropy", true}, {"distance", true}};
  auto json = nlohmann::ordered_json::array();
  double rank = 0;
  bool placed = false;
  for (const LayerSums& layer : layers) {
    const auto ranks = numbers(layer.rank), entropies = numbers(layer.entropy);
    const auto distances =
        layer.distance.defined() ? numbers(layer.distance) : std::vector<double>(ranks.size(), NAN);
    placed = placed || layer.distance.defined();
    rank += layer.rank.mean().item<double>() / static_cast<double>(layers.size());
    for (size_t h = 0; h < ranks.size(); ++h)
      table.rows.push_back({layer_name(layer.name), std::to_string(h), std::to_string(layer.tokens),
                            fixed(ranks[h], 2), fixed(entropies[h], 3),
                            std::isfinite(distances[h]) ? fixed(distances[h], 2) : ""});
    nlohmann::ordered_json line = {{"layer", layer.name},
                                   {"tokens", layer.tokens},
                                   {"rank", ranks},
                                   {"rank_mean", layer.rank.mean().item<double>()},
                                   {"entropy", entropies}};
    if (layer.distance.defined()) line["distance_pixels"] = distances;
    line["cumulative"] = numbers(layer.cumulative.mean(0));
    json.push_back(line);
  }
  out.facts = {
      {"mean rank", fixed(rank, 1), text("least index at which the sum is ", options.threshold)},
      {"last layer", fixed(layers.back().rank.mean().item<double>(), 1), text("of ", layers.back().tokens)},
      {"images", std::to_string(images.count()), ""}};
  AnalysisSection ranks{
      .heading = "Rank",
      .note = text("The least number of singular values whose sum is ", options.threshold,
                   " of all, by head, mean over images."),
      .drawings = {by_depth(layers, &LayerSums::rank, "Rank by layer", "rank"), cumulative_chart(layers)},
      .table = std::move(table)};
  out.sections.push_back(std::move(ranks));
  AnalysisSection looks{
      .heading = "Where heads look",
      .note =
          "Entropy of the weights in nats; the mean distance of patches that attend to each other in pixels.",
      .drawings = {by_depth(layers, &LayerSums::entropy, "Entropy by layer", "nats")}};
  if (placed) looks.drawings.push_back(by_depth(layers, &LayerSums::distance, "Distance by layer", "pixels"));
  out.sections.push_back(std::move(looks));
  out.json = {{"weights", model.file()},
              {"model", model.info().model.name},
              {"data", images.source},
              {"images", images.count()},
              {"threshold", options.threshold},
              {"rank_mean", rank},
              {"layers", json}};
  return out;
}

void analyse(const Options& options) {
  const AnalysedModel model(options.input);
  AnalysisWriter writer(options.output);
  const AnalysedImages images = read_images(options.input, model);
  const Interruptible stretch;
  writer.write(findings_of(options, model, images, measure_all(options, model, images)));
}

}  // namespace

void add_analyse_attention(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  add_input_options(command, options->input, 30);
  command
      .add("--threshold", options->threshold, "share of the sum of singular values that the rank stands for")
      .show_default()
      .range(0.01, 1.0);
  add_output_options(command, options->output);
  action = [options] { analyse(*options); };
}

}  // namespace tessera::cli
