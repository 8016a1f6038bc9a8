// Handlers of the networks of convolutions.
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_resnet(const Golden& golden);       // components/model_resnet*
CaseResult check_clip_resnet(const Golden& golden);  // components/model_clip_resnet
CaseResult check_convnext(const Golden& golden);     // components/model_convnext*

}  // namespace tessera::parity
