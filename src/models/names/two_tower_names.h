// How published files of vision and language spell the tensors of ours: OpenAI's and OpenCLIP's CLIP and CoCa, OpenCLIP's
// towers of timm (SigLIP), and Hugging Face's CLIPModel and SiglipModel. Some hold q, k and v apart, or a projection
// transposed, so that one of ours is made of several of theirs.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::models {

// Thirds [first, last) of the rows of a published tensor: 0 to 3 is all of it.
struct PublishedRows {
  std::string name;
  int64_t first = 0, last = 3;
};

struct PublishedSource {
  std::string ours;
  std::vector<PublishedRows> parts;  // one below the other
  bool transposed = false;
};

// Whether these are the names of such a model.
bool is_two_tower(const std::vector<std::string>& published);
// The sources of all of our tensors that these names hold, in the order of the names; `backbone_name` gives our name for
// one of an image tower that is no ViT (CLIP's ResNets). Names of no tensor of ours (indices, sizes) are left out.
std::vector<PublishedSource> two_tower_sources(
    const std::vector<std::string>& published,
    const std::function<std::string(const std::string&)>& backbone_name = {});

// The tensor of ours from the published ones that `get` gives, as it is stored.
torch::Tensor assemble(const PublishedSource& source,
                       const std::function<torch::Tensor(const std::string&)>& get);
// The tensor of ours, of the given shape, from the published ones that `get` gives.
torch::Tensor assemble(const PublishedSource& source,
                       const std::function<torch::Tensor(const std::string&)>& get, torch::IntArrayRef shape);

}  // namespace tessera::models
