// What the cases of components/aug_* share.
#pragma once

#include <string>

#include "data/base/draws_testing.h"
#include "io/images/image.h"
#include "tests/parity/case.h"

namespace tessera::parity {

// An array [height, width, 3] or [height, width] of bytes as a picture.
Image image_of(const TensorView& view);

// The picture equals the array of that name, every byte.
void expect_picture(Comparison& compare, const Golden& golden, const std::string& name, const Image& got);

// The draws that a case lists: ["random", value] or [kind, low, high, value] each.
data::ListedDraws recorded_draws(const nlohmann::json& draws);

}  // namespace tessera::parity
