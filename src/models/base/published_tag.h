// timm's names of weights: a size, a dot, and a tag for the way they were trained
// ("vit_base_patch16_224.augreg_in21k").
#pragma once

#include <string>

#include "core/value.h"

namespace tessera::models {

struct PublishedName {
  std::string size, tag;  // tag is "" if the name has none
};
PublishedName split_published_name(const std::string& name);

// Returns the [preprocess] keys in which weights of this tag differ from the first weights of the size; none
// for an empty tag. Throws a usage error that lists the published tags for an unknown one.
Value tag_preprocess(const PublishedName& name);

}  // namespace tessera::models
