// RoIAlign (He et al. 2017, "Mask R-CNN"): a box of a feature map as a grid of bins, each the mean of
// bilinear samples of the map.
//
//   y[k, c, p, q] = 1 / n  sum over the n = n_y n_x samples of bin (p, q) of bilinear(x[image(k), c], sample)
//   bilinear = sum over rows r, columns c of u_p[r] v_q[c] x[r, c]:  separable in rows and columns
//
// So a bin costs its rows times its columns once, for any number of samples. Boxes are in pixels of the
// image; `scale` converts them to the map. Aligned boxes are shifted by half a cell (detectron2, mmdet);
// others are at least one cell wide and high (torchvision). Samples more than one cell outside the map count
// 0.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

// Rows (or columns) of the map with their weights; bin p of the axis has entries [start[p], start[p + 1]).
struct RoiAxis {
  const int32_t* start = nullptr;  // [bins + 1]
  const int32_t* cell = nullptr;
  const float* weight = nullptr;
  int32_t first = 0, last = 0;  // the cells in use: [first, last)
};
struct RoiPlan {
  RoiAxis rows, columns;
  int64_t roi = 0;  // the box's number
  float share = 1;  // 1 / number of samples per bin
};

// One unit of work: all boxes of one image, for as many channels as a vector has lanes.
struct RoiPiece {
  const RoiPlan* plans = nullptr;
  int64_t plan_count = 0;
  int64_t height = 0, width = 0, out_height = 0, out_width = 0;
  int64_t channels = 0, channel = 0, lanes = 0;  // map channels; first of the piece, and their number
  float* plane = nullptr;                        // scratch: height * width vectors
  float* line = nullptr;                         // scratch: width + out_height * out_width vectors
};

struct RoiAlignFunctions {
  int64_t lanes;
  // `x` and `gx` (channels, height, width) belong to this image; y and gy are (rois, channels, out_height,
  // out_width). The gradient overwrites gx.
  void (*forward)(const RoiPiece& piece, const float* x, float* y);
  void (*backward)(const RoiPiece& piece, const float* gy, float* gx);
};

// Boxes (rois, 5): image number, left, top, right, bottom.
template <class Number>
struct RoiAlign {
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  int64_t rois = 0;
  const Number* boxes = nullptr;
  double scale = 1;
  bool aligned = true;
  int64_t sampling = 0;  // samples along a side of a bin; 0 or below: one per cell
  int64_t out_height = 7, out_width = 7;
};
// x (batch, channels, height, width), y (rois, channels, out_height, out_width). The bits do not depend on
// the number of threads. Double precision uses the reference.
void roi_align(const RoiAlign<float>& call, const float* x, float* y);
void roi_align(const RoiAlign<double>& call, const double* x, double* y);
void roi_align_backward(const RoiAlign<float>& call, const float* gy, float* gx);
void roi_align_backward(const RoiAlign<double>& call, const double* gy, double* gx);

// The definition: one sample at a time, sums in double.
namespace reference {
template <class Number>
void roi_align(const RoiAlign<Number>& call, const Number* x, Number* y);
template <class Number>
void roi_align_backward(const RoiAlign<Number>& call, const Number* gy, Number* gx);
}  // namespace reference

// One sample along an axis: two cells with their weights, 0 if it is too far outside. Shared by the
// definition and the plans.
template <class Number>
struct RoiSample {
  int32_t low = 0, high = 0;
  Number low_weight = 0, high_weight = 0;
};
template <class Number>
inline RoiSample<Number> roi_sample(Number position, int64_t size) {
  RoiSample<Number> s;
  if (!(position >= -1) || !(position <= (Number)size)) return s;
  if (position < 0) position = 0;
  s.low = (int32_t)position;
  if (s.low >= size - 1) {
    s.low = s.high = (int32_t)(size - 1);
    s.low_weight = 1;
    return s;
  }
  s.high = s.low + 1;
  s.high_weight = position - (Number)s.low;
  s.low_weight = 1 - s.high_weight;
  return s;
}
// A box along an axis: sample i of bin p is at start + p * bin + (i + 0.5) * bin / count.
template <class Number>
struct RoiSide {
  Number start, bin;
  int64_t count;
  Number at(int64_t p, int64_t i) const {
    return start + (Number)p * bin + ((Number)i + (Number)0.5) * bin / (Number)count;
  }
};
template <class Number>
inline RoiSide<Number> roi_side(Number from, Number to, double scale, bool aligned, int64_t sampling,
                                int64_t bins) {
  const Number shift = aligned ? (Number)0.5 : 0;
  RoiSide<Number> side;
  side.start = from * (Number)scale - shift;
  Number size = to * (Number)scale - shift - side.start;
  if (!aligned && size < 1) size = 1;
  side.bin = size / (Number)bins;
  const Number cells = size / (Number)bins;
  const int64_t whole = (int64_t)cells;
  side.count = sampling > 0 ? sampling : whole + ((Number)whole < cells ? 1 : 0);
  return side;
}

}  // namespace tessera::kernels
