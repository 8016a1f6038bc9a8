// The base of sources with objects.
#pragma once

#include <memory>

#include "data/base/objects.h"
#include "data/base/source.h"

namespace tessera::data {

class ObjectSource : public Source, public ObjectLabels {
 public:
  std::unique_ptr<Annotations> annotations() const override;
};

}  // namespace tessera::data
