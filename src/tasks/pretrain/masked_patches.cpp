#include "tasks/pretrain/masked_patches.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/base/family.h"
#include "nn/init.h"
#include "tasks/base/exported.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {

void MaskedHead::initialise(uint64_t seed) {
  const auto parameters = named_parameters();
  nn::initialise(*this, seed,
                 [&](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (name == "mask_token") return fill.truncated_normal(0.02);
                   if (parameter.dim() > 1) return fill.fan_in_uniform(parameter[0].numel());
                   if (!nn::ends_with(name, ".bias")) return;
                   const torch::Tensor* weight = parameters.find(name.substr(0, name.size() - 4) + "weight");
                   if (weight && weight->dim() > 1) fill.fan_in_uniform((*weight)[0].numel());
                 });
}

MaskedPatches::MaskedPatches(const TaskSetup& setup, const std::string& who)
    : preprocess_(setup.preprocess),
      augment_(setup.augment),
      train_(setup.train),
      validation_(setup.validation),
      spec_(setup.model),
      backbone_(setup.build_backbone(setup.model)),
      masker_(&models::require<models::MasksPatches>(*backbone_, spec_.family, who)) {
  models::require_colours(spec_.settings, who);
  const models::Extent image = models::extent_of(*spec_.settings.find("image_size"), "image_size");
  patch_ = spec_.settings.find("patch_size")->as_int();
  rows_ = image.height / patch_, columns_ = image.width / patch_;
  const int64_t stride = masker_->map_stride();
  if (image.height % stride != 0 || image.width % stride != 0)
    fail_usage(who, ": model.image_size must be a multiple of ", stride, ", the side of a cell of ",
               spec_.name);
  for (const int64_t side : setup.sides)
    if (side != image.height || side != image.width)
      fail_usage("train.sizes holds ", side, ": ", who, " takes images of model.image_size = ", image.height);
}

void MaskedPatches::set_head(const TaskSetup& setup, std::shared_ptr<MaskedHead> head) {
  head_ = std::move(head);
  if (setup.draws()) head_->initialise(setup.seed);
}

std::vector<ExportedPart> MaskedPatches::exported(int64_t side) {
  return {exported_features(backbones()[0], side)};
}

int64_t MaskedPatches::macs(int64_t side) const { return backbone_->macs(side, side) + head_macs(); }

std::vector<StreamSpec> MaskedPatches::streams() const {
  return {training_images(train_, preprocess_, augment_)};
}
StreamSpec MaskedPatches::validation() const { return validation_images(validation_, preprocess_); }

models::PatchMask MaskedPatches::mask_of(const torch::Tensor& mask) const {
  return {mask.view({-1, rows_, columns_}).to(torch::kBool), head_->mask_token()};
}

void MaskedPatches::add_masks(data::Batch& batch,
                              const std::function<RandomStream(int64_t sample)>& stream_of) const {
  const auto masks = batch.add({"mask", DType::i64, {rows_ * columns_}}).values<int64_t>();
  for (int64_t i = 0; i < batch.size; ++i) {
    RandomStream random = stream_of(i);
    const std::vector<int64_t> mask = draw_mask(random);
    std::copy(mask.begin(), mask.end(), masks.begin() + i * rows_ * columns_);
  }
}

void MaskedPatches::prepare(std::span<data::Batch> batches, const StepKey& key) const {
  add_masks(batches[0], [&](int64_t sample) {
    return RandomStream(key.seed, "mask", static_cast<uint64_t>(key.step),
                        static_cast<uint64_t>(batches[0].first + sample));
  });
}

double MaskedPatches::weight(const Inputs& inputs) const {
  return inputs.on_host("mask").sum().item<double>();
}

Loss MaskedPatches::loss(const Inputs& inputs, const models::Context& context, Collective&) {
  return {losses(inputs.at("image"), inputs.at("mask"), context).sum(), {}};
}

std::vector<std::unique_ptr<Evaluator>> MaskedPatches::evaluators() {
  return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
}

// Masks of validation images depend only on their index, so losses of two steps are comparable.
Findings MaskedPatches::evaluate(const EvaluateOptions& options) {
  SampleRows sums(2);  // loss, masked patches
  FeatureHealth health(masker_->map_width());
  Findings out = evaluate_rows(options, validation(), sums, [&](data::Batch& loaded) {
    add_masks(loaded, [&](int64_t sample) {
      return RandomStream(0, "validation mask", static_cast<uint64_t>(loaded.first + sample));
    });
    const StreamInputs batch = to_device(loaded, options);
    const torch::Tensor &images = batch.at("image"), &mask = batch.at("mask");
    const AutocastScope autocast(options.device, options.precision);
    if (health.wants(loaded)) {
      const models::PatchMask none{torch::zeros_like(mask_of(mask).masked), head_->mask_token()};
      health.add(loaded, masker_->masked_map(images, none, /*normed=*/true).mean({2, 3}));
    }
    const torch::Tensor each = losses(images, mask, {});
    return torch::stack({each, mask.sum(1).to(each.scalar_type())}, 1);
  });
  double sum = 0, masked = 0;
  for (const float loss : sums.column(0)) sum += static_cast<double>(loss);
  for (const float count : sums.column(1)) masked += static_cast<double>(count);
  out.metrics = {{main_metric(), masked > 0 ? sum / masked : 0}};
  health.finish(options, validation_.get(), out);
  return out;
}

// --- rectangles

MaskedRectangles::MaskedRectangles(const TaskSetup& setup, const std::string& who, const Settings& settings)
    : MaskedPatches(setup, who),
      settings_(settings),
      masked_(static_cast<int64_t>(static_cast<double>(rows() * columns()) * settings.ratio)) {
  if (masker().map_stride() != patch())
    fail_usage(who, " predicts each patch of model.patch_size = ", patch(), ", but the last map of ",
               spec().name, " has cells of ", masker().map_stride(), " pixels");
  if (masked_ < 1)
    fail_usage("task.mask_ratio = ", shortest(settings.ratio), " masks none of the ", rows() * columns(),
               " patches");
}

void MaskedRectangles::set_layer(const TaskSetup& setup, const std::string& name, int64_t outputs) {
  set_head(setup, setup.build([&] {
    auto head = std::make_shared<MaskedHead>(masker().mask_width());
    layer_ = head->register_module(name, nn::Linear(masker().map_width(), outputs));
    return head;
  }));
}

std::vector<int64_t> MaskedRectangles::draw_mask(RandomStream& random) const {
  return rectangle_mask(random, rows(), columns(), masked_, settings_.least);
}

torch::Tensor MaskedRectangles::predicted(const torch::Tensor& images, const torch::Tensor& mask,
                                          const models::Context& context) {
  const torch::Tensor map = masker().masked_map(images, mask_of(mask), /*normed=*/true, context);
  const torch::Tensor places = masked_places(mask, mask.size(0) * masked_);
  return layer_->forward(map.flatten(2).transpose(1, 2).flatten(0, 1).index_select(0, places));
}

torch::Tensor masked_places(const torch::Tensor& mask, int64_t count) {
  return mask.flatten().argsort(/*stable=*/true, 0, /*descending=*/true).narrow(0, 0, count);
}

torch::Tensor sums_by_sample(const torch::Tensor& values, const torch::Tensor& places,
                             const torch::Tensor& mask) {
  return torch::zeros({mask.size(0)}, values.options().requires_grad(false))
      .index_add(0, places.div(mask.size(1), "floor"), values);
}

std::vector<int64_t> rectangle_mask(RandomStream& random, int64_t rows, int64_t columns, int64_t count,
                                    int64_t least) {
  constexpr int kAttempts = 10;
  const double flattest = std::log(0.3);
  std::vector<int64_t> mask(static_cast<size_t>(rows * columns), 0);
  int64_t masked = 0;
  // Masks one more rectangle with at most `most` new patches; false if no attempt fits.
  const auto add = [&](int64_t most) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const double area =
          random.uniform(static_cast<double>(std::min(least, most)), static_cast<double>(most));
      const double aspect = std::exp(random.uniform(flattest, -flattest));
      const auto high = static_cast<int64_t>(std::lround(std::sqrt(area * aspect)));
      const auto wide = static_cast<int64_t>(std::lround(std::sqrt(area / aspect)));
      if (high < 1 || wide < 1 || high >= rows || wide >= columns) continue;
      const int64_t top = random.integer(0, rows - high), left = random.integer(0, columns - wide);
      std::vector<size_t> fresh;
      for (int64_t row = top; row < top + high; ++row)
        for (int64_t column = left; column < left + wide; ++column)
          if (const auto at = static_cast<size_t>(row * columns + column); mask[at] == 0) fresh.push_back(at);
      if (fresh.empty() || static_cast<int64_t>(fresh.size()) > most) continue;
      for (const size_t at : fresh) mask[at] = 1;
      masked += static_cast<int64_t>(fresh.size());
      return true;
    }
    return false;
  };
  while (masked < count && add(count - masked)) {
  }
  // The grid has no room for a rectangle: mask single patches.
  const std::vector<int64_t> order = random.permutation(rows * columns);
  for (const int64_t place : order) {
    if (masked >= count) break;
    int64_t& here = mask[static_cast<size_t>(place)];
    masked += 1 - here, here = 1;
  }
  return mask;
}

}  // namespace tessera::tasks
