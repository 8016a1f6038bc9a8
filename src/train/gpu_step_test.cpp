// Checks that a training step with a GPU's kernels reads no number back, and counts its skipped steps later. The
// kernels' emulator takes the place of a GPU.
#include <ATen/record_function.h>

#include <cmath>
#include <cstdlib>

#include "kernels/gpu/library.h"
#include "ops/gpu.h"
#include "train/setup.h"
#include "train/train_testing.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

// Counts what LibTorch's dispatcher sees in this thread.
class Dispatches {
 public:
  Dispatches() {
    counts_ = {};
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& f) {
      count(f);
      return std::unique_ptr<at::ObserverContext>();
    }));
  }
  ~Dispatches() { at::removeCallback(handle_); }
  Dispatches(const Dispatches&) = delete;
  Dispatches& operator=(const Dispatches&) = delete;

  struct Counts {
    int reads = 0;           // numbers read back
    std::vector<int> steps;  // reads in each complete step of a trainer
    bool running = false;
  };
  static Counts& counts() { return counts_; }

 private:
  static void count(const at::RecordFunction& f) {
    const std::string name = f.name();
    if (name == "wait for data") {  // a step begins
      if (counts_.running) counts_.steps.push_back(counts_.reads);
      counts_.running = true, counts_.reads = 0;
    }
    if (name == "aten::_local_scalar_dense") ++counts_.reads;
  }
  static thread_local Counts counts_;
  at::CallbackHandle handle_ = 0;
};
thread_local Dispatches::Counts Dispatches::counts_;

// The emulator's table in place of a GPU's.
struct Emulated {
  Emulated() { kernels::gpu::use_table(tessera_gpu_table()); }
  ~Emulated() { kernels::gpu::use_table(nullptr); }
};

class GpuStepTest : public TemporaryFolder {
 protected:
  Recipe tiny(const std::string& run, const std::vector<std::string>& settings = {}) const {
    return tiny_recipe(path(run), settings);
  }
  double last_loss(const std::string& run) const {
    double loss = NAN;
    for (const HistoryPoint& point : read_history(path(run)))
      for (const auto& [name, value] : point.values)
        if (point.kind == "train" && name == "loss") loss = value;
    return loss;
  }
};

TEST_F(GpuStepTest, ATrainerReadsNothingBackBetweenItsLines) {
  for (const std::string name : {"adamw", "lamb", "lars", "muon", "sgd"}) {
    const std::vector<std::string> settings = {"train.epochs=1", "train.log_every=100",
                                               "optimiser.name='" + name + "'"};
    run_training(tiny("composed " + name, settings));
    const Emulated emulated;
    {
      const Dispatches dispatches;
      run_training(tiny("kernels " + name, settings));
      ASSERT_EQ(Dispatches::counts().steps.size(), 7u) << name;
      for (const int reads : Dispatches::counts().steps) EXPECT_EQ(reads, 0) << name;
    }
    EXPECT_NEAR(last_loss("kernels " + name), last_loss("composed " + name), 1e-3) << name;
    // A second run gives the same bits.
    run_training(tiny("again " + name, settings));
    expect_same_weights(path("kernels " + name), path("again " + name));
  }
}

// The optimiser's kernel writes the weights of products in bfloat16, in runs of that precision.
TEST_F(GpuStepTest, ProductsGetTheirWeightsInHalfPrecision) {
  const Emulated emulated;
  for (const bool half : {true, false}) {
    const std::string run = half ? "half" : "float";
    const auto setup = make_setup(tiny(run, {half ? "train.precision='bf16'" : "train.precision='fp32'"}));
    for (const torch::Tensor& p : setup.optimisation.optimiser->parameters())
      torch::Tensor(p).mutable_grad() = torch::ones_like(p);
    setup.optimisation.optimiser->step_there(0.01, torch::ones({}), 1);
    const auto weights = weights_of_products(setup.model.parts);
    ASSERT_FALSE(weights.empty());
    for (const torch::Tensor& weight : weights) {
      const torch::Tensor copy = ops::half_of(weight);
      ASSERT_EQ(copy.defined(), half);
      EXPECT_TRUE(!half || torch::equal(copy, weight.detach().to(torch::kBFloat16)));
    }
  }
}

TEST_F(GpuStepTest, SkippedStepsAreCountedTwoStepsLater) {
  struct Notes : Observer {
    void note(const std::string& line) override { lines.push_back(line); }
    std::vector<std::string> lines;
  } notes;
  const Emulated emulated;
  const std::string line = error_of([&] {
    run_training(
        tiny("run", {"optimiser.lr=1e30", "train.max_skipped=3", "train.clip_grad=0", "train.log_every=100"}),
        {.observers = {&notes}});
  });
  EXPECT_NE(line.find("not finite in 4 steps in a row"), std::string::npos) << line;
  const auto skips = std::count_if(notes.lines.begin(), notes.lines.end(), [](const std::string& note) {
    return note.ends_with("skipped: the loss or its gradient is not finite");
  });
  EXPECT_EQ(skips, 3);
}

}  // namespace
}  // namespace tessera::train
