#include "models/base/model.h"

#include <array>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "models/base/family.h"

namespace tessera::models {
namespace {

enum class Images { usual, whole, imagenet };  // the size's usual; no crop; ImageNet's mean and std

struct Tag {
  const char* size;  // prefix of the names of the sizes
  const char* tag;
  Images images = Images::usual;
};

// The tags of timm's configurations.
constexpr std::array kTags = {
    Tag{"vit_", "augreg_in21k_ft_in1k"},
    Tag{"vit_", "augreg2_in21k_ft_in1k"},
    Tag{"vit_", "augreg_in1k"},
    Tag{"vit_", "augreg_in21k"},
    Tag{"vit_", "orig_in21k"},
    Tag{"vit_", "orig_in21k_ft_in1k"},
    Tag{"vit_", "sam_in1k"},
    Tag{"vit_", "dino", Images::imagenet},
    Tag{"vit_", "mae", Images::imagenet},
    Tag{"deit_", "fb_in1k"},
    Tag{"deit3_", "fb_in1k"},
    Tag{"deit3_", "fb_in22k_ft_in1k", Images::whole},
    Tag{"swin_", "ms_in1k"},
    Tag{"swin_", "ms_in22k"},
    Tag{"swin_", "ms_in22k_ft_in1k"},
    Tag{"twins_svt_", "in1k"},
};

}  // namespace

PublishedName split_published_name(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? PublishedName{name, ""}
                                  : PublishedName{name.substr(0, dot), name.substr(dot + 1)};
}

Value tag_preprocess(const PublishedName& name) {
  if (name.tag.empty()) return {};
  std::vector<std::string> known;
  for (const Tag& tag : kTags) {
    if (!name.size.starts_with(tag.size)) continue;
    known.emplace_back(tag.tag);
    if (name.tag != tag.tag) continue;
    if (tag.images == Images::whole) return table({{"crop", 1.0}});
    if (tag.images == Images::imagenet)
      return table({{"mean", Value::Array{0.485, 0.456, 0.406}}, {"std", Value::Array{0.229, 0.224, 0.225}}});
    return {};
  }
  fail_usage(
      "'", name.size, "' has no weights '", name.tag, "'",
      known.empty() ? text(": its weights have no tags") : text(", must be one of ", join(known, ", ")));
}

}  // namespace tessera::models
