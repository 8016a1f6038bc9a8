// A training step on a GPU, without one: its copies on the meta device, and the numbers that it reads back with the kernels'
// emulator.
#include <ATen/record_function.h>

#include <cmath>
#include <cstdlib>

#include "kernels/gpu/library.h"
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
                                         }).needsInputs(true));
  }
  ~Dispatches() { at::removeCallback(handle_); }
  Dispatches(const Dispatches&) = delete;
  Dispatches& operator=(const Dispatches&) = delete;

  struct Counts {
    int copies = 0;          // from the CPU to another device
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
    if (name != "aten::copy_" || f.inputs().size() < 2) return;
    const c10::IValue &to = f.inputs()[0], &from = f.inputs()[1];
    if (to.isTensor() && from.isTensor() && !to.toTensor().is_cpu() && from.toTensor().is_cpu())
      ++counts_.copies;
  }
  static thread_local Counts counts_;
  at::CallbackHandle handle_ = 0;
};
thread_local Dispatches::Counts Dispatches::counts_;

data::Batch batch_of(int64_t samples, int64_t side) {
  data::Batch batch;
  batch.size = batch.whole = samples;
  batch.add({"image", DType::f32, {3, side, side}});
  for (int64_t& label : batch.add({"label", DType::i64, {}}).values<int64_t>()) label = 1;
  return batch;
}

// On the meta device, reading a number is an error.
TEST(GpuStep, SendsTheBatchAndTheDrawsAndReadsNothing) {
  const auto world = parallel::World::alone();
  const auto alone = make_collective(world->samples());
  for (const char* name : {"deit3_small_patch16_224", "visionllama_small_patch16_224",
                           "eva02_tiny_patch14_224", "illama_tiny_patch16_224", "vil_tiny_patch16_224"}) {
    SCOPED_TRACE(name);
    tasks::TaskSetup setup;
    setup.settings = tasks::task_settings(tasks::resolve_task({}));
    setup.model = models::resolve_model(name, parse_toml("drop_path = 0.3\n", "test"));
    setup.meta = true;
    const auto task = tasks::find_task("classify").make(setup);
    const data::Batch batch = batch_of(8, 224);
    int copies = 0;
    for (uint64_t step = 0; step < 3; ++step) {
      const Dispatches dispatches;
      tasks::Inputs inputs;
      inputs.streams.push_back(tasks::to_device(batch, "train", torch::kMeta, tasks::Precision::fp32));
      task->loss(inputs, {.seed = 1, .step = step}, *alone).sum.backward();
      copies = Dispatches::counts().copies;
    }
    EXPECT_LE(copies, 2);
    EXPECT_GE(copies, 1);
  }
}

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
  const std::vector<std::string> settings = {"train.epochs=1", "train.log_every=100"};
  run_training(tiny("composed", settings));
  const Emulated emulated;
  {
    const Dispatches dispatches;
    run_training(tiny("kernels", settings));
    ASSERT_EQ(Dispatches::counts().steps.size(), 7u);
    for (const int reads : Dispatches::counts().steps) EXPECT_EQ(reads, 0);
  }
  EXPECT_NEAR(last_loss("kernels"), last_loss("composed"), 1e-3);
  // The same bits again, and after a stop.
  run_training(tiny("again", settings));
  expect_same_weights(path("kernels"), path("again"));
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
