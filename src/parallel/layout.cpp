#include "parallel/layout.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace tessera::parallel {
namespace {

// Returns the rows of each process: equal numbers, and one more in the processes with the fewest bytes.
std::vector<int64_t> divide(int64_t rows, const std::vector<int64_t>& bytes) {
  const auto processes = std::ssize(bytes);
  std::vector<size_t> lightest(bytes.size());
  std::iota(lightest.begin(), lightest.end(), 0);
  std::stable_sort(lightest.begin(), lightest.end(), [&](size_t a, size_t b) { return bytes[a] < bytes[b]; });
  std::vector<int64_t> counts(bytes.size(), rows / processes);
  for (int64_t i = 0; i < rows % processes; ++i) ++counts[lightest[static_cast<size_t>(i)]];
  return counts;
}

// Returns the process with the fewest bytes of those with the most rows.
int lightest_of_largest(const std::vector<int64_t>& rows, const std::vector<int64_t>& bytes) {
  size_t best = 0;
  for (size_t i = 1; i < rows.size(); ++i)
    if (rows[i] > rows[best] || (rows[i] == rows[best] && bytes[i] < bytes[best])) best = i;
  return static_cast<int>(best);
}

}  // namespace

Layout::Layout(const NamedTensors& wholes, const Axis& axis, const HeldWhole& held_whole,
               const Holders& holders)
    : processes_(axis.size()), rank_(axis.rank()) {
  std::vector<int64_t> bytes(static_cast<size_t>(processes_), 0), owned = bytes;
  for (const auto& [name, whole] : wholes) {
    Held held{whole.sizes().vec(), std::vector<int64_t>(bytes.size(), 0), 0};
    const int64_t rows = whole.dim() == 0 ? 1 : whole.size(0);
    if (const auto holder = holders.find(name); holder != holders.end()) {
      held.rows.at(static_cast<size_t>(holder->second)) = rows;
    } else if (whole.dim() < 2 || rows < processes_ || held_whole(name)) {
      const auto lightest = std::min_element(bytes.begin(), bytes.end());
      held.rows[static_cast<size_t>(lightest - bytes.begin())] = rows;
    } else {
      held.rows = divide(rows, bytes);
    }
    const int64_t row_bytes = rows > 0 ? static_cast<int64_t>(whole.nbytes()) / rows : 0;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] += held.rows[i] * row_bytes;
    held.owner = lightest_of_largest(held.rows, owned);
    owned[static_cast<size_t>(held.owner)] += static_cast<int64_t>(whole.nbytes());
    check(held_.emplace(name, std::move(held)).second, "layout: tensor '", name, "' is named twice");
  }
}

const Layout::Held& Layout::held(const std::string& name) const {
  const auto found = held_.find(name);
  check(found != held_.end(), "layout: no tensor '", name, "'");
  return found->second;
}

const std::vector<int64_t>& Layout::rows(const std::string& name) const { return held(name).rows; }

int64_t Layout::values(const std::string& name, int process) const {
  const Held& tensor = held(name);
  int64_t count = tensor.rows.at(static_cast<size_t>(process));
  for (size_t i = 1; i < tensor.shape.size(); ++i) count *= tensor.shape[i];
  return count;
}

torch::Tensor Layout::cut(const std::string& name, const torch::Tensor& whole, int process) const {
  if (processes_ == 1) return whole;
  const Held& tensor = held(name);
  check(whole.sizes() == torch::IntArrayRef(tensor.shape), "layout: tensor '", name, "' has shape ",
        whole.sizes(), ", must be ", torch::IntArrayRef(tensor.shape));
  const auto place = tensor.rows.begin() + process;
  if (whole.dim() == 0) return *place > 0 ? whole.detach() : whole.detach().new_empty({0});
  return whole.detach().narrow(0, std::accumulate(tensor.rows.begin(), place, int64_t{0}), *place);
}

torch::Tensor Layout::cut(const std::string& name, const torch::Tensor& whole) const {
  return cut(name, whole, rank_);
}

NamedTensors Layout::cut(const NamedTensors& wholes) const {
  NamedTensors parts;
  for (const auto& [name, whole] : wholes) parts.emplace_back(name, cut(name, whole));
  return parts;
}

torch::Tensor Layout::join(const std::string& name, const torch::Tensor& part, const Axis& axis,
                           int to) const {
  if (processes_ == 1) return part;
  const Held& tensor = held(name);
  std::vector<int64_t> sent(tensor.rows.size(), 0), received(tensor.rows.size(), 0);
  sent[static_cast<size_t>(to)] = tensor.rows[static_cast<size_t>(rank_)];
  if (rank_ == to) received = tensor.rows;
  std::vector<int64_t> shape = tensor.shape.empty() ? std::vector<int64_t>{1} : tensor.shape;
  shape[0] = sent[static_cast<size_t>(to)];
  const torch::Tensor rows = part.detach().contiguous().view(shape);
  shape[0] = std::accumulate(received.begin(), received.end(), int64_t{0});
  const torch::Tensor whole = torch::empty(shape, rows.options());
  axis.start_exchange(rows, sent, whole, received)();
  return rank_ == to ? whole.view(tensor.shape) : torch::Tensor();
}

}  // namespace tessera::parallel
