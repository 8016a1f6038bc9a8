#include "parallel/pipeline.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace tessera::parallel {
namespace {

constexpr int64_t kMostDims = 6;
constexpr size_t kMostSent = 12;  // messages on their way: two to a neighbour for each piece, one back

// Thrown through a task's loss once its blocks of this process have run. No handler of errors may take it.
struct Sent {};

// The output of a block that another process runs.
struct Elsewhere : torch::autograd::Function<Elsewhere> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x,
                               const torch::Tensor&) {
    return torch::full_like(x, std::numeric_limits<double>::quiet_NaN());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    fail(
        "parallel.pipeline: the loss reads the output of a block in the middle, which another process has: "
        "leave it at 1 for this model or task");
  }
};

torch::Tensor elsewhere(const torch::Tensor& x) {
  return Elsewhere::apply(x, torch::zeros({}, x.options()).requires_grad_());
}

// Returns [dtype, dimensions, shape …] of a tensor, which the other process compares with its own.
torch::Tensor header_of(const torch::Tensor& tensor) {
  std::vector<int64_t> numbers(2 + kMostDims, 0);
  numbers[0] = static_cast<int64_t>(tensor.scalar_type()), numbers[1] = tensor.dim();
  check(tensor.dim() <= kMostDims, "parallel.pipeline: the output of a block has ", tensor.dim(),
        " dimensions");
  std::ranges::copy(tensor.sizes(), numbers.begin() + 2);
  return torch::tensor(numbers, torch::kInt64);
}

// Fills `into`, which is contiguous, with the tensor of the other process.
void receive(const Axis& pair, const torch::Tensor& into) {
  std::vector<int64_t> received(2, 0);
  received[static_cast<size_t>(1 - pair.rank())] = into.numel();
  const torch::Tensor values = into.detach().view({-1});
  pair.start_exchange(values.new_empty({0}), {0, 0}, values, received)();
}

// Returns the identities of tensors, in any order.
std::vector<const c10::TensorImpl*> identities(const std::vector<torch::Tensor>& tensors) {
  std::vector<const c10::TensorImpl*> found;
  for (const torch::Tensor& tensor : tensors) found.push_back(tensor.unsafeGetTensorImpl());
  std::ranges::sort(found);
  return found;
}

int64_t values_of(const std::vector<torch::Tensor>& unit) {
  int64_t values = 0;
  for (const torch::Tensor& tensor : unit) values += tensor.numel();
  return values;
}

}  // namespace

std::vector<int> divide_units(const std::vector<std::vector<torch::Tensor>>& units, int64_t processes) {
  const auto count = std::ssize(units);
  check(count >= processes, "a pipeline of ", processes, " processes has ", count, " blocks");
  double all = 0, done = 0;
  for (const auto& unit : units) all += static_cast<double>(values_of(unit));
  std::vector<int> places;
  int64_t before = 0;
  for (int64_t i = 0; i < count; ++i) {
    // The middle of the block is in the equal share of a process. Each process takes one at least, and leaves one for each later
    // process.
    const double middle = done + 0.5 * static_cast<double>(values_of(units[static_cast<size_t>(i)]));
    const auto wanted =
        all > 0 ? static_cast<int64_t>(middle * static_cast<double>(processes) / all) : before;
    const int64_t least = std::max(before, processes - (count - i)),
                  most = i == 0 ? 0 : std::min(before + 1, processes - 1);
    before = std::clamp(wanted, std::min(least, most), most);
    places.push_back(static_cast<int>(before));
    done += static_cast<double>(values_of(units[static_cast<size_t>(i)]));
  }
  return places;
}

Pipeline::Pipeline(const World& world, const std::vector<std::vector<torch::Tensor>>& units)
    : world_(world),
      rank_(world.axis(AxisName::pipeline).rank()),
      size_(world.axis(AxisName::pipeline).size()),
      units_(units),
      places_(divide_units(units, size_)) {}

int64_t Pipeline::ahead() const { return size_ - 1 - rank_; }

// --- messages

void Pipeline::send(const Axis& pair, const torch::Tensor& tensor) {
  const torch::Tensor values = tensor.detach().contiguous().flatten();
  std::vector<int64_t> sent(2, 0);
  sent[static_cast<size_t>(1 - pair.rank())] = values.size(0);
  // The processes are a few pieces apart, so the oldest message has arrived: its memory is free after the wait.
  for (; sent_.size() >= kMostSent; sent_.pop_front()) sent_.front()();
  sent_.push_back(pair.start_exchange(values, sent, values.new_empty({0}), {0, 0}));
}

bool Pipeline::forward(const std::function<void()>& loss) {
  next_ = 0;
  pieces_.emplace_back();
  try {
    loss();
  } catch (const Sent&) {
    return false;
  }
  check(next_ == units_.size(), "parallel.pipeline: the loss ran ", next_, " of the model's ", units_.size(),
        " blocks: leave it at 1 for this model or task");
  return true;
}

void Pipeline::check_next(const nn::Unit& unit) const {
  check(next_ < units_.size() && identities(unit.parameters()) == identities(units_[next_]),
        "parallel.pipeline: a block runs that does not come after block ", static_cast<int64_t>(next_) - 1,
        " of the model: leave it at 1 for this model or task");
}

torch::Tensor Pipeline::run(const torch::Tensor& x, const nn::Unit& unit) {
  check_next(unit);
  const size_t index = next_++;
  // What is between two blocks (the merging of a pyramid) runs with the later one.
  const bool before_own = index + 1 < places_.size() && places_[index + 1] == rank_;
  if (places_[index] < rank_) return before_own ? receive_output(x) : elsewhere(x);
  const torch::Tensor output = nn::run_unit_here(x, unit);
  check(output.sizes() == x.sizes(), "parallel.pipeline: block ", index, " makes ", output.sizes(), " of ",
        x.sizes(), ", another shape: leave it at 1 for this model");
  const bool last = index + 1 < places_.size() && places_[index + 1] > rank_;
  if (!last) return output;
  send_output(output);
  throw Sent{};
}

torch::Tensor Pipeline::receive_output(const torch::Tensor& like) {
  const torch::Tensor header = torch::zeros({2 + kMostDims}, torch::kInt64), expected = header_of(like);
  receive(world_.previous().forwards, header);
  const auto type = static_cast<torch::ScalarType>(header.const_data_ptr<int64_t>()[0]);
  const bool floats = type == like.scalar_type() || type == torch::kFloat32 || type == torch::kBFloat16 ||
                      type == torch::kFloat16;
  check(header.slice(0, 1).equal(expected.slice(0, 1)) && floats,
        "parallel.pipeline: the process before this one sends the output of block ", next_ - 1,
        " in another shape than ", like.sizes(), ": leave it at 1 for this model or task");
  const torch::Tensor input = torch::empty(like.sizes(), torch::TensorOptions(type).device(like.device()));
  receive(world_.previous().forwards, input);
  pieces_.back().in = input.requires_grad_(torch::GradMode::is_enabled());
  return input;
}

void Pipeline::send_output(const torch::Tensor& output) {
  pieces_.back().out = output;
  send(world_.next().forwards, header_of(output));
  send(world_.next().forwards, output);
}

void Pipeline::backward(const torch::Tensor& loss) {
  const Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  if (!piece.out.defined()) {
    (loss * size_).backward();
  } else {
    const torch::Tensor gradient = torch::empty(piece.out.sizes(), piece.out.options().requires_grad(false));
    receive(world_.next().backwards, gradient);
    if (piece.out.requires_grad()) torch::autograd::backward({piece.out}, {gradient});
  }
  if (!piece.in.defined()) return;
  const torch::Tensor gradient = piece.in.grad();
  send(world_.previous().backwards, gradient.defined() ? gradient : torch::zeros_like(piece.in));
}

void Pipeline::end_step() {
  for (const Axis::Wait& wait : sent_) wait();
  sent_.clear();
}

void Pipeline::share_last(const torch::Tensor& numbers) const {
  if (rank_ + 1 < size_) numbers.zero_();
  world_.axis(AxisName::pipeline).sum(numbers);
}

}  // namespace tessera::parallel
