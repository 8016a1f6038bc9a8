#include "cli/analyse/attention_taps.h"

#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/score_terms.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

constexpr std::array kTerms = {"content", "position", "cross"};

struct LayerTerms {
  torch::Tensor q_mean = {}, k_mean = {};               // [windows, heads, tokens, d], a sum over images
  std::array<torch::Tensor, 3> variances = {};          // [heads], a sum until all images are done
  std::array<std::vector<double>, 3> by_distance = {};  // first summed over images; empty without positions
};

std::string sibling(const std::string& tap, const char* name) {
  return tap.substr(0, tap.rfind('.') + 1) + name;
}

// [images * windows, heads, tokens, d] -> [images, windows, heads, tokens, d] in float64.
torch::Tensor by_image(const torch::Tensor& x, int64_t images) {
  return x.to(torch::kCPU, torch::kFloat64).unflatten(0, {images, -1});
}

class Terms {
 public:
  Terms(const AnalysedModel& model, const AnalysedImages& images, const AttentionTaps& taps, int64_t batch)
      : model_(model), images_(images), taps_(taps), batch_(batch), layers_(taps.names.size()) {
    if (model.has_layout()) layout_ = model.layout(images.images);
  }

  const std::vector<LayerTerms>& measure() {
    const torch::NoGradGuard no_grad;
    ProgressLine::Options bar;
    bar.label = "terms", bar.total = 2 * images_.count();
    ProgressLine progress(std::cerr, bar);
    for (const bool means : {true, false}) {
      for (int64_t first = 0; first < images_.count(); first += batch_) {
        const torch::Tensor images = images_.images.slice(0, first, first + batch_);
        const auto kept = model_.tapped(images, [&](const std::string& name) { return wanted(name, means); });
        for (size_t l = 0; l < layers_.size(); ++l) {
          if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
          means ? add_means(kept, l, images.size(0)) : add_terms(kept, l, images.size(0));
        }
        progress.update((means ? 0 : images_.count()) + first + images.size(0), {});
      }
      if (means) finish_means();
    }
    progress.finish();
    const auto count = static_cast<double>(images_.count());
    for (LayerTerms& layer : layers_)
      for (size_t t = 0; t < kTerms.size(); ++t) {
        layer.variances[t] = layer.variances[t] / count;
        for (double& mean : layer.by_distance[t]) mean /= count;
      }
    return layers_;
  }

 private:
  bool wanted(const std::string& name, bool means) const {
    const bool operand = name.ends_with(".queries") || name.ends_with(".keys");
    return means ? operand
                 : operand || name.ends_with(".rotation") || name.ends_with(".key_rotation") ||
                       taps_.holds(name);
  }

  const torch::Tensor& at(const std::map<std::string, torch::Tensor>& kept, size_t l,
                          const char* name) const {
    const auto found = kept.find(sibling(taps_.names[l], name));
    if (found == kept.end())
      fail_usage(model_.file(), ": ", model_.info().model.name, " keeps no ", name, " of ", taps_.names[l],
                 " to look at: --terms needs attention of queries and keys that are not rounded");
    return found->second;
  }

  void add_means(const std::map<std::string, torch::Tensor>& kept, size_t l, int64_t images) {
    add(layers_[l].q_mean, by_image(at(kept, l, "queries"), images).sum(0));
    add(layers_[l].k_mean, by_image(at(kept, l, "keys"), images).sum(0));
  }

  void finish_means() {
    const auto count = static_cast<double>(images_.count());
    for (LayerTerms& layer : layers_)
      layer.q_mean = layer.q_mean / count, layer.k_mean = layer.k_mean / count;
  }

  analysis::ScoreOperand operand(const torch::Tensor& values, const torch::Tensor& mean, int64_t images,
                                 const torch::Tensor& rotation) const {
    analysis::ScoreOperand one{by_image(values, images), analysis::position_share(mean)};
    if (rotation.defined()) one.cos = rotation[0], one.sin = rotation[1];
    return one;
  }

  void add_terms(const std::map<std::string, torch::Tensor>& kept, size_t l, int64_t images) {
    LayerTerms& layer = layers_[l];
    const auto rotation = [&](const char* name) {
      const auto found = kept.find(sibling(taps_.names[l], name));
      return found == kept.end() ? torch::Tensor() : found->second.to(torch::kCPU);
    };
    const torch::Tensor of_queries = rotation("rotation"), own = rotation("key_rotation");
    const analysis::ScoreTerms terms = analysis::score_terms(
        operand(at(kept, l, "queries"), layer.q_mean, images, of_queries),
        operand(at(kept, l, "keys"), layer.k_mean, images, own.defined() ? own : of_queries));
    // Masked entries have no weight.
    const torch::Tensor seen = by_image(kept.at(taps_.names[l]), images) > 0;
    const std::array all = {&terms.content, &terms.position, &terms.cross};
    for (size_t t = 0; t < all.size(); ++t) {
      const torch::Tensor deviation = analysis::term_deviation(*all[t], seen);
      add(layer.variances[t], deviation.square() * static_cast<double>(images));
      if (!placed(*all[t])) continue;
      const std::vector<double> means = analysis::term_by_distance(*all[t], seen, *layout_);
      std::vector<double>& sums = layer.by_distance[t];
      sums.resize(means.size());
      for (size_t d = 0; d < means.size(); ++d) sums[d] += means[d] * static_cast<double>(images);
    }
  }

  bool placed(const torch::Tensor& term) const {
    return layout_ && layout_->patches() > 0 && term.size(1) == 1 && term.size(-1) == term.size(-2) &&
           term.size(-1) >= layout_->first_patch + layout_->patches();
  }

  const AnalysedModel& model_;
  const AnalysedImages& images_;
  const AttentionTaps& taps_;
  int64_t batch_;
  std::vector<LayerTerms> layers_;
  std::optional<analysis::TokenLayout> layout_;
};

// Returns the root of the mean variance over heads.
double deviation(const LayerTerms& layer, size_t term) {
  return std::sqrt(layer.variances[term].mean().item<double>());
}

report::Drawing depth_chart(const std::vector<LayerTerms>& layers) {
  std::vector<report::Curve> curves;
  for (size_t t = 0; t < kTerms.size(); ++t) {
    report::Curve curve{.name = kTerms[t]};
    for (size_t l = 0; l < layers.size(); ++l)
      curve.points.push_back({static_cast<double>(l + 1), deviation(layers[l], t)});
    curves.push_back(std::move(curve));
  }
  return line_drawing(curves,
                      {.title = "Terms of the scores by layer", .x_label = "layer", .y_label = "deviation"});
}

// Averages each term over the layers.
std::optional<report::Drawing> distance_chart(const std::vector<LayerTerms>& layers) {
  std::vector<report::Curve> curves;
  for (size_t t = 0; t < kTerms.size(); ++t) {
    std::vector<double> sums;
    double used = 0;
    for (const LayerTerms& layer : layers) {
      if (layer.by_distance[t].empty()) continue;
      sums.resize(layer.by_distance[t].size());
      for (size_t d = 0; d < sums.size(); ++d) sums[d] += layer.by_distance[t][d];
      ++used;
    }
    if (sums.empty()) return {};
    report::Curve curve{.name = kTerms[t]};
    for (size_t d = 0; d < sums.size(); ++d) curve.points.push_back({static_cast<double>(d), sums[d] / used});
    curves.push_back(std::move(curve));
  }
  return line_drawing(
      curves,
      {.title = "Terms by the distance of two patches", .x_label = "patches apart", .y_label = "mean"});
}

}  // namespace

ScoreTermsFound find_score_terms(const AnalysedModel& model, const AnalysedImages& images,
                                 const AttentionTaps& taps, int64_t batch) {
  if (taps.implicit)
    fail_usage("--terms: ", model.info().model.name,
               " has no softmax over scores of queries and keys: it goes with attention");
  if (images.count() < 2)
    fail_usage(
        "--terms needs two images or more: what they have in common at a place is its position's share");
  Terms terms(model, images, taps, batch);
  const std::vector<LayerTerms>& measured = terms.measure();
  ScoreTermsFound out;
  out.section = {.heading = "Terms of the scores",
                 .note =
                     "(q + p) (k + p) is content, position and cross term. The position's share of a query "
                     "or key is what all "
                     "images have in common at its place. Deviations over the keys that a query sees, before "
                     "the softmax, "
                     "without biases.",
                 .drawings = {depth_chart(measured)},
                 .table = {.name = "terms",
                           .columns = {{"layer"}, {"content", true}, {"position", true}, {"cross", true}}}};
  if (auto chart = distance_chart(measured)) out.section.drawings.push_back(std::move(*chart));
  for (size_t l = 0; l < measured.size(); ++l) {
    std::vector<std::string> row = {layer_name(taps.names[l])};
    nlohmann::ordered_json json;
    for (size_t t = 0; t < kTerms.size(); ++t) {
      row.push_back(fixed(deviation(measured[l], t), 4));
      json[kTerms[t]] = deviation(measured[l], t);
      if (!measured[l].by_distance[t].empty())
        json[std::string(kTerms[t]) + "_by_distance"] = measured[l].by_distance[t];
    }
    out.section.table.rows.push_back(std::move(row));
    out.layers.push_back(std::move(json));
  }
  return out;
}

}  // namespace tessera::cli
