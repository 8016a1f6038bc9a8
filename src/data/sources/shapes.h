// The built-in set that needs no files: one textured shape on a textured background.
//
// Shape and texture are drawn independently and uniformly, so that the set can ask for either (task = shape
// or texture) and later tell which of the two a model looks at. Position, size, rotation, colours,
// background, illumination, noise and an occluding bar or disc are random. A sample depends on (seed, split,
// index) alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

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
      "captions that tell colour and place");
    v("cues", cues,
      "any, or of 8 shapes and textures each: agree (texture i on shape i alone) or conflict (never so)");
  }
};

// How many shapes, and as many textures, there are where cues agree or conflict: a model that learned where they agree may go by
// either, and one image whose cues conflict tells by which.
inline constexpr int kCueClasses = 8;

// "shapes:train=20000,size=64"; an unknown key or a wrong value is a usage error.
ShapesConfig parse_shapes(const std::string& path);

// disc, ring, square, …; the index is the class.
const std::vector<std::string>& shape_names();
// plain, stripes, checks, …
const std::vector<std::string>& texture_names();
// Signed distance from (x, y) to the border of a shape that about fills the unit disc, negative inside.
float shape_distance(int shape, float x, float y);

struct ShapesLabel {
  int shape = 0, texture = 0;
};
ShapesLabel shapes_label(const ShapesConfig& config, Split split, int64_t index);

// What can be said of a sample in words: the colour that its object has most of ("red", "grey", …), and where it stands
// ("in the middle", "at the top left", "on the right", …).
struct ShapesWords {
  std::string shape, texture, colour, place;
};
ShapesWords shapes_words(const ShapesConfig& config, Split split, int64_t index);
// Four captions, the first of which says all of it: "a red star with stripes at the top left".
std::vector<std::string> shapes_captions(const ShapesWords& words);

// Questions with their answers that shapes_questions() gives, in this order, and the kinds of the answers.
inline constexpr std::array kShapesQuestions = {"caption", "colour", "place", "shape", "texture", "yes_no"};
// Question, answer. Whether the answer to the last kind is yes is drawn for each sample.
std::vector<std::string> shapes_question(const ShapesConfig& config, Split split, int64_t index,
                                         int64_t number);

// [size, size, 3]; edges are smooth over one pixel.
Image draw_shapes(const ShapesConfig& config, Split split, int64_t index);
// Its mask [size, size, 1]: 0 for the background and what hides the shape, else the shape's number plus 1. A pixel on an
// edge belongs to what covers more of it.
Image draw_shapes_mask(const ShapesConfig& config, Split split, int64_t index);

}  // namespace tessera::data
