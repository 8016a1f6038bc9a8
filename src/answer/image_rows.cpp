#include "answer/image_rows.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "core/text.h"
#include "io/files/json.h"
#include "ops/inference.h"
#include "ops/linear.h"

namespace tessera::answer {
namespace {

// Returns the elements of one row of an array.
int64_t row_elements(const Array& array) {
  int64_t count = 1;
  for (size_t i = 1; i < array.shape.size(); ++i) count *= array.shape[i];
  return count;
}

void append_rows(Array& to, const Array& from, int64_t first, int64_t count) {
  const int64_t row = row_elements(from);
  if (from.type == Datatype::bytes) {
    const auto begin = from.texts.begin() + first * row;
    to.texts.insert(to.texts.end(), begin, begin + count * row);
  } else {
    const auto bytes = static_cast<size_t>(row) * size_of(from.type);
    to.data.append(from.data, static_cast<size_t>(first) * bytes, static_cast<size_t>(count) * bytes);
  }
  to.shape[0] += count;
}

}  // namespace

nlohmann::ordered_json details_of(const train::ReadyTask& model) {
  nlohmann::ordered_json details = {{"model", model.info().model.name},
                                    {"task", tasks::task_name(model.info().task)},
                                    {"preprocessing", preprocess_json(model.info().preprocess)}};
  for (const char* key : {"license", "class_names"})
    if (const Value* value = model.info().task_metadata.find(key))
      details[key] = nlohmann::ordered_json::parse(json_text(*value));
  return details;
}

void let_others(const Control& control) {
  if (!control.between) return;
  const bool cast = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  {
    const ops::PackedOnly keeps_weights(false);
    const ops::InferenceScope plain({});
    control.between();
  }
  at::autocast::set_autocast_enabled(at::kCPU, cast);
}

void require_finite(const train::ReadyTask& model, const torch::Tensor& values) {
  if (!torch::isfinite(values).all().item<bool>())
    fail(model.file(),
         ": the model's outputs are not finite: its training went astray, or the file is damaged");
}

Reply rows_of(const Reply& reply, int64_t first, int64_t count) {
  Reply out;
  for (const Array& whole : reply.outputs) {
    Array part{.name = whole.name, .type = whole.type, .shape = whole.shape};
    part.shape.at(0) = 0;
    append_rows(part, whole, first, count);
    out.outputs.push_back(std::move(part));
  }
  for (int64_t i = first; i < first + count; ++i)
    out.results.push_back(reply.results.at(static_cast<size_t>(i)));
  return out;
}

Reply joined(std::vector<Reply> pieces) {
  Reply out = std::move(pieces.at(0));
  for (size_t i = 1; i < pieces.size(); ++i) {
    for (size_t k = 0; k < out.outputs.size(); ++k)
      append_rows(out.outputs[k], pieces[i].outputs[k], 0, pieces[i].outputs[k].shape.at(0));
    for (auto& result : pieces[i].results) out.results.push_back(std::move(result));
  }
  return out;
}

ImageRows::ImageRows(AnswerSetup setup)
    : setup_(std::move(setup)), transform_(data::make_eval_transform(setup_.model->info().preprocess)) {
  description_.inputs = prepared_inputs(transform_->fields().at(0).shape);
  description_.alternatives = names_of(description_.inputs);
  description_.details = details_of(*setup_.model);
}

std::unique_ptr<Prepared> ImageRows::prepare(const Request& request) const {
  const torch::InferenceMode inference;
  check_inputs(request, description_);
  check_options(request.options);
  auto prepared = std::make_unique<PreparedRows>();
  prepared->images = read_prepared(request, *transform_, setup_.max_pixels);
  prepared->options = request.options;
  prepared->rows = prepared->images.size(0);
  prepared->bytes = prepared->images.nbytes();
  prepared->key = json_text(request.options);
  return prepared;
}

std::vector<Reply> ImageRows::answer(std::span<Prepared* const> requests, const Control& control) {
  const torch::InferenceMode inference;
  std::vector<torch::Tensor> images;
  for (const Prepared* one : requests) images.push_back(static_cast<const PreparedRows*>(one)->images);
  const torch::Tensor all = images.size() == 1 ? images[0] : torch::cat(images);
  const Value& options = static_cast<const PreparedRows*>(requests.front())->options;
  std::vector<Reply> pieces;
  for (int64_t first = 0; first < all.size(0); first += setup_.batch) {
    if (control.stopped()) throw Error(ErrorKind::interrupted, "the request was cancelled");
    pieces.push_back(rows(all.slice(0, first, std::min(first + setup_.batch, all.size(0))), options));
    if (first + setup_.batch < all.size(0)) let_others(control);
  }
  const Reply whole = joined(std::move(pieces));
  std::vector<Reply> replies;
  int64_t first = 0;
  for (const Prepared* one : requests) {
    replies.push_back(rows_of(whole, first, one->rows));
    first += one->rows;
  }
  return replies;
}

bool ImageRows::rehearse(int64_t count) {
  const torch::InferenceMode inference;
  std::vector<int64_t> shape = transform_->fields().at(0).shape;
  shape.insert(shape.begin(), count);
  rows(torch::zeros(shape), Value());
  return true;
}

}  // namespace tessera::answer
