// timm's names of weights: a size, a dot, and a tag that says how they were trained
// ("vit_base_patch16_224.augreg_in21k").
#pragma once

#include <string>

#include "core/value.h"

namespace tessera::models {

struct PublishedName {
  std::string size, tag;  // tag "" where the name has none
};
PublishedName split_published_name(const std::string& name);

// The [preprocess] keys in which weights of this tag differ from the first ones of the size. A usage error
// that lists the tags there are for other tags than the published ones; an empty tag has no keys.
Value tag_preprocess(const PublishedName& name);

}  // namespace tessera::models
