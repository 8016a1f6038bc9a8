#include "train/memory.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "nn/drop_path.h"

namespace tessera::train {
namespace {

double macs_of(const models::ModelSpec& spec, int64_t size) {
  return static_cast<double>(models::meta_backbone(spec)->macs(size, size));
}

models::ModelSpec with(models::ModelSpec spec, const char* key, const Value& value) {
  spec.settings.set(key, value);
  return spec;
}

// All blocks of a model with one grid are alike: the cost of one more block is that of each.
std::vector<double> isotropic_blocks(const models::ModelSpec& spec, int64_t depth, int64_t size) {
  const double one = macs_of(with(spec, "depth", depth + 1), size) - macs_of(spec, size);
  return std::vector(static_cast<size_t>(depth), one);
}

// Blocks of a stage alternate (windowed and sub-sampled attention, plain and shifted windows), so the cost of
// the next two blocks gives that of all.
std::vector<double> pyramid_blocks(const models::ModelSpec& spec, const Value::Array& depths, int64_t size) {
  const double all = macs_of(spec, size);
  std::vector<double> blocks;
  for (size_t stage = 0; stage < depths.size(); ++stage) {
    const int64_t depth = depths[stage].as_int();
    const auto longer = [&](int64_t by) {
      Value::Array changed = depths;
      changed[stage] = depth + by;
      return macs_of(with(spec, "depths", changed), size);
    };
    const double next = longer(1) - all, after_next = longer(2) - longer(1);
    for (int64_t i = 0; i < depth; ++i) blocks.push_back((depth - i) % 2 == 0 ? next : after_next);
  }
  return blocks;
}

// Returns the sides of the training images: one per epoch (train.sizes), or one for all epochs.
std::vector<int64_t> sizes_of(const Recipe& recipe, const RunPlan& plan) {
  const std::vector<int64_t>& sizes = recipe.train.sizes;
  if (sizes.empty()) return {recipe.preprocess.size};
  if (plan.steps_per_epoch == 0) return sizes;
  const int64_t epochs = std::max<int64_t>(1, plan.steps / plan.steps_per_epoch);
  const auto count = static_cast<int64_t>(sizes.size());
  std::vector<int64_t> of_epochs;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    of_epochs.push_back(sizes[static_cast<size_t>(epoch * count / epochs)]);
  return of_epochs;
}

}  // namespace

std::vector<double> block_macs(const models::ModelSpec& spec, int64_t size) {
  if (const Value* depths = spec.settings.find("depths"); depths && depths->is_array())
    return pyramid_blocks(spec, depths->as_array(), size);
  const Value* depth = spec.settings.find("depth");
  check(depth && depth->is_int(), "model family ", spec.family, " has neither depth nor depths");
  return isotropic_blocks(spec, depth->as_int(), size);
}

double forward_macs(const tasks::Task& task, int64_t size) {
  auto total = static_cast<double>(task.macs(size));
  for (const tasks::BackbonePart& part : task.backbones()) {
    const Value& settings = part.spec.settings;
    const Value *rate = settings.find("drop_path"), *decay = settings.find("drop_path_decay");
    if (!rate || rate->as_double() == 0) continue;
    const std::vector<double> blocks = block_macs(part.spec, size);
    const std::vector<double> rates = nn::drop_path_rates(
        rate->as_double(), static_cast<int64_t>(blocks.size()), decay && decay->as_bool());
    total -= std::inner_product(blocks.begin(), blocks.end(), rates.begin(), 0.0);
  }
  return total;
}

void plan_compute(const Recipe& recipe, const tasks::Task& task, RunPlan& plan) {
  const std::vector<int64_t> sizes = sizes_of(recipe, plan);
  std::map<int64_t, double> known;
  double sum = 0;
  for (const int64_t size : sizes) {
    if (!known.contains(size)) known[size] = forward_macs(task, size);
    sum += known[size];
  }
  plan.training_macs = 3 * sum / static_cast<double>(sizes.size());
  plan.total_macs = plan.training_macs * static_cast<double>(plan.images);
}

}  // namespace tessera::train
