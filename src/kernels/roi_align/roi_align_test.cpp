// Compares every implementation with the definition, at odd boxes and sizes around a vector.
#include "kernels/roi_align/roi_align.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "kernels/isa.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

struct Problem {
  Problem(int64_t channels, int64_t height, int64_t width, bool aligned, int64_t sampling, int64_t out)
      : call{2, channels, height, width, 12, nullptr, 0.25, aligned, sampling, out, out + 1} {
    RandomStream stream(7, "boxes");
    const double w = 4.0 * static_cast<double>(width), h = 4.0 * static_cast<double>(height);
    for (int64_t k = 0; k < call.rois; ++k) {
      boxes.push_back(static_cast<float>(k % 3 == 1));
      for (const double side : {w, h, w, h})
        boxes.push_back(static_cast<float>(stream.uniform(-0.3, 1.3) * side));
    }
    // The whole image, a point, a sliver and one outside.
    const float special[] = {0,
                             0,
                             0,
                             static_cast<float>(w),
                             static_cast<float>(h),
                             1,
                             5,
                             5,
                             5,
                             5,
                             0,
                             3,
                             1,
                             3.5f,
                             static_cast<float>(h),
                             1,
                             -90,
                             -90,
                             -70,
                             -60};
    std::copy(std::begin(special), std::end(special), boxes.begin());
    call.boxes = boxes.data();
    x = testing::normal(2 * channels * height * width, 1);
    g = testing::normal(call.rois * channels * out * (out + 1), 2);
  }
  std::vector<double> run(Isa isa) {
    force_isa(isa);
    std::vector<float> y(g.size(), 1e30f), gx(x.size(), 1e30f);
    roi_align(call, x.data(), y.data());
    roi_align_backward(call, g.data(), gx.data());
    std::vector<double> all(y.begin(), y.end());
    all.insert(all.end(), gx.begin(), gx.end());
    return all;
  }
  std::vector<float> boxes, x, g;
  RoiAlign<float> call;
};

TEST(RoiAlign, IsTheDefinition) {
  const Isa before = active_isa();
  for (const int64_t channels : {1, 16, 19})
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {5, 9}, {12, 7}})
      for (const bool aligned : {true, false})
        for (const int64_t sampling : {0, 2})
          for (const int64_t out : {1, 4}) {
            Problem problem(channels, height, width, aligned, sampling, out);
            const std::vector<double> want = problem.run(Isa::reference);
            // Sums of some dozens of floats.
            const double tolerance = 1e-5 * (1 + testing::largest(want));
            for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
              if (isa <= machine().best)
                testing::expect_within(
                    problem.run(isa), want, tolerance,
                    text(name_of(isa), " ", channels, " channels of ", height, " x ", width, " aligned ",
                         aligned, " sampling ", sampling, " out ", out),
                    1);
          }
  force_isa(before);
}

TEST(RoiAlign, ThreadsChangeNothing) {
  Problem problem(40, 20, 30, true, 0, 7);
  const Isa before = active_isa();
  const int threads = num_threads();
  const std::vector<double> shared = problem.run(before);
  set_num_threads(1);
  EXPECT_EQ(problem.run(before), shared);
  set_num_threads(threads);
}

TEST(RoiAlign, AConstantMapStaysConstant) {
  Problem problem(3, 8, 8, true, 0, 3);
  std::fill(problem.x.begin(), problem.x.end(), 2.5f);
  const float inside[] = {0, 4, 4, 20, 24};
  problem.call.rois = 1, problem.call.boxes = inside;
  std::vector<float> y(3 * 3 * 4);
  roi_align(problem.call, problem.x.data(), y.data());
  for (const float value : y) EXPECT_NEAR(value, 2.5f, 1e-6);
}

TEST(RoiAlign, RefusesWhatIsNoBox) {
  Problem problem(1, 2, 2, true, 0, 2);
  std::vector<float> y(problem.g.size());
  problem.boxes[0] = 2;
  EXPECT_THROW(roi_align(problem.call, problem.x.data(), y.data()), Error);
  problem.boxes[0] = 0, problem.boxes[3] = NAN;
  EXPECT_THROW(roi_align(problem.call, problem.x.data(), y.data()), Error);
}

}  // namespace
}  // namespace tessera::kernels
