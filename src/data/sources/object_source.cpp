#include "data/sources/annotated_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "data/base/annotations.h"
#include "data/sources/coco_file.h"

namespace tessera::data {
namespace {

// Writes annotations/instances_SPLIT.json, with images/SPLIT-000.tar next to it, in COCO's layout.
class ObjectPacking final : public Packing {
 public:
  explicit ObjectPacking(const ObjectLabels& labels) : labels_(labels) {}
  std::string folder() const override { return "images"; }
  bool one_class_list() const override { return false; }
  std::vector<Member> members(const RawSample&, int64_t) const override { return {}; }
  void finish_split(const std::string& folder, const std::string& split,
                    const std::map<int64_t, std::string>& paths, std::vector<std::string>& files) override {
    CocoFile file;
    const auto& classes = labels_.object_classes();
    for (int64_t k = 0; k < std::ssize(classes); ++k)
      file.categories.push_back({labels_.class_number(k), classes[static_cast<size_t>(k)]});
    for (const auto& [index, path] : paths) {
      const Extent extent = labels_.image_extent(index);
      const int64_t image = labels_.image_number(index);
      file.images.push_back({.number = image, .height = extent.height, .width = extent.width, .file = path});
      for (const ObjectAnnotation& object : labels_.objects(index)) {
        const Instance& box = object.box;
        file.annotations.push_back({.number = std::ssize(file.annotations) + 1,
                                    .image = image,
                                    .category = labels_.class_number(box.label),
                                    .box = {box.left, box.top, box.right - box.left, box.bottom - box.top},
                                    .area = object.area,
                                    .crowd = object.crowd,
                                    .outline = object.outline});
      }
    }
    std::filesystem::create_directories(folder + "/annotations");
    const std::string name = "annotations/instances_" + split + ".json";
    write_coco(folder + "/" + name, file);
    files.push_back(name);
  }

 private:
  const ObjectLabels& labels_;
};

class ObjectAnnotations final : public Annotations {
 public:
  explicit ObjectAnnotations(const ObjectSource& source) : Annotations(source), labels_(source) {}

  std::vector<std::string> left_out() const override { return labels_.left_out(); }
  Classes classes() const override { return {labels_.object_classes(), object_counts(source_), "objects"}; }
  void require_same(const Source& train, const Source& validation) const override {
    Annotations::require_same(train, validation);
    require_same_objects(train, validation);
  }
  std::unique_ptr<Packing> packing() const override { return std::make_unique<ObjectPacking>(labels_); }

  // Counts the objects of each class.
  std::string caption_of(int64_t index, const RawSample&) const override {
    std::vector<int64_t> counts(labels_.object_classes().size());
    for (const ObjectAnnotation& object : labels_.objects(index))
      ++counts[static_cast<size_t>(object.box.label)];
    std::string caption;
    for (size_t k = 0; k < counts.size(); ++k)
      if (counts[k] > 0)
        caption += text(caption.empty() ? "" : ", ", counts[k], " ", labels_.object_classes()[k]);
    return caption;
  }
  Image drawn(int64_t index, const RawSample&, Image image) const override {
    const std::vector<ObjectAnnotation> objects = labels_.seen(index, {}).objects;
    std::vector<RunLengths> masks(objects.size());
    std::vector<DrawnObject> drawn;
    for (size_t i = 0; i < objects.size(); ++i) {
      const Outline& outline = objects[i].outline;
      const bool outlined = !outline.empty();
      if (outlined) masks[i] = runs_of_outline(outline, image.height, image.width);
      const Instance& box = objects[i].box;
      drawn.push_back({box.left, box.top, box.right, box.bottom, box.label, outlined ? &masks[i] : nullptr});
    }
    return draw_objects(image, drawn);
  }

 private:
  const ObjectLabels& labels_;
};

}  // namespace

std::unique_ptr<Annotations> ObjectSource::annotations() const {
  return std::make_unique<ObjectAnnotations>(*this);
}

// Okabe & Ito's colours; darker ones after the first eight.
std::array<uint8_t, 3> object_colour(int64_t label) {
  static constexpr std::array<std::array<uint8_t, 3>, 8> kColours = {{{230, 159, 0},
                                                                      {86, 180, 233},
                                                                      {0, 158, 115},
                                                                      {240, 228, 66},
                                                                      {0, 114, 178},
                                                                      {213, 94, 0},
                                                                      {204, 121, 167},
                                                                      {255, 255, 255}}};
  std::array<uint8_t, 3> colour = kColours[static_cast<size_t>(label % 8)];
  for (int64_t i = 0; i < label / 8 % 3; ++i)
    for (uint8_t& channel : colour) channel = static_cast<uint8_t>(channel * 2 / 3);
  return colour;
}

Image draw_objects(const Image& image, const std::vector<DrawnObject>& objects) {
  Image out = image;
  const int thick = std::max(1, std::min(image.width, image.height) / 200);
  const auto paint = [&](int x, int y, const std::array<uint8_t, 3>& colour, int share) {
    if (x < 0 || y < 0 || x >= out.width || y >= out.height) return;
    uint8_t* pixel = out.row(y) + 3 * x;
    for (int c = 0; c < 3; ++c)
      pixel[c] = static_cast<uint8_t>((pixel[c] * (4 - share) + colour[static_cast<size_t>(c)] * share) / 4);
  };
  for (const DrawnObject& o : objects) {
    const auto colour = object_colour(o.label);
    if (o.mask && o.mask->width == image.width && o.mask->height == image.height) {
      const std::vector<uint8_t> mask = mask_of_runs(*o.mask);
      for (int y = 0; y < out.height; ++y)
        for (int x = 0; x < out.width; ++x)
          if (mask[static_cast<size_t>(y) * static_cast<size_t>(out.width) + static_cast<size_t>(x)])
            paint(x, y, colour, 2);
    }
    const auto left = static_cast<int>(o.left), top = static_cast<int>(o.top),
               right = static_cast<int>(std::ceil(o.right)) - 1,
               bottom = static_cast<int>(std::ceil(o.bottom)) - 1;
    for (int t = 0; t < thick; ++t) {
      for (int x = left; x <= right; ++x) paint(x, top + t, colour, 4), paint(x, bottom - t, colour, 4);
      for (int y = top; y <= bottom; ++y) paint(left + t, y, colour, 4), paint(right - t, y, colour, 4);
    }
  }
  return out;
}

}  // namespace tessera::data
