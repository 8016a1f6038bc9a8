// Handlers of image generation: models/dit*, sit*, diffusion*, components/model_diffusion_*, loss_diffusion_weights,
// model_dit_diffusers_names.
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_denoiser(const Golden& golden);              // generation_cases.cpp: the networks
CaseResult check_diffusers_names(const Golden& golden);       // generation_cases.cpp
CaseResult check_interpolant_paths(const Golden& golden);     // interpolant_cases.cpp
CaseResult check_interpolant_losses(const Golden& golden);    // interpolant_cases.cpp
CaseResult check_interpolant_samplers(const Golden& golden);  // interpolant_cases.cpp
CaseResult check_diffusion_schedules(const Golden& golden);   // diffusion_cases.cpp
CaseResult check_diffusion_losses(const Golden& golden);      // diffusion_cases.cpp
CaseResult check_diffusion_sampling(const Golden& golden);    // diffusion_cases.cpp
CaseResult check_diffusers_samplers(const Golden& golden);    // diffusion_cases.cpp
CaseResult check_diffusion_weights(const Golden& golden);     // diffusion_cases.cpp

}  // namespace tessera::parity
