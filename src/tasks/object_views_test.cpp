// Detectors evaluated on several views of an image.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "data/base/source.h"
#include "models/base/family.h"
#include "tasks/base/registry.h"
#include "tasks/dense/object_finder.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kViewedSide = 64;

std::unique_ptr<Task> detr_task() {
  TaskSetup setup;
  setup.settings = find_task("detr").resolve(models::table({{"embed_dim", 16},
                                                            {"num_heads", 2},
                                                            {"hidden", 32},
                                                            {"encoder_depth", 1},
                                                            {"decoder_depth", 1},
                                                            {"queries", 12}}));
  setup.model = models::resolve_model("vit", models::table({{"image_size", kViewedSide},
                                                            {"patch_size", 8},
                                                            {"dim", 16},
                                                            {"depth", 1},
                                                            {"heads", 2},
                                                            {"classes", 0}}));
  setup.preprocess.size = kViewedSide;
  setup.train = setup.validation =
      data::open_source({.path = "shapes:task=detect,size=64,train=8,val=8"}, data::Split::train);
  setup.sides = {kViewedSide};
  setup.seed = 3;
  auto task = find_task("detr").make(setup);
  move(task->parts(), torch::kCPU, torch::kFloat32);
  return task;
}

Image mirrored(const Image& image) {
  Image out = image;
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      for (int c = 0; c < 3; ++c) out.row(y)[3 * x + c] = image.row(y)[3 * (image.width - 1 - x) + c];
  return out;
}

using ScoredBox = std::array<double, 5>;  // left, top, right, bottom, score

std::vector<ScoredBox> boxes_of(const std::vector<FoundObject>& found, double width, bool mirror) {
  std::vector<ScoredBox> boxes;
  for (const FoundObject& o : found)
    boxes.push_back(mirror ? ScoredBox{width - o.right, o.top, width - o.left, o.bottom, o.score}
                           : ScoredBox{o.left, o.top, o.right, o.bottom, o.score});
  std::ranges::sort(boxes);
  return boxes;
}

// With a mirrored view added, an image and its mirror image have the same objects, mirrored.
TEST(ObjectViews, DetrFindsTheSameInAMirroredImage) {
  const auto task = detr_task();
  auto& finder = dynamic_cast<ObjectFinder&>(*task);
  finder.set_views({{1, false}, {1, true}, {0.5, false}, {0.5, true}});
  const auto source =
      data::open_source({.path = "shapes:task=detect,size=64,train=8,val=8"}, data::Split::train);
  for (int64_t i = 0; i < 3; ++i) {
    const Image image = data::decode_sample(source->read(i));
    const auto find = [&](const Image& of) { return finder.find(of, 0, torch::kCPU, Precision::fp32); };
    const auto plain = boxes_of(find(image), image.width, false),
               turned = boxes_of(find(mirrored(image)), image.width, true);
    ASSERT_GT(plain.size(), 0u);
    ASSERT_EQ(plain.size(), turned.size());
    for (size_t k = 0; k < plain.size(); ++k)
      for (size_t c = 0; c < 5; ++c) EXPECT_NEAR(plain[k][c], turned[k][c], 1e-4) << i << ", object " << k;
  }
}

// An object that two views find is kept once: no two of a class overlap by more than half.
TEST(ObjectViews, NoObjectOfDetrIsFoundTwice) {
  const auto task = detr_task();
  auto& finder = dynamic_cast<ObjectFinder&>(*task);
  finder.set_views({{1, false}, {1, true}});
  const auto source =
      data::open_source({.path = "shapes:task=detect,size=64,train=8,val=8"}, data::Split::train);
  const auto found = finder.find(data::decode_sample(source->read(0)), 0, torch::kCPU, Precision::fp32);
  ASSERT_GT(found.size(), 0u);
  const auto box = [](const FoundObject& o) {
    return RunBox{o.left, o.top, o.right - o.left, o.bottom - o.top};
  };
  for (size_t a = 0; a < found.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if (found[a].label == found[b].label) {
        EXPECT_LE(overlap_of(box(found[a]), box(found[b])), 0.5);
      }
}

}  // namespace
}  // namespace tessera::tasks
