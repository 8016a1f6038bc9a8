// Images as a VAE's latents, encoded once (`tessera data encode`): a folder with `latents.json` and safetensors shards.
//
//   latents.json   what they are: the VAE with the check sum of its file, the scale, shapes, class names, the shards
//   shard          "moments" f32 [samples, views, 2, channels, rows, columns]: mean and deviation of each number; view
//                  0 is the image, view 1, where there is one, the mirrored image. "labels" i64 [samples], where there
//                  are classes
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/transforms/transform.h"

namespace tessera::data {

struct LatentInfo {
  std::string codec;     // the VAE's model
  std::string checksum;  // of its file: latents of another VAE mean something else
  double scale = 0;      // what latents are multiplied by, so that their variance is about 1
  int64_t factor = 0;    // pixels to a place, along each axis
  int64_t channels = 0, rows = 0, columns = 0;
  int64_t views = 1;  // 2: mirrored images too

  int64_t numel() const { return channels * rows * columns; }
};

// A source whose samples hold moments instead of a picture: RawSample::picture is views x 2 x numel() floats.
class LatentSource : public Source {
 public:
  virtual const LatentInfo& latents() const = 0;
};

// The source as one of latents; null where it holds images.
inline const LatentSource* as_latents(const Source* source) {
  return dynamic_cast<const LatentSource*>(source);
}

// Field "latent", f32 [channels, rows, columns]: (mean + deviation * noise) * scale, of a view drawn at random. In
// evaluation the first view, and the noise of the sample's own stream all the same.
std::shared_ptr<const Transform> make_latent_transform(const LatentInfo& info, bool training);

// Fails naming both unless two sets, or a set and a model, are of the same VAE and scale.
void require_same_codec(const LatentInfo& a, const std::string& name_a, const LatentInfo& b,
                        const std::string& name_b);

// The shards of a split, as latents.json lists them.
struct LatentShards {
  std::vector<std::string> files;
  std::vector<int64_t> samples;  // in each
};
// The content of latents.json.
std::string latents_json(const LatentInfo& info, const std::vector<std::string>& class_names,
                         const LatentShards& train, const LatentShards& validation);

inline constexpr const char* kLatentsFile = "latents.json";

}  // namespace tessera::data
