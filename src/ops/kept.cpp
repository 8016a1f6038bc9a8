#include "ops/gpu.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <unordered_map>

#include "core/error.h"
#include "core/recording.h"

namespace tessera::ops {
namespace {

constexpr size_t kMost = 64, kMostBytes = size_t{64} << 20;
constexpr int64_t kMostNumbers = int64_t{1} << 20;

struct Kept {
  torch::Device device;
  const char* purpose;
  double factor;
  torch::Tensor host;
  int64_t version;  // of host when it was read
  std::vector<torch::Tensor> results;

  size_t bytes() const {
    size_t sum = 0;
    for (const torch::Tensor& result : results) sum += result.nbytes();
    return sum;
  }
};

struct Cache {
  std::mutex mutex;
  std::list<Kept> entries;  // the last one used is first

  // Drops the entries that were unused for longest, except for the last one used.
  void shrink() {
    size_t bytes = 0, count = 0;
    for (auto at = entries.begin(); at != entries.end();) {
      bytes += at->bytes(), ++count;
      at = count > 1 && (count > kMost || bytes > kMostBytes) ? entries.erase(at) : std::next(at);
    }
  }
};
Cache& cache() {
  static Cache* const it = new Cache;  // outlives LibTorch's devices
  return *it;
}

// True if the table is the very tensor, unchanged, or if it has equal contents.
bool holds(const Kept& kept, const torch::Tensor& host) {
  if (kept.version != static_cast<int64_t>(kept.host._version())) return false;
  if (kept.host.is_same(host)) return true;
  return kept.host.scalar_type() == host.scalar_type() && kept.host.sizes() == host.sizes() &&
         torch::equal(kept.host, host);
}

thread_local std::vector<torch::Tensor>* held = nullptr;

// Returns the results, and notes them in this thread's list.
const std::vector<torch::Tensor>& handed_out(const std::vector<torch::Tensor>& results) {
  if (held) held->insert(held->end(), results.begin(), results.end());
  return results;
}

struct Half {
  c10::weak_intrusive_ptr<c10::TensorImpl> weight;
  const void* memory;
  int64_t version;  // of the weight when it was copied
  torch::Tensor values;
};
struct Halves {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, Half> of;
};
Halves& halves() {
  static Halves* const it = new Halves;  // outlives LibTorch's devices
  return *it;
}

struct HalfNode : torch::autograd::Function<HalfNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor&,
                               const torch::Tensor& half) {
    return half.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0].to(torch::kFloat32), torch::Tensor()};
  }
};

}  // namespace

void keep_half(const torch::Tensor& weight, const torch::Tensor& half) {
  Halves& all = halves();
  const std::lock_guard lock(all.mutex);
  all.of.insert_or_assign(weight.unsafeGetTensorImpl(),
                          Half{c10::weak_intrusive_ptr<c10::TensorImpl>(weight.getIntrusivePtr()),
                               weight.const_data_ptr(), static_cast<int64_t>(weight._version()), half});
}

void forget_half(const torch::Tensor& weight) {
  Halves& all = halves();
  const std::lock_guard lock(all.mutex);
  all.of.erase(weight.unsafeGetTensorImpl());
}

torch::Tensor half_of(const torch::Tensor& weight) {
  if (Recording::is_on()) return {};
  Halves& all = halves();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of.find(weight.unsafeGetTensorImpl());
  if (found == all.of.end() || found->second.weight.expired() ||
      found->second.memory != weight.const_data_ptr() ||
      found->second.version != static_cast<int64_t>(weight._version()))
    return {};
  return found->second.values;
}

torch::Tensor half_or(const torch::Tensor& weight) {
  const c10::DeviceType device = weight.device().type();
  if (!at::autocast::is_autocast_enabled(device) ||
      at::autocast::get_autocast_dtype(device) != torch::kBFloat16)
    return weight;
  const torch::Tensor half = half_of(weight);
  if (!half.defined()) return weight;
  return torch::GradMode::is_enabled() && weight.requires_grad() ? HalfNode::apply(weight, half) : half;
}

HeldTables::HeldTables(std::vector<torch::Tensor>& list) : before_(held) { held = &list; }
HeldTables::~HeldTables() { held = before_; }

std::vector<torch::Tensor> kept_on(
    torch::Device device, const char* purpose, const torch::Tensor& host, double factor,
    const std::function<std::vector<torch::Tensor>(const torch::Tensor&)>& make) {
  if (device.is_cpu() || !host.is_cpu() || host.requires_grad() || host.numel() > kMostNumbers)
    return make(host);
  Cache& all = cache();
  const auto found = [&]() -> const Kept* {
    for (const bool same : {true, false})  // the very tensor first: its contents need no look
      for (auto at = all.entries.begin(); at != all.entries.end(); ++at) {
        if (at->device != device || at->factor != factor || std::strcmp(at->purpose, purpose) != 0) continue;
        if (at->host.is_same(host) != same || !holds(*at, host)) continue;
        all.entries.splice(all.entries.begin(), all.entries, at);
        return &all.entries.front();
      }
    return nullptr;
  };
  {
    const std::lock_guard lock(all.mutex);
    if (const Kept* kept = found()) return handed_out(kept->results);
  }
  // Results outlive a scope of inference mode: no gradient passes tensors of one, and a table of one counts no changes.
  const c10::InferenceMode usual(false);
  const torch::NoGradGuard no_grad;
  const torch::Tensor table = host.is_inference() ? host.clone() : host;
  const std::vector<torch::Tensor> results = make(table);
  const std::lock_guard lock(all.mutex);
  if (const Kept* kept = found()) return handed_out(kept->results);  // another thread was faster
  all.entries.push_front({device, purpose, factor, table, static_cast<int64_t>(table._version()), results});
  all.shrink();
  return handed_out(results);
}

torch::Tensor kept_on(torch::Device device, const torch::Tensor& host) {
  return kept_on(device, "table", host, 1,
                 [&](const torch::Tensor& table) { return std::vector<torch::Tensor>{table.to(device)}; })[0];
}

torch::Tensor sent_to(torch::Device device, const torch::Tensor& host) {
  if (Recording::is_on()) fail("a table of one pass is sent to the device");
  if (!device.is_cuda()) return host.to(device);
  const torch::Tensor pinned = host.pin_memory();
  handed_out({pinned});  // a graph repeats the copy
  return pinned.to(device, /*non_blocking=*/true);
}

}  // namespace tessera::ops
