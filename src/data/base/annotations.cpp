#include "data/base/annotations.h"

#include <array>

#include "core/error.h"
#include "core/text.h"
#include "data/base/captions.h"
#include "data/base/info.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

using nlohmann::ordered_json;

// Returns one name per line. Throws if a name would not read back unchanged.
std::string class_lines(const std::vector<std::string>& classes) {
  std::string lines;
  for (const std::string& name : classes) {
    if (name.empty() || name != trim(name) || name.find('\n') != std::string::npos)
      fail("the class '", name, "' is no line of classes.txt: blanks around it or a line end in it");
    lines += name + "\n";
  }
  return lines;
}

// Writes KEY.cls or KEY.json, and classes.txt.
class ClassPacking final : public Packing {
 public:
  explicit ClassPacking(const Source& source)
      : labels_(require_labels(source, "data pack")), lines_(class_lines(labels_.class_names())) {}
  bool shuffled() const override { return true; }
  bool resizable() const override { return true; }
  std::vector<Member> members(const RawSample&, int64_t index) const override {
    if (labels_.multi_label())
      return {{".json", bytes_of(nlohmann::json{{"labels", labels_.labels(index)}}.dump())}};
    return {{".cls", bytes_of(std::to_string(labels_.label(index)))}};
  }
  void finish(const std::string& folder, std::vector<std::string>& files) const override {
    write_text_atomic(folder + "/classes.txt", lines_);
    files.emplace_back("classes.txt");
  }

 private:
  const ClassLabels& labels_;
  std::string lines_;
};

std::string numbers(const std::array<double, 3>& values) {
  return fixed(values[0], 4) + ", " + fixed(values[1], 4) + ", " + fixed(values[2], 4);
}

std::string text_of(const PixelStatistics& pixels) {
  return text("  sizes  ", pixels.width.least, "x", pixels.height.least, " to ", pixels.width.most, "x",
              pixels.height.most, ", median ", pixels.width.median, "x", pixels.height.median, " (of ",
              counted(pixels.images, "image"), ")\n  mean   [", numbers(pixels.mean), "]\n  std    [",
              numbers(pixels.std), "]  (each image counts alike)\n",
              pixels.oriented == 0 ? ""
                                   : text("  exif   ", counted(pixels.oriented, "image"),
                                          " with an EXIF orientation, read as viewers show them\n"),
              pixels.nearly_constant == 0
                  ? ""
                  : text("  warning: ", pixels.nearly_constant, " of ", counted(pixels.images, "image"),
                         " nearly constant: the pixels are within ", kFewLevels, " of 256 levels\n"));
}

}  // namespace

Annotations::Classes Annotations::classes() const {
  const ClassLabels* labels = source_.class_labels();
  return labels ? Classes{labels->class_names(), class_counts(source_)} : Classes{};
}

void Annotations::require_same(const Source& train, const Source& validation) const {
  require_same_classes(train, validation);
}

std::unique_ptr<Packing> Annotations::packing() const { return std::make_unique<ClassPacking>(source_); }

Annotations::Facts Annotations::facts(int64_t sample) const {
  const PixelStatistics pixels = pixel_statistics(images(), sample);
  const Facts own = annotation_facts(sample);
  const ClassLabels* labels = source_.class_labels();
  Facts out;
  out.json = {{"description", source_.describe()},
              {"images", images().size()},
              {"multi_label", labels && labels->multi_label()},
              {"class_counts", classes().counts}};
  out.json.update(class_facts());
  out.json["sample"] = {{"images", pixels.images},
                        {"mean", pixels.mean},
                        {"std", pixels.std},
                        {"width", {pixels.width.least, pixels.width.most}},
                        {"height", {pixels.height.least, pixels.height.most}},
                        {"median_width", pixels.width.median},
                        {"median_height", pixels.height.median},
                        {"oriented", pixels.oriented},
                        {"nearly_constant", pixels.nearly_constant}};
  out.json.update(own.json);
  out.text = pixels.images == 0 ? "  no image could be read\n" : text_of(pixels) + own.text;
  return out;
}

Annotations::Facts Annotations::annotation_facts(int64_t sample) const {
  const CaptionStatistics captions = caption_statistics(source_, sample);
  if (captions.images == 0) return {};
  return {text("  text   ", counted(captions.captions, "caption"), ", ", captions.distinct, " distinct, ",
               fixed(captions.words, 1), " words each (of ", counted(captions.images, "image"), ")\n"),
          {{"captions",
            {{"images", captions.images},
             {"captions", captions.captions},
             {"distinct", captions.distinct},
             {"words", captions.words}}}}};
}

std::vector<std::string> Annotations::problems_of(int64_t, const RawSample& sample) const {
  return caption_problems(sample);
}

std::string Annotations::caption_of(int64_t index, const RawSample& sample) const {
  if (const ClassLabels* labels = source_.class_labels()) return label_text(*labels, index, ", ");
  return sample.annotation.captions.empty() ? "" : sample.annotation.captions[0];
}

Image Annotations::drawn(int64_t, const RawSample&, Image image) const { return image; }

std::unique_ptr<Annotations> Source::annotations() const { return std::make_unique<Annotations>(*this); }

std::vector<std::byte> bytes_of(const std::string& content) {
  const auto* first = reinterpret_cast<const std::byte*>(content.data());
  return {first, first + content.size()};
}

}  // namespace tessera::data
