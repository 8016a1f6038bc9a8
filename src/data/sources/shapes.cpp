#include "data/sources/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/config.h"
#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "core/value.h"

namespace tessera::data {
namespace {

struct Point {
  float x, y;
};
using Colour = std::array<float, 3>;  // 0 … 1

constexpr float kTurn = 2 * static_cast<float>(M_PI);

float length(Point p) { return std::sqrt(p.x * p.x + p.y * p.y); }
Point rotated(Point p, float cosine, float sine) {
  return {cosine * p.x + sine * p.y, cosine * p.y - sine * p.x};
}

// --- Shapes: signed distance to the border (negative inside), for a shape of about the unit disc's size ---

float disc(Point p, Point centre, float radius) { return length({p.x - centre.x, p.y - centre.y}) - radius; }

// Exact inside and along the sides, a lower bound off the corners: sufficient for antialiased borders of one
// pixel.
float box(Point p, Point centre, float half_width, float half_height) {
  return std::max(std::abs(p.x - centre.x) - half_width, std::abs(p.y - centre.y) - half_height);
}

float triangle(Point p) {
  constexpr float kSide = 0.8660254f;  // sin 60°
  return std::max({-p.y, kSide * p.x + 0.5f * p.y, -kSide * p.x + 0.5f * p.y}) - 0.5f;
}

// A star with five points: by symmetry, any point of the plane maps to half a ray, where the border is one
// line from tip to notch.
float star(Point p) {
  constexpr float kSector = kTurn / 5, kTip = 1.0f, kNotch = 0.42f;
  float angle = std::fmod(std::atan2(p.x, p.y) + kTurn, kSector);
  angle = std::min(angle, kSector - angle);
  const float radius = length(p);
  const Point q = {radius * std::sin(angle), radius * std::cos(angle)};
  const Point notch = {kNotch * std::sin(kSector / 2), kNotch * std::cos(kSector / 2)};
  const Point along = {notch.x, notch.y - kTip};
  return (along.x * (kTip - q.y) + along.y * q.x) / -length(along);
}

// Two triangles that touch at their tips.
float hourglass(Point p) {
  constexpr float kWaist = 0.12f, kSlope = 0.75f, kScale = 0.8f;  // kScale = 1 / sqrt(1 + kSlope²)
  return std::max(kScale * (std::abs(p.x) - kWaist - kSlope * std::abs(p.y)), std::abs(p.y) - 0.8f);
}

float shape_distance(int shape, Point p) {
  switch (shape) {
    case 0:
      return disc(p, {0, 0}, 0.85f);
    case 1:
      return std::abs(length(p) - 0.66f) - 0.24f;
    case 2:
      return box(p, {0, 0}, 0.72f, 0.72f);
    case 3:
      return triangle({p.x, p.y + 0.15f});
    case 4:
      return star(p);
    case 5:
      return std::min(box(p, {0, 0}, 0.95f, 0.27f), box(p, {0, 0}, 0.27f, 0.95f));
    case 6:
      return std::max(disc(p, {-0.1f, 0}, 0.95f), -disc(p, {0.35f, 0}, 0.75f));
    case 7:
      return hourglass(p);
    case 8:
      return box(p, {0, 0}, 0.98f, 0.28f);
    default:
      return std::min(box(p, {-0.5f, 0.05f}, 0.27f, 0.9f), box(p, {0.1f, -0.6f}, 0.87f, 0.27f));
  }
}

// --- Textures: 0 … 1 at a position in periods of the pattern ---

// A sine sharpened towards a square wave, still smooth when sampled at 4 or more pixels per period.
float wave(float t) { return std::clamp(0.5f + 1.2f * std::sin(kTurn * t), 0.0f, 1.0f); }

float lattice(int x, int y, uint32_t key) {
  uint32_t h = key ^ (static_cast<uint32_t>(x) * 0x9E3779B1u) ^ (static_cast<uint32_t>(y) * 0x85EBCA77u);
  h = (h ^ (h >> 15)) * 0x2C1B3C6Du;
  h = (h ^ (h >> 12)) * 0x297A2D39u;
  return static_cast<float>((h ^ (h >> 15)) >> 8) * 0x1p-24f;
}

// Random values at grid corners, smoothly interpolated.
float blotches(Point p, uint32_t key) {
  const float fx = std::floor(p.x), fy = std::floor(p.y);
  const int x = static_cast<int>(fx), y = static_cast<int>(fy);
  const float u = p.x - fx, v = p.y - fy;
  const float top = std::lerp(lattice(x, y, key), lattice(x + 1, y, key), u);
  const float bottom = std::lerp(lattice(x, y + 1, key), lattice(x + 1, y + 1, key), u);
  return std::clamp(0.5f + 3.5f * (std::lerp(top, bottom, v) - 0.5f), 0.0f, 1.0f);
}

float to_cell_centre(float t) { return t - std::floor(t) - 0.5f; }

float texture_value(int texture, Point p, uint32_t key) {
  switch (texture) {
    case 0:
      return 0;
    case 1:
      return wave(p.x);
    case 2:
      return std::clamp(0.5f + 1.8f * std::sin(kTurn / 2 * p.x) * std::sin(kTurn / 2 * p.y), 0.0f, 1.0f);
    case 3:
      return std::clamp((0.33f - length({to_cell_centre(p.x), to_cell_centre(p.y)})) * 5, 0.0f, 1.0f);
    case 4: {
      const float nearest = std::min(std::abs(to_cell_centre(p.x)), std::abs(to_cell_centre(p.y)));
      return std::clamp((0.16f - nearest) * 6, 0.0f, 1.0f);
    }
    case 5:
      return wave(p.x + 0.45f * std::sin(kTurn / 2.5f * p.y));
    case 6:
      return wave(length(p));
    default:
      return blotches({2.2f * p.x, 2.2f * p.y}, key);
  }
}

// A texture in two colours, with a position; each pixel is a mix of both.
struct Pattern {
  int texture;
  Colour first, second;
  Point origin;
  float cosine, sine, period;
  uint32_t key;

  void paint(Point pixel, Colour& out) const {
    Point p = rotated({pixel.x - origin.x, pixel.y - origin.y}, cosine, sine);
    const float mix = texture_value(texture, {p.x / period, p.y / period}, key);
    for (size_t c = 0; c < 3; ++c) out[c] = first[c] + mix * (second[c] - first[c]);
  }
};

// --- A sample ---

struct Occluder {
  bool present = false, is_bar = false;
  Point centre{};
  float cosine = 1, sine = 0, half_width = 0;
  Colour colour{};

  float distance(Point pixel) const {
    const Point p = {pixel.x - centre.x, pixel.y - centre.y};
    return (is_bar ? std::abs(rotated(p, cosine, sine).x) : length(p)) - half_width;
  }
};

struct Scene {
  ShapesLabel label;
  Point centre;
  float radius, cosine, sine;
  Pattern object, background;
  Occluder occluder;
  Point slope;  // illumination: relative brightness per pixel
  float noise;  // standard deviation per channel

  // The fractions of a pixel covered by the shape, and hidden by the occluder.
  float shape_cover(Point pixel) const {
    const Point p = rotated({pixel.x - centre.x, pixel.y - centre.y}, cosine, sine);
    return std::clamp(0.5f - radius * shape_distance(label.shape, {p.x / radius, p.y / radius}), 0.0f, 1.0f);
  }
  float hidden(Point pixel) const {
    return occluder.present ? std::clamp(0.5f - occluder.distance(pixel), 0.0f, 1.0f) : 0.0f;
  }
};

float uniform(RandomStream& random, double low, double high) {
  return static_cast<float>(random.uniform(low, high));
}

Colour random_colour(RandomStream& random) {
  Colour colour;
  for (float& c : colour) c = uniform(random, 0.05, 0.95);
  return colour;
}

float colour_distance(const Colour& a, const Colour& b) {
  float sum = 0;
  for (size_t c = 0; c < 3; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return std::sqrt(sum);
}

// Returns a colour at least `distance` from all `others`, or the farthest of 32.
Colour contrasting_colour(RandomStream& random, std::initializer_list<Colour> others, float distance) {
  Colour best{};
  float best_distance = -1;
  for (int attempt = 0; attempt < 32 && best_distance < distance; ++attempt) {
    const Colour colour = random_colour(random);
    float nearest = 2;
    for (const Colour& other : others) nearest = std::min(nearest, colour_distance(colour, other));
    if (nearest > best_distance) best = colour, best_distance = nearest;
  }
  return best;
}

Pattern random_pattern(RandomStream& random, int texture, const Colour& first, const Colour& second,
                       Point near, float period) {
  const float angle = uniform(random, 0, kTurn);
  const Point origin = {near.x + uniform(random, -1, 1) * period, near.y + uniform(random, -1, 1) * period};
  return {texture, first, second, origin, std::cos(angle), std::sin(angle), period, random.next_u32()};
}

Occluder random_occluder(RandomStream& random, Point centre, float radius, float size) {
  Occluder occluder;
  occluder.present = random.chance(0.25);
  if (!occluder.present) return occluder;
  occluder.is_bar = random.chance(0.5);
  const float angle = uniform(random, 0, kTurn), away = radius * uniform(random, 0.3, 1.0);
  occluder.centre = {centre.x + away * std::cos(angle), centre.y + away * std::sin(angle)};
  occluder.cosine = std::cos(angle);
  occluder.sine = std::sin(angle);
  occluder.half_width = size * (occluder.is_bar ? uniform(random, 0.02, 0.05) : uniform(random, 0.06, 0.11));
  occluder.colour = random_colour(random);
  return occluder;
}

RandomStream stream_of(const ShapesConfig& config, Split split, int64_t index, uint64_t part) {
  return {static_cast<uint64_t>(config.seed), split == Split::train ? "shapes train" : "shapes validation",
          static_cast<uint64_t>(index), part};
}

ShapesLabel draw_label(RandomStream& random, const std::string& cues) {
  ShapesLabel label;
  if (cues != "any") {
    label.shape = static_cast<int>(random.below(kCueClasses));
    const auto apart = 1 + static_cast<int>(random.below(kCueClasses - 1));
    label.texture = cues == "agree" ? label.shape : (label.shape + apart) % kCueClasses;
    return label;
  }
  label.shape = static_cast<int>(random.below(shape_names().size()));
  label.texture = static_cast<int>(random.below(texture_names().size()));
  return label;
}

Scene draw_scene(RandomStream& random, float size, const std::string& cues) {
  Scene scene{};
  scene.label = draw_label(random, cues);
  scene.radius = size * uniform(random, 0.34, 0.44);
  const float margin = 0.92f * scene.radius;
  scene.centre = {uniform(random, margin, size - margin), uniform(random, margin, size - margin)};
  const float angle = uniform(random, 0, kTurn);
  scene.cosine = std::cos(angle);
  scene.sine = std::sin(angle);

  const Colour behind = random_colour(random);
  Colour behind_too = behind;
  for (float& c : behind_too) c = std::clamp(c + uniform(random, -0.12, 0.12), 0.0f, 1.0f);
  const Colour first = contrasting_colour(random, {behind, behind_too}, 0.65f);
  const Colour second = contrasting_colour(random, {behind, behind_too, first}, 0.4f);
  const auto any_texture = static_cast<int>(random.below(texture_names().size()));
  scene.object = random_pattern(random, scene.label.texture, first, second, scene.centre,
                                size * uniform(random, 0.14, 0.22));
  scene.background = random_pattern(random, any_texture, behind, behind_too, {size / 2, size / 2},
                                    size * uniform(random, 0.14, 0.4));
  scene.occluder = random_occluder(random, scene.centre, scene.radius, size);
  scene.slope = {uniform(random, -0.25, 0.25) / size, uniform(random, -0.25, 0.25) / size};
  scene.noise = uniform(random, 0, 0.03);
  return scene;
}

// Sums the bytes of one word to mean 0 and variance 1: close to a normal number, and much cheaper.
float noise_of_word(uint32_t w) {
  const auto sum = static_cast<float>((w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24));
  return (sum - 510.0f) * (1.0f / 147.8f);  // four bytes: mean 4 * 127.5, variance 4 * (256² - 1) / 12
}

}  // namespace

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> names = {"disc",  "ring",     "square",    "triangle", "star",
                                                 "cross", "crescent", "hourglass", "bar",      "corner"};
  return names;
}

const std::vector<std::string>& texture_names() {
  static const std::vector<std::string> names = {"plain", "stripes", "checks", "dots",
                                                 "grid",  "waves",   "rings",  "blotches"};
  return names;
}

float shape_distance(int shape, float x, float y) { return shape_distance(shape, Point{x, y}); }

Value shapes_settings(const std::string& path) {
  const size_t colon = path.find(':');
  Value table;
  if (colon == std::string::npos || colon + 1 == path.size()) return table;
  for (const std::string& part : split(std::string_view(path).substr(colon + 1), ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) fail_usage(path, ": '", part, "' must read key=value");
    table.set(trim(std::string_view(part).substr(0, equals)),
              parse_toml_value(trim(std::string_view(part).substr(equals + 1))));
  }
  return table;
}

void check_shapes_counts(int64_t train, int64_t val) {
  constexpr int64_t kMost = 1'000'000'000;
  if (train < 1 || train > kMost) fail_usage("shapes.train is ", train, ", must be 1 to ", kMost);
  if (val < 1 || val > kMost) fail_usage("shapes.val is ", val, ", must be 1 to ", kMost);
}

ShapesConfig parse_shapes(const std::string& path) {
  const auto config = read_config<ShapesConfig>(shapes_settings(path), "shapes");
  check_shapes_counts(config.train, config.val);
  if (config.size != 32 && config.size != 64)
    fail_usage("shapes.size is ", config.size, ", must be 32 or 64");
  if (config.task != "shape" && config.task != "texture" && config.task != "segment" && config.task != "text")
    fail_usage("shapes.task is '", config.task, "', must be shape, texture, segment or text");
  if (config.cues != "any" && config.cues != "agree" && config.cues != "conflict")
    fail_usage("shapes.cues is '", config.cues, "', must be any, agree or conflict");
  return config;
}

ShapesLabel shapes_label(const ShapesConfig& config, Split split, int64_t index) {
  RandomStream random = stream_of(config, split, index, 0);
  return draw_label(random, config.cues);
}

namespace {

struct NamedColour {
  const char* name;
  Colour colour;
};
constexpr NamedColour kColours[] = {
    {"black", {0.08f, 0.08f, 0.08f}},  {"grey", {0.5f, 0.5f, 0.5f}},     {"white", {0.93f, 0.93f, 0.93f}},
    {"red", {0.85f, 0.12f, 0.12f}},    {"orange", {0.93f, 0.55f, 0.1f}}, {"yellow", {0.9f, 0.88f, 0.15f}},
    {"green", {0.2f, 0.7f, 0.2f}},     {"cyan", {0.15f, 0.8f, 0.8f}},    {"blue", {0.15f, 0.2f, 0.85f}},
    {"purple", {0.55f, 0.15f, 0.75f}}, {"pink", {0.92f, 0.5f, 0.75f}},   {"brown", {0.45f, 0.27f, 0.1f}}};

std::string place_of(Point centre, float size) {
  // The object is large, so its centre must be near the image's.
  const auto side = [&](float at, const char* before, const char* behind) {
    return at < 0.45f * size ? before : at > 0.55f * size ? behind : "";
  };
  const std::string row = side(centre.y, "top", "bottom"), column = side(centre.x, "left", "right");
  if (row.empty()) return column.empty() ? "in the middle" : "on the " + column;
  return "at the " + row + (column.empty() ? "" : " ") + column;
}

}  // namespace

ShapesWords shapes_words(const ShapesConfig& config, Split split, int64_t index) {
  RandomStream random = stream_of(config, split, index, 0);
  const auto size = static_cast<float>(config.size);
  const Scene scene = draw_scene(random, size, config.cues);
  const NamedColour* nearest = kColours;
  for (const NamedColour& one : kColours)
    if (colour_distance(scene.object.first, one.colour) <
        colour_distance(scene.object.first, nearest->colour))
      nearest = &one;
  return {shape_names()[static_cast<size_t>(scene.label.shape)],
          texture_names()[static_cast<size_t>(scene.label.texture)], nearest->name,
          place_of(scene.centre, size)};
}

std::vector<std::string> shapes_captions(const ShapesWords& words) {
  const auto& [shape, texture, colour, place] = words;
  const std::string with = texture == "plain" ? "" : " with " + texture;
  return {"a " + colour + " " + shape + with + " " + place, "a " + shape + " " + place + ", " + colour + with,
          "a " + colour + " " + shape, place + " stands a " + shape + with};
}

std::vector<std::string> shapes_question(const ShapesConfig& config, Split split, int64_t index,
                                         int64_t number) {
  const ShapesWords words = shapes_words(config, split, index);
  switch (number) {
    case 0:
      return {"What does the picture show?", shapes_captions(words)[0]};
    case 1:
      return {"What colour is the " + words.shape + "?", words.colour};
    case 2:
      return {"Where is the " + words.shape + "?", words.place};
    case 3:
      return {"What shape is it?", words.shape};
    case 4:
      return {"What texture does the " + words.shape + " have?", words.texture};
    default:
      break;
  }
  RandomStream random = stream_of(config, split, index, 2);
  const auto shapes = static_cast<uint64_t>(shape_names().size());
  const auto own = static_cast<uint64_t>(shapes_label(config, split, index).shape);
  const bool yes = random.chance(0.5);
  const uint64_t asked = yes ? own : (own + 1 + random.below(shapes - 1)) % shapes;
  return {"Is it a " + shape_names()[asked] + "?", yes ? "yes" : "no"};
}

Image draw_shapes(const ShapesConfig& config, Split split, int64_t index) {
  RandomStream random = stream_of(config, split, index, 0), grain = stream_of(config, split, index, 1);
  const auto side = static_cast<int>(config.size);
  const Scene scene = draw_scene(random, static_cast<float>(side), config.cues);
  Image image(side, side);
  for (int y = 0; y < side; ++y) {
    uint8_t* out = image.row(y);
    for (int x = 0; x < side; ++x, out += 3) {
      const Point pixel = {static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f};
      const float cover = scene.shape_cover(pixel);
      Colour colour{}, over{};
      if (cover < 1) scene.background.paint(pixel, colour);
      if (cover > 0) scene.object.paint(pixel, over);
      for (size_t c = 0; c < 3; ++c) colour[c] += cover * (over[c] - colour[c]);
      if (scene.occluder.present) {
        const float hidden = scene.hidden(pixel);
        for (size_t c = 0; c < 3; ++c) colour[c] += hidden * (scene.occluder.colour[c] - colour[c]);
      }
      const float half = static_cast<float>(side) / 2;
      const float light = 1 + scene.slope.x * (pixel.x - half) + scene.slope.y * (pixel.y - half);
      for (size_t c = 0; c < 3; ++c) {
        const float value = colour[c] * light + scene.noise * noise_of_word(grain.next_u32());
        out[c] = static_cast<uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255.0f + 0.5f);
      }
    }
  }
  return image;
}

Image draw_shapes_mask(const ShapesConfig& config, Split split, int64_t index) {
  RandomStream random = stream_of(config, split, index, 0);
  const auto side = static_cast<int>(config.size);
  const Scene scene = draw_scene(random, static_cast<float>(side), config.cues);
  Image mask(side, side, 1);
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x) {
      const Point pixel = {static_cast<float>(x) + 0.5f, static_cast<float>(y) + 0.5f};
      const bool seen = scene.shape_cover(pixel) >= 0.5f && scene.hidden(pixel) < 0.5f;
      mask.row(y)[x] = seen ? static_cast<uint8_t>(scene.label.shape + 1) : uint8_t{0};
    }
  return mask;
}

}  // namespace tessera::data
