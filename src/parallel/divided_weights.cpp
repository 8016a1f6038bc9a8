#include "parallel/divided_weights.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <unordered_set>

#include "core/error.h"

namespace tessera::parallel {
namespace {

// Larger tensors travel alone, straight into their memory; smaller ones travel together.
constexpr size_t kTravelsAlone = size_t{1} << 16;  // bytes

void free_memory(const torch::Tensor& tensor) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(0);
}

void give_memory(const torch::Tensor& tensor) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (storage->nbytes() > 0) return;
  storage->set_data_ptr_noswap(storage->allocator()->allocate(tensor.nbytes()));
  storage->set_nbytes(tensor.nbytes());
}

// True if the tensor's memory is its own and can be given back.
bool owns_memory(const torch::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  return tensor.is_contiguous() && tensor.nbytes() > 0 && storage.nbytes() == tensor.nbytes() &&
         storage.resizable() && storage.allocator() && storage.use_count() == 1;
}

// Moves a tensor to a device, without its values if it is to be released.
void bring(torch::Tensor whole, std::optional<torch::Device> device, bool release) {
  if (!device || whole.device() == *device) return;
  whole.set_data(release ? torch::empty(whole.sizes(), whole.options().device(*device).requires_grad(false))
                         : whole.variable_data().to(*device));
}

}  // namespace

DividedWeights::DividedWeights(const Axis& axis, const Layout& layout, const NamedTensors& wholes,
                               const std::vector<std::vector<torch::Tensor>>& units,
                               const std::vector<torch::Tensor>& rounded, std::optional<torch::Device> device,
                               const std::vector<int>& places)
    : axis_(axis), layout_(layout) {
  const torch::NoGradGuard no_grad;
  std::unordered_set<const c10::TensorImpl*> in_units, residents, rounds;
  for (const torch::Tensor& tensor : rounded) rounds.insert(tensor.unsafeGetTensorImpl());
  for (size_t u = 0; u < units.size(); ++u)
    for (const torch::Tensor& tensor : units[u])
      (!places.empty() && places[u] == axis.rank() ? residents : in_units)
          .insert(tensor.unsafeGetTensorImpl());
  for (const auto& [name, whole] : wholes) {
    const c10::TensorImpl* const identity = whole.unsafeGetTensorImpl();
    if (ids_.contains(identity)) continue;
    if (!owns_memory(whole)) {
      bring(whole, device, /*release=*/false);
      continue;
    }
    ids_.emplace(identity, weights_.size());
    const bool resident = residents.contains(identity);
    torch::Tensor part;
    if (!resident)
      part = layout_.cut(name, whole.variable_data()).clone().to(device.value_or(whole.device()));
    bring(whole, device, /*release=*/in_units.contains(identity));
    const torch::Tensor raw = whole.variable_data();
    weights_.push_back({name, whole, raw, resident ? layout_.cut(name, raw) : part, layout_.rows(name),
                        rounds.contains(identity) && raw.scalar_type() == torch::kFloat32, resident});
    if (in_units.contains(identity)) let_go({weights_.size() - 1});
  }
  for (const auto& unit : units) units_.push_back(ids_of(unit));
}

const torch::Tensor* DividedWeights::part(const torch::Tensor& whole) const {
  const auto found = ids_.find(whole.unsafeGetTensorImpl());
  return found == ids_.end() ? nullptr : &weights_[found->second].part;
}

DividedWeights::Ids DividedWeights::ids_of(const std::vector<torch::Tensor>& tensors) const {
  Ids ids;
  for (const torch::Tensor& tensor : tensors)
    if (const auto found = ids_.find(tensor.unsafeGetTensorImpl()); found != ids_.end())
      ids.push_back(found->second);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

DividedWeights::Ids DividedWeights::missing(const Ids& ids) const {
  Ids without;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(without),
               [&](size_t id) { return weights_[id].holders == 0; });
  return without;
}

void DividedWeights::hold(const Ids& ids) {
  for (const size_t id : ids) ++weights_[id].holders;
}

void DividedWeights::let_go(const Ids& ids) {
  for (const size_t id : ids)
    if (--weights_[id].holders == 0) free_memory(weights_[id].raw);
}

// --- exchanges

torch::ScalarType DividedWeights::travels_as(size_t id, bool exact) const {
  return weights_[id].rounded && !exact ? torch::kBFloat16 : weights_[id].raw.scalar_type();
}

bool DividedWeights::travels_like(size_t id, bool exact, const torch::Tensor& flat) const {
  return travels_as(id, exact) == flat.scalar_type() && weights_[id].raw.device() == flat.device();
}

DividedWeights::Fetch DividedWeights::start(const Ids& ids, bool exact) const {
  const torch::NoGradGuard no_grad;
  Fetch fetch{.all = ids, .packed = {}, .flat = {}, .waits = {}, .exact = exact};
  for (const size_t id : ids) {
    const Weight& weight = weights_[id];
    give_memory(weight.raw);
    if (weight.raw.nbytes() < kTravelsAlone || weight.raw.dim() == 0) {
      fetch.packed.push_back(id);
    } else if (const auto type = travels_as(id, exact); type == weight.raw.scalar_type()) {
      fetch.waits.push_back(axis_.start_gather(weight.part, weight.raw, weight.rows));
    } else {
      fetch.others.emplace_back(id, torch::empty_like(weight.raw, weight.raw.options().dtype(type)));
      fetch.waits.push_back(
          axis_.start_gather(weight.part.to(type), fetch.others.back().second, weight.rows));
    }
  }
  std::stable_sort(fetch.packed.begin(), fetch.packed.end(),
                   [&](size_t a, size_t b) { return travels_as(a, exact) < travels_as(b, exact); });
  for (size_t begin = 0, end = 0; begin < fetch.packed.size(); begin = end) {
    std::vector<torch::Tensor> own;
    std::vector<int64_t> counts(static_cast<size_t>(axis_.size()), 0);
    const torch::Tensor like = torch::empty(
        {0}, weights_[fetch.packed[begin]].raw.options().dtype(travels_as(fetch.packed[begin], exact)));
    for (; end < fetch.packed.size() && travels_like(fetch.packed[end], exact, like); ++end) {
      own.push_back(weights_[fetch.packed[end]].part.flatten().to(like.scalar_type()));
      for (int r = 0; r < axis_.size(); ++r)
        counts[static_cast<size_t>(r)] += layout_.values(weights_[fetch.packed[end]].name, r);
    }
    int64_t all = 0;
    for (const int64_t count : counts) all += count;
    fetch.flat.push_back(torch::empty({all}, like.options()));
    fetch.waits.push_back(axis_.start_gather(torch::cat(own), fetch.flat.back(), counts));
  }
  return fetch;
}

void DividedWeights::finish(Fetch& fetch) const {
  const torch::NoGradGuard no_grad;
  for (const Axis::Wait& wait : fetch.waits) wait();
  for (const auto& [id, whole] : fetch.others)
    if (!weights_[id].resident) weights_[id].raw.copy_(whole);
  size_t begin = 0;
  for (const torch::Tensor& flat : fetch.flat) {
    const size_t first = begin;
    int64_t offset = 0;
    for (int r = 0; r < axis_.size(); ++r)
      for (begin = first; begin < fetch.packed.size() && travels_like(fetch.packed[begin], fetch.exact, flat);
           ++begin) {
        const Weight& weight = weights_[fetch.packed[begin]];
        const torch::Tensor rows = layout_.cut(weight.name, weight.raw, r);
        if (!weight.resident) rows.copy_(flat.narrow(0, offset, rows.numel()).view(rows.sizes()));
        offset += rows.numel();
      }
  }
  fetch = {};
}

// Ends the exchange of the unit that was expected, whether it came or not.
void DividedWeights::settle() {
  const Ids ids = expected_.all;
  finish(expected_);
  let_go(ids);
}

// Makes the tensors whole and holds them.
void DividedWeights::run(const Ids& ids) {
  hold(ids);
  settle();
  Ids without;
  for (const size_t id : ids)
    if (weights_[id].raw.storage().nbytes() == 0) without.push_back(id);
  if (without.empty()) return;
  Fetch fetch = start(without);
  finish(fetch);
}

// Starts the exchange of a unit that comes next.
void DividedWeights::expect(const Ids& ids) {
  const Ids without = missing(ids);
  if (without.empty()) return;
  hold(without);
  expected_ = start(without);
}

// --- passes

void DividedWeights::enter(const std::vector<torch::Tensor>& parameters) {
  const Ids ids = ids_of(parameters);
  run(ids);
  order_.push_back(ids);
  const size_t next = order_.size();
  if (next < last_order_.size() && last_order_[next - 1] == ids) expect(last_order_[next]);
  backward_ = next;
}

void DividedWeights::leave(const std::vector<torch::Tensor>& parameters) {
  // Rounded copies of the weights would outlive them.
  if (at::autocast::is_autocast_enabled(at::kCPU) || at::autocast::is_autocast_enabled(at::kCUDA))
    at::autocast::clear_cache();
  let_go(ids_of(parameters));
}

void DividedWeights::enter_backward(const std::vector<torch::Tensor>& parameters) {
  const Ids ids = ids_of(parameters);
  if (ids == running_backward_) return;
  leave_backward();
  run(ids);
  running_backward_ = ids;
  backward_parameters_ = parameters;
  while (backward_ > 0 && order_[backward_ - 1] != ids) --backward_;
  if (backward_ > 1) expect(order_[backward_ - 2]);
}

void DividedWeights::leave_backward() {
  if (running_backward_.empty()) return;
  let_go(running_backward_);
  running_backward_.clear();
  if (done_) done_(backward_parameters_);
  backward_parameters_.clear();
}

int64_t DividedWeights::unit_of(const std::vector<torch::Tensor>& parameters) const {
  const Ids ids = ids_of(parameters);
  const auto unit = std::find(units_.begin(), units_.end(), ids);
  if (unit != units_.end() && !ids.empty()) return unit - units_.begin();
  for (const size_t id : ids)
    check(weights_[id].holders > 0, "divided weights: the block with '", weights_[id].name, "' is no unit");
  return -1;
}

void DividedWeights::gather_unit(int64_t unit) {
  const Ids& ids = units_.at(static_cast<size_t>(unit));
  hold(ids);
  Fetch fetch = start(ids);
  finish(fetch);
}

void DividedWeights::end_pass() {
  leave_backward();
  settle();
  last_order_ = std::move(order_);
  order_.clear();
  backward_ = 0;
}

// --- whole tensors

// Layers keep copies of weights, packed for a kernel, and compare versions.
void DividedWeights::outdate(const Ids& ids) const {
  for (const size_t id : ids) weights_[id].whole.unsafeGetTensorImpl()->bump_version();
}

void DividedWeights::updated(bool frozen) {
  Ids all, whole;
  for (size_t id = 0; id < weights_.size(); ++id) {
    all.push_back(id);
    if (weights_[id].holders > 0 && !weights_[id].resident && (frozen || weights_[id].whole.requires_grad()))
      whole.push_back(id);
  }
  Fetch fetch = start(whole, /*exact=*/true);
  finish(fetch);
  outdate(all);
}

void DividedWeights::take() {
  const torch::NoGradGuard no_grad;
  for (const Weight& weight : weights_)
    if (weight.holders > 0 && !weight.resident)
      torch::Tensor(weight.part).copy_(layout_.cut(weight.name, weight.raw));
}

void DividedWeights::gather(const NamedTensors& wholes) {
  check(gathered_.empty(), "divided weights: gather() twice");
  std::vector<torch::Tensor> tensors;
  for (const auto& one : wholes) tensors.push_back(one.second);
  gathered_ = ids_of(tensors);
  hold(gathered_);
  Fetch fetch = start(gathered_, /*exact=*/true);
  finish(fetch);
  outdate(gathered_);
}

void DividedWeights::release() {
  let_go(gathered_);
  gathered_.clear();
}

}  // namespace tessera::parallel
