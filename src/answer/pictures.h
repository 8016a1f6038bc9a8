// Answers about images at their own size, computed one by one: the class of each pixel, and the objects.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "answer/image_rows.h"
#include "tasks/dense/object_finder.h"
#include "tasks/dense/segment.h"

namespace tessera::answer {

// Returns the classes of a mask with their pixels and shares, the most frequent first.
nlohmann::ordered_json class_counts(const Image& mask, const std::vector<std::string>& classes);
// Returns objects as a list: {"class", "score", "box", "mask"}; a mask is in COCO's compressed run lengths.
nlohmann::ordered_json json_of(const std::vector<tasks::FoundObject>& objects,
                               const std::vector<std::string>& classes);

// Overrides the recipe's views by "0.75,1,1.25" and `flip`; scales without `flip` are not mirrored. Throws a usage
// error for a part that is not a number, or views that the task refuses.
void choose_views(tasks::SegmentInference& how, const std::string& scales, bool flip);
void choose_views(tasks::ObjectFinder& finder, const std::string& scales, bool flip);
// Returns the views of these options; none if they keep the recipe's.
std::vector<tasks::TestView> views_of(const std::string& scales, bool flip);
std::vector<double> parse_scales(const std::string& list);

struct SegmentOptions {
  std::string scales;
  bool whole = false, flip = false;
  int64_t tile = 0, stride = 0;

  template <class V>
  void visit(V& v) {
    v("tile", tile, between(1, 16384),
      "side of the windows in pixels; overlaps are blended, by default a quarter (default: from the weights' "
      "recipe)");
    v("stride", stride, between(1, 16384), "distance between windows in pixels");
    v("whole", whole, "the whole image at once, without windows");
    v("scales", scales, "average results at these factors of the image's size: 0.75,1,1.25");
    v("flip", flip, "also mirror each scale");
  }
};

// Masks of images by opened weights.
class Segmentation {
 public:
  // `who` needs the weights, for errors.
  Segmentation(const train::ReadyTask& model, const std::string& who);

  // Throws a usage error for options that do not go together.
  tasks::SegmentInference inference(const SegmentOptions& options) const;
  Image mask(const Image& picture, const tasks::SegmentInference& how) const;
  // Encodes a mask with a palette.
  std::vector<std::byte> png(const Image& mask) const;
  const std::vector<std::string>& classes() const { return segmenter_.mask_classes(); }

 private:
  const train::ReadyTask& model_;
  tasks::Segmenter& segmenter_;
  std::vector<std::array<uint8_t, 3>> palette_;
};

struct ObjectViews {
  std::string scales;
  int64_t tile = 0;
  bool flip = false;

  template <class V>
  void visit(V& v) {
    v("tile", tile, between(64, 16384), "large images: detect in overlapping tiles of this side in pixels");
    v("scales", scales,
      "merge results at these factors of the usual size: 0.75,1,1.25 (default: the recipe's)");
    v("flip", flip, "also mirror each scale");
  }
};

// Objects in images by opened weights, in certain views.
class ObjectSearch {
 public:
  // `who` needs the weights, for errors. Throws a usage error for views that the task refuses.
  ObjectSearch(const train::ReadyTask& model, const std::string& who, const ObjectViews& views);
  ~ObjectSearch();
  ObjectSearch(const ObjectSearch&) = delete;

  // Returns the objects of at least this score, best first; a negative score means the trained one.
  std::vector<tasks::FoundObject> find(const Image& image, double least) const;
  const std::vector<std::string>& classes() const { return finder_.object_classes(); }
  // Finds objects of these names from now on. Throws a usage error if the classes are fixed.
  void set_classes(const std::vector<std::string>& names) const { finder_.set_classes(names); }
  int64_t class_number(int64_t label) const { return finder_.class_number(label); }

 private:
  const train::ReadyTask& model_;
  tasks::ObjectFinder& finder_;
  std::vector<tasks::TestView> before_;
  int64_t tile_;
};

struct ObjectOptions : ObjectViews {
  double threshold = 0.5;
  template <class V>
  void visit(V& v) {
    v("threshold", threshold, between(0, 1), "objects below this score are left out");
    ObjectViews::visit(v);
  }
};

// Null unless the task has this ability.
std::shared_ptr<Answerer> open_segmenter(const AnswerSetup& setup);
std::shared_ptr<Answerer> open_finder(const AnswerSetup& setup);

}  // namespace tessera::answer
