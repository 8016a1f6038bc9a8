// Fields other than the image, and composite transforms.
#include <algorithm>

#include "core/error.h"
#include "data/transforms/transform.h"
#include "data/transforms/view_augment.h"

namespace tessera::data {
namespace {

class LabelTransform final : public Transform {
 public:
  LabelTransform(int64_t classes, bool multi_label) : classes_(classes), multi_label_(multi_label) {
    if (multi_label_)
      fields_ = {{"targets", DType::f32, {classes}}};
    else
      fields_ = {{"label", DType::i64, {}}};
  }
  const std::vector<Field>& fields() const override { return fields_; }

  void apply(const RawSample& sample, RandomStream&, std::span<const Slot> out) const override {
    const std::vector<int64_t>& classes = sample.annotation.classes;
    for (const int64_t label : classes)
      check(label >= 0 && label < classes_, sample.name, ": has class ", label, ", must be 0 to ",
            classes_ - 1);
    if (!multi_label_) {
      check(classes.size() == 1, sample.name, ": has ", classes.size(), " classes, must have one");
      *out[0].as<int64_t>() = classes[0];
      return;
    }
    auto* targets = out[0].as<float>();
    std::fill_n(targets, fields_[0].numel(), 0.0f);
    for (const int64_t label : classes) targets[label] = 1;
  }

 private:
  int64_t classes_;
  bool multi_label_;
  std::vector<Field> fields_;
};

// Runs the parts one after another. Their fields may have new names.
class JoinedTransform final : public Transform {
 public:
  JoinedTransform(std::vector<std::shared_ptr<const Transform>> parts, std::vector<Field> fields)
      : parts_(std::move(parts)), fields_(std::move(fields)) {}
  const std::vector<Field>& fields() const override { return fields_; }

  void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> out) const override {
    for (const auto& part : parts_) {
      part->apply(sample, random, out.first(part->fields().size()));
      out = out.subspan(part->fields().size());
    }
  }

 private:
  std::vector<std::shared_ptr<const Transform>> parts_;
  std::vector<Field> fields_;
};

class DecodedOnce final : public Transform {
 public:
  DecodedOnce(std::shared_ptr<const Transform> reader, bool apply_exif) : reader_(std::move(reader)) {
    decode_.apply_exif = apply_exif;
  }
  const std::vector<Field>& fields() const override { return reader_->fields(); }

  void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> out) const override {
    const auto* bytes = std::get_if<std::vector<std::byte>>(&sample.picture);
    if (!bytes || sample.without_image) return reader_->apply(sample, random, out);
    RawSample decoded{.name = sample.name};
    decoded.annotation = sample.annotation;
    decoded.picture = decode_image(*bytes, sample.name, decode_);
    reader_->apply(decoded, random, out);
  }

 private:
  std::shared_ptr<const Transform> reader_;
  DecodeOptions decode_;
};

}  // namespace

std::shared_ptr<const Transform> make_label_transform(int64_t classes, bool multi_label) {
  return std::make_shared<LabelTransform>(classes, multi_label);
}

std::shared_ptr<const Transform> join_transforms(std::vector<std::shared_ptr<const Transform>> parts) {
  std::vector<Field> fields;
  for (const auto& part : parts)
    for (const Field& field : part->fields()) {
      const bool twice =
          std::any_of(fields.begin(), fields.end(), [&](const Field& f) { return f.name == field.name; });
      check(!twice, "two transforms both write the field '", field.name, "'");
      fields.push_back(field);
    }
  return std::make_shared<JoinedTransform>(std::move(parts), std::move(fields));
}

std::shared_ptr<const Transform> make_views(std::shared_ptr<const Transform> transform, int64_t count) {
  check(count >= 1, "a sample has ", count, " views, must have at least 1");
  return join_views(std::vector(static_cast<size_t>(count), std::move(transform)));
}

std::shared_ptr<const Transform> join_views(std::vector<std::shared_ptr<const Transform>> views) {
  std::vector<Field> fields;
  for (size_t view = 0; view < views.size(); ++view)
    for (Field field : views[view]->fields()) {
      field.name += "_" + std::to_string(view);
      fields.push_back(std::move(field));
    }
  return std::make_shared<JoinedTransform>(std::move(views), std::move(fields));
}

std::shared_ptr<const Transform> decode_once(std::shared_ptr<const Transform> reader, bool apply_exif) {
  return std::make_shared<DecodedOnce>(std::move(reader), apply_exif);
}

}  // namespace tessera::data
