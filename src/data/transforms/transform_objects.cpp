#include "data/transforms/transform_objects.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "data/base/draws.h"

namespace tessera::data {
namespace {

void check_geometry(const ObjectGeometry& g, int64_t side) {
  for (const int64_t shortest : g.shortest)
    if (shortest < 1 || shortest > side)
      fail_usage("a short side of ", shortest, " pixels does not fit images of ", side, ": must be 1 to ",
                 side);
  if (!g.jitter.empty() &&
      (g.jitter.size() != 2 || !(g.jitter[0] > 0 && g.jitter[0] <= g.jitter[1] && g.jitter[1] <= 16)))
    fail_usage("jitter must be two numbers, 0 < low <= high <= 16");
  if (!(g.flip >= 0 && g.flip <= 1)) fail_usage("flip is ", g.flip, ", must be 0 to 1");
}

Image mirrored(const Image& image) {
  Image out(image.width, image.height, image.channels);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      std::memcpy(out.row(y) + (image.width - 1 - x) * image.channels, image.row(y) + x * image.channels,
                  static_cast<size_t>(image.channels));
  return out;
}

class ObjectTransform final : public Transform {
 public:
  ObjectTransform(const Preprocess& preprocess, const ObjectGeometry& geometry,
                  std::shared_ptr<const Source> source)
      : geometry_((check_geometry(geometry, preprocess.size), geometry)),
        side_(preprocess.size),
        interpolation_(parse_interpolation(preprocess.interpolation)),
        normalisation_(preprocess.mean, preprocess.std),
        source_(std::move(source)),
        labels_(geometry.training && source_ ? &require_objects(*source_, "training a detector") : nullptr) {
    decode_.apply_exif = preprocess.apply_exif;
    fields_.push_back({"image", DType::f32, {3, side_, side_}});
    fields_.push_back({"extent", DType::i64, {4}});
    if (!geometry.training) return;
    fields_.push_back({"boxes", DType::f32, {geometry.most, 5}, true});
    if (geometry.masks) fields_.push_back({"masks", DType::u8, {geometry.most, side_, side_}, true});
  }
  const std::vector<Field>& fields() const override { return fields_; }

  void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> out) const override {
    StreamDraws draws(random);
    const Image image = decode_sample(sample, decode_);
    const ImageView view = geometry_.training ? drawn_view({image.height, image.width}, draws)
                                              : whole_view({image.height, image.width}, side_, geometry_);
    write_view(image, view, interpolation_, normalisation_, out[0].as<float>());
    auto* extent = out[1].as<int64_t>();
    extent[0] = view.shown_height(), extent[1] = view.shown_width(), extent[2] = image.height,
    extent[3] = image.width;
    if (geometry_.training)
      write_objects(sample.name, labels_->seen(labels_->index_of(sample.name), decode_).objects, view, out);
  }

 private:
  ImageView drawn_view(Extent image, Draws& draws) const {
    ImageView view = whole_view(image, side_, geometry_);
    view.mirrored = draws.fraction() < geometry_.flip;
    const auto side = static_cast<int>(side_);
    if (!geometry_.jitter.empty()) {
      view.resized_width = image.width, view.resized_height = image.height;
      resize_by_factor(view.resized_width, view.resized_height,
                       draws.uniform(geometry_.jitter[0], geometry_.jitter[1]), side, side);
      const double place = draws.fraction();
      view.left = crop_offset(view.resized_width, side, place);
      view.top = crop_offset(view.resized_height, side, place);
    } else if (geometry_.shortest.size() > 1) {
      const int64_t chosen = draws.integer(0, std::ssize(geometry_.shortest) - 1);
      view.resized_width = image.width, view.resized_height = image.height;
      resize_shortest_edge(view.resized_width, view.resized_height,
                           static_cast<int>(geometry_.shortest[static_cast<size_t>(chosen)]), longest());
    }
    return view;
  }
  int longest() const {
    return static_cast<int>(geometry_.longest > 0 ? std::min(geometry_.longest, side_) : side_);
  }

  void write_objects(const std::string& name, const std::vector<ObjectAnnotation>& objects,
                     const ImageView& view, std::span<const Slot> out) const {
    int64_t count = 0;
    for (const ObjectAnnotation& object : objects) {
      if (object.crowd) continue;
      Rectangle box;
      std::vector<uint8_t> mask;
      const bool outlined = !object.outline.empty();
      if (geometry_.masks && !outlined) continue;  // dropped as in detectron2; `data check` counts them
      if (const RunLengths& runs = object.outline.runs; object.outline.has_runs())
        check(runs.width == view.width && runs.height == view.height, name, ": the mask of annotation ",
              object.number, " has ", runs.width, "x", runs.height, " pixels, the image as it is read ",
              view.width, "x", view.height);
      if (outlined) {
        const Outline seen = outline_in_view(object.outline, view);
        box = box_of_outline(seen);
        if (geometry_.masks) mask = mask_of_runs(runs_of_outline(seen, side_, side_));
      } else {
        double left = view.x(object.box.left), right = view.x(object.box.right);
        if (left > right) std::swap(left, right);
        box = {left, view.y(object.box.top), right, view.y(object.box.bottom)};
      }
      const double width = view.shown_width(), height = view.shown_height();
      box = {std::clamp(box.left, 0.0, width), std::clamp(box.top, 0.0, height),
             std::clamp(box.right, 0.0, width), std::clamp(box.bottom, 0.0, height)};
      constexpr double kSmallest = 1e-5;
      if (box.right - box.left <= kSmallest || box.bottom - box.top <= kSmallest) continue;
      if (geometry_.masks && std::find(mask.begin(), mask.end(), 1) == mask.end()) continue;
      check(++count <= geometry_.most, name, ": has more than ", geometry_.most, " objects");
      const std::array values = {static_cast<float>(box.left), static_cast<float>(box.top),
                                 static_cast<float>(box.right), static_cast<float>(box.bottom),
                                 static_cast<float>(object.box.label)};
      append(*out[2].rows, values.data(), sizeof(values));
      if (geometry_.masks) append(*out[3].rows, mask.data(), mask.size());
    }
  }

  static void append(std::vector<std::byte>& rows, const void* from, size_t bytes) {
    const auto* first = static_cast<const std::byte*>(from);
    rows.insert(rows.end(), first, first + bytes);
  }

  ObjectGeometry geometry_;
  int64_t side_;
  Interpolation interpolation_;
  Normalisation normalisation_;
  DecodeOptions decode_;
  std::shared_ptr<const Source> source_;
  const ObjectLabels* labels_;
  std::vector<Field> fields_;
};

}  // namespace

ImageView whole_view(Extent image, int64_t side, const ObjectGeometry& geometry) {
  const auto out = static_cast<int>(side);
  ImageView view{.width = image.width,
                 .height = image.height,
                 .resized_width = image.width,
                 .resized_height = image.height,
                 .out_width = out,
                 .out_height = out};
  if (geometry.shortest.empty())
    resize_by_factor(view.resized_width, view.resized_height, 1, out, out);
  else
    resize_shortest_edge(view.resized_width, view.resized_height, static_cast<int>(geometry.shortest.back()),
                         geometry.longest > 0 ? std::min(static_cast<int>(geometry.longest), out) : out);
  return view;
}

void write_view(const Image& image, const ImageView& view, Interpolation interpolation,
                const Normalisation& normalisation, float* out) {
  const int width = view.shown_width(), height = view.shown_height();
  const Image part = resize(view.mirrored ? mirrored(image) : image,
                            {{0, 0, static_cast<double>(image.width), static_cast<double>(image.height)},
                             view.resized_width,
                             view.resized_height,
                             interpolation,
                             {view.left, view.top, width, height},
                             false});
  std::vector<float> planes(static_cast<size_t>(3 * width * height));
  normalise(part, normalisation, planes.data());
  const size_t cells = static_cast<size_t>(view.out_width) * static_cast<size_t>(view.out_height);
  std::fill_n(out, 3 * cells, 0.0f);
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < height; ++y)
      std::memcpy(
          out + static_cast<size_t>(c) * cells + static_cast<size_t>(y) * static_cast<size_t>(view.out_width),
          planes.data() + (static_cast<size_t>(c) * static_cast<size_t>(height) + static_cast<size_t>(y)) *
                              static_cast<size_t>(width),
          static_cast<size_t>(width) * sizeof(float));
}

std::shared_ptr<const Transform> make_object_transform(const Preprocess& preprocess,
                                                       const ObjectGeometry& geometry,
                                                       std::shared_ptr<const Source> source) {
  return std::make_shared<ObjectTransform>(preprocess, geometry, std::move(source));
}

}  // namespace tessera::data
