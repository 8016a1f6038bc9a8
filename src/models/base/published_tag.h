// The tags of published weights of one size.
#pragma once

#include <string>
#include <vector>

namespace tessera::models {

// The tag for torchvision's first weights of a size, for which timm has no name.
inline constexpr const char* kTorchvisionTag = "torchvision";

// The published weights of a size: `usual` is the tag of those that an untagged name means, "" if there are
// none; `others` have other preprocessing.
struct PublishedTags {
  std::string usual;
  std::vector<std::string> others;
};
PublishedTags published_tags(const std::string& size);

}  // namespace tessera::models
