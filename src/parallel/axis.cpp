#include "parallel/axis.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "parallel/engines.h"

namespace tessera::parallel {
namespace {

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

bool are_equal(const std::vector<int64_t>& counts) {
  return std::count(counts.begin(), counts.end(), counts[0]) == std::ssize(counts);
}

int64_t row_bytes(const at::Tensor& rows) {
  int64_t bytes = static_cast<int64_t>(rows.element_size());
  for (int64_t d = 1; d < rows.dim(); ++d) bytes *= rows.size(d);
  return bytes;
}

// Returns a view of contiguous rows as bytes [rows, bytes of a row], which any type travels as. It keeps the memory.
at::Tensor as_byte_rows(const at::Tensor& rows) {
  // A contiguous tensor may have any stride on a dimension of size 1; a view of another type needs 1.
  return rows.detach().as_strided({rows.numel()}, {1}).view(at::kByte).view({rows.size(0), row_bytes(rows)});
}

void check_rows(const at::Tensor& rows, int64_t count, const std::string& axis) {
  check(rows.dim() >= 1 && rows.is_contiguous(), "axis '", axis, "': rows to exchange must be contiguous");
  check(rows.size(0) == count, "axis '", axis, "': there are ", rows.size(0), " rows, must be ", count);
}

const Axis::Wait kNothing = [] {};

// Keeps the tensors until the exchange has ended.
Axis::Wait wait_for(c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> kept) {
  return [work = std::move(work), kept = std::move(kept)] { work->wait(); };
}

}  // namespace

Channel& Channels::of(const at::Tensor& tensor) const {
  if (!tensor.is_cuda()) return *cpu;
  check(gpu, "tensors of a GPU are exchanged after each process has taken one");
  return *gpu;
}

Axis::Axis(std::string name) : name_(std::move(name)), members_{0} {}

Axis::Axis(std::string name, std::vector<int> members, int rank, std::shared_ptr<Channels> channels)
    : name_(std::move(name)), members_(std::move(members)), rank_(rank), channels_(std::move(channels)) {}

Axis::Wait Axis::start_sum(const torch::Tensor& values) const {
  if (size() == 1) return kNothing;
  std::vector<at::Tensor> tensors = {values};
  return wait_for(channels_->of(values).allreduce(tensors, {}), tensors);
}

Axis::Wait Axis::start_broadcast(const torch::Tensor& values) const {
  if (size() == 1) return kNothing;
  std::vector<at::Tensor> tensors = {values};
  return wait_for(channels_->of(values).broadcast(tensors, {}), tensors);
}

Axis::Wait Axis::exchange(const char* kind, const torch::Tensor& rows, const std::vector<int64_t>& sent,
                          const torch::Tensor& into, const std::vector<int64_t>& received) const {
  check(static_cast<int>(sent.size()) == size() && sent.size() == received.size(), "axis '", name_, "' has ",
        size(), " processes: give as many numbers of rows");
  check_rows(rows, sum_of(sent), name_), check_rows(into, sum_of(received), name_);
  const int64_t width = row_bytes(rows);
  check(width == row_bytes(into), "axis '", name_, "': rows differ in shape");
  if (width == 0) return kNothing;
  at::Tensor from = as_byte_rows(rows), to = as_byte_rows(into);
  std::vector<int64_t> out = sent, in = received;
  const int64_t bytes = width * (sum_of(sent) - sent[static_cast<size_t>(rank_)]);
  return wait_for(channels_->of(rows).exchange(kind, bytes, to, from, in, out), {rows, into, from, to});
}

Axis::Wait Axis::start_exchange(const torch::Tensor& rows, const std::vector<int64_t>& sent,
                                const torch::Tensor& into, const std::vector<int64_t>& received) const {
  if (size() == 1) {
    into.copy_(rows);
    return kNothing;
  }
  return exchange(kExchange, rows, sent, into, received);
}

Axis::Wait Axis::start_shift(const torch::Tensor& rows, const torch::Tensor& into, int by) const {
  const int to = ((rank_ + by) % size() + size()) % size(), from = ((rank_ - by) % size() + size()) % size();
  if (to == rank_) {
    into.copy_(rows);
    return kNothing;
  }
  std::vector<int64_t> sent(members_.size()), received(members_.size());
  sent[static_cast<size_t>(to)] = rows.size(0), received[static_cast<size_t>(from)] = into.size(0);
  return exchange(kRing, rows, sent, into, received);
}

Axis::Wait Axis::start_gather(const torch::Tensor& rows, const torch::Tensor& into,
                              const std::vector<int64_t>& counts) const {
  if (size() == 1) {
    into.copy_(rows);
    return kNothing;
  }
  check(static_cast<int>(counts.size()) == size(), "axis '", name_, "' has ", size(),
        " processes: give as many numbers of rows");
  check_rows(rows, counts[static_cast<size_t>(rank_)], name_), check_rows(into, sum_of(counts), name_);
  if (row_bytes(rows) == 0 || into.size(0) == 0) return kNothing;
  if (are_equal(counts)) {
    at::Tensor to = as_byte_rows(into), from = as_byte_rows(rows);
    return wait_for(channels_->of(rows).gather_equal(kGather, to, from), {rows, into, to, from});
  }
  // Unequal numbers of rows go directly to each process. The counters hold received bytes.
  at::Tensor to = as_byte_rows(into), copies = as_byte_rows(rows).repeat({size(), 1});
  std::vector<int64_t> sent(members_.size(), rows.size(0)), received = counts;
  const int64_t bytes = row_bytes(rows) * (into.size(0) - rows.size(0));
  return wait_for(channels_->of(rows).exchange(kGather, bytes, to, copies, received, sent),
                  {rows, into, copies, to});
}

torch::Tensor Axis::gather_counts(const std::vector<int64_t>& mine) const {
  at::Tensor own = at::tensor(mine, at::kLong).unsqueeze(0);
  if (size() == 1) return own;
  at::Tensor all = at::empty({size(), own.size(1)}, at::kLong);
  channels_->cpu->gather_equal(kCounts, all, own)->wait();
  return all;
}

torch::Tensor Axis::gather(const torch::Tensor& rows, const std::vector<int64_t>& counts) const {
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = sum_of(counts);
  at::Tensor into = at::empty(shape, rows.options());
  start_gather(rows.contiguous(), into, counts)();
  return into;
}

torch::Tensor Axis::scatter_sum(const torch::Tensor& whole, const std::vector<int64_t>& counts) const {
  std::vector<int64_t> shape = whole.sizes().vec();
  shape[0] = counts.at(static_cast<size_t>(rank_));
  at::Tensor into = at::empty(shape, whole.options());
  start_scatter_sum(whole, into, counts)();
  return into;
}

Axis::Wait Axis::start_scatter_sum(const torch::Tensor& whole, const torch::Tensor& into,
                                   const std::vector<int64_t>& counts) const {
  if (size() == 1) {
    into.copy_(whole);
    return kNothing;
  }
  check(static_cast<int>(counts.size()) == size(), "axis '", name_, "' has ", size(),
        " processes: give as many numbers of rows");
  const int64_t own = counts[static_cast<size_t>(rank_)];
  check_rows(whole, sum_of(counts), name_), check_rows(into, own, name_);
  if (whole.is_cuda() && are_equal(counts)) {
    at::Tensor to = into, from = whole;
    return wait_for(channels_->of(whole).scatter_sum(to, from), {whole, into});
  }
  std::vector<int64_t> shape = into.sizes().vec();
  shape[0] = own * size();
  const at::Tensor parts = at::empty(shape, whole.options());
  shape[0] = own;
  shape.insert(shape.begin(), size());
  return [wait = exchange(kScatter, whole, counts, parts, std::vector<int64_t>(members_.size(), own)),
          by_rank = parts.view(shape), into] {
    wait();
    into.copy_(by_rank[0]);
    for (int64_t r = 1; r < by_rank.size(0); ++r) into.add_(by_rank[r]);
  };
}

}  // namespace tessera::parallel
