// RoIAlign for one instruction set. Per-ISA.
//
// Processes W channels at a time. The map of an image is laid out once with these channels contiguous, then
// every box reads it. A line of bins first sums its rows (if its columns are dense; else each bin reads its
// own cells), then the columns of each bin.
#include "kernels/roi_align/roi_align.h"

#include "kernels/rows.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

// (channels, cells) -> (cells, W), with zeros in missing lanes.
void pack(const float* x, int64_t cells, int64_t stride, int64_t lanes, float* to) {
  for (int64_t at = 0; at < cells; ++at)
    for (int64_t lane = 0; lane < W; ++lane) to[at * W + lane] = lane < lanes ? x[lane * stride + at] : 0;
}
void unpack(const float* from, int64_t cells, int64_t stride, int64_t lanes, float* y) {
  for (int64_t lane = 0; lane < lanes; ++lane)
    for (int64_t at = 0; at < cells; ++at) y[lane * stride + at] = from[at * W + lane];
}

int64_t entries(const RoiAxis& axis, int64_t bins) { return axis.start[bins] - axis.start[0]; }
// True if it is cheaper to sum whole rows first.
bool dense(const RoiPlan& plan, int64_t bins) {
  return entries(plan.columns, bins) >= plan.columns.last - plan.columns.first;
}

void forward_box(const RoiPiece& p, const RoiPlan& plan, float* bins) {
  const RoiAxis &rows = plan.rows, &columns = plan.columns;
  const bool whole_rows = dense(plan, p.out_width);
  for (int64_t i = 0; i < p.out_height; ++i) {
    const int32_t begin = rows.start[i], end = rows.start[i + 1];
    if (whole_rows)
      for (int64_t c = columns.first; c < columns.last; ++c) {
        vf sum = {};
        for (int32_t r = begin; r < end; ++r)
          sum += splat(rows.weight[r]) * load(p.plane + (rows.cell[r] * p.width + c) * W);
        store(p.line + c * W, sum);
      }
    for (int64_t j = 0; j < p.out_width; ++j) {
      vf sum = {};
      for (int32_t c = columns.start[j]; c < columns.start[j + 1]; ++c) {
        vf value = {};
        if (whole_rows)
          value = load(p.line + columns.cell[c] * W);
        else
          for (int32_t r = begin; r < end; ++r)
            value += splat(rows.weight[r]) * load(p.plane + (rows.cell[r] * p.width + columns.cell[c]) * W);
        sum += splat(columns.weight[c]) * value;
      }
      store(bins + (i * p.out_width + j) * W, sum * splat(plan.share));
    }
  }
}

void forward(const RoiPiece& p, const float* x, float* y) {
  const int64_t cells = p.height * p.width, bins = p.out_height * p.out_width;
  pack(x + p.channel * cells, cells, cells, p.lanes, p.plane);
  float* result = p.line + p.width * W;
  for (int64_t i = 0; i < p.plan_count; ++i) {
    forward_box(p, p.plans[i], result);
    unpack(result, bins, bins, p.lanes, y + (p.plans[i].roi * p.channels + p.channel) * bins);
  }
}

void backward_box(const RoiPiece& p, const RoiPlan& plan, const float* bins) {
  const RoiAxis &rows = plan.rows, &columns = plan.columns;
  if (columns.first >= columns.last) return;
  for (int64_t i = 0; i < p.out_height; ++i) {
    for (int64_t c = columns.first; c < columns.last; ++c) store(p.line + c * W, vf{});
    for (int64_t j = 0; j < p.out_width; ++j) {
      const vf g = load(bins + (i * p.out_width + j) * W) * splat(plan.share);
      for (int32_t c = columns.start[j]; c < columns.start[j + 1]; ++c) {
        float* to = p.line + columns.cell[c] * W;
        store(to, load(to) + splat(columns.weight[c]) * g);
      }
    }
    for (int32_t r = rows.start[i]; r < rows.start[i + 1]; ++r) {
      float* row = p.plane + rows.cell[r] * p.width * W;
      const vf weight = splat(rows.weight[r]);
      for (int64_t c = columns.first; c < columns.last; ++c)
        store(row + c * W, load(row + c * W) + weight * load(p.line + c * W));
    }
  }
}

void backward(const RoiPiece& p, const float* gy, float* gx) {
  const int64_t cells = p.height * p.width, bins = p.out_height * p.out_width;
  memset(p.plane, 0, (size_t)(cells * W) * sizeof(float));
  float* gradient = p.line + p.width * W;
  for (int64_t i = 0; i < p.plan_count; ++i) {
    pack(gy + (p.plans[i].roi * p.channels + p.channel) * bins, bins, bins, p.lanes, gradient);
    backward_box(p, p.plans[i], gradient);
  }
  unpack(p.plane, cells, cells, p.lanes, gx + p.channel * cells);
}

}  // namespace

extern const RoiAlignFunctions roi_align_functions;
const RoiAlignFunctions roi_align_functions = {W, forward, backward};

}  // namespace tessera::kernels::TESSERA_ISA
