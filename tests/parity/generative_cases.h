// Handlers of what measures generated images, and of the auto-encoder of latents.
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_generative_metrics(const Golden& golden);  // components/metric_generative*
CaseResult check_reference_files(const Golden& golden);     // components/metric_reference_files*
CaseResult check_inception(const Golden& golden);           // components/model_inception_fid*
CaseResult check_autoencoder(const Golden& golden);         // components/model_autoencoder_kl*

}  // namespace tessera::parity
