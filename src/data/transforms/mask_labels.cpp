#include "data/transforms/mask_labels.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/class_names.h"
#include "data/base/info.h"
#include "data/transforms/transform.h"

namespace tessera::data {
namespace {

// Eight colours that are distinct for all kinds of colour vision; the next eight are darker, then lighter.
constexpr std::array<std::array<uint8_t, 3>, 8> kColours = {{{86, 180, 233},
                                                             {213, 94, 0},
                                                             {240, 228, 66},
                                                             {120, 120, 120},
                                                             {204, 121, 167},
                                                             {0, 158, 115},
                                                             {230, 159, 0},
                                                             {0, 114, 178}}};

}  // namespace

const MaskLabels* mask_labels(const Source& source) { return dynamic_cast<const MaskLabels*>(&source); }

const MaskLabels& require_masks(const Source& source, std::string_view who) {
  const MaskLabels* masks = mask_labels(source);
  if (masks) return *masks;
  const ClassLabels* labels = source.class_labels();
  const auto holds = [&](const char* folder) {
    return labels && std::ranges::find(labels->class_names(), folder) != labels->class_names().end();
  };
  // A folder that lacks images or masks was opened as a folder of classes.
  if (holds("images") || holds("annotations"))
    fail_usage(
        who, " needs a mask for each image: ", source.describe(), " is no set of masks, as ",
        !holds("images") ? "images/ is missing next to annotations/"
        : holds("annotations")
            ? "annotations/ next to images/ contains no .png"
            : "annotations/ (or labels/, masks/) with a .png for each image is missing next to images/");
  fail_usage(who, " needs a mask for each image, which ", source.describe(),
             " does not have; give a folder with images/ and annotations/, or leftImg8bit/ and gtFine/, a "
             "set.toml, or shapes:task=segment");
}

void require_same_masks(const Source& train, const Source& validation) {
  const std::string difference = first_difference(
      require_masks(train, "the task").mask_classes(), train.describe(),
      require_masks(validation, "the task").mask_classes(), validation.describe(), " of the masks");
  if (!difference.empty()) fail(difference);
}

void refuse_values(const std::string& mask, const std::map<int64_t, int64_t>& pixels,
                   const std::string& classes, const std::string& hint) {
  std::vector<std::string> values;
  for (const auto& [value, count] : pixels) values.push_back(text(value, " (", counted(count, "pixel"), ")"));
  fail(mask, ": ", values.size() == 1 ? "the value " : "the values ", some_of(values, 8), " mean",
       values.size() == 1 ? "s" : "", " no class, must be ", classes, hint);
}

std::string no_pixels_of(const std::vector<std::string>& classes, bool ignored_pixels) {
  if (classes.empty()) return "";
  const std::string named = classes.size() == 1 ? text("the class '", printable(classes[0]), "'")
                                                : text(classes.size(), " classes: ", some_of(classes, 5));
  return text("no mask has a pixel of ", named,
              ignored_pixels ? "; pixels of 255 have no class, unless a set.toml with ignore_index = 254 and "
                               "class_map = { 0 = 0, 255 = 1 } gives them one"
                             : "");
}

std::vector<int64_t> mask_pixels(const Source& source, int64_t count) {
  const size_t classes = require_masks(source, "a count of pixels").mask_classes().size();
  const std::vector<int64_t> indices = draw_indices(source, count, 0);
  std::vector<int64_t> total(classes + 1);
  std::mutex mutex;
  parallel_for(std::ssize(indices), 8, [&](int64_t begin, int64_t end) {
    std::array<int64_t, 256> counts{};
    for (int64_t i = begin; i < end; ++i) try {
        const RawSample sample = source.read(indices[static_cast<size_t>(i)]);
        for (const uint8_t value : sample.annotation.mask.value().pixels) ++counts[value];
      } catch (const Error&) {
        continue;  // reported by `data check`
      }
    const std::lock_guard lock(mutex);
    for (size_t c = 0; c < classes; ++c) total[c] += counts[c];
    total[classes] += counts[kIgnoredPixel];
  });
  return total;
}

std::array<uint8_t, 3> mask_colour(int64_t index) {
  if (index == kIgnoredPixel) return {0, 0, 0};
  const auto base = kColours[static_cast<size_t>(index % 8)];
  const int64_t round = index / 8 % 5;  // unchanged, darker, lighter, much darker, much lighter
  std::array<uint8_t, 3> colour{};
  for (size_t c = 0; c < 3; ++c) {
    const double value = base[c];
    const double changed = round == 0   ? value
                           : round == 1 ? value * 0.62
                           : round == 2 ? 255 - (255 - value) * 0.55
                           : round == 3 ? value * 0.38
                                        : 255 - (255 - value) * 0.3;
    // Later rounds shift colours slightly, so that all 255 indices differ.
    colour[c] = static_cast<uint8_t>(
        std::clamp(changed + 7.0 * static_cast<double>(index / 40) * (c == 1 ? -1 : 1), 0.0, 255.0));
  }
  return colour;
}

Image overlay_mask(const Image& picture, const Image& mask, double share, int rows_below) {
  check(mask.channels == 1 && picture.channels == 3 && mask.width == picture.width &&
            mask.height == picture.height,
        "a mask of ", mask.width, "x", mask.height, " cannot be laid over an image of ", picture.width, "x",
        picture.height);
  Image out(picture.width, picture.height + rows_below, 3);
  std::copy(picture.pixels.begin(), picture.pixels.end(), out.pixels.begin());
  for (int y = 0; y < mask.height; ++y)
    for (int x = 0; x < mask.width; ++x) {
      const uint8_t value = mask.row(y)[x];
      if (value == kIgnoredPixel) continue;
      const bool border = (x + 1 < mask.width && mask.row(y)[x + 1] != value) ||
                          (y + 1 < mask.height && mask.row(y + 1)[x] != value);
      const std::array<uint8_t, 3> colour = mask_colour(value);
      uint8_t* pixel = out.row(y) + 3 * x;
      const double weight = border ? 1 : share;
      for (size_t c = 0; c < 3; ++c)
        pixel[c] = static_cast<uint8_t>(pixel[c] * (1 - weight) + colour[c] * weight + 0.5);
    }
  return out;
}

}  // namespace tessera::data
