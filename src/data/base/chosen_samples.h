// Subsets of another source.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

class ChosenSamples final : public LabelledSource {
 public:
  // `whole` has classes. `indices` are the indices of its samples, in the order of this source. `description`
  // is one line about the choice.
  ChosenSamples(std::shared_ptr<const Source> whole, std::vector<int64_t> indices, std::string description)
      : whole_(std::move(whole)),
        labels_(require_labels(*whole_, "a choice of samples")),
        indices_(std::move(indices)),
        description_(std::move(description)) {}

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  RawSample read(int64_t index) const override { return whole_->read(index_in_whole(index)); }
  int64_t label(int64_t index) const override { return labels_.label(index_in_whole(index)); }
  std::vector<int64_t> labels(int64_t index) const override { return labels_.labels(index_in_whole(index)); }
  bool multi_label() const override { return labels_.multi_label(); }
  const std::vector<std::string>& class_names() const override { return labels_.class_names(); }
  uint64_t fingerprint() const override;  // covers both the whole set and the choice
  std::string describe() const override { return description_; }

  int64_t index_in_whole(int64_t index) const { return indices_.at(static_cast<size_t>(index)); }

 private:
  std::shared_ptr<const Source> whole_;
  const ClassLabels& labels_;
  std::vector<int64_t> indices_;
  std::string description_;
};

// The first `count` samples of another source, under the same indices; all of it if it has fewer.
class FirstSamples final : public Source {
 public:
  FirstSamples(std::shared_ptr<const Source> whole, int64_t count)
      : whole_(std::move(whole)), size_(std::min(count, whole_->size())) {}

  int64_t size() const override { return size_; }
  RawSample read(int64_t index) const override { return whole_->read(index); }
  const ClassLabels* class_labels() const override { return whole_->class_labels(); }
  uint64_t fingerprint() const override { return whole_->fingerprint() + static_cast<uint64_t>(size_); }
  std::string describe() const override { return whole_->describe(); }

 private:
  std::shared_ptr<const Source> whole_;
  int64_t size_;
};

}  // namespace tessera::data
