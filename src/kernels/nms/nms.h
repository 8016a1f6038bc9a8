// Non-maximum suppression: among boxes that overlap by more than a threshold, only the best is kept.
//
// Boxes (left, top, right, bottom) are visited by falling score, equal scores in their order. A box is
// dropped if its intersection over union with a kept box is > threshold. The area of a box is (right -
// left)(bottom - top), so 0/0 of two empty boxes is NaN and suppresses nothing. Quadratic in the boxes of a
// class.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

// Sets `gone` for the boxes of [from, count) that box `by` suppresses. Coordinates are in separate lists:
// left, top, right, bottom, area. Each operation is rounded separately, so every instruction set gives the
// same bits.
struct NmsBoxes {
  const float *left, *top, *right, *bottom, *area;
};
struct NmsFunctions {
  void (*suppress)(const NmsBoxes& boxes, int64_t by, int64_t from, int64_t count, float threshold,
                   uint8_t* gone);
};

// Writes the numbers of the kept boxes to `keep` (count), best first; returns their number. Only boxes of one
// class suppress each other; `classes` may be null.
int64_t nms(const float* boxes, const float* scores, const int64_t* classes, int64_t count, double threshold,
            int64_t* keep);
int64_t nms(const double* boxes, const double* scores, const int64_t* classes, int64_t count,
            double threshold, int64_t* keep);

}  // namespace tessera::kernels
