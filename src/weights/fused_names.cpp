#include "weights/fused_names.h"

#include <map>
#include <set>

namespace tessera::train {

NamedTensors fuse_projections(const NamedTensors& tensors) {
  static const std::string query = ".query.", key = ".key.", value = ".value.";
  std::map<std::string, torch::Tensor> by_name(tensors.begin(), tensors.end());
  std::set<std::string> taken;
  NamedTensors out;
  for (const auto& [name, tensor] : tensors) {
    const size_t at = name.find(query);
    if (at == std::string::npos) continue;
    const std::string before = name.substr(0, at), behind = name.substr(at + query.size());
    const auto k = by_name.find(before + key + behind), v = by_name.find(before + value + behind);
    if (k == by_name.end() || v == by_name.end()) continue;
    by_name[name] = torch::cat({tensor, k->second, v->second});
    taken.insert({k->first, v->first});
  }
  for (const auto& [name, tensor] : tensors) {
    if (taken.contains(name)) continue;
    const torch::Tensor& now = by_name.at(name);
    const size_t at = name.find(query);
    const bool fused = at != std::string::npos && !now.is_same(tensor);
    out.emplace_back(fused ? name.substr(0, at) + ".qkv." + name.substr(at + query.size()) : name, now);
  }
  return out;
}

NamedTensors split_projections(const NamedTensors& tensors, std::string_view whole,
                               const std::array<std::string_view, 3>& parts) {
  NamedTensors out;
  for (const auto& [name, tensor] : tensors) {
    const size_t at = name.find(whole);
    if (at == std::string::npos) {
      out.emplace_back(name, tensor);
      continue;
    }
    const auto rows = tensor.chunk(3);
    for (size_t i = 0; i < 3; ++i)
      out.emplace_back(std::string(name).replace(at, whole.size(), parts[i]), rows[i].contiguous());
  }
  return out;
}

}  // namespace tessera::train
