// ReaL labels of ImageNet's validation set (Beyer et al. 2020, "Are we done with ImageNet?").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::cli {

// The classes of each image, none if annotators disagreed: a list of lists, in the order of the images'
// numbers.
class RealLabels {
 public:
  // Reads the published file real.json. Throws an error with its name if it is not one.
  explicit RealLabels(const std::string& file);
  struct Count {
    int64_t right = 0, counted = 0;
    double share() const {
      return counted > 0 ? static_cast<double>(right) / static_cast<double>(counted) : 0;
    }
  };
  // Counts images with labels whose best class is among them. Images are numbered from 1 in their names,
  // ILSVRC2012_val_00000001.JPEG; throws a usage error for another name.
  Count count(int64_t images, const std::function<std::string(int64_t)>& name,
              const std::function<int64_t(int64_t)>& best) const;

 private:
  std::string file_;
  std::vector<std::vector<int64_t>> labels_;
};

}  // namespace tessera::cli
