// Every implementation keeps the same boxes as the definition, to the last box.
#include "kernels/nms/nms.h"

#include <gtest/gtest.h>

#include "core/threads.h"
#include "kernels/isa.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

struct Boxes {
  explicit Boxes(int64_t count) : scores(testing::uniform(count, 5, 0, 1)) {
    RandomStream stream(3, "nms test");
    for (int64_t i = 0; i < count; ++i) {
      const double x = stream.uniform(0, 100), y = stream.uniform(0, 100);
      for (const double value : {x, y, x + stream.uniform(-2, 60), y + stream.uniform(0, 60)})
        boxes.push_back(static_cast<float>(value));
      classes.push_back(stream.integer(0, 3));
      if (i % 7 == 0) scores[static_cast<size_t>(i)] = 0.5f;
    }
  }
  std::vector<int64_t> kept(Isa isa, bool by_class, double threshold) {
    force_isa(isa);
    std::vector<int64_t> keep(scores.size());
    keep.resize(static_cast<size_t>(nms(boxes.data(), scores.data(), by_class ? classes.data() : nullptr,
                                        std::ssize(scores), threshold, keep.data())));
    return keep;
  }
  std::vector<float> boxes, scores;
  std::vector<int64_t> classes;
};

TEST(Nms, IsTheDefinition) {
  const Isa before = active_isa();
  for (const int64_t count : {0, 1, 15, 16, 17, 33, 200})
    for (const bool by_class : {false, true})
      for (const double threshold : {0.0, 0.3, 0.5, 1.0}) {
        Boxes boxes(count);
        const auto want = boxes.kept(Isa::reference, by_class, threshold);
        for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
          if (isa <= machine().best) {
            EXPECT_EQ(boxes.kept(isa, by_class, threshold), want) << name_of(isa);
          }
        if (threshold == 1) {
          EXPECT_EQ(std::ssize(want), count);
        }
      }
  force_isa(before);
}

TEST(Nms, TheBestOfTwoStays) {
  const float boxes[] = {0, 0, 10, 10, 1, 0, 11, 10, 0, 0, 20, 10}, scores[] = {0.3f, 0.9f, 0.1f};
  int64_t keep[3];
  ASSERT_EQ(nms(boxes, scores, nullptr, 3, 0.5, keep), 2);  // at an IoU of exactly 0.5 both stay
  EXPECT_EQ(keep[0], 1);
  EXPECT_EQ(keep[1], 2);
  const int64_t classes[] = {0, 1, 0};
  EXPECT_EQ(nms(boxes, scores, classes, 3, 0.5, keep), 3);
}

}  // namespace
}  // namespace tessera::kernels
