// The peak of LibTorch's memory in training by stage of ZeRO, against the formula.
#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <atomic>
#include <iostream>

#include "core/text.h"
#include "nn/units.h"
#include "optim/optimiser.h"
#include "parallel/data_parallel.h"
#include "parallel/shards.h"
#include "tests/parallel/exchanges.h"

namespace tessera::parallel {
namespace {

using torch::Tensor;

constexpr int64_t kBlocks = 24, kWidth = 512, kSteps = 2;
constexpr double kBlockBytes = 2.0 * kWidth * kWidth * 4, kWeights = kBlocks * kBlockBytes;

// Counts the memory of all threads: Gloo's release tensors too.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* block =
        new Block{c10::GetDefaultCPUAllocator()->allocate(bytes), this, static_cast<int64_t>(bytes)};
    const int64_t now = alive_ += block->bytes;
    for (int64_t before = peak_; before < now && !peak_.compare_exchange_weak(before, now);) {
    }
    return {block->memory.get(), block, release, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  // Returns the bytes that are alive and counts the peak again.
  int64_t restart() {
    peak_ = alive_.load();
    return alive_;
  }
  int64_t peak() const { return peak_; }

 private:
  struct Block {
    c10::DataPtr memory;
    CountingAllocator* owner;
    int64_t bytes;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    block->owner->alive_ -= block->bytes;
    delete block;
  }
  std::atomic<int64_t> alive_ = 0, peak_ = 0;
};

NamedTensors make_blocks() {
  NamedTensors weights;
  for (int64_t i = 0; i < 2 * kBlocks; ++i)
    weights.emplace_back(text("w", i), (torch::eye(kWidth) * 0.9).requires_grad_());
  return weights;
}

std::vector<std::vector<Tensor>> units_of(const NamedTensors& weights) {
  std::vector<std::vector<Tensor>> units;
  for (size_t i = 0; i < weights.size(); i += 2) units.push_back({weights[i].second, weights[i + 1].second});
  return units;
}

Tensor loss_of(const NamedTensors& weights) {
  Tensor x = torch::ones({4, kWidth});
  for (size_t i = 0; i < weights.size(); i += 2) {
    const Tensor first = weights[i].second, second = weights[i + 1].second;
    x = nn::run_unit(x, {.body = [=](const Tensor& in) { return in.mm(first).tanh().mm(second).tanh(); },
                         .parameters =
                             [=] {
                               return std::vector{first, second};
                             }});
  }
  return x.square().sum();
}

// Returns the peak of a process that trains the blocks with AdamW.
double peak_of(World& world, int64_t stage, CountingAllocator& memory) {
  ParallelConfig config;
  config.zero = stage;
  world.lay_out(config);
  const int64_t before = memory.restart();
  const NamedTensors weights = make_blocks();
  std::vector<Tensor> all;
  for (const auto& one : weights) all.push_back(one.second);
  std::unique_ptr<Shards> shards;
  std::unique_ptr<GradientMean> mean;
  if (stage > 0)
    shards = std::make_unique<Shards>(
        world, Layout(weights, world.axis(AxisName::shard), [](const std::string&) { return false; }),
        weights, stage, DividedBlocks{.units = units_of(weights), .frozen = {}});
  else
    mean = std::make_unique<GradientMean>(world, all, /*may_skip=*/false);
  Value settings;
  settings.set("name", "adamw");
  const auto optimiser = train::make_optimiser(train::resolve_optimiser(settings),
                                               {{.parameters = shards ? shards->parts() : weights}});
  for (int64_t step = 0; step < kSteps; ++step) {
    const nn::UnitScope units(shards ? shards->units() : nullptr);
    const Tensor loss = loss_of(weights);
    if (shards)
      shards->begin(/*last=*/true);
    else
      mean->prepare(loss);
    loss.backward();
    if (shards) shards->end();
    optimiser->step(1e-3);
    optimiser->zero_grad();
    if (shards) shards->updated();
  }
  return static_cast<double>(memory.peak() - before);
}

}  // namespace

bool check_memory(World& world) {
  static CountingAllocator memory;  // LibTorch keeps its address
  constexpr uint8_t kBeforeOthers = 255;
  c10::SetCPUAllocator(&memory, kBeforeOthers);
  const double whole = peak_of(world, 0, memory), others = 1 - 1.0 / world.size();
  bool right = true;
  for (const int64_t stage : {1, 2, 3}) {
    // AdamW's two moments, then the gradients, then the weights.
    const double saved = static_cast<double>(stage + 1) * kWeights * others;
    const double most = whole - saved + 2 * kBlockBytes + 0.03 * whole, peak = peak_of(world, stage, memory);
    std::cerr << text("stage ", stage, ": ", std::llround(peak / kBlockBytes * 100) / 100.0,
                      " blocks, at most ", std::llround(most / kBlockBytes * 100) / 100.0, "; without ZeRO ",
                      std::llround(whole / kBlockBytes * 100) / 100.0, "\n");
    right = right && peak <= most;
  }
  return right;
}

}  // namespace tessera::parallel
