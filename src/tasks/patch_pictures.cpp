#include "tasks/patch_pictures.h"

#include <algorithm>

namespace tessera::tasks {

Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess) {
  const torch::Tensor std = torch::tensor(preprocess.std), mean = torch::tensor(preprocess.mean);
  const torch::Tensor pixels = image.cpu().to(torch::kFloat32).permute({1, 2, 0});
  const torch::Tensor bytes =
      ((pixels * std + mean) * 255).round().clamp(0, 255).to(torch::kUInt8).contiguous();
  Image picture(static_cast<int>(bytes.size(1)), static_cast<int>(bytes.size(0)));
  std::copy_n(bytes.const_data_ptr<uint8_t>(), picture.pixels.size(), picture.pixels.begin());
  return picture;
}

}  // namespace tessera::tasks
