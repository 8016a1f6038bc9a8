#include "train/trainer_run.h"

#include <torch/csrc/autograd/custom_function.h>

namespace tessera::train {
namespace {

torch::Tensor summed(parallel::World& world, const torch::Tensor& values) {
  torch::Tensor sum = values.to(torch::kCPU).contiguous();
  if (sum.is_same(values)) sum = sum.clone();
  world.sum(sum);
  return sum.to(values.device());
}

// Forward: every process places its rows among zeros, and the sum is the whole tensor. Backward: each row's
// gradient is the sum over all processes.
struct GatherRows : torch::autograd::Function<GatherRows> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& rows,
                               int64_t first, int64_t whole, int64_t world) {
    context->saved_data["first"] = first;
    context->saved_data["count"] = rows.size(0);
    context->saved_data["world"] = world;
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = whole;
    torch::Tensor all = torch::zeros(shape, rows.options());
    all.narrow(0, first, rows.size(0)).copy_(rows);
    return summed(*reinterpret_cast<parallel::World*>(world), all);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto& world = *reinterpret_cast<parallel::World*>(context->saved_data["world"].toInt());
    const torch::Tensor sum = summed(world, gradients[0]);
    const torch::Tensor own =
        sum.narrow(0, context->saved_data["first"].toInt(), context->saved_data["count"].toInt());
    return {own.clone(), torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

// The gradient of each term is the sum of all processes' gradients.
struct SumOfAll : torch::autograd::Function<SumOfAll> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& values,
                               int64_t world) {
    context->saved_data["world"] = world;
    return summed(*reinterpret_cast<parallel::World*>(world), values);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto& world = *reinterpret_cast<parallel::World*>(context->saved_data["world"].toInt());
    return {summed(world, gradients[0]), torch::Tensor()};
  }
};

class WorldCollective final : public tasks::Collective {
 public:
  explicit WorldCollective(parallel::World& world) : world_(world) {}

  torch::Tensor gather(const torch::Tensor& rows, int64_t first, int64_t whole) override {
    if (world_.size() == 1) return rows;
    return GatherRows::apply(rows, first, whole, reinterpret_cast<int64_t>(&world_));
  }
  torch::Tensor sum(const torch::Tensor& values) override {
    if (world_.size() == 1) return values;
    return SumOfAll::apply(values, reinterpret_cast<int64_t>(&world_));
  }
  int64_t rank() const override { return world_.rank(); }
  int64_t size() const override { return world_.size(); }
  std::function<torch::Tensor()> pass_on(const torch::Tensor& rows, int64_t count) override {
    const torch::Tensor sent = rows.detach().to(torch::kCPU).contiguous();
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = count;
    const torch::Tensor into = torch::empty(shape, sent.options());
    return [wait = world_.pass_on(sent, into), into, device = rows.device()] {
      wait();
      return into.to(device);
    };
  }

 private:
  parallel::World& world_;
};

}  // namespace

std::unique_ptr<tasks::Collective> make_collective(parallel::World& world) {
  return std::make_unique<WorldCollective>(world);
}

}  // namespace tessera::train
