// Every registered size in a form that is built and run in a moment.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "models/base/denoiser.h"
#include "models/heads/class_head.h"

namespace tessera::models {

struct Named {
  const Family* family;
  const Size* size;
};

// Whether the family's models are there to generate images: the contract is that of models which read them.
// src/models/dit_test.cpp has theirs.
inline bool generates(const Family& family) {
  return dynamic_cast<Denoiser*>(meta_backbone(resolve_model(family.name)).get()) != nullptr;
}

inline std::vector<Named> all_sizes() {
  std::vector<Named> sizes;
  for (const Family& family : families())
    if (!generates(family))
      for (const Size& size : family.sizes) sizes.push_back({&family, &size});
  return sizes;
}

// The size with its structure kept: narrow, shallow, few classes, an image of 2 x 2 patches (of the last
// stage).
inline ModelSpec tiny_spec(const Named& named, Value overrides = {}) {
  const Value full = resolve_model(named.size->name).settings;
  const auto has = [&](const char* key) { return full.find(key) != nullptr; };
  Value small;
  small.set("classes", 5);
  if (has("depth")) small.set("depth", 2);
  // Those of the size are beyond two blocks.
  if (has("global_blocks")) small.set("global_blocks", Value::Array{});
  if (has("channels")) small.set("channels", 3), small.set("labels", 4);    // pixels
  if (has("embed_dim")) small.set("heads", 4), small.set("embed_dim", 24);  // attention pooling
  if (has("dim") && has("heads")) small.set("dim", 8 * full.find("heads")->as_int());
  if (has("patch_size")) small.set("image_size", 2 * full.find("patch_size")->as_int());
  if (has("probe_layers")) small.set("probe_layers", 2);
  if (has("strides")) {  // plain layers: three of them pool
    const auto widths = full.find("dims")->as_array().size();
    small.set("image_size", 64), small.set("head_width", 12), small.set("dims", Value::Array(widths, 16));
  }
  if (has("dims") && has("depths")) {  // stages: a width and a number of blocks each
    std::vector<int64_t> dims, depths;
    for (const Value& blocks : full.find("depths")->as_array())
      depths.push_back(std::min<int64_t>(2, blocks.as_int()));
    if (has("heads") && full.find("heads")->is_array())
      for (const Value& heads : full.find("heads")->as_array()) dims.push_back(8 * heads.as_int());
    else  // convolutions
      for (size_t stage = 0; stage < depths.size(); ++stage) dims.push_back(int64_t{16} << stage);
    small.set("image_size", (has("patch_size") ? full.find("patch_size")->as_int() : 4) << dims.size());
    small.set("dims", Value::Array(dims.begin(), dims.end()));
    small.set("depths", Value::Array(depths.begin(), depths.end()));
  }
  if (has("codebook")) {  // a tokeniser: every pixel is a cell of its first group
    small.set("image_size", 16), small.set("outputs", 64);
    small.set("dims", Value::Array{32, 64}), small.set("depths", Value::Array{1, 1});
  }
  if (has("drop_path")) small.set("drop_path", 0.0);              // what is dropped gets no gradient
  if (has("zero_init_last")) small.set("zero_init_last", false);  // behind a zero no gradient comes
  merge(small, overrides);
  return resolve_model(named.size->name, small);
}

// A side of the image that the tiny form was built for.
inline int64_t tiny_side(const ModelSpec& spec) { return spec.settings.find("image_size")->as_int(); }

}  // namespace tessera::models
