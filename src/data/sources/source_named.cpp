// `named:[without=CLASS,][template=TEXT,]PATH`: images with classes, captioned by the names of their classes.
// So CLIP can train on sets without captions (UniCL, Yang et al. 2022, mixes them with pairs). A model has
// only the names of held-out classes.
#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/base/source_kinds.h"

namespace tessera::data {
namespace {

constexpr std::string_view kPrefix = "named:", kWithout = "without=", kTemplate = "template=", kPlace = "{}";

struct NamedPath {
  std::vector<std::string> without = {};    // classes excluded from training
  std::vector<std::string> templates = {};  // with {} for the name
  std::string images = {};
};

NamedPath parse_named(std::string_view path) {
  NamedPath named;
  std::string_view rest = path.substr(kPrefix.size());
  const auto take = [&](std::string_view key, std::vector<std::string>& values) {
    if (!rest.starts_with(key)) return false;
    const size_t comma = rest.find(',');
    if (comma == std::string_view::npos)
      fail_usage("data path '", path, "' must be named:[without=CLASS,][template=TEXT,]PATH");
    values.emplace_back(rest.substr(key.size(), comma - key.size()));
    rest.remove_prefix(comma + 1);
    return true;
  };
  while (take(kWithout, named.without) || take(kTemplate, named.templates)) {
  }
  for (const std::string& one : named.templates)
    if (one.find(kPlace) == std::string::npos)
      fail_usage("data path '", path, "': the template '", one, "' has no ", kPlace, " for the class's name");
  if (named.templates.empty()) named.templates.emplace_back(kPlace);
  named.images = rest;
  return named;
}

class Named final : public LabelledSource {
 public:
  Named(std::unique_ptr<Source> images, const NamedPath& path, Split split)
      : images_(std::move(images)), labels_(require_labels(*images_, kPrefix)), templates_(path.templates) {
    spoken_ = spoken_names(class_names());
    const std::vector<int64_t> hidden = numbers_of(path.without);
    const auto is_hidden = [&](int64_t label) { return std::ranges::count(hidden, label) > 0; };
    for (int64_t i = 0; i < images_->size(); ++i)
      if (split == Split::validation || std::ranges::none_of(labels_.labels(i), is_hidden))
        indices_.push_back(i);
    if (split == Split::train) without_ = path.without;
  }

  int64_t size() const override { return std::ssize(indices_); }
  int64_t label(int64_t index) const override {
    return labels_.label(indices_.at(static_cast<size_t>(index)));
  }
  std::vector<int64_t> labels(int64_t index) const override {
    return labels_.labels(indices_.at(static_cast<size_t>(index)));
  }
  bool multi_label() const override { return labels_.multi_label(); }
  const std::vector<std::string>& class_names() const override { return labels_.class_names(); }

  RawSample read(int64_t index) const override {
    RawSample sample = images_->read(indices_.at(static_cast<size_t>(index)));
    sample.annotation.captions.clear();
    for (const int64_t label : labels(index)) {
      for (std::string caption : templates_) {
        caption.replace(caption.find(kPlace), kPlace.size(), spoken_[static_cast<size_t>(label)]);
        sample.annotation.captions.push_back(std::move(caption));
      }
    }
    return sample;
  }

  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add("named 1");
    print.add(static_cast<int64_t>(images_->fingerprint()));
    print.add(templates_);
    print.add(without_);
    return print.value();
  }

  std::string describe() const override {
    std::string line = text(images_->describe(), ", named as '", join(templates_, "', '"), "'");
    if (!without_.empty()) line += text(", without ", join(without_, ", "), ": ", counted(size(), "image"));
    return line;
  }

  std::vector<std::string> problems() const override { return images_->problems(); }
  std::vector<std::string> warnings() const override { return images_->warnings(); }

 private:
  std::vector<int64_t> numbers_of(const std::vector<std::string>& classes) const {
    std::vector<int64_t> numbers;
    for (const std::string& name : classes) {
      const auto found = std::ranges::find(class_names(), name);
      if (found == class_names().end())
        fail_usage("without=", name, ": ", images_->describe(), " has no such class",
                   did_you_mean(name, class_names()));
      numbers.push_back(found - class_names().begin());
    }
    return numbers;
  }

  std::unique_ptr<Source> images_;
  const ClassLabels& labels_;
  std::vector<std::string> templates_, without_, spoken_;
  std::vector<int64_t> indices_;
};

}  // namespace

bool is_named_path(const std::string& path) { return path.starts_with(kPrefix); }

// A validation path without the prefix opens as another kind. The training path is parsed for its class
// names.
std::unique_ptr<Source> open_named(const SourceConfig& config, Split split) {
  const NamedPath named = parse_named(path_of(config, split));
  SourceConfig images = config;
  if (is_named_path(images.path)) images.path = parse_named(images.path).images;
  if (is_named_path(images.val_path)) images.val_path = parse_named(images.val_path).images;
  return std::make_unique<Named>(open_source_with_problems(images, split), named, split);
}

}  // namespace tessera::data
