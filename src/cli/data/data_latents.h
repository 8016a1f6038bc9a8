// `tessera data info|check` of stored latents, which are numbers and no pictures.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/sources/latents.h"
#include "data/tools/check.h"

namespace tessera::cli {

struct LatentStatistics {
  int64_t samples = 0;            // those that the following are of
  std::vector<double> mean, std;  // of each channel, as a generator is given them: scaled, noise included
  data::Lines broken = {};        // numbers that are none, deviations below 0
};
// Reads at most `most` latents of the source, at even distances.
LatentStatistics latent_statistics(const data::LatentSource& source, int64_t most);

void print_latents(const data::LatentSource& source, const LatentStatistics& statistics, const char* split);
nlohmann::ordered_json latents_info_json(const data::LatentSource& source,
                                         const LatentStatistics& statistics);

// Checks all latents of both splits, which must be of one VAE. Fails after listing `show` findings if there
// are any.
void check_latents(const data::SourceConfig& config, int64_t show, bool as_json);

}  // namespace tessera::cli
