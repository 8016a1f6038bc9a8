// `shapes:…`: samples are rendered when they are read.
#include "core/error.h"
#include "core/text.h"
#include "data/base/questions.h"
#include "data/base/source_kinds.h"
#include "data/sources/annotated_source.h"
#include "data/sources/shapes.h"

namespace tessera::data {
namespace {

class ShapesSource final : public LabelledSource, public ImageQuestions {
 public:
  ShapesSource(const ShapesConfig& config, Split split)
      : config_(config),
        split_(split),
        by_shape_(config.task == "shape" || config.task == "text"),
        names_(by_shape_ ? shape_names() : texture_names()) {
    if (config.cues != "any") names_.resize(kCueClasses);
  }

  int64_t size() const override { return split_ == Split::train ? config_.train : config_.val; }

  RawSample read(int64_t index) const override {
    if (config_.task == "text") {
      RawSample sample{text(part(), " sample ", index), draw_shapes(config_, split_, index)};
      sample.annotation.captions = shapes_captions(shapes_words(config_, split_, index));
      return sample;
    }
    const ShapesLabel label = shapes_label(config_, split_, index);
    const std::string &shape = shape_names()[static_cast<size_t>(label.shape)],
                      &texture = texture_names()[static_cast<size_t>(label.texture)];
    RawSample sample{text(part(), " sample ", index), draw_shapes(config_, split_, index)};
    sample.annotation.captions = {"a " + shape + " with " + texture, texture + " on a " + shape,
                                  shape + ", " + texture};
    return sample;
  }

  int64_t label(int64_t index) const override {
    const ShapesLabel label = shapes_label(config_, split_, index);
    return by_shape_ ? label.shape : label.texture;
  }

  const std::vector<std::string>& class_names() const override { return names_; }

  int64_t questions_per_image() const override {
    return config_.task == "text" ? std::ssize(kShapesQuestions) : 0;
  }
  std::vector<std::string> question_types() const override {
    return {kShapesQuestions.begin(), kShapesQuestions.end()};
  }
  AskedImage ask(int64_t index, int64_t number) const override {
    return {shapes_question(config_, split_, index, number), kShapesQuestions[static_cast<size_t>(number)]};
  }

  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add("shapes 1");  // increase the number if the drawing changes
    print.add(part());
    for (const int64_t number : {size(), config_.size, config_.seed}) print.add(number);
    print.add(config_.task);
    if (config_.cues != "any") print.add(config_.cues);
    return print.value();
  }

  std::string describe() const override {
    return text(part(), ", ", counted(size(), "image"), " of ", config_.size, "x", config_.size, ", ",
                class_names().size(), by_shape_ ? " shapes" : " textures",
                config_.cues == "any" ? "" : ", cues " + config_.cues);
  }

 private:
  std::string part() const { return split_ == Split::train ? "shapes train" : "shapes validation"; }

  ShapesConfig config_;
  Split split_;
  bool by_shape_;
  std::vector<std::string> names_;
};

// The shape of every pixel.
class ShapesMasks final : public MaskedSource {
 public:
  ShapesMasks(const ShapesConfig& config, Split split) : config_(config), split_(split) {
    classes_ = {"background"};
    classes_.insert(classes_.end(), shape_names().begin(), shape_names().end());
  }

  int64_t size() const override { return split_ == Split::train ? config_.train : config_.val; }
  const std::vector<std::string>& mask_classes() const override { return classes_; }

  RawSample read(int64_t index) const override {
    RawSample sample{text(part(), " sample ", index), draw_shapes(config_, split_, index)};
    sample.annotation.mask = draw_shapes_mask(config_, split_, index);
    return sample;
  }

  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add("shapes masks 1");
    print.add(part());
    for (const int64_t number : {size(), config_.size, config_.seed}) print.add(number);
    return print.value();
  }

  std::string describe() const override {
    return text(part(), ", ", counted(size(), "image"), " of ", config_.size, "x", config_.size,
                " with masks, ", classes_.size(), " classes");
  }

 private:
  std::string part() const { return split_ == Split::train ? "shapes train" : "shapes validation"; }

  ShapesConfig config_;
  Split split_;
  std::vector<std::string> classes_;
};

}  // namespace

bool is_shapes_path(const std::string& path) { return path == "shapes" || path.starts_with("shapes:"); }

std::unique_ptr<Source> open_shapes(const SourceConfig& config, Split split) {
  const ShapesConfig shapes = parse_shapes(path_of(config, split));
  if (shapes.task == "segment") return std::make_unique<ShapesMasks>(shapes, split);
  return std::make_unique<ShapesSource>(shapes, split);
}

}  // namespace tessera::data
