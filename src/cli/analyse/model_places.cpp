#include "cli/analyse/model_places.h"

#include <algorithm>

#include "analysis/activations.h"
#include "core/error.h"
#include "core/text.h"
#include "data/transforms/transform.h"
#include "open/ready_task.h"

namespace tessera::cli {
namespace {

// [batch and windows, heads, tokens, channels].
bool is_operand(const std::string& name) { return name.ends_with(".queries") || name.ends_with(".keys"); }

bool holds_features(const std::string& name) {
  return name == "embed" || name == "tokens" || analysis::is_block_place(name) || is_operand(name);
}

torch::Tensor empty_image(const AnalysedModel& model) {
  const std::vector<int64_t> shape = data::make_eval_transform(model.info().preprocess)->fields().at(0).shape;
  const torch::Tensor parameter = model.backbone().parameters().at(0);
  return torch::zeros({1, shape.at(0), shape.at(1), shape.at(2)}, parameter.options().requires_grad(false));
}

std::string sides_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sides;
  for (const int64_t side : shape) sides.push_back(std::to_string(side));
  return join(sides, "x");
}

}  // namespace

ModelPlaces::ModelPlaces(const AnalysedModel& model) : model_(model) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor image = empty_image(model);
  // A tap may be requested more than once but is kept once, at the position of the first request.
  std::vector<std::string> asked;
  const auto kept = model.tapped(image, [&](const std::string& name) {
    if (std::find(asked.begin(), asked.end(), name) == asked.end()) asked.push_back(name);
    return true;
  });
  for (const std::string& name : asked) {
    const auto found = kept.find(name);
    if (found == kept.end()) continue;
    all_.push_back({name, found->second.sizes().vec(), holds_features(name)});
    if (analysis::is_block_place(name)) last_block_ = name;
  }
  if (auto* encoder = ability_of<models::TokenEncoder>(model.backbone()))
    tokens_ = static_cast<const models::TokenPlaces&>(encoder->tokenise(image));
}

std::vector<std::string> ModelPlaces::chosen(const std::string& names) const {
  std::vector<std::string> known, out;
  for (const Place& place : all_)
    if (place.features) known.push_back(place.name);
  for (const std::string& part : split(names, ',')) {
    const std::string name(trim(part));
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const Place& place) { return place.name == name; });
    if (found == all_.end())
      fail_usage("--tap '", printable(name), "': ", model_.info().model.name, " has no such place",
                 did_you_mean(name, known), " (--list-taps shows all)");
    if (!found->features)
      fail_usage("--tap ", name, ": ", sides_text(found->shape),
                 " numbers that are no features of an image: take a block, its queries or keys, or embed "
                 "(--list-taps shows all)");
    out.push_back(name);
  }
  return out;
}

torch::Tensor ModelPlaces::map_of(const torch::Tensor& values) const {
  if (values.dim() == 4) return values.permute({0, 3, 1, 2});
  if (values.dim() == 3 && tokens_ && values.size(1) == tokens_->count()) return tokens_->map_of(values);
  return {};
}

PlaceFeatures ModelPlaces::features_of(const std::string& name, const torch::Tensor& values,
                                       int64_t batch) const {
  if (is_operand(name)) return {{}, values.unflatten(0, {batch, -1}).mean({1, 3}).flatten(1)};
  if (values.dim() == 2) return {{}, values};
  const torch::Tensor map = map_of(values);
  return {map, map.defined() ? map.mean({2, 3}) : values.mean(1)};
}

std::vector<PlaceFeatures> ModelPlaces::look(const torch::Tensor& images,
                                             const std::vector<std::string>& names) const {
  const auto kept = model_.tapped(images, [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
  std::vector<PlaceFeatures> out;
  for (const std::string& name : names) out.push_back(features_of(name, kept.at(name), images.size(0)));
  return out;
}

AnalysisFindings ModelPlaces::findings() const {
  AnalysisFindings out;
  out.title = "Places of " + model_.info().model.name;
  out.subtitle = text(model_.file(), "; values of one image");
  AnalysisSection section{.heading = "Places", .note = "Those with features can be named by --tap."};
  section.table = {.name = "places", .columns = {{"place"}, {"values"}, {"features"}}};
  auto json = nlohmann::ordered_json::array();
  for (const Place& place : all_) {
    section.table.rows.push_back({place.name, sides_text(place.shape), place.features ? "yes" : ""});
    json.push_back({{"place", place.name}, {"shape", place.shape}, {"features", place.features}});
  }
  out.json = {{"weights", model_.file()}, {"model", model_.info().model.name}, {"places", json}};
  out.sections.push_back(std::move(section));
  return out;
}

}  // namespace tessera::cli
