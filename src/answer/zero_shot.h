// Classes given only by their names: `tessera zeroshot`, and two towers that are served.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "answer/image_rows.h"
#include "tasks/base/paired.h"
#include "tasks/base/zero_shot.h"

namespace tessera::answer {

struct ZeroShotOptions {
  std::vector<std::string> names, templates;
  int64_t top = 5;
  template <class V>
  void visit(V& v) {
    v("class", names, "name of a class; may be repeated");
    v("templates", templates,
      "texts with {} for the name, \"a photo of a {}\", or imagenet for OpenAI's 80 (default: the weights')");
    v("top", top, between(1, 1'000'000), "classes to print for each image");
  }
};

// Throws TooLarge if the names in all templates, or in `own` without templates, are too many texts, or too long
// together.
void check_texts(const ZeroShotOptions& options, const std::vector<std::string>& own);

// The embedded names of some classes, for a pair of towers.
class NamedClassRows {
 public:
  // Without templates uses those of the weights. Adds texts that are too long to `cut`.
  NamedClassRows(const train::ReadyTask& model, tasks::PairedEmbedding& towers,
                 std::vector<std::string> names, const std::vector<std::string>& templates,
                 tasks::CutTexts* cut = nullptr);

  struct Best {
    torch::Tensor shares, classes;  // [images, top]
  };
  // Throws unless the model's outputs are finite.
  Best best(const torch::Tensor& images, int64_t top) const;
  const std::vector<std::string>& names() const { return names_; }

 private:
  const train::ReadyTask& model_;
  tasks::PairedEmbedding& towers_;
  std::vector<std::string> names_;
  tasks::ClassRows rows_;
};

// Returns one image's classes as a list of objects: {"class", "share"}.
nlohmann::ordered_json json_of(const torch::Tensor& shares, const torch::Tensor& classes,
                               const std::vector<std::string>& names);

// Null unless the task embeds images and texts.
std::shared_ptr<Answerer> open_zero_shot(const AnswerSetup& setup);

}  // namespace tessera::answer
