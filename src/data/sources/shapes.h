// The built-in set without files: one textured shape on a textured background.
//
// Shape and texture are drawn independently and uniformly. So the class can be either (task = shape or
// texture), and tests can determine which of the two a model uses. Position, size, rotation, colours,
// background, illumination, noise and an occluding bar or disc are random. A sample depends only on (seed,
// split, index).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/value.h"
#include "data/base/source.h"
#include "io/images/image.h"

namespace tessera::data {

struct ShapesConfig {
  int64_t train = 20000, val = 2000;
  int64_t size = 32;
  int64_t seed = 0;
  std::string task = "shape";
  std::string cues = "any";
  template <class V>
  void visit(V& v) {
    v("train", train, "training images");
    v("val", val, "validation images");
    v("size", size, "side in pixels, 32 or 64");
    v("seed", seed, "another seed is another set");
    v("task", task,
      "shape or texture: which of the two is the class; segment: the shape of every pixel; text: shape, and "
      "captions with colour and place");
    v("cues", cues,
      "any, or of 8 shapes and textures each: agree (texture i on shape i alone) or conflict (never so)");
  }
};

// The number of shapes, and of textures, if cues agree or conflict. A model trained on agreeing cues may use
// either one; images with conflicting cues reveal which.
inline constexpr int kCueClasses = 8;

// Returns the settings after the colon of "shapes:train=20000,size=64". Throws a usage error for a part without a value.
Value shapes_settings(const std::string& path);
// Throws a usage error if a number of samples is out of range.
void check_shapes_counts(int64_t train, int64_t val);

// Parses "shapes:train=20000,size=64"; an unknown key or a wrong value is a usage error.
ShapesConfig parse_shapes(const std::string& path);

// Returns disc, ring, square, …; the index is the class.
const std::vector<std::string>& shape_names();
// Returns plain, stripes, checks, ….
const std::vector<std::string>& texture_names();
// Returns the signed distance from (x, y) to the border of a shape of about the size of the unit disc;
// negative inside.
float shape_distance(int shape, float x, float y);

struct ShapesLabel {
  int shape = 0, texture = 0;
};
ShapesLabel shapes_label(const ShapesConfig& config, Split split, int64_t index);

// A description of a sample in words: `colour` is the main colour of its object ("red", "grey", …), `place`
// its position ("in the middle", "at the top left", "on the right", …).
struct ShapesWords {
  std::string shape, texture, colour, place;
};
ShapesWords shapes_words(const ShapesConfig& config, Split split, int64_t index);
// Returns four captions. The first is the most detailed: "a red star with stripes at the top left".
std::vector<std::string> shapes_captions(const ShapesWords& words);

// The questions of shapes_question(), in this order, and the kinds of their answers.
inline constexpr std::array kShapesQuestions = {"caption", "colour", "place", "shape", "texture", "yes_no"};
// Returns question and answer. For the last kind, the answer (yes or no) is drawn for each sample.
std::vector<std::string> shapes_question(const ShapesConfig& config, Split split, int64_t index,
                                         int64_t number);

// Draws an image [size, size, 3] with antialiased edges of one pixel.
Image draw_shapes(const ShapesConfig& config, Split split, int64_t index);
// Draws its mask [size, size, 1]: 0 for the background and the occluder, else the shape's index plus 1. An
// edge pixel belongs to the class that covers more of it.
Image draw_shapes_mask(const ShapesConfig& config, Split split, int64_t index);

}  // namespace tessera::data
