// The sets that `tessera fid` measures: images, or statistics of their features.
#pragma once

#include <memory>
#include <string>

#include "data/base/source.h"

namespace tessera::cli {

// Whether a path holds statistics instead of images.
bool holds_statistics(const std::string& path);
// ADM's reference batches hold images beside the statistics of many more.
bool holds_images(const std::string& path);
// The first `count` images of a set, 0 = all; `split` is train, validation or all. Usage errors: a run, latents.
std::unique_ptr<data::Source> open_measured_images(const std::string& path, const std::string& split,
                                                   int64_t count);

}  // namespace tessera::cli
