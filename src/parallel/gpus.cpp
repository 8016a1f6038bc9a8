#include "parallel/gpus.h"

#include <map>

#include "core/error.h"

namespace tessera::parallel {

int gpu_of(int local_rank, int local_size, int gpus) {
  if (gpus >= local_size) return local_rank;
  return gpus == 1 ? 0 : -1;
}

std::string why_no_gpu_each(std::span<const std::string> names) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (names[rank].empty()) return text("process ", rank, " of ", names.size(), " has no GPU to itself");
    const auto [owner, fresh] = owners.emplace(names[rank], rank);
    if (!fresh)
      return text("processes ", owner->second, " and ", rank, " of ", names.size(), " have the same GPU");
  }
  return "";
}

}  // namespace tessera::parallel
