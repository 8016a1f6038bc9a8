// Answers about images that are computed in batches of one image size: classes, vectors, captions.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answer/answerer.h"
#include "answer/images.h"
#include "answer/options.h"
#include "open/ready_task.h"

namespace tessera::answer {

// Opened weights of several answers.
using SharedTask = std::shared_ptr<const train::ReadyTask>;

// Shared arguments of all answerers of a task.
struct AnswerSetup {
  SharedTask model;
  int64_t batch = 16, max_pixels = 50'000'000;
};

// Preprocessing, model, task and licence for the metadata.
nlohmann::ordered_json details_of(const train::ReadyTask& model);

// Lets other models answer, in the arithmetic that a thread has outside of all scopes.
void let_others(const Control& control);

// Throws unless all values are finite: the model or its file is damaged.
void require_finite(const train::ReadyTask& model, const torch::Tensor& values);

// A batch of images with its options, both as a text for the key and as parsed by an answerer.
struct PreparedRows : Prepared {
  torch::Tensor images;  // [rows, channels, height, width] float32
  Value options;
};

class ImageRows : public Answerer {
 public:
  explicit ImageRows(AnswerSetup setup);

  const Description& description() const final { return description_; }
  std::unique_ptr<Prepared> prepare(const Request& request) const final;
  std::vector<Reply> answer(std::span<Prepared* const> requests, const Control& control) final;
  bool rehearse(int64_t rows) final;

 protected:
  // Throws a usage error for invalid options.
  virtual void check_options(const Value& options) const = 0;
  // Returns a reply with one row per image, in order; `images` are [rows, …] on the CPU.
  virtual Reply rows(const torch::Tensor& images, const Value& options) = 0;

  const train::ReadyTask& model() const { return *setup_.model; }
  Description description_;  // derived classes complete it

 private:
  AnswerSetup setup_;
  std::shared_ptr<const data::Transform> transform_;
};

// Joins the replies to the pieces of one request, row after row.
Reply joined(std::vector<Reply> pieces);
// Returns the rows from row `first` on.
Reply rows_of(const Reply& reply, int64_t first, int64_t count);

}  // namespace tessera::answer
