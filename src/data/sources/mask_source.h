// The base of sources with masks.
#pragma once

#include <memory>
#include <string>

#include "data/base/source.h"
#include "data/transforms/mask_labels.h"

namespace tessera::data {

class MaskedSource : public Source, public MaskLabels {
 public:
  std::unique_ptr<Annotations> annotations() const override;
};

// Returns the mask as its image is shown, oriented by EXIF. A mask of the size as stored is oriented along with
// the image. Throws if it has neither size.
Image mask_as_shown(Image mask, const ImageInfo& image, const std::string& mask_name,
                    const std::string& image_name);

}  // namespace tessera::data
