// `tessera analyse maps`: which regions of an image an answer depends on, by several methods.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "analysis/attention.h"
#include "analysis/maps.h"
#include "cli/analyse/attention_taps.h"
#include "cli/analyse/model_places.h"
#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

const std::vector<std::string> kMethods = {"attention", "rollout",  "relevance", "attention_gradcam",
                                           "gradcam",   "gradient", "integrated"};

struct AnalyseMapsOptions {
  AnalysisInput input = 16;
  AnalysisOutput output;
  std::string methods;
  int64_t shown_class = -1, steps = 32, portions = 16, pictures = 8;

  template <class V>
  void visit(V& v) {
    v("input", input, "");
    v("method", methods,
      "attention, rollout, relevance, attention_gradcam, gradcam, gradient, integrated; comma-separated "
      "(default: all that the model supports)");
    v("class", shown_class, between(0, 1000000), "class to explain (default: the predicted one)");
    v("steps", steps, between(1, 10000), "steps of integrated gradients");
    v("portions", portions, between(0, 1000),
      "portions of deletion and insertion, two predictions of each image for each; 0 = not measured");
    v("pictures", pictures, between(0, 64), "images on the page");
    v("output", output, "");
  }
};

bool needs_attention(const std::string& method) {
  return method == "attention" || method == "rollout" || method == "relevance" ||
         method == "attention_gradcam";
}

bool needs_gradient(const std::string& method) {
  return method == "relevance" || method == "attention_gradcam";
}

// The taps of one batch with their gradients, for all methods.
class MapMaker {
 public:
  MapMaker(const AnalyseMapsOptions& options, const AnalysedModel& model, const torch::Tensor& image)
      : options_(options), model_(model) {
    const bool placed = model.has_layout();
    if (placed) layout_ = model.layout(image);
    if (placed) attention_ = attention_taps(model, image);
    // With a class token, nothing reads the last block's patches: use the block before it.
    const int64_t blocks = model.backbone().block_count();
    features_ = text("blocks.", std::max<int64_t>(0, blocks - (layout_.class_token >= 0 ? 2 : 1)));
    if (!placed) find_last_stage(image);
    choose_methods();
  }

  const std::vector<std::string>& methods() const { return methods_; }

  // Selects one class from [batch, classes]: the given one, or the predicted one.
  analysis::ScoreFunction score_of(const torch::Tensor& classes) const {
    return [this, classes](const torch::Tensor& images) {
      return model_.classifier().forward(images).softmax(-1).gather(1, classes.unsqueeze(1)).squeeze(1);
    };
  }
  torch::Tensor classes_of(const torch::Tensor& images) const {
    const torch::NoGradGuard no_grad;
    const torch::Tensor best = model_.classifier().forward(images).argmax(-1);
    return options_.shown_class >= 0 ? torch::full_like(best, options_.shown_class) : best;
  }

  // A map [batch, rows, columns] for each method.
  std::vector<torch::Tensor> maps(const torch::Tensor& images, const torch::Tensor& classes) const {
    std::vector<torch::Tensor> layers, gradients, out;
    torch::Tensor features, features_gradient;
    look(images, classes, layers, gradients, features, features_gradient);
    for (const std::string& method : methods_)
      out.push_back(map(method, images, classes, layers, gradients, features, features_gradient).detach());
    return out;
  }

 private:
  // For models without one sequence of tokens: the outputs of the last stage's blocks, on their own grid.
  void find_last_stage(const torch::Tensor& image) {
    const torch::NoGradGuard no_grad;
    places_.emplace(model_);
    features_ = places_->last_block();
    if (!features_.empty() && !places_->look(image, {features_}).at(0).map.defined()) features_.clear();
  }

  void choose_methods() {
    if (options_.methods.empty()) {
      for (const std::string& method : kMethods)
        if (possible(method)) methods_.push_back(method);
      return;
    }
    for (const std::string& part : split(options_.methods, ',')) {
      const std::string method(trim(part));
      if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end())
        fail_usage("--method '", method, "' is not known", did_you_mean(method, kMethods), " (there are ",
                   join(kMethods, ", "), ")");
      if (!possible(method))
        fail_usage("--method ", method, ": ", model_.info().model.name,
                   needs_attention(method) && attention_.names.empty()
                       ? " has no attention over one sequence of tokens"
                   : needs_gradient(method) ? "'s answers have no gradient to its implicit attention"
                                            : " has no block with values on a grid");
      methods_.push_back(method);
    }
  }
  bool possible(const std::string& method) const {
    // The fused cell does not read its implicit attention, so answers have no gradient to it.
    if (needs_gradient(method) && attention_.implicit) return false;
    if (needs_attention(method)) return !attention_.names.empty();
    return method != "gradcam" || !features_.empty();
  }

  // Runs one forward and backward pass, with gradients for all taps.
  void look(const torch::Tensor& images, const torch::Tensor& classes, std::vector<torch::Tensor>& layers,
            std::vector<torch::Tensor>& gradients, torch::Tensor& features,
            torch::Tensor& features_gradient) const {
    const torch::AutoGradMode on(true);
    models::Taps taps;
    taps.wanted = [this](const std::string& name) { return attention_.holds(name) || name == features_; };
    models::Context context;
    context.taps = &taps;
    const torch::Tensor leaf = images.detach().clone().requires_grad_();
    const torch::Tensor scores = model_.classifier().forward(leaf, context);
    const torch::Tensor chosen = scores.gather(1, classes.unsqueeze(1)).sum();
    std::vector<torch::Tensor> tapped;
    for (const std::string& name : attention_.names) tapped.push_back(taps.kept.at(name));
    const auto at = taps.kept.find(features_);
    if (at != taps.kept.end()) tapped.push_back(at->second);
    if (tapped.empty()) return;
    const auto slopes =
        torch::autograd::grad({chosen}, tapped, {}, std::nullopt, false, /*allow_unused=*/true);
    const auto known = [&](size_t i) {
      return slopes[i].defined() ? slopes[i] : torch::zeros_like(tapped[i]);
    };
    for (size_t i = 0; i < attention_.names.size(); ++i) {
      const torch::Tensor weights = tapped[i].detach();
      layers.push_back(attention_.implicit ? analysis::magnitudes_of_sum_one(weights) : weights);
      gradients.push_back(known(i));
    }
    if (at == taps.kept.end()) return;
    features = tapped.back().detach(), features_gradient = known(tapped.size() - 1);
  }

  torch::Tensor on_grid(const torch::Tensor& patches) const {
    return patches.reshape({patches.size(0), layout_.rows, layout_.columns});
  }
  torch::Tensor map_of_block(const torch::Tensor& tokens) const {  // [batch, tokens, width]
    if (places_) return places_->map_of(tokens);                   // [batch, rows, columns, width]
    return tokens.slice(1, layout_.first_patch, layout_.first_patch + layout_.patches())
        .transpose(1, 2)
        .reshape({tokens.size(0), tokens.size(2), layout_.rows, layout_.columns});
  }

  torch::Tensor map(const std::string& method, const torch::Tensor& images, const torch::Tensor& classes,
                    const std::vector<torch::Tensor>& layers, const std::vector<torch::Tensor>& gradients,
                    const torch::Tensor& features, const torch::Tensor& features_gradient) const {
    if (method == "attention") return on_grid(analysis::patches_seen(layers.back().mean(1), layout_));
    if (method == "rollout") return on_grid(analysis::patches_seen(analysis::rollout(layers), layout_));
    if (method == "relevance")
      return on_grid(analysis::patches_seen(analysis::relevance(layers, gradients), layout_));
    if (method == "attention_gradcam")
      return on_grid(analysis::attention_gradcam(layers.back(), gradients.back(), layout_));
    if (method == "gradcam")
      return on_cells(analysis::gradcam(map_of_block(features), map_of_block(features_gradient)),
                      images.size(2), images.size(3));
    if (method == "gradient") return by_patches(analysis::gradient_map(score_of(classes), images));
    return by_patches(
        analysis::integrated_gradients(score_of(classes), images, torch::zeros_like(images), options_.steps)
            .sum(1)
            .clamp_min(0));
  }
  // The cells on which all methods are measured: patches, or squares of 16 pixels if the model has none.
  std::pair<int64_t, int64_t> cells(int64_t height, int64_t width) const {
    if (layout_.rows > 0) return {layout_.rows, layout_.columns};
    return {std::max<int64_t>(1, height / 16), std::max<int64_t>(1, width / 16)};
  }
  torch::Tensor by_patches(const torch::Tensor& map) const {  // of pixels
    const auto [rows, columns] = cells(map.size(1), map.size(2));
    return torch::adaptive_avg_pool2d(map.unsqueeze(1), {rows, columns}).squeeze(1);
  }
  // Returns the map of a stage with a coarser grid, for images of that size.
  torch::Tensor on_cells(const torch::Tensor& map, int64_t height, int64_t width) const {
    const auto [rows, columns] = cells(height, width);
    if (map.size(1) == rows && map.size(2) == columns) return map;
    return torch::upsample_bilinear2d(map.unsqueeze(1), {rows, columns}, false).squeeze(1);
  }

  const AnalyseMapsOptions& options_;
  const AnalysedModel& model_;
  analysis::TokenLayout layout_;
  std::optional<ModelPlaces> places_;  // for models without a single sequence of tokens
  AttentionTaps attention_;
  std::vector<std::string> methods_;
  std::string features_;
};

std::string class_text(const std::vector<std::string>& names, int64_t number) {
  return number >= 0 && number < std::ssize(names) ? names[static_cast<size_t>(number)]
                                                   : text("class ", number);
}

// For each method, the sum over images of the area under the score curve.
struct Faithful {
  std::vector<double> deletion, insertion;
};

// Returns the means by method; `json` gets one object each. With 0 portions nothing is measured.
AnalysisSection faithfulness_section(const std::vector<std::string>& methods, const Faithful& sums,
                                     bool measured, nlohmann::ordered_json& json) {
  AnalysisSection table{.heading = "Faithfulness",
                        .note =
                            "Mean probability of the answer while the most important places are replaced "
                            "first (deletion, low is "
                            "good) or put back first (insertion, high is good)."};
  table.table = {.name = "methods", .columns = {{"method"}, {"deletion", true}, {"insertion", true}}};
  for (size_t m = 0; m < methods.size(); ++m) {
    json.push_back({{"method", methods[m]}});
    if (!measured) continue;
    table.table.rows.push_back({methods[m], fixed(sums.deletion[m], 4), fixed(sums.insertion[m], 4)});
    json.back()["deletion"] = sums.deletion[m], json.back()["insertion"] = sums.insertion[m];
  }
  return table;
}

void analyse(const AnalyseMapsOptions& options) {
  const AnalysedModel model(options.input);
  AnalysisWriter writer(options.output);
  const AnalysedImages images = read_images(options.input, model);
  if (options.shown_class >= model.classifier().classes())
    fail_usage("--class ", options.shown_class, ": the weights have the classes 0 to ",
               model.classifier().classes() - 1);
  const MapMaker maker(options, model, images.images.slice(0, 0, 1));
  const std::vector<std::string> names = model.class_names();
  const Interruptible stretch;
  ProgressLine::Options bar;
  bar.label = "maps", bar.total = images.count();
  ProgressLine progress(std::cerr, bar);
  const size_t methods = maker.methods().size();
  Faithful sums{std::vector<double>(methods), std::vector<double>(methods)};
  AnalysisSection shown{.heading = "Maps",
                        .note = "The answer depends most on red places, by each method's own measure."};
  for (int64_t first = 0; first < images.count(); first += options.input.batch) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const torch::Tensor batch = images.images.slice(0, first, first + options.input.batch);
    const torch::Tensor classes = maker.classes_of(batch);
    const std::vector<torch::Tensor> maps = maker.maps(batch, classes);
    for (size_t m = 0; m < maps.size(); ++m) {
      if (options.portions > 0) {
        const auto faithful =
            analysis::faithfulness(maker.score_of(classes), batch, maps[m], options.portions);
        sums.deletion[m] += faithful.deletion.sum().item<double>() / static_cast<double>(images.count());
        sums.insertion[m] += faithful.insertion.sum().item<double>() / static_cast<double>(images.count());
      }
      const torch::Tensor large = analysis::enlarged(maps[m], batch.size(2), batch.size(3));
      for (int64_t i = 0; i < batch.size(0) && first + i < options.pictures; ++i)
        shown.pictures.push_back({analysis::overlay(picture_of(batch[i], model.info().preprocess), large[i]),
                                  maker.methods()[m], class_text(names, classes[i].item<int64_t>())});
    }
    progress.update(std::min(images.count(), first + options.input.batch), {});
  }
  progress.finish();
  auto json = nlohmann::ordered_json::array();
  AnalysisSection table = faithfulness_section(maker.methods(), sums, options.portions > 0, json);
  AnalysisFindings out;
  out.title = "Maps of " + model.info().model.name;
  out.subtitle = text(model.file(), "; ", counted(images.count(), "image"), " of ", images.source);
  if (options.portions > 0) out.sections.push_back(std::move(table));
  out.sections.push_back(std::move(shown));
  out.json = {
      {"weights", model.file()}, {"data", images.source}, {"images", images.count()}, {"methods", json}};
  writer.write(out);
}

}  // namespace

void add_analyse_maps(Arguments& command, Action& action) {
  action = with_options<AnalyseMapsOptions>(command, analyse);
}

}  // namespace tessera::cli
