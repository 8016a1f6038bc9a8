// Semantic segmentation: the class of every pixel (Long et al. 2015), by UperNet or a linear head on any backbone.
//
//   maps = neck(backbone.features(image, blocks));  scores = head(maps), resized to the image
//   loss = sum over pixels of -w log softmax(scores)_label / divisor + auxiliary_weight * the same of a second head
// The divisor is the number of pixels (`all`, mmseg's rule), or of labelled ones (`labelled`); with class
// weights, the sum of the pixels' weights. Batch norms of the heads use the samples of all processes.
//
// Evaluated by the intersection over union of each class over all pixels of the set, mean over classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/transforms/transform_masks.h"
#include "eval/segmentation.h"
#include "tasks/base/registry.h"
#include "tasks/base/task.h"
#include "tasks/dense/segment_inference.h"

namespace tessera::tasks {

enum class SegmentHeadKind { uper, fcn, linear };
enum class NeckKind { automatic, none, feature2pyramid, multilevel };
enum class PixelDivisor { labelled, all };
enum class TestMode { slide, whole };

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::SegmentHeadKind> {
  static constexpr std::array names = {"uper", "fcn", "linear"};
};
template <>
struct tessera::EnumNames<tessera::tasks::NeckKind> {
  static constexpr std::array names = {"auto", "none", "feature2pyramid", "multilevel"};
};
template <>
struct tessera::EnumNames<tessera::tasks::PixelDivisor> {
  static constexpr std::array names = {"labelled", "all"};
};
template <>
struct tessera::EnumNames<tessera::tasks::TestMode> {
  static constexpr std::array names = {"slide", "whole"};
};

namespace tessera::tasks {

struct SegmentConfig {
  SegmentHeadKind head = SegmentHeadKind::uper;
  int64_t channels = 512, classes = 150;
  std::vector<int64_t> pool_sides = {1, 2, 3, 6};
  double dropout = 0.1;
  std::vector<int64_t> blocks;
  NeckKind neck = NeckKind::automatic;
  std::vector<double> factors = {4, 2, 1, 0.5};
  int64_t neck_channels = 0;
  double auxiliary_weight = 0.4;
  int64_t auxiliary_channels = 256, auxiliary_index = 2, auxiliary_convolutions = 1;
  PixelDivisor divisor = PixelDivisor::labelled;
  std::vector<double> class_weights;
  int64_t hard_pixels = 0;
  double hard_threshold = 0.7;
  bool sync_batch_norm = true;
  std::vector<int64_t> scale = {2048, 512};
  std::vector<double> ratio = {0.5, 2.0};
  double most_of_one_class = 0.75;
  bool photometric = true;
  double jitter_probability = 1;
  TestMode test_mode = TestMode::slide;
  int64_t test_crop = 0, test_stride = 0;
  std::vector<int64_t> test_scale;
  std::vector<double> test_scales = {1.0};
  bool test_flip = false;

  template <class V>
  void visit(V& v) {
    v("head", head, choice<SegmentHeadKind>(), "UperNet, convolutions on one map, or a linear layer on it");
    v("channels", channels, between(1, 16384), "width of the head");
    v("classes", classes, between(1, 255), "classes of the masks, if the data do not define them");
    v("pool_sides", pool_sides, between(1, 64), "uper: sides of the pooled grids");
    v("dropout", dropout, from_to_below(0, 1), "share of the head's channels that are dropped");
    v("blocks", blocks, at_least(0),
      "blocks or stages that give maps, counted from 0; empty = all stages, or every fourth of the "
      "blocks");
    v("neck", neck, choice<NeckKind>(), "makes maps of several sizes for a plain backbone");
    v("factors", factors, above(0), "scale of each map's grid, with a neck: 4, 2, 1, 0.5 or 0.25");
    v("neck_channels", neck_channels, between(0, 16384), "multilevel: width of its maps, 0 = the backbone's");
    v("auxiliary_weight", auxiliary_weight, at_least(0), "weight of the second head's loss, 0 = none");
    v("auxiliary_channels", auxiliary_channels, between(1, 16384), "its width");
    v("auxiliary_index", auxiliary_index, at_least(0), "the map that it reads, counted from 0");
    v("auxiliary_convolutions", auxiliary_convolutions, between(1, 16), "its convolutions");
    v("divisor", divisor, choice<PixelDivisor>(),
      "divisor of the loss: pixels with a class, or all of them (mmseg)");
    v("class_weights", class_weights, above(0), "a factor on the loss of each class; empty = 1");
    v("hard_pixels", hard_pixels, at_least(0),
      "only the hardest pixels learn, at least this number an image; 0 = all of them");
    v("hard_threshold", hard_threshold, above_to(0, 1), "hard: a probability of at most that");
    v("sync_batch_norm", sync_batch_norm, "batch norms of the heads use all processes");
    v("scale", scale, between(1, 16384), "size that an image is fitted into before cropping");
    v("ratio", ratio, above_to(0, 16), "factors on it, drawn between these two");
    v("most_of_one_class", most_of_one_class, above_to(0, 1),
      "share of a crop that one class may fill, 1 = any");
    v("photometric", photometric, "photometric distortion of the training images");
    v("jitter_probability", jitter_probability, between(0, 1),
      "share of images that get augment.color_jitter");
    v("test_mode", test_mode, choice<TestMode>(), "windows over the image, or the image as a whole");
    v("test_crop", test_crop, between(0, 16384), "side of a window, 0 = preprocess.size");
    v("test_stride", test_stride, between(0, 16384), "pixels between windows, 0 = two thirds of the side");
    v("test_scale", test_scale, between(1, 16384), "size that an image is fitted into; empty = as scale");
    v("test_scales", test_scales, above_to(0, 16), "factors on it; the probabilities are averaged");
    v("test_flip", test_flip, "each of them mirrored too");
  }
  void check() const;
};

// Implemented by tasks that classify pixels.
class Segmenter {
 public:
  static constexpr const char* kAbility = "weights of task segment";
  virtual ~Segmenter() = default;
  virtual const std::vector<std::string>& mask_classes() const = 0;
  // Set by the recipe or by set_inference(); evaluation uses it too.
  virtual SegmentInference inference() const = 0;
  virtual void set_inference(const SegmentInference& how) = 0;
  // Returns the class of each pixel, one channel. Call without gradients, with the parts in evaluation mode.
  // Throws if the model's output is not finite.
  virtual Image segment(const Image& picture, const SegmentInference& how) = 0;
};

TaskKind segment_kind();

// The report of a mask evaluation: a table of classes, the confusion of pixels, images with their masks.

// A predicted validation image to show.
struct SegmentedSample {
  int64_t index = 0;  // into the source
  double right = 0;   // share of correct labelled pixels
  Image predicted = {};
};

report::TableBlock class_table(const eval::SegmentationScores& scores, const std::vector<std::string>& names);
// Returns a line that names the classes without a labelled pixel; "" if each has one.
std::string classes_without_pixels(const eval::SegmentationScores& scores,
                                   const std::vector<std::string>& names);
report::ConfusionBlock pixel_confusion(const eval::SegmentationMeter& meter,
                                       const std::vector<std::string>& names);
// Each image with its prediction and truth as overlays; the worst last, the colour legend first.
report::PicturesBlock segmented_pictures(const std::vector<SegmentedSample>& samples,
                                         const data::Source& source, const std::vector<std::string>& names);

}  // namespace tessera::tasks
