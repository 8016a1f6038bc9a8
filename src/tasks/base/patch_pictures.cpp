#include "tasks/base/patch_pictures.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "data/transforms/resize.h"

namespace tessera::tasks {
namespace {

constexpr int kLongestSide = 160;
constexpr int64_t kPictures = 24;

}  // namespace

Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess) {
  const torch::Tensor std = torch::tensor(preprocess.std), mean = torch::tensor(preprocess.mean);
  const torch::Tensor pixels = image.cpu().to(torch::kFloat32).permute({1, 2, 0});
  const torch::Tensor bytes =
      ((pixels * std + mean) * 255).round().clamp(0, 255).to(torch::kUInt8).contiguous();
  Image picture(static_cast<int>(bytes.size(1)), static_cast<int>(bytes.size(0)));
  std::copy_n(bytes.const_data_ptr<uint8_t>(), picture.pixels.size(), picture.pixels.begin());
  return picture;
}

Image thumbnail_of(const data::Source& source, int64_t index) {
  return data::shrunk_to_fit(data::decode_sample(source.read(index)), kLongestSide);
}

std::vector<report::Picture> drawn_pictures(int64_t samples, uint64_t seed,
                                            const std::function<report::Picture(int64_t sample)>& make) {
  std::vector<report::Picture> pictures;
  RandomStream random(seed, "report");
  for (const int64_t sample : random.permutation(samples)) {
    if (std::ssize(pictures) == kPictures) break;
    try {
      pictures.push_back(make(sample));
    } catch (const Error&) {
      continue;
    }
  }
  return pictures;
}

}  // namespace tessera::tasks
