#include "data/sources/annotated_source.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "core/control_characters.h"
#include "core/error.h"
#include "core/text.h"
#include "data/base/annotations.h"
#include "data/base/source_kinds.h"
#include "io/files/file.h"
#include "io/images/index_png.h"

namespace tessera::data {
namespace {

using nlohmann::ordered_json;

// Writes KEY.mask.png, and masks.json with the class names.
class MaskPacking final : public Packing {
 public:
  explicit MaskPacking(const std::vector<std::string>& classes) : classes_(classes) {
    for (int64_t i = 0; i < 256; ++i) palette_.push_back(mask_colour(i));
  }
  std::vector<Member> members(const RawSample& sample, int64_t) const override {
    check(sample.annotation.mask.has_value(), sample.name, ": has no mask");
    return {{".mask.png", encode_index_png(*sample.annotation.mask, palette_)}};
  }
  void finish(const std::string& folder, std::vector<std::string>& files) const override {
    write_text_atomic(folder + "/" + kMaskMarker, nlohmann::json{{"classes", classes_}}.dump() + "\n");
    files.emplace_back(kMaskMarker);
  }

 private:
  std::vector<std::string> classes_;
  std::vector<std::array<uint8_t, 3>> palette_;
};

class MaskAnnotations final : public Annotations {
 public:
  explicit MaskAnnotations(const MaskedSource& source) : Annotations(source), names_(source.mask_classes()) {}

  Classes classes() const override { return {names_}; }
  void require_same(const Source& train, const Source& validation) const override {
    Annotations::require_same(train, validation);
    require_same_masks(train, validation);
  }
  std::unique_ptr<Packing> packing() const override { return std::make_unique<MaskPacking>(names_); }

  // Returns the most frequent classes of the mask.
  std::string caption_of(int64_t, const RawSample& sample) const override {
    constexpr size_t kNamed = 3;
    std::vector<std::pair<int64_t, size_t>> counts(names_.size());
    for (size_t c = 0; c < counts.size(); ++c) counts[c].second = c;
    for (const uint8_t value : sample.annotation.mask.value().pixels)
      if (value < counts.size()) --counts[value].first;
    std::sort(counts.begin(), counts.end());
    std::string caption;
    for (size_t i = 0; i < std::min(kNamed, counts.size()) && counts[i].first < 0; ++i)
      caption += (caption.empty() ? "" : ", ") + names_[counts[i].second];
    return caption;
  }
  Image drawn(int64_t, const RawSample& sample, Image image) const override {
    return overlay_mask(image, sample.annotation.mask.value());
  }

 protected:
  ordered_json class_facts() const override { return {{"mask_classes", names_}}; }
  Facts annotation_facts(int64_t sample) const override {
    Facts facts = Annotations::annotation_facts(sample);
    const std::vector<int64_t> pixels = mask_pixels(source_, sample);
    facts.text += pixel_lines(pixels);
    facts.json["mask_pixels"] = pixels;
    return facts;
  }

 private:
  // Returns one line per class with its share of the pixels.
  std::string pixel_lines(const std::vector<int64_t>& pixels) const {
    constexpr size_t kWidest = 1000;
    int64_t total = 0;
    for (const int64_t count : pixels) total += count;
    if (total == 0) return "";
    size_t width = 7;
    for (const std::string& name : names_) width = std::max(width, display_width(printable(name, kWidest)));
    std::ostringstream out;
    for (size_t c = 0; c < pixels.size(); ++c)
      out << "  " << std::right << std::setw(4) << (c < names_.size() ? std::to_string(c) : "") << "  "
          << padded(c < names_.size() ? printable(names_[c], kWidest) : "(none)", width) << std::setw(9)
          << fixed(100 * (static_cast<double>(pixels[c]) / static_cast<double>(total)), 1) + " %"
          << "\n";
    return out.str();
  }

  const std::vector<std::string>& names_;
};

}  // namespace

Image mask_as_shown(Image mask, const ImageInfo& image, const std::string& mask_name,
                    const std::string& image_name) {
  const bool swapped = image.orientation >= 5;
  const int width = swapped ? image.height : image.width, height = swapped ? image.width : image.height;
  if (mask.width == width && mask.height == height) return mask;
  check(mask.width == image.width && mask.height == image.height, mask_name, ": the mask has ", mask.width,
        "x", mask.height, " pixels, its image ", image_name, " has ", width, "x", height,
        swapped ? text(" (stored as ", image.width, "x", image.height, ")") : "");
  return orient(mask, image.orientation);
}

std::unique_ptr<Annotations> MaskedSource::annotations() const {
  return std::make_unique<MaskAnnotations>(*this);
}

}  // namespace tessera::data
