// Non-maximum suppression: of boxes that overlap by more than a threshold the best stays.
//
// Boxes (left, top, right, bottom) are taken by falling score, equal scores in their order; a box goes where one that
// stays has intersection over union > threshold with it. The area of a box is (right - left)(bottom - top), so 0/0 of
// two empty boxes is not a number and suppresses nothing. Quadratic in the boxes of a class.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

// Marks in `gone` which of the boxes [from, count) the box `by` suppresses. Lists are apart: left, top, right, bottom,
// area. Division, multiplication and sums are rounded one by one: the same bits with every instruction set.
struct NmsBoxes {
  const float *left, *top, *right, *bottom, *area;
};
struct NmsFunctions {
  void (*suppress)(const NmsBoxes& boxes, int64_t by, int64_t from, int64_t count, float threshold,
                   uint8_t* gone);
};

// `keep` (count) gets the numbers of the boxes that stay, best first; returns how many. Only boxes of one class
// suppress each other; `classes` may be null.
int64_t nms(const float* boxes, const float* scores, const int64_t* classes, int64_t count, double threshold,
            int64_t* keep);
int64_t nms(const double* boxes, const double* scores, const int64_t* classes, int64_t count,
            double threshold, int64_t* keep);

}  // namespace tessera::kernels
