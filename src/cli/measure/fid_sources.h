// The sets that `tessera fid` measures: images, or statistics of their features.
#pragma once

#include <memory>
#include <string>

#include "data/base/source.h"

namespace tessera::cli {

// True if a path has statistics instead of images.
bool holds_statistics(const std::string& path);
// True if it has images: ADM's reference batches have both images and the statistics of many more.
bool holds_images(const std::string& path);
// Opens the first `count` images of a set, 0 = all; `split` is train, validation or all. Throws a usage
// error for a run, and for latents.
std::unique_ptr<data::Source> open_measured_images(const std::string& path, const std::string& split,
                                                   int64_t count);

}  // namespace tessera::cli
