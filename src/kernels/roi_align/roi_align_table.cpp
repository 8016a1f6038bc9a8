// The implementations; plans the boxes and divides images and channels among threads.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/roi_align/roi_align.h"
#include "kernels/table.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(RoiAlignFunctions, roi_align_functions);

namespace {

constexpr Table<RoiAlignFunctions> kTable{kImplementations, std::size(kImplementations)};

template <class Number>
void check_call(const RoiAlign<Number>& call, const void* x, const void* y) {
  check(call.batch >= 0 && call.channels >= 1 && call.height >= 1 && call.width >= 1 &&
            call.out_height >= 1 && call.out_width >= 1 && call.scale > 0,
        "roi_align: ", call.batch, " maps of ", call.channels, " x ", call.height, " x ", call.width, " to ",
        call.out_height, " x ", call.out_width, " bins");
  check(call.rois == 0 || (x && y && call.boxes), "roi_align: a tensor is missing");
  constexpr double kFarthest = 1e8;
  for (int64_t k = 0; k < call.rois; ++k) {
    const Number* box = call.boxes + 5 * k;
    check(box[0] >= 0 && box[0] < static_cast<Number>(call.batch), "roi_align: box ", k, " is of image ",
          box[0], ", the batch has ", call.batch);
    for (int i = 1; i < 5; ++i)
      check(std::abs(static_cast<double>(box[i])) * call.scale < kFarthest, "roi_align: box ", k,
            " has the coordinate ", box[i]);
  }
}

// The plans of all boxes of all images; all axes share one allocation.
class Plans {
 public:
  explicit Plans(const RoiAlign<float>& call) : images_(static_cast<size_t>(call.batch)) {
    struct Built {
      size_t start, entry;
      int32_t first, last;
    };
    std::vector<Built> built;
    for (int64_t k = 0; k < call.rois; ++k) {
      const float* box = call.boxes + 5 * k;
      const auto rows = roi_side(box[2], box[4], call.scale, call.aligned, call.sampling, call.out_height);
      const auto columns = roi_side(box[1], box[3], call.scale, call.aligned, call.sampling, call.out_width);
      for (const auto& [side, bins, size] :
           {std::tuple{rows, call.out_height, call.height}, {columns, call.out_width, call.width}}) {
        Built axis{starts_.size(), cells_.size(), 0, 0};
        add(side, bins, size, axis.first, axis.last);
        built.push_back(axis);
      }
      RoiPlan plan;
      plan.roi = k;
      plan.share = 1.0f / static_cast<float>(std::max<int64_t>(rows.count * columns.count, 1));
      images_[static_cast<size_t>(box[0])].push_back(plan);
    }
    for (auto& plans : images_)
      for (RoiPlan& plan : plans) {
        const auto axis = [&](int64_t which) {
          const Built& b = built[static_cast<size_t>(2 * plan.roi + which)];
          return RoiAxis{starts_.data() + b.start, cells_.data(), weights_.data(), b.first, b.last};
        };
        plan.rows = axis(0), plan.columns = axis(1);
      }
  }
  const std::vector<RoiPlan>& of(int64_t image) const { return images_[static_cast<size_t>(image)]; }

 private:
  void add(const RoiSide<float>& side, int64_t bins, int64_t size, int32_t& first, int32_t& last) {
    bool any = false;
    for (int64_t p = 0; p < bins; ++p) {
      starts_.push_back(static_cast<int32_t>(cells_.size()));
      const size_t begin = cells_.size();
      for (int64_t i = 0; i < side.count; ++i) {
        const RoiSample<float> s = roi_sample(side.at(p, i), size);
        if (s.low_weight != 0) put(begin, s.low, s.low_weight);
        if (s.high_weight != 0) put(begin, s.high, s.high_weight);
      }
      for (size_t e = begin; e < cells_.size(); ++e) {
        first = any ? std::min(first, cells_[e]) : cells_[e];
        last = any ? std::max(last, cells_[e] + 1) : cells_[e] + 1;
        any = true;
      }
    }
    starts_.push_back(static_cast<int32_t>(cells_.size()));
  }
  // Samples are in order, so a cell that is already listed is one of the last two of its bin.
  void put(size_t begin, int32_t cell, float weight) {
    for (size_t back = 1; back <= 2 && cells_.size() >= begin + back; ++back)
      if (const size_t e = cells_.size() - back; cells_[e] == cell) {
        weights_[e] += weight;
        return;
      }
    cells_.push_back(cell);
    weights_.push_back(weight);
  }

  std::vector<std::vector<RoiPlan>> images_;
  std::vector<int32_t> starts_, cells_;
  std::vector<float> weights_;
};

// Calls work(piece, image) for every image and group of channels.
template <class Work>
void each_piece(const RoiAlign<float>& call, const RoiAlignFunctions& functions, const Work& work) {
  const Plans plans(call);
  const int64_t groups = (call.channels + functions.lanes - 1) / functions.lanes;
  parallel_for(call.batch * groups, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> plane(static_cast<size_t>(call.height * call.width * functions.lanes));
    std::vector<float> line(
        static_cast<size_t>((call.width + call.out_height * call.out_width) * functions.lanes));
    for (int64_t number = begin; number < end; ++number) {
      const int64_t image = number / groups, channel = number % groups * functions.lanes;
      const std::vector<RoiPlan>& of_image = plans.of(image);
      const RoiPiece piece{of_image.data(),
                           std::ssize(of_image),
                           call.height,
                           call.width,
                           call.out_height,
                           call.out_width,
                           call.channels,
                           channel,
                           std::min(functions.lanes, call.channels - channel),
                           plane.data(),
                           line.data()};
      work(piece, image);
    }
  });
}

bool by_definition() { return active_isa() == Isa::reference; }

}  // namespace

void roi_align(const RoiAlign<float>& call, const float* x, float* y) {
  check_call(call, x, y);
  if (by_definition()) return reference::roi_align(call, x, y);
  const RoiAlignFunctions& functions = choose(kTable);
  const int64_t image_size = call.channels * call.height * call.width;
  each_piece(call, functions, [&](const RoiPiece& piece, int64_t image) {
    if (piece.plan_count > 0) functions.forward(piece, x + image * image_size, y);
  });
}

void roi_align_backward(const RoiAlign<float>& call, const float* gy, float* gx) {
  check_call(call, gy, gx);
  if (by_definition()) return reference::roi_align_backward(call, gy, gx);
  const RoiAlignFunctions& functions = choose(kTable);
  const int64_t image_size = call.channels * call.height * call.width;
  each_piece(call, functions, [&](const RoiPiece& piece, int64_t image) {
    functions.backward(piece, gy, gx + image * image_size);
  });
}

void roi_align(const RoiAlign<double>& call, const double* x, double* y) {
  check_call(call, x, y);
  reference::roi_align(call, x, y);
}

void roi_align_backward(const RoiAlign<double>& call, const double* gy, double* gx) {
  check_call(call, gy, gx);
  reference::roi_align_backward(call, gy, gx);
}

}  // namespace tessera::kernels
