// `data check` of sets without images: latents and plain texts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/base/source.h"

namespace tessera::data {

struct CheckedSet {
  std::string text;  // for people, with `show` lines of each kind of problem
  nlohmann::ordered_json json;
  int64_t problems = 0;
};

// Reads all latents of both splits. Throws if they are of different VAEs.
CheckedSet check_latents(const SourceConfig& config, int64_t show);

// Reads all documents of both splits, and reports those that occur twice or in both.
CheckedSet check_texts(const SourceConfig& config, int64_t show);

}  // namespace tessera::data
