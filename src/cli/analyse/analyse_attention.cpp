// `tessera analyse attention`: the rank of attention matrices (Wang et al. 2024, Figures 4 and 11), how far heads look
// (Dosovitskiy et al. 2021, Figure 7) and how evenly; of Vision-LSTM the implicit attention of its cells and their states.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>

#include "analysis/attention.h"
#include "cli/analyse/attention_taps.h"
#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "models/base/encoder.h"

namespace tessera::cli {
namespace {

struct AnalyseAttentionOptions {
  AnalysisInput input = 30;
  AnalysisOutput output;
  double threshold = 0.8;
  bool terms = false;
  std::string layer;

  template <class V>
  void visit(V& v) {
    v("input", input, "");
    v("threshold", threshold, between(0.01, 1), "share of the sum of singular values that defines the rank");
    v("layer", layer, "block for the chart of singular values: 3, or 1.0 in a pyramid (default: the last)");
    v("terms", terms, "also split the scores into content, position and mixed terms");
    v("output", output, "");
  }
};

// Sums over images, by head.
struct LayerSums {
  std::string name;
  // [heads], [heads, values], [heads], [heads] or undefined.
  torch::Tensor rank = {}, cumulative = {}, entropy = {}, distance = {};
  // Vision-LSTM only: norms of the state after the last token, scaled by exp(-m), and m: [heads] each.
  torch::Tensor c_norm = {}, n_norm = {}, m = {};
  std::string walk = {};
  int64_t tokens = 0;
};

// Attention of one layer for some images, [images (and windows), heads, queries, keys].
void measure(const torch::Tensor& matrix, bool implicit, const AnalyseAttentionOptions& options,
             const analysis::TokenLayout* layout, double patch, double images, LayerSums& sums) {
  const torch::Tensor attention = implicit ? analysis::magnitudes_of_sum_one(matrix) : matrix;
  // An image's windows count as one attention: their mean.
  const double windows = static_cast<double>(attention.size(0)) / images;
  const analysis::AttentionRank rank = analysis::attention_rank(matrix, options.threshold);
  add(sums.rank, rank.rank.to(torch::kFloat64).sum(0) / windows);
  add(sums.cumulative, rank.cumulative.sum(0) / windows);
  add(sums.entropy, analysis::attention_entropy(attention).mean(-1).sum(0) / windows);
  sums.tokens = rank.cumulative.size(-1);
  if (layout && layout->patches() > 0 && attention.size(-2) == attention.size(-1) &&
      attention.size(-1) >= layout->first_patch + layout->patches())
    add(sums.distance, analysis::attention_distance(attention, *layout, patch).sum(0));
}

// "blocks.1.state_rev" of "blocks.1.mixing_rev".
std::string state_of(const std::string& mixing) {
  const std::string from = ".mixing";
  std::string name = mixing;
  return name.replace(name.rfind(from), from.size(), ".state");
}

void measure_state(const std::map<std::string, torch::Tensor>& kept, LayerSums& sums) {
  const std::string state = state_of(sums.name);
  add(sums.c_norm, kept.at(state + ".c").to(torch::kCPU, torch::kFloat64).norm(2, {2, 3}).sum(0));
  add(sums.n_norm, kept.at(state + ".n").to(torch::kCPU, torch::kFloat64).norm(2, {2}).sum(0));
  add(sums.m, kept.at(state + ".m").to(torch::kCPU, torch::kFloat64).sum(0));
}

const char* walk_name(analysis::Walk walk) {
  return walk == analysis::Walk::forwards    ? "from the first"
         : walk == analysis::Walk::backwards ? "from the last"
                                             : "another way";
}

std::vector<LayerSums> measure_all(const AnalyseAttentionOptions& options, const AnalysedModel& model,
                                   const AnalysedImages& images, const AttentionTaps& taps) {
  std::vector<LayerSums> layers;
  for (const std::string& name : taps.names) layers.push_back({.name = name});
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
    const auto kept = model.tapped(batch, [&](const std::string& name) {
      return taps.holds(name) || (taps.implicit && name.find(".state") != std::string::npos);
    });
    for (LayerSums& layer : layers) {
      if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
      const torch::Tensor matrix = kept.at(layer.name).to(torch::kCPU);
      measure(matrix, taps.implicit, options, placed ? &layout : nullptr, patch,
              static_cast<double>(batch.size(0)), layer);
      if (!taps.implicit) continue;
      measure_state(kept, layer);
      if (first == 0) layer.walk = walk_name(analysis::walk_of(matrix));
    }
    progress.update(std::min(images.count(), first + options.input.batch), {});
  }
  progress.finish();
  for (LayerSums& layer : layers)
    for (torch::Tensor* sum : {&layer.rank, &layer.cumulative, &layer.entropy, &layer.distance, &layer.c_norm,
                               &layer.n_norm, &layer.m})
      if (sum->defined()) *sum = *sum / static_cast<double>(images.count());
  return layers;
}

std::vector<double> numbers(const torch::Tensor& tensor) {
  const torch::Tensor wide = tensor.to(torch::kCPU, torch::kFloat64).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

// One chart: a curve for the mean over the heads, and a faint dot for each head.
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

report::Curve cumulative_curve(const std::string& name, const torch::Tensor& shares) {
  report::Curve curve{.name = name};
  const std::vector<double> values = numbers(shares);
  for (size_t k = 0; k < values.size(); ++k) curve.points.push_back({static_cast<double>(k + 1), values[k]});
  return curve;
}

report::Drawing cumulative_chart(const std::vector<report::Curve>& curves, const std::string& title) {
  return line_drawing(curves,
                      {.title = title, .x_label = "index", .y_label = "share", .y_min = 0, .y_max = 1});
}

// The mean of each layer's heads, and the heads of one layer (Wang et al. 2024, Figures 4 and 11).
report::Drawing cumulative_by_layer(const std::vector<LayerSums>& layers) {
  std::vector<report::Curve> curves;
  for (const LayerSums& layer : layers)
    curves.push_back(cumulative_curve(layer_name(layer.name), layer.cumulative.mean(0)));
  return cumulative_chart(curves, "Singular values, summed up");
}

report::Drawing cumulative_by_head(const LayerSums& layer) {
  std::vector<report::Curve> curves;
  for (int64_t head = 0; head < layer.cumulative.size(0); ++head)
    curves.push_back(cumulative_curve(text("head ", head), layer.cumulative[head]));
  return cumulative_chart(curves, "Singular values of " + layer_name(layer.name) + " by head, summed up");
}

// The curve of each head, [heads][values].
nlohmann::ordered_json by_head(const torch::Tensor& cumulative) {
  auto heads = nlohmann::ordered_json::array();
  for (int64_t head = 0; head < cumulative.size(0); ++head) heads.push_back(numbers(cumulative[head]));
  return heads;
}

// Returns the index of the layer in --layer: a name of the table, with or without "block ", or a tap. Empty:
// the last layer.
size_t chosen_layer(const AnalyseAttentionOptions& options, const AnalysedModel& model,
                    const AttentionTaps& taps) {
  if (options.layer.empty()) return taps.names.size() - 1;
  std::vector<std::string> known;
  for (size_t i = 0; i < taps.names.size(); ++i) {
    const std::string name = layer_name(taps.names[i]);
    known.push_back(name.substr(name.find(' ') + 1));
    if (options.layer == known.back() || options.layer == name || options.layer == taps.names[i]) return i;
  }
  fail_usage("--layer '", printable(options.layer), "': ", model.info().model.name,
             " has no attention in such a block", did_you_mean(options.layer, known), " (there are ",
             join(known, ", "), ")");
}

// The share of an image that the states of each direction keep.
AnalysisSection states_section(const std::vector<LayerSums>& layers) {
  AnalysisSection section{
      .heading = "States",
      .note =
          "The cell's state after the last token, means over heads and images: norms of the matrix c and of "
          "the "
          "vector n, both scaled by exp(-m), and m.",
      .table = {.name = "states", .columns = {{"layer"}, {"walks"}, {"c", true}, {"n", true}, {"m", true}}}};
  std::vector<report::Curve> curves;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSums& layer = layers[i];
    const double c = layer.c_norm.mean().item<double>();
    section.table.rows.push_back({layer_name(layer.name), layer.walk, fixed(c, 4),
                                  fixed(layer.n_norm.mean().item<double>(), 4),
                                  fixed(layer.m.mean().item<double>(), 4)});
    auto curve = std::find_if(curves.begin(), curves.end(),
                              [&](const report::Curve& known) { return known.name == layer.walk; });
    if (curve == curves.end()) curve = curves.insert(curves.end(), {.name = layer.walk});
    curve->points.push_back({static_cast<double>(i + 1), c});
  }
  section.drawings = {line_drawing(
      curves, {.title = "Norm of the state by direction", .x_label = "layer", .y_label = "|c|"})};
  return section;
}

AnalysisFindings findings_of(const AnalyseAttentionOptions& options, const AnalysedModel& model,
                             const AnalysedImages& images, const std::vector<LayerSums>& layers,
                             size_t chosen) {
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
    if (layer.c_norm.defined()) {
      line["walk"] = layer.walk;
      line["state_c"] = numbers(layer.c_norm), line["state_n"] = numbers(layer.n_norm);
      line["state_m"] = numbers(layer.m);
    }
    line["cumulative"] = numbers(layer.cumulative.mean(0));
    line["cumulative_by_head"] = by_head(layer.cumulative);
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
      .drawings = {by_depth(layers, &LayerSums::rank, "Rank by layer", "rank"), cumulative_by_layer(layers)},
      .table = std::move(table)};
  // --svg writes the first drawing, so the requested one comes first.
  ranks.drawings.insert(options.layer.empty() ? ranks.drawings.end() : ranks.drawings.begin(),
                        cumulative_by_head(layers[chosen]));
  out.sections.push_back(std::move(ranks));
  AnalysisSection looks{
      .heading = "Where heads look",
      .note =
          "Entropy of the weights in nats; the mean distance of patches that attend to each other in pixels.",
      .drawings = {by_depth(layers, &LayerSums::entropy, "Entropy by layer", "nats")}};
  if (placed) looks.drawings.push_back(by_depth(layers, &LayerSums::distance, "Distance by layer", "pixels"));
  out.sections.push_back(std::move(looks));
  if (layers[0].c_norm.defined()) out.sections.push_back(states_section(layers));
  out.json = {{"weights", model.file()},
              {"model", model.info().model.name},
              {"data", images.source},
              {"images", images.count()},
              {"threshold", options.threshold},
              {"rank_mean", rank},
              {"layers", json}};
  return out;
}

void analyse(const AnalyseAttentionOptions& options) {
  const AnalysedModel model(options.input);
  AnalysisWriter writer(options.output);
  const AnalysedImages images = read_images(options.input, model);
  const Interruptible stretch;
  const AttentionTaps taps = attention_taps(model, images.images.slice(0, 0, 1));
  if (taps.names.empty())
    fail_usage(model.file(), ": ", model.info().model.name,
               " has no attention that can be looked at: convolutional networks mix their tokens otherwise");
  const size_t chosen = chosen_layer(options, model, taps);
  std::optional<ScoreTermsFound> terms;
  if (options.terms) terms = find_score_terms(model, images, taps, options.input.batch);
  AnalysisFindings findings =
      findings_of(options, model, images, measure_all(options, model, images, taps), chosen);
  if (terms) {
    for (size_t l = 0; l < terms->layers.size(); ++l)
      findings.json["layers"][l]["terms"] = std::move(terms->layers[l]);
    findings.sections.push_back(std::move(terms->section));
  }
  if (taps.implicit) {
    findings.title = "Implicit attention of " + model.info().model.name;
    findings.sections[0].note +=
        " The matrices are those by which the parallel form of each cell mixes its values; for entropy and "
        "distance "
        "their magnitudes count, rows of sum 1.";
  }
  writer.write(findings);
}

}  // namespace

void add_analyse_attention(Arguments& command, Action& action) {
  action = with_options<AnalyseAttentionOptions>(command, analyse);
}

}  // namespace tessera::cli
