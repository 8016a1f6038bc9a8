// Texts as one sequence of tokens, cut into windows of equal length, to train and evaluate a language model.
//
//   [end] document [end] document … [end]        window i: tokens i * length … (i + 1) * length, both included
//
// Adjacent windows share a token, so that every token except the first is predicted exactly once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/transforms/transform.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

// One sample per window: annotation.classes has its length + 1 ids, fewer in the last window.
class PackedTexts final : public data::Source {
 public:
  // `texts`: each caption of its samples is a document. `separator`: the id between and around them. Several
  // threads encode the documents; the result does not depend on their number. Throws Error for texts without
  // a window.
  PackedTexts(std::shared_ptr<const data::Source> texts, const Tokeniser& tokeniser, int32_t separator,
              int64_t length);

  int64_t size() const override;
  data::RawSample read(int64_t index) const override;
  uint64_t fingerprint() const override;
  std::string describe() const override;
  int64_t bytes() const { return bytes_; }  // over all documents
  int64_t tokens() const { return std::ssize(ids_); }

 private:
  std::shared_ptr<const data::Source> texts_;
  int64_t length_, bytes_ = 0;
  std::string checksum_;
  std::vector<int32_t> ids_;
};

// The same, or null without texts. Throws a usage error for a set without texts.
std::shared_ptr<const PackedTexts> packed_texts(const std::shared_ptr<const data::Source>& texts,
                                                const Tokeniser& tokeniser, int32_t separator,
                                                int64_t length);

// Field "ids", i32 [length + 1]: the tokens of a window, padded with kNotLearned.
std::shared_ptr<const data::Transform> make_window_transform(int64_t length);

}  // namespace tessera::tasks
