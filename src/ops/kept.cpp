#include "ops/kept.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>

namespace tessera::ops {
namespace {

constexpr size_t kMost = 64;
constexpr int64_t kMostNumbers = int64_t{1} << 20;

struct Kept {
  torch::Device device;
  const char* purpose;
  double factor;
  torch::Tensor host;
  int64_t version;  // of host when it was read
  std::vector<torch::Tensor> results;
};

struct Cache {
  std::mutex mutex;
  std::list<Kept> entries;  // the last one used is first
};
Cache& cache() {
  static Cache* const it = new Cache;  // outlives LibTorch's devices
  return *it;
}

// Returns the count of changes of a tensor; -1 for one of inference mode, which has none.
int64_t version_of(const torch::Tensor& t) {
  return t.is_inference() ? -1 : static_cast<int64_t>(t._version());
}

// True if the table is the very tensor, unchanged, or if it has equal contents.
bool holds(const Kept& kept, const torch::Tensor& host) {
  const int64_t now = version_of(kept.host);
  if (kept.version != now) return false;
  if (kept.host.is_same(host) && now >= 0) return true;
  return kept.host.scalar_type() == host.scalar_type() && kept.host.sizes() == host.sizes() &&
         torch::equal(kept.host, host);
}

}  // namespace

std::vector<torch::Tensor> kept_on(
    torch::Device device, const char* purpose, const torch::Tensor& host, double factor,
    const std::function<std::vector<torch::Tensor>(const torch::Tensor&)>& make) {
  if (device.is_cpu() || !host.is_cpu() || host.requires_grad() || host.numel() > kMostNumbers)
    return make(host);
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  const auto matches = [&](const Kept& kept) {
    return kept.device == device && kept.factor == factor && std::strcmp(kept.purpose, purpose) == 0;
  };
  for (const bool same : {true, false})  // the very tensor first: its contents need no look
    for (auto at = all.entries.begin(); at != all.entries.end(); ++at) {
      if (!matches(*at) || at->host.is_same(host) != same || !holds(*at, host)) continue;
      all.entries.splice(all.entries.begin(), all.entries, at);
      at->host = host, at->version = version_of(host);
      return at->results;
    }
  const torch::NoGradGuard no_grad;
  all.entries.push_front({device, purpose, factor, host, version_of(host), make(host)});
  if (all.entries.size() > kMost) all.entries.pop_back();
  return all.entries.front().results;
}

torch::Tensor kept_on(torch::Device device, const torch::Tensor& host) {
  return kept_on(device, "table", host, 1,
                 [&](const torch::Tensor& table) { return std::vector<torch::Tensor>{table.to(device)}; })[0];
}

torch::Tensor sent_to(torch::Device device, const torch::Tensor& host) {
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true) : host.to(device);
}

}  // namespace tessera::ops
