// The definition.
#include <algorithm>

#include "kernels/roi_align/roi_align.h"

namespace tessera::kernels::reference {
namespace {

// Calls visit(bin row, bin column, sample of rows, sample of columns, share) for all samples of a box.
template <class Number, class Visit>
void each_sample(const RoiAlign<Number>& call, const Number* box, const Visit& visit) {
  const auto rows = roi_side(box[2], box[4], call.scale, call.aligned, call.sampling, call.out_height);
  const auto columns = roi_side(box[1], box[3], call.scale, call.aligned, call.sampling, call.out_width);
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(rows.count * columns.count, 1));
  for (int64_t p = 0; p < call.out_height; ++p)
    for (int64_t q = 0; q < call.out_width; ++q)
      for (int64_t i = 0; i < rows.count; ++i)
        for (int64_t j = 0; j < columns.count; ++j)
          visit(p, q, roi_sample(rows.at(p, i), call.height), roi_sample(columns.at(q, j), call.width),
                share);
}

// The four cells of a sample with their weights.
template <class Number, class Visit>
void each_cell(const RoiSample<Number>& y, const RoiSample<Number>& x, int64_t width, const Visit& visit) {
  const auto weigh = [&](Number a, Number b) { return static_cast<double>(a) * static_cast<double>(b); };
  visit(y.low * width + x.low, weigh(y.low_weight, x.low_weight));
  visit(y.low * width + x.high, weigh(y.low_weight, x.high_weight));
  visit(y.high * width + x.low, weigh(y.high_weight, x.low_weight));
  visit(y.high * width + x.high, weigh(y.high_weight, x.high_weight));
}

}  // namespace

template <class Number>
void roi_align(const RoiAlign<Number>& call, const Number* x, Number* y) {
  const int64_t cells = call.height * call.width, bins = call.out_height * call.out_width;
  std::fill_n(y, call.rois * call.channels * bins, Number{0});
  for (int64_t k = 0; k < call.rois; ++k) {
    const Number* box = call.boxes + 5 * k;
    for (int64_t c = 0; c < call.channels; ++c) {
      const Number* map = x + (static_cast<int64_t>(box[0]) * call.channels + c) * cells;
      Number* out = y + (k * call.channels + c) * bins;
      each_sample(call, box, [&](int64_t p, int64_t q, const auto& row, const auto& column, double share) {
        double value = 0;
        each_cell(row, column, call.width,
                  [&](int64_t cell, double weight) { value += weight * static_cast<double>(map[cell]); });
        out[p * call.out_width + q] += static_cast<Number>(share * value);
      });
    }
  }
}

template <class Number>
void roi_align_backward(const RoiAlign<Number>& call, const Number* gy, Number* gx) {
  const int64_t cells = call.height * call.width, bins = call.out_height * call.out_width;
  std::fill_n(gx, call.batch * call.channels * cells, Number{0});
  for (int64_t k = 0; k < call.rois; ++k) {
    const Number* box = call.boxes + 5 * k;
    for (int64_t c = 0; c < call.channels; ++c) {
      Number* map = gx + (static_cast<int64_t>(box[0]) * call.channels + c) * cells;
      const Number* g = gy + (k * call.channels + c) * bins;
      each_sample(call, box, [&](int64_t p, int64_t q, const auto& row, const auto& column, double share) {
        each_cell(row, column, call.width, [&](int64_t cell, double weight) {
          map[cell] += static_cast<Number>(share * weight * static_cast<double>(g[p * call.out_width + q]));
        });
      });
    }
  }
}

template void roi_align(const RoiAlign<float>&, const float*, float*);
template void roi_align(const RoiAlign<double>&, const double*, double*);
template void roi_align_backward(const RoiAlign<float>&, const float*, float*);
template void roi_align_backward(const RoiAlign<double>&, const double*, double*);

namespace {

// Never called: the table's reference entry is only a placeholder, and callers use the reference by name.
void no_forward(const RoiPiece&, const float*, float*) {}
void no_backward(const RoiPiece&, const float*, float*) {}

}  // namespace

extern const RoiAlignFunctions roi_align_functions;
const RoiAlignFunctions roi_align_functions = {1, no_forward, no_backward};

}  // namespace tessera::kernels::reference
