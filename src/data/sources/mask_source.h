// The base of sources with masks.
#pragma once

#include <memory>

#include "data/base/source.h"
#include "data/transforms/mask_labels.h"

namespace tessera::data {

class MaskedSource : public Source, public MaskLabels {
 public:
  std::unique_ptr<Annotations> annotations() const override;
};

}  // namespace tessera::data
