#include "tasks/base/sample_rows.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace tessera::tasks {

void SampleRows::add(const data::Batch& batch, const torch::Tensor& rows) {
  check(rows.dim() == 2 && rows.size(0) == batch.size && rows.size(1) == width_, "rows of shape ",
        rows.sizes(), ", must be [", batch.size, ", ", width_, "]");
  const torch::Tensor plain = rows.to(torch::kCPU, torch::kFloat32).contiguous();
  const float* data = plain.const_data_ptr<float>();
  for (int64_t i = 0; i < batch.size; ++i) {
    const int64_t index = batch.indices[static_cast<size_t>(i)];
    if (index != batch.first + i) continue;
    indices_.push_back(index);
    values_.insert(values_.end(), data + i * width_, data + (i + 1) * width_);
  }
}

void SampleRows::collect(const EvaluateOptions& options) {
  std::vector<int64_t> indices = std::move(indices_);
  std::vector<float> values = std::move(values_);
  indices_.clear(), values_.clear();
  if (options.gather) {
    const auto all_indices = options.gather(bytes_of(indices)), all_values = options.gather(bytes_of(values));
    indices.clear(), values.clear();
    for (const std::string& part : all_indices) append_bytes(indices, part);
    for (const std::string& part : all_values) append_bytes(values, part);
  }
  std::vector<size_t> order(indices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return indices[a] < indices[b]; });
  const auto width = static_cast<size_t>(width_);
  for (const size_t row : order) {
    indices_.push_back(indices[row]);
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(row * width);
    values_.insert(values_.end(), from, from + width_);
  }
}

std::vector<float> SampleRows::column(int64_t index) const {
  std::vector<float> column;
  for (auto at = static_cast<size_t>(index); at < values_.size(); at += static_cast<size_t>(width_))
    column.push_back(values_[at]);
  return column;
}

torch::Tensor SampleRows::rows() const {
  return torch::tensor(values_, torch::kFloat32).reshape({size(), width_});
}

}  // namespace tessera::tasks
