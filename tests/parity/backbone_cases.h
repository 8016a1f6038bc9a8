// Handlers of parts of backbones: components/block_attention_pool, posenc_grid_rope.
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_attention_pool(const Golden& golden);  // block_cases.cpp
CaseResult check_grid_rotary(const Golden& golden);     // position_cases.cpp

}  // namespace tessera::parity
