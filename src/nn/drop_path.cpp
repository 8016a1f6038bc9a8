#include "nn/drop_path.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <mutex>
#include <tuple>

#include "core/random.h"
#include "ops/gpu.h"

namespace tessera::nn {
namespace {

// Under autocast, the residual stream is summed in float, even if patches or a norm produced its first tokens
// in half precision: a branch of less than 0.2 % would be rounded away.
torch::Tensor stream_of(const torch::Tensor& x) {
  const bool wider = (x.scalar_type() == torch::kBFloat16 || x.scalar_type() == torch::kHalf) &&
                     at::autocast::is_autocast_enabled(x.device().type());
  return wider ? x.to(torch::kFloat32) : x;
}

}  // namespace

std::vector<int64_t> kept_samples(int64_t batch, double rate, int64_t layer, const Context& context) {
  RandomStream stream(context.seed, "drop_path", context.step, static_cast<uint64_t>(layer));
  for (int64_t i = 0; i < context.first_sample; ++i) stream.uniform();
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < batch; ++i)
    if (!stream.chance(rate)) kept.push_back(i);
  return kept;
}

namespace {

torch::Tensor as_index(const std::vector<int64_t>& places) { return torch::tensor(places, torch::kInt64); }

// The kept samples of all branches of a step in one copy to a device: its first branch draws those of all branches that
// the step before had.
class StepDraws {
 public:
  torch::Tensor kept(torch::Device device, int64_t batch, double rate, int64_t layer,
                     const Context& context) {
    const Branch branch{layer, batch, rate};
    const Key key{device.type(), device.index(), context.seed, context.step, context.first_sample};
    const std::lock_guard lock(mutex_);
    if (key != key_) {
      key_ = key;
      send(device, context);
    }
    const auto known = std::find(sent_.begin(), sent_.end(), branch);
    if (known != sent_.end()) {
      if (std::find(asked_.begin(), asked_.end(), branch) == asked_.end()) asked_.push_back(branch);
      return indices_[static_cast<size_t>(known - sent_.begin())];
    }
    asked_.push_back(branch), sent_.push_back(branch);
    return indices_.emplace_back(ops::sent_to(device, as_index(kept_samples(batch, rate, layer, context))));
  }

 private:
  using Branch = std::tuple<int64_t, int64_t, double>;  // layer, batch, rate
  using Key = std::tuple<torch::DeviceType, int, uint64_t, uint64_t, int64_t>;

  void send(torch::Device device, const Context& context) {
    sent_ = std::exchange(asked_, {});
    indices_.clear();
    std::vector<int64_t> all, ends;
    for (const auto& [layer, batch, rate] : sent_) {
      const std::vector<int64_t> kept = kept_samples(batch, rate, layer, context);
      all.insert(all.end(), kept.begin(), kept.end());
      ends.push_back(static_cast<int64_t>(all.size()));
    }
    if (sent_.empty()) return;
    const torch::Tensor block = ops::sent_to(device, as_index(all));
    int64_t begin = 0;
    for (const int64_t end : ends) indices_.push_back(block.slice(0, begin, end)), begin = end;
  }

  std::mutex mutex_;
  Key key_{};
  std::vector<Branch> asked_, sent_;  // by this step; in indices_
  std::vector<torch::Tensor> indices_;
};
StepDraws& step_draws() {
  static auto* const it = new StepDraws;  // outlives LibTorch's devices
  return *it;
}

thread_local DropPathFactors* factors_of_step = nullptr;

torch::Tensor drawn_factors(const DropPathFactors::Branch& branch, const Context& context) {
  torch::Tensor factors = torch::zeros({branch.batch}, torch::kFloat32);
  for (const int64_t sample : kept_samples(branch.batch, branch.rate, branch.layer, context))
    factors.data_ptr<float>()[sample] = static_cast<float>(1 / (1 - branch.rate));
  return factors;
}

// x + factor * branch(x) of each sample. What a dropped sample's branch returns has no effect, even if it is not finite.
template <class Branch>
torch::Tensor add_all(const torch::Tensor& x, const torch::Tensor& factors, const Branch& branch) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  const torch::Tensor of_samples = factors.view(shape);
  const torch::Tensor y = branch(x, torch::Tensor()).to(x.scalar_type());
  const torch::Tensor scaled =
      (y * of_samples).to(y.scalar_type());  // a factor in bfloat16 would be off by 0.2 %
  return x + scaled.masked_fill(of_samples == 0, 0);
}

// x + branch(kept samples of x, their indices), for training with a rate above 0.
template <class Branch>
torch::Tensor add_kept(const torch::Tensor& x, double rate, int64_t layer, const Context& context,
                       const Branch& branch) {
  if (DropPathFactors* const step = DropPathFactors::current())
    if (const torch::Tensor factors = step->next(x.device(), {layer, x.size(0), rate}, context);
        factors.defined())
      return add_all(x, factors, branch);
  const std::vector<int64_t> kept = kept_samples(x.size(0), rate, layer, context);
  const double scale = 1 / (1 - rate);
  if (kept.empty()) return x;
  if (static_cast<int64_t>(kept.size()) == x.size(0)) return torch::add(x, branch(x, torch::Tensor()), scale);
  const torch::Tensor index =
      x.is_cpu() ? as_index(kept) : step_draws().kept(x.device(), x.size(0), rate, layer, context);
  return x.index_add(0, index, branch(x.index_select(0, index), index).to(x.scalar_type()), scale);
}

}  // namespace

torch::Tensor DropPathFactors::drawn(const std::vector<Branch>& branches, const Context& context) {
  std::vector<torch::Tensor> all;
  for (const Branch& branch : branches) all.push_back(drawn_factors(branch, context));
  return torch::cat(all);
}

DropPathFactors::DropPathFactors(std::vector<Branch>& branches, const torch::Tensor& table,
                                 const Context& context)
    : branches_(branches),
      known_(std::exchange(branches, {})),
      table_(table),
      context_(context),
      before_(std::exchange(factors_of_step, this)) {}

DropPathFactors::~DropPathFactors() { factors_of_step = before_; }

DropPathFactors* DropPathFactors::current() { return factors_of_step; }

torch::Tensor DropPathFactors::next(torch::Device device, const Branch& branch, const Context& context) {
  if (context.seed != context_.seed || context.step != context_.step ||
      context.first_sample != context_.first_sample)
    return {};
  const size_t place = met_++;
  const int64_t first = std::exchange(first_, first_ + branch.batch);
  branches_.push_back(branch);
  if (place < known_.size() && known_[place] == branch && first_ <= table_.numel())
    return table_.slice(0, first, first_);
  return ops::sent_to(device, drawn_factors(branch, context));
}

torch::Tensor path_factors(torch::Device device, int64_t batch, double rate, int64_t layer,
                           const Context& context) {
  const DropPathFactors::Branch branch{layer, batch, rate};
  if (DropPathFactors* const step = DropPathFactors::current())
    if (torch::Tensor factors = step->next(device, branch, context); factors.defined()) return factors;
  return ops::sent_to(device, drawn_factors(branch, context));
}

torch::Tensor residual(const torch::Tensor& x, double rate, bool training, int64_t layer,
                       const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&)>& branch) {
  if (!training || rate <= 0) return x + branch(x);
  return add_kept(x, rate, layer, context,
                  [&](const torch::Tensor& kept, const torch::Tensor&) { return branch(kept); });
}

torch::Tensor residual(const torch::Tensor& x, const torch::Tensor& scale, double rate, bool training,
                       int64_t layer, const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&, const Epilogue&)>& branch) {
  return residual(x, scale, rate, training, layer, context,
                  [&](const torch::Tensor& kept, const Epilogue& epilogue, const torch::Tensor&) {
                    return branch(kept, epilogue);
                  });
}

torch::Tensor residual(const torch::Tensor& given, const torch::Tensor& scale, double rate, bool training,
                       int64_t layer, const Context& context,
                       const std::function<torch::Tensor(const torch::Tensor&, const Epilogue&,
                                                         const torch::Tensor& samples)>& branch) {
  const torch::Tensor x = stream_of(given);
  if (!training || rate <= 0) return branch(x, {scale, x}, {});
  return add_kept(x, rate, layer, context, [&](const torch::Tensor& kept, const torch::Tensor& samples) {
    return branch(kept, {scale, {}}, samples);
  });
}

std::vector<double> drop_path_rates(double rate, int64_t depth, bool decay) {
  std::vector<double> rates(static_cast<size_t>(depth), rate);
  if (decay)
    for (int64_t i = 0; i < depth; ++i)
      rates[static_cast<size_t>(i)] =
          depth > 1 ? rate * static_cast<double>(i) / static_cast<double>(depth - 1) : 0;
  return rates;
}

}  // namespace tessera::nn
