#include "open/calibrate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "core/error.h"
#include "nn/linear.h"
#include "tasks/base/task.h"

namespace tessera::train {
namespace {

constexpr int kDropped = 18;  // bits of a float below its bin
constexpr size_t kBins = size_t{1} << (31 - kDropped);
constexpr uint32_t kInfinite = 0x7f800000;
const std::string kStepSize = ".input_log_step";

double middle_of(size_t bin) {
  return std::bit_cast<float>(static_cast<uint32_t>(bin << kDropped | size_t{1} << (kDropped - 1)));
}

// Returns the linear layers that have no learned step sizes, by name.
std::vector<std::pair<std::string, nn::LinearImpl*>> layers_of(models::Backbone& model) {
  std::vector<std::pair<std::string, nn::LinearImpl*>> layers;
  for (const auto& module : model.named_modules("", /*include_self=*/false))
    if (auto* linear = dynamic_cast<nn::LinearImpl*>(module.value().get()); linear && !linear->quantised())
      layers.emplace_back(module.key(), linear);
  return layers;
}

}  // namespace

void Magnitudes::add(const torch::Tensor& x, const std::string& name) {
  counts_.resize(kBins);
  const torch::Tensor plain = x.detach().to(torch::kFloat32).contiguous();
  const float* numbers = plain.const_data_ptr<float>();
  for (int64_t i = 0; i < plain.numel(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(numbers[i]) & 0x7fffffff;
    if (bits >= kInfinite) fail("calibration: layer '", name, "' reads a number that is not finite");
    ++counts_[bits >> kDropped];
  }
}

double Magnitudes::best_step_size() const {
  constexpr size_t kOctaves = 8;  // octaves to search below the largest magnitude; more clipping never helps
  size_t last = counts_.size();
  while (last > 0 && counts_[last - 1] == 0) --last;
  if (last <= 1) return 1;  // all values are zero or nearly so: any step size will do
  const auto error = [&](double step_size) {
    double total = 0;
    for (size_t bin = 0; bin < last; ++bin) {
      if (counts_[bin] == 0) continue;
      const double value = middle_of(bin), beyond = std::max(value - 127 * step_size, 0.0);
      total += static_cast<double>(counts_[bin]) *
               std::max(std::min(value * value, step_size * step_size / 12), beyond * beyond);
    }
    return total;
  };
  double best = middle_of(last - 1) / 127, least = error(best);
  for (size_t bin = last - 1; bin > 0 && bin + kOctaves * 32 > last; --bin)
    if (const double step_size = middle_of(bin) / 127, found = error(step_size); found < least)
      best = step_size, least = found;
  return best;
}

NamedTensors calibrate(tasks::Task& task, data::Loader& loader, int64_t pictures,
                       const std::function<bool(int64_t done)>& progress) {
  const auto layers = layers_of(*task.backbones().at(0).model);
  std::vector<Magnitudes> seen(layers.size());
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < layers.size(); ++i)
    layers[i].second->watch([&, i](const torch::Tensor& x) { seen[i].add(x, layers[i].first); });
  tasks::set_training(task.parts(), false);
  for (int64_t done = 0; done < pictures;) {
    const auto batch = loader.next();
    check(batch.has_value(), "calibration: the loader ends before ", pictures, " images");
    const auto images = tasks::to_device(*batch, "calibration", torch::kCPU, tasks::Precision::fp32);
    task.predict(images.at("image").slice(0, 0, pictures - done), 1);
    done = std::min(pictures, done + images.size);
    if (!progress(done)) throw Error(ErrorKind::interrupted, "interrupted");
  }
  NamedTensors step_sizes;
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].second->watch({});
    if (seen[i].empty()) continue;  // its weights are part of another operation
    const torch::Tensor step_size = layers[i].second->add_input_step_size();
    step_size.fill_(std::log(seen[i].best_step_size()));
    step_sizes.emplace_back(layers[i].first + kStepSize, step_size);
  }
  return step_sizes;
}

void add_input_step_sizes(models::Backbone& model, const std::vector<std::string>& names) {
  const std::set<std::string> stored(names.begin(), names.end());
  for (const auto& [name, layer] : layers_of(model))
    if (stored.contains(name + kStepSize)) layer->add_input_step_size();
}

void check_input_step_sizes(const models::Backbone& model, const std::string& where) {
  for (const auto& buffer : model.named_buffers())
    if (buffer.key().ends_with(kStepSize))
      if (const double step_size = std::exp(buffer.value().item<float>());
          !(step_size > 1e-30 && step_size < 1e30))
        fail("'", where, "': tensor '", buffer.key(), "' rounds inputs to multiples of ", step_size,
             ", must be the logarithm of a step size");
}

}  // namespace tessera::train
