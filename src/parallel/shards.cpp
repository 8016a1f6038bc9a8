#include "parallel/shards.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <unordered_map>

#include "core/error.h"

namespace tessera::parallel {
namespace {

// Large exchanges are fast, small ones need little memory: a 64th of all, up to the bucket of data parallelism.
constexpr int64_t kLeastBucket = int64_t{1} << 20, kMostBucket = int64_t{25} << 20, kBuckets = 64;
constexpr size_t kInFlight = 1;  // next to the bucket that is being filled

constexpr int kEverywhere = -1;

// Tensors of one dtype and device that travel together. As numbers in a row: first the rows of process 0 of each tensor, then
// those of process 1, and so on.
struct Bucket {
  std::vector<size_t> tensors;
  std::vector<int64_t> counts;  // numbers of each process
  int runs_at = kEverywhere;    // the process of a pipeline that runs their blocks
  int64_t total() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  // Returns the view of a process's numbers in those of all.
  torch::Tensor numbers_of(int process, const torch::Tensor& flat) const {
    const auto place = counts.begin() + process;
    return flat.narrow(0, std::accumulate(counts.begin(), place, int64_t{0}), *place);
  }
};

// By identity, the process of a pipeline that runs a tensor's block.
using Places = std::unordered_map<const c10::TensorImpl*, int>;

Places places_of(const DividedBlocks& blocks) {
  Places places;
  for (size_t u = 0; u < blocks.places.size(); ++u)
    for (const torch::Tensor& tensor : blocks.units[u])
      places.emplace(tensor.unsafeGetTensorImpl(), blocks.places[u]);
  return places;
}

std::vector<Bucket> make_buckets(const Layout& layout, const NamedTensors& wholes, bool backwards,
                                 const Places& places = {}) {
  int64_t all = 0, bytes = 0;
  for (const auto& [name, whole] : wholes) all += static_cast<int64_t>(whole.nbytes());
  const int64_t most = std::clamp(all / kBuckets, kLeastBucket, kMostBucket);
  std::vector<Bucket> buckets;
  for (size_t k = 0; k < wholes.size(); ++k) {
    const size_t i = backwards ? wholes.size() - 1 - k : k;
    const auto& [name, whole] = wholes[i];
    const auto size = static_cast<int64_t>(whole.nbytes());
    const auto found = places.find(whole.unsafeGetTensorImpl());
    const int runs_at = found == places.end() ? kEverywhere : found->second;
    const bool alike = !buckets.empty() && buckets.back().runs_at == runs_at && [&] {
      const torch::Tensor& before = wholes[buckets.back().tensors.back()].second;
      return before.scalar_type() == whole.scalar_type() && before.device() == whole.device();
    }();
    if (!alike || bytes + size > most) {
      buckets.push_back({{}, std::vector<int64_t>(static_cast<size_t>(layout.processes()), 0), runs_at});
      bytes = 0;
    }
    Bucket& bucket = buckets.back();
    bucket.tensors.push_back(i);
    bytes += size;
    for (int r = 0; r < layout.processes(); ++r)
      bucket.counts[static_cast<size_t>(r)] += layout.values(name, r);
  }
  return buckets;
}

// Calls `visit` with each tensor's number, its rows of a process, and the place of these rows in `flat`, which has the
// numbers of that process.
template <class Visit>
void for_each_rows(const Bucket& bucket, const Layout& layout, const NamedTensors& wholes, int process,
                   const torch::Tensor& flat, const Visit& visit) {
  int64_t offset = 0;
  for (const size_t i : bucket.tensors) {
    const torch::Tensor rows = layout.cut(wholes[i].first, wholes[i].second, process);
    visit(i, rows, flat.narrow(0, offset, rows.numel()).view(rows.sizes()));
    offset += rows.numel();
  }
}

}  // namespace

struct Shards::State {
  const World& world;
  const Layout layout;
  const std::unique_ptr<DividedWeights> weights;  // null if every process has all weights
  const NamedTensors wholes, parts;
  const bool pipelined;
  const int64_t stage;
  const std::vector<Bucket> buckets;  // roughly in the order of arrival of gradients
  std::vector<size_t> bucket_of;      // by tensor
  // By tensor and process: the place of its rows among the numbers of its bucket.
  std::vector<std::vector<int64_t>> places;
  std::vector<torch::Tensor> numbers;  // by bucket, in this pass
  bool running = false, last = false;
  std::vector<char> ready;    // true for tensors with a complete gradient in this pass
  std::vector<char> started;  // by bucket, in this pass
  std::unordered_map<const c10::TensorImpl*, size_t> index;
  std::vector<char> used;           // true for tensors with a gradient in this step, in this process
  std::vector<torch::Tensor> sums;  // by bucket: this process's numbers
  struct Running {
    size_t bucket;
    torch::Tensor own;
    Axis::Wait wait;
  };
  std::deque<Running> in_flight;

  State(const World& all, Layout held, const NamedTensors& trained, int64_t zero, const DividedBlocks& blocks)
      : world(all),
        layout(std::move(held)),
        weights(zero >= 3 || blocks.pipelined() ? divided(trained, blocks) : nullptr),
        wholes(trained),
        parts(rows_of(trained)),
        pipelined(blocks.pipelined()),
        stage(zero),
        buckets(make_buckets(layout, trained, /*backwards=*/true, places_of(blocks))),
        bucket_of(trained.size()),
        places(trained.size()),
        numbers(buckets.size()),
        used(trained.size(), 0),
        sums(buckets.size()) {
    for (size_t i = 0; i < wholes.size(); ++i) index.emplace(wholes[i].second.unsafeGetTensorImpl(), i);
    if (weights) weights->when_done([this](const std::vector<torch::Tensor>& unit) { unit_done(unit); });
    for (size_t b = 0; b < buckets.size(); ++b) {
      int64_t place = 0;
      for (const size_t i : buckets[b].tensors) bucket_of[i] = b;
      for (int r = 0; r < layout.processes(); ++r)
        for (const size_t i : buckets[b].tensors) {
          places[i].push_back(place);
          place += layout.values(wholes[i].first, r);
        }
    }
  }

  std::unique_ptr<DividedWeights> divided(NamedTensors all, const DividedBlocks& blocks) const {
    all.insert(all.end(), blocks.frozen.begin(), blocks.frozen.end());
    return std::make_unique<DividedWeights>(world.holders(), layout, all, blocks.units, blocks.rounded,
                                            blocks.device, blocks.places);
  }
  NamedTensors rows_of(const NamedTensors& tensors) const {
    NamedTensors rows;
    for (const auto& [name, whole] : tensors) {
      const torch::Tensor* const part = weights ? weights->part(whole) : nullptr;
      rows.emplace_back(name, part ? *part : layout.cut(name, whole));
    }
    return rows;
  }

  bool exchanges() const { return last || (stage >= 2 && !pipelined); }

  void arrived(size_t tensor) {
    if (!running || !exchanges() || pipelined)
      return;  // passes of a pipeline's processes end at different times
    pack(tensor);
    if (weights) return;  // gradients wait for the end of their unit
    ready[tensor] = 1;
    for (size_t b = 0; b < buckets.size() && (started[b] || is_ready(b)); ++b) start(b);
  }

  // Exchanges on an axis start in the same order in all processes. A gradient may not come in some of them, so weights
  // and gradients take turns at the ends of units, which come everywhere.
  void unit_done(const std::vector<torch::Tensor>& unit) {
    if (!running || !exchanges()) return;
    for (const torch::Tensor& tensor : unit)
      if (const auto found = index.find(tensor.unsafeGetTensorImpl()); found != index.end())
        ready[found->second] = 1;
    for (size_t b = 0; b < buckets.size(); ++b)
      if (is_ready(b)) start(b);
  }

  bool is_ready(size_t bucket) const {
    return std::all_of(buckets[bucket].tensors.begin(), buckets[bucket].tensors.end(),
                       [&](size_t i) { return ready[i]; });
  }

  // Moves a tensor's gradient into the numbers of its bucket. It may be a view of a larger tensor, which is released.
  void pack(size_t tensor) {
    const auto& [name, whole] = wholes[tensor];
    const torch::Tensor gradient = whole.grad();
    if (!gradient.defined()) return;
    const torch::NoGradGuard no_grad;
    const torch::Tensor& flat = numbers_of(bucket_of[tensor]);
    for (int r = 0; r < layout.processes(); ++r) {
      const torch::Tensor rows = layout.cut(name, gradient, r);
      flat.narrow(0, places[tensor][static_cast<size_t>(r)], rows.numel()).view(rows.sizes()).copy_(rows);
    }
    used[tensor] = 1;
    whole.mutable_grad().reset();
  }

  // Returns the numbers of a bucket in this pass, which begin at zero.
  const torch::Tensor& numbers_of(size_t bucket) {
    torch::Tensor& flat = numbers[bucket];
    if (!flat.defined())
      flat = torch::zeros({buckets[bucket].total()},
                          wholes[buckets[bucket].tensors[0]].second.detach().options());
    return flat;
  }

  void start(size_t b) {
    if (started[b]) return;
    started[b] = 1;
    const torch::NoGradGuard no_grad;
    const Bucket& bucket = buckets[b];
    const Axis& axis = world.holders();
    if (bucket.runs_at != kEverywhere && bucket.runs_at != axis.rank()) return;
    for (const size_t i : bucket.tensors) pack(i);
    const torch::Tensor flat = numbers_of(b);
    numbers[b].reset();
    if (bucket.runs_at != kEverywhere) {
      in_flight.push_back({b, flat, [] {}});
    } else {
      const torch::Tensor own =
          torch::empty({bucket.counts[static_cast<size_t>(axis.rank())]}, flat.options());
      in_flight.push_back({b, own, axis.start_scatter_sum(flat, own, bucket.counts)});
    }
    while (in_flight.size() > kInFlight) take_oldest();
  }

  void take_oldest() {
    const torch::NoGradGuard no_grad;
    const Running oldest = std::move(in_flight.front());
    in_flight.pop_front();
    oldest.wait();
    world.axis(AxisName::replicate).sum(oldest.own);
    torch::Tensor& sum = sums[oldest.bucket];
    if (sum.defined())
      sum.add_(oldest.own);
    else
      sum = oldest.own;
  }

  // Returns the numbers of this process in a bucket of blocks that other processes run: none.
  torch::Tensor numbers_of_no_process(size_t bucket) const {
    return torch::empty({0}, wholes[buckets[bucket].tensors[0]].second.detach().options());
  }

  // Gives the parts the means over processes.
  void finish() {
    const torch::NoGradGuard no_grad;
    const torch::Tensor counts = torch::empty({std::ssize(used)}, torch::kInt64);
    std::copy(used.begin(), used.end(), counts.mutable_data_ptr<int64_t>());
    world.all().sum(counts);
    const auto* in_processes = counts.const_data_ptr<int64_t>();
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (!sums[b].defined()) sums[b] = numbers_of_no_process(b);
      sums[b].div_(world.all().size());
      int64_t offset = 0;
      for (const size_t i : buckets[b].tensors) {
        torch::Tensor part = parts[i].second;
        const torch::Tensor rows = sums[b].narrow(0, offset, part.numel()).view(part.sizes());
        part.mutable_grad() = in_processes[i] > 0 ? rows : torch::Tensor();
        offset += part.numel();
      }
      sums[b].reset();
    }
    std::fill(used.begin(), used.end(), 0);
  }
};

namespace {

class Arrival final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Arrival(std::function<void()> arrived) : arrived_(std::move(arrived)) {}
  void operator()(const torch::autograd::Variable&) override { arrived_(); }

 private:
  std::function<void()> arrived_;
};

}  // namespace

Shards::Shards(const World& world, Layout layout, const NamedTensors& trained, int64_t stage,
               const DividedBlocks& blocks)
    : state_(std::make_shared<State>(world, std::move(layout), trained, stage, blocks)) {
  for (size_t i = 0; i < trained.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(
        trained[i].second, std::make_unique<Arrival>([weak = std::weak_ptr(state_), i] {
          if (const auto state = weak.lock()) state->arrived(i);
        }));
}

Shards::~Shards() = default;

const Layout& Shards::layout() const { return state_->layout; }
const NamedTensors& Shards::wholes() const { return state_->wholes; }
const NamedTensors& Shards::parts() const { return state_->parts; }

void Shards::begin(bool last) {
  check(!state_->running, "shards: begin() twice");
  state_->running = true, state_->last = last;
  state_->ready.assign(state_->wholes.size(), 0);
  state_->started.assign(state_->buckets.size(), 0);
}

void Shards::end() {
  State& state = *state_;
  if (state.weights) state.weights->end_pass();
  if (state.exchanges())
    for (size_t b = 0; b < state.buckets.size(); ++b) state.start(b);
  while (!state.in_flight.empty()) state.take_oldest();
  state.running = false;
  if (state.last) state.finish();
}

bool Shards::divides_weights() const { return state_->weights != nullptr; }

nn::UnitKeeper* Shards::units() const { return state_->pipelined ? nullptr : state_->weights.get(); }

std::unique_ptr<RequestedWeights> Shards::requested() const {
  return state_->weights ? std::make_unique<RequestedWeights>(*state_->weights) : nullptr;
}

NamedTensors Shards::rows_of(const NamedTensors& wholes) const { return state_->rows_of(wholes); }

NamedTensors Shards::undivided(NamedTensors wholes) const {
  std::erase_if(wholes,
                [this](const auto& one) { return state_->weights && state_->weights->part(one.second); });
  return wholes;
}

void Shards::updated(bool frozen) const {
  if (state_->weights)
    state_->weights->updated(frozen);
  else
    gather(state_->wholes);
}

void Shards::take() const {
  if (state_->weights) state_->weights->take();
}

void Shards::release() const {
  if (state_->weights) state_->weights->release();
}

void Shards::gather(const NamedTensors& all) const {
  const torch::NoGradGuard no_grad;
  if (state_->weights) state_->weights->gather(all);
  const NamedTensors wholes = undivided(all);
  const Layout& layout = state_->layout;
  const Axis& axis = state_->world.holders();
  const std::vector<Bucket> buckets = make_buckets(layout, wholes, /*backwards=*/false);
  std::deque<std::pair<torch::Tensor, Axis::Wait>> in_flight;
  size_t taken = 0;
  const auto take_oldest = [&] {
    const auto [flat, wait] = std::move(in_flight.front());
    in_flight.pop_front();
    wait();
    const Bucket& bucket = buckets[taken++];
    for (int r = 0; r < axis.size(); ++r)
      if (r != axis.rank())
        for_each_rows(bucket, layout, wholes, r, bucket.numbers_of(r, flat),
                      [](size_t, torch::Tensor rows, const torch::Tensor& place) { rows.copy_(place); });
  };
  for (const Bucket& bucket : buckets) {
    const auto options = wholes[bucket.tensors[0]].second.options();
    const torch::Tensor own = torch::empty({bucket.counts[static_cast<size_t>(axis.rank())]}, options);
    for_each_rows(bucket, layout, wholes, axis.rank(), own,
                  [](size_t, const torch::Tensor& rows, torch::Tensor place) { place.copy_(rows); });
    const torch::Tensor flat = torch::empty({bucket.total()}, options);
    in_flight.emplace_back(flat, axis.start_gather(own, flat, bucket.counts));
    if (in_flight.size() > kInFlight) take_oldest();
  }
  while (!in_flight.empty()) take_oldest();
}

bool Shards::owns(const std::string& name) const {
  return state_->layout.owner(name) == state_->world.holders().rank();
}

torch::Tensor Shards::join(const std::string& name, const torch::Tensor& part) const {
  return state_->layout.join(name, part, state_->world.holders(), state_->layout.owner(name));
}

torch::Tensor Shards::join_at_first(const std::string& name, const torch::Tensor& part) const {
  return state_->layout.join(name, part, state_->world.holders(), 0);
}

bool Shards::first_copy() const { return state_->world.axis(AxisName::replicate).rank() == 0; }

double Shards::norm_of_all(double own, double p) const {
  const Axis& axis = state_->world.holders();
  const torch::Tensor norms = axis.gather(torch::full({1}, own, torch::kFloat64),
                                          std::vector<int64_t>(static_cast<size_t>(axis.size()), 1));
  return at::linalg_vector_norm(norms, p).item<double>();
}

}  // namespace tessera::parallel
