#include "report/grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/sources/annotated_source.h"
#include "data/transforms/mask_labels.h"
#include "data/transforms/transform.h"

namespace tessera::report {
namespace {

constexpr Colour kBlack = {0, 0, 0}, kWhite = {255, 255, 255};
constexpr int kMargin = 2;                        // dots around letters
constexpr int kRow = kGlyphHeight + 2 * kMargin;  // dots of a line of text

// The side of a dot of the font in pixels: letters have 7 pixels in small images, more in photographs.
int dot_of(int width, int height) { return std::clamp(std::min(width, height) / 240, 1, 16); }

void fill(Image& image, int left, int top, int right, int bottom, const Colour& colour) {
  for (int y = std::max(top, 0); y < std::min(bottom, image.height); ++y)
    for (int x = std::max(left, 0); x < std::min(right, image.width); ++x)
      std::copy(colour.begin(), colour.end(), image.row(y) + 3 * x);
}

// Returns black or white, by the luma of the background.
Colour ink_on(const Colour& colour) {
  return 299 * colour[0] + 587 * colour[1] + 114 * colour[2] > 128'000 ? kBlack : kWhite;
}

// Draws words on their colour above a box, or inside if there is no room. The whole label is inside the image if it
// fits.
void draw_label(Image& image, double left, double top, const std::string& words, const Colour& colour) {
  const int dot = dot_of(image.width, image.height);
  const std::string fitting = fitted_caption(words, image.width / dot - 2 * kMargin);
  const int width = words_width(fitting, dot) + 2 * kMargin * dot, height = kRow * dot;
  const int x = std::clamp(static_cast<int>(left), 0, std::max(0, image.width - width));
  const int above = static_cast<int>(top) - height;
  const int y = std::clamp(above >= 0 ? above : static_cast<int>(top), 0, std::max(0, image.height - height));
  fill(image, x, y, x + width, y + height, colour);
  draw_words(image, x + kMargin * dot, y + kMargin * dot, fitting, ink_on(colour), dot);
}

// Swatches with names, from left to right in lines under an image.
class NameLegend {
 public:
  NameLegend(int width, int height) : width_(width), dot_(dot_of(width, height)) {}

  void add(const std::string& name, const Colour& colour) {
    const int swatch = kRow * dot_;
    const std::string words = fitted_caption(name, (width_ - swatch) / dot_ - 2 * kMargin);
    const int needed = swatch + words_width(words, dot_) + 3 * kMargin * dot_;
    if (next_ > 0 && next_ + needed > width_) next_ = 0, ++line_;
    entries_.push_back({next_, line_ * swatch, words, colour});
    next_ += needed;
  }
  int height() const { return entries_.empty() ? 0 : (line_ + 1) * kRow * dot_; }
  // Draws into the last height() rows of an image.
  void draw(Image& image) const {
    const int begin = image.height - height(), margin = kMargin * dot_;
    fill(image, 0, begin, image.width, image.height, kWhite);
    for (const Entry& one : entries_) {
      const int top = begin + one.top, end = one.left + kRow * dot_;
      fill(image, one.left + margin, top + margin, end - margin, top + kRow * dot_ - margin, kBlack);
      fill(image, one.left + margin + 1, top + margin + 1, end - margin - 1, top + kRow * dot_ - margin - 1,
           one.colour);
      draw_words(image, end, top + margin, one.words, kBlack, dot_);
    }
  }

 private:
  struct Entry {
    int left, top;
    std::string words;
    Colour colour;
  };
  int width_, dot_, next_ = 0, line_ = 0;
  std::vector<Entry> entries_;
};

std::string name_of(const std::vector<std::string>& classes, int64_t label) {
  return label < std::ssize(classes) ? classes[static_cast<size_t>(label)] : text("class ", label);
}

}  // namespace

Image labelled_objects(const Image& image, const std::vector<data::DrawnObject>& objects,
                       const std::vector<double>& scores, const std::vector<std::string>& classes) {
  check(scores.size() == objects.size(), "labelled_objects: ", scores.size(), " scores for ", objects.size(),
        " objects");
  Image out = data::draw_objects(image, objects);
  NameLegend legend(image.width, image.height);
  std::set<int64_t> labels;
  for (size_t i = objects.size(); i-- > 0;) {  // the first object, of the best score, is drawn last
    const data::DrawnObject& o = objects[i];
    labels.insert(o.label);
    draw_label(out, o.left, o.top, text(name_of(classes, o.label), " ", fixed(100 * scores[i], 0), " %"),
               data::object_colour(o.label));
  }
  for (const int64_t label : labels) legend.add(name_of(classes, label), data::object_colour(label));
  out.height += legend.height();
  out.pixels.resize(static_cast<size_t>(out.height) * static_cast<size_t>(out.width) * 3);
  legend.draw(out);
  return out;
}

Image labelled_mask(const Image& image, const Image& mask, const std::vector<std::string>& classes) {
  std::array<bool, 256> found = {};
  for (const uint8_t value : mask.pixels) found[value] = true;
  NameLegend legend(image.width, image.height);
  for (int64_t c = 0; c < data::kIgnoredPixel; ++c)
    if (found[static_cast<size_t>(c)]) legend.add(name_of(classes, c), data::mask_colour(c));
  Image out = data::overlay_mask(image, mask, data::kOverlayShare, legend.height());
  legend.draw(out);
  return out;
}

}  // namespace tessera::report
