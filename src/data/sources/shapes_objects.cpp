#include "data/sources/shapes_objects.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/config.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/source_kinds.h"
#include "data/sources/annotated_source.h"
#include "data/sources/shapes.h"

namespace tessera::data {
namespace {

using Colour = std::array<double, 3>;

struct Shape {
  int kind = 0;
  double x = 0, y = 0, radius = 0, cosine = 1, sine = 0;
  Colour first{}, second{};
  double stripes = 0;  // period in pixels; 0 = plain

  // Returns the signed distance to the border in pixels, negative inside.
  double distance(double px, double py) const {
    const double dx = (px - x) / radius, dy = (py - y) / radius;
    return radius * static_cast<double>(shape_distance(kind, static_cast<float>(cosine * dx + sine * dy),
                                                       static_cast<float>(cosine * dy - sine * dx)));
  }
};

Colour random_colour(RandomStream& random) {
  Colour c;
  for (double& value : c) value = random.uniform(0.05, 0.95);
  return c;
}

// Returns a colour different from the background's, so that a shape is visible.
Colour colour_apart(RandomStream& random, const Colour& from) {
  Colour best = random_colour(random);
  double most = 0;
  for (int i = 0; i < 8; ++i) {
    const Colour c = random_colour(random);
    double apart = 0;
    for (size_t k = 0; k < 3; ++k) apart += std::abs(c[k] - from[k]);
    if (apart > most) most = apart, best = c;
  }
  return best;
}

std::vector<Shape> draw_scene(RandomStream& random, double size, const Colour& behind) {
  std::vector<Shape> shapes;
  const int64_t count = random.integer(2, 6);
  for (int64_t i = 0; i < count; ++i) {
    Shape s;
    s.kind = static_cast<int>(random.below(shape_names().size()));
    s.radius = size * random.uniform(0.08, 0.24);
    s.x = random.uniform(0.6 * s.radius, size - 0.6 * s.radius);
    s.y = random.uniform(0.6 * s.radius, size - 0.6 * s.radius);
    const double angle = random.uniform(0, 2 * M_PI);
    s.cosine = std::cos(angle), s.sine = std::sin(angle);
    s.first = colour_apart(random, behind);
    s.second = random.chance(0.5) ? colour_apart(random, behind) : s.first;
    s.stripes = random.chance(0.5) ? s.radius * random.uniform(0.3, 0.7) : 0;
    shapes.push_back(s);
  }
  return shapes;
}

// The pixels of each shape: those that show it, and the number of all.
struct Cover {
  std::vector<std::vector<uint8_t>> masks;
  std::vector<int64_t> whole;
};

// Returns the colour of a point with all shapes painted over `colour`, and counts its pixel for them.
Colour colour_at(const std::vector<Shape>& shapes, double px, double py, Colour colour, size_t pixel,
                 Cover& cover) {
  size_t on_top = shapes.size();
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Shape& s = shapes[i];
    const double distance = s.distance(px, py);
    const double share = std::clamp(0.5 - distance, 0.0, 1.0);
    if (share <= 0) continue;
    const double along = s.cosine * (px - s.x) + s.sine * (py - s.y);
    const bool second = s.stripes > 0 && std::fmod(std::abs(along) / s.stripes, 2.0) > 1;
    for (size_t c = 0; c < 3; ++c) colour[c] += share * ((second ? s.second : s.first)[c] - colour[c]);
    if (distance < 0) on_top = i, ++cover.whole[i];
  }
  if (on_top < shapes.size()) cover.masks[on_top][pixel] = 1;
  return colour;
}

// Adds the shapes that show at least 16 pixels, and a quarter of theirs.
void add_visible(const std::vector<Shape>& shapes, const Cover& cover, int side,
                 std::vector<ObjectAnnotation>& objects) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    const RunLengths runs = runs_of_mask(cover.masks[i], side, side);
    const int64_t seen = area_of(runs);
    if (seen < 16 || 4 * seen < cover.whole[i]) continue;
    const RunBox box = bounds_of(runs);
    objects.push_back({.box = {box.left, box.top, box.left + box.width, box.top + box.height, shapes[i].kind},
                       .area = static_cast<double>(seen),
                       .outline = {.runs = runs},
                       .number = static_cast<int64_t>(i) + 1});
  }
}

RandomStream stream_of(const ShapesObjectsConfig& config, Split split, int64_t index, uint64_t part) {
  return {static_cast<uint64_t>(config.seed),
          split == Split::train ? "shapes objects train" : "shapes objects validation",
          static_cast<uint64_t>(index), part};
}

std::string name_of(Split split, int64_t index) {
  return text(split == Split::train ? "shapes train" : "shapes validation", " sample ", index);
}

// Samples are rendered when they are read. objects() returns a thread-local list that is valid until its next
// call.
class ShapesObjectsSource final : public ObjectSource {
 public:
  ShapesObjectsSource(const ShapesObjectsConfig& config, Split split) : config_(config), split_(split) {}

  int64_t size() const override { return split_ == Split::train ? config_.train : config_.val; }
  RawSample read(int64_t index) const override {
    ShapesObjects drawn = draw_shapes_objects(config_, split_, index);
    RawSample sample{name_of(split_, index), std::move(drawn.image)};
    for (const ObjectAnnotation& object : drawn.objects) sample.annotation.instances.push_back(object.box);
    return sample;
  }
  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add("shapes objects 1");  // increase the number if the drawing changes
    print.add(split_ == Split::train ? "train" : "validation");
    for (const int64_t number : {size(), config_.size, config_.seed}) print.add(number);
    return print.value();
  }
  std::string describe() const override {
    return text(split_ == Split::train ? "shapes train" : "shapes validation", ", ", counted(size(), "image"),
                " of ", config_.size, "x", config_.size, ", objects of ", shape_names().size(),
                " classes with masks");
  }
  const std::vector<std::string>& object_classes() const override { return shape_names(); }
  bool has_outlines() const override { return true; }
  const std::vector<ObjectAnnotation>& objects(int64_t index) const override {
    static thread_local std::vector<ObjectAnnotation> last;
    last = draw_shapes_objects(config_, split_, index).objects;
    return last;
  }
  int64_t index_of(const std::string& name) const override {
    const auto index = parse_int(name.substr(name.rfind(' ') + 1));
    check(index && name == name_of(split_, *index), name, ": is no sample of the built-in set");
    return *index;
  }
  Extent image_extent(int64_t) const override {
    return {static_cast<int>(config_.size), static_cast<int>(config_.size)};
  }

 private:
  ShapesObjectsConfig config_;
  Split split_;
};

}  // namespace

ShapesObjectsConfig parse_shapes_objects(const std::string& path) {
  const auto config = read_config<ShapesObjectsConfig>(shapes_settings(path), "shapes");
  check_shapes_counts(config.train, config.val);
  if (config.size < 64 || config.size > 1024)
    fail_usage("shapes.size is ", config.size, ", must be 64 to 1024");
  return config;
}

ShapesObjects draw_shapes_objects(const ShapesObjectsConfig& config, Split split, int64_t index) {
  RandomStream random = stream_of(config, split, index, 0), grain = stream_of(config, split, index, 1);
  const auto side = static_cast<int>(config.size);
  const auto size = static_cast<double>(side);
  const Colour behind = random_colour(random);
  const std::array<double, 2> slope{random.uniform(-0.3, 0.3) / size, random.uniform(-0.3, 0.3) / size};
  const double noise = random.uniform(0, 0.06);
  const std::vector<Shape> shapes = draw_scene(random, size, behind);
  ShapesObjects out{Image(side, side), {}};
  Cover cover{std::vector<std::vector<uint8_t>>(shapes.size(),
                                                std::vector<uint8_t>(static_cast<size_t>(side * side))),
              std::vector<int64_t>(shapes.size())};
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x) {
      const double px = x + 0.5, py = y + 0.5;
      const Colour colour = colour_at(shapes, px, py, behind, static_cast<size_t>(y * side + x), cover);
      const double light = 1 + slope[0] * (px - size / 2) + slope[1] * (py - size / 2);
      for (size_t c = 0; c < 3; ++c) {
        const double value = colour[c] * light + noise * (grain.uniform() - 0.5);
        out.image.row(y)[3 * x + static_cast<int>(c)] =
            static_cast<uint8_t>(std::clamp(value, 0.0, 1.0) * 255 + 0.5);
      }
    }
  add_visible(shapes, cover, side, out.objects);
  return out;
}

bool is_shapes_objects_path(const std::string& path) {
  return path.starts_with("shapes:") && path.find("task=detect") != std::string::npos;
}

std::unique_ptr<Source> open_shapes_objects(const SourceConfig& config, Split split) {
  return std::make_unique<ShapesObjectsSource>(parse_shapes_objects(path_of(config, split)), split);
}

}  // namespace tessera::data
