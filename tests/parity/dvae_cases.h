// Handlers of discrete autoencoders: components/model_vq_codebook, model_dalle_encoder.
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_vq_codebook(const Golden& golden);
CaseResult check_dalle_encoder(const Golden& golden);

}  // namespace tessera::parity
