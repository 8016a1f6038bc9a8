// Images encoded once as a VAE's latents (`tessera data encode`): a folder with `latents.json` and
// safetensors shards.
//
//   latents.json   metadata: the VAE with its file's checksum, the scale, shapes, class names, the shards
//   shard          "moments" f32 [samples, views, 2, channels, rows, columns]: mean and deviation of each
//                  number; view 0 is the image, the optional view 1 the mirrored image. "labels" i64
//                  [samples], if the set has classes
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
  std::string checksum;  // its file's: latents of different VAEs are incompatible
  double scale = 0;      // factor that gives the latents a variance of about 1
  int64_t factor = 0;    // pixels per latent position, along each axis
  int64_t channels = 0, rows = 0, columns = 0;
  int64_t views = 1;  // 2: also mirrored images

  int64_t numel() const { return channels * rows * columns; }
};

// A source with moments instead of images: RawSample::picture is views x 2 x numel() floats.
class LatentSource : public Source {
 public:
  virtual const LatentInfo& latents() const = 0;
  std::unique_ptr<Annotations> annotations() const override;
};

// Returns the source as a latent source; null if it contains images.
inline const LatentSource* as_latents(const Source* source) {
  return dynamic_cast<const LatentSource*>(source);
}

// Makes the field "latent", f32 [channels, rows, columns]: (mean + deviation * noise) * scale, of a randomly
// drawn view. Evaluation uses the first view, but also adds noise, from the sample's own stream.
std::shared_ptr<const Transform> make_latent_transform(const LatentInfo& info, bool training);

// Throws an error that names both, unless two sets (or a set and a model) have the same VAE and scale.
void require_same_codec(const LatentInfo& a, const std::string& name_a, const LatentInfo& b,
                        const std::string& name_b);

// The shards of a split, as listed in latents.json.
struct LatentShards {
  std::vector<std::string> files;
  std::vector<int64_t> samples;  // per file
};
// Returns the content of latents.json.
std::string latents_json(const LatentInfo& info, const std::vector<std::string>& class_names,
                         const LatentShards& train, const LatentShards& validation);

inline constexpr const char* kLatentsFile = "latents.json";

}  // namespace tessera::data
