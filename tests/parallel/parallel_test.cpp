// Training over processes: the same run whatever their number.
#include "tests/parallel/parallel_testing.h"

namespace tessera::parallel_testing {
namespace {

TEST_F(ParallelTest, InDoublePrecisionOneTwoAndThreeProcessesMakeTheSameWeights) {
  expect_same_runs({1, 2, 3}, {});
  // All 50 validation images were evaluated, each once, and the leader alone has spoken.
  for (const Json& line : metrics("run3", "eval")) EXPECT_EQ(line.at("samples"), 50);
  const std::string out = read_text(path("run3.out"));
  EXPECT_NE(out.find("validation"), std::string::npos) << out;
  EXPECT_EQ(out.find("validation"), out.rfind("validation")) << out;
}

// Pieces of a share, three views of a picture, labels that weigh differently.
TEST_F(ParallelTest, WhatIsSummedOverABatchIsSummedOverAllProcesses) {
  expect_same_runs({1, 3},
                   {"train.accumulate=2", "train.repeats=3", "task.mixup.mixup=0.0", "task.mixup.cutmix=0.0",
                    "train.steps=6", "task.class_weights=[1, 9, 1, 1, 4, 1, 1, 0.1, 1, 1]"});
}

// Rates by layer over an optimiser that looks at whole tensors, in pieces, with everything that is drawn.
TEST_F(ParallelTest, OptimisersOfWholeTensorsMakeTheSameWeights) {
  const std::vector<std::string> all = {"train.accumulate=2", "train.steps=8", "optimiser.layer_decay=0.7",
                                        "task.mixup.mode=elem", "train.ema_warmup=true"};
  for (const char* optimiser : {"lamb", "lars", "muon"}) {
    SCOPED_TRACE(optimiser);
    auto settings = all;
    settings.push_back(std::string("optimiser.name=") + optimiser);
    expect_same_runs({1, 2, 3}, settings);
  }
}

// Blocks that are computed twice, shares of 10, 8 and 8 pictures with pairs in them, clipping tensor by
// tensor.
TEST_F(ParallelTest, UnevenSharesAndRecomputedBlocksMakeTheSameWeights) {
  expect_same_runs({1, 2, 3}, {"train.batch_size=26", "train.accumulate=3", "train.steps=8",
                               "train.checkpoint_activations=true", "train.clip_mode=agc",
                               "task.mixup.mode=pair", "train.clip_grad=0.05"});
}

// Pictures that grow from epoch to epoch, drawn by class, with a yes or no for each class.
TEST_F(ParallelTest, GrowingPicturesAndBalancedClassesMakeTheSameWeights) {
  expect_same_runs({1, 3},
                   {"train.sizes=[16, 32]", "train.steps=20", "train.balanced_sampling=true", "task.loss=bce",
                    "task.target_threshold=0.0", "train.clip_mode=value", "train.clip_grad=0.01",
                    "augment.erase.probability=0.5", "augment.auto_augment=rand-m9-mstd0.5-inc1"});
}

// Masks are drawn by a sample's place among those of all processes.
TEST_F(ParallelTest, MaskedImagesMakeTheSameWeights) {
  use_task("[task]\nname = \"mae\"\ndecoder_dim = 16\ndecoder_depth = 1\ndecoder_heads = 2\n");
  expect_same_runs({1, 2, 3}, {"train.steps=8", "train.accumulate=2"});
}

// Each process compares its own images and captions with those of all.
TEST_F(ParallelTest, ImagesComparedWithTheCaptionsOfAllMakeTheSameWeights) {
  use_task(
      "[task]\nname = \"clip\"\nembed_dim = 16\ntext_dim = 16\ntext_depth = 1\ntext_heads = 2\n"
      "context_length = 32\n");
  expect_same_runs({1, 2, 3, 4}, {"train.steps=8"});
  expect_same_runs({1, 3, 4}, {"train.steps=6", "train.batch_size=26", "task.loss=sigmoid", "task.chunk=3",
                               "task.piece=4", "task.equal_captions=positives"});
  // What goes round is counted.
  for (const Json& line : metrics("run4", "train")) EXPECT_GT(line.at("ring_bytes"), 0);
}

// Crops, dropped channels and the heads' batch norms are those of the whole batch.
TEST_F(ParallelTest, SegmentedImagesMakeTheSameWeights) {
  use_task(
      "[task]\nname = \"segment\"\nchannels = 8\nauxiliary_channels = 8\nblocks = [0, 0, 1, 1]\n"
      "scale = [32, 32]\ntest_mode = \"whole\"\n");
  expect_same_runs({1, 2, 3}, {"train.steps=4", "data.path=shapes:task=segment,train=48,val=10,size=32"});
}

// Boxes are divided by the objects of all processes, classes by the weights of all.
TEST_F(ParallelTest, DetectedSetsMakeTheSameWeights) {
  use_task(
      "[task]\nname = \"detr\"\nembed_dim = 16\nnum_heads = 2\nencoder_depth = 1\ndecoder_depth = 2\nhidden "
      "= 32\n"
      "queries = 5\njitter = [0.8, 1.5]\n");
  expect_same_runs({1, 2, 3}, {"train.steps=4", "data.path=shapes:task=detect,train=48,val=10,size=64",
                               "train.batch_size=10", "model.global_pool=avg", "model.class_token=false"});
}

// A trained detector that takes one step of rate 0 finds what it found before, whatever the processes.
TEST_F(ParallelTest, FoundObjectsDoNotDependOnTheProcesses) {
  use_task(
      "[task]\nname = \"detect\"\nmasks = false\nnorm = \"layer\"\nrpn_convs = 1\nbox_convs = 0\nbox_fcs = "
      "1\n"
      "width = 16\nbox_width = 32\nanchor_sizes = [16.0, 32.0, 64.0, 96.0]\nlevel_side = 64.0\nrpn_batch = "
      "32\n"
      "box_batch = 32\nproposals = 50\n");
  const std::vector<std::string> detector = {"data.path=shapes:task=detect,train=240,val=50,size=64",
                                             "preprocess.size=64",
                                             "augment.crop=none",
                                             "train.ema_decay=0",
                                             "model.name=vitdet",
                                             "model.global_blocks=[1]",
                                             "model.position_grid=8",
                                             "model.window_size=4"};
  auto longer = detector;
  longer.insert(longer.end(), {"train.steps=60", "optimiser.lr=0.003"});
  ASSERT_EQ(run(1, "trained", longer), 0) << log("trained");
  const Json want = metrics("trained", "eval").back();
  EXPECT_GT(want.at("box_ap50"), 0.001);  // there is something to find
  auto still = detector;
  still.insert(still.end(), {"train.steps=1", "optimiser.lr=0", "schedule.warmup_steps=0"});
  for (const int processes : {1, 2, 3}) {
    const std::string name = "still" + std::to_string(processes);
    ASSERT_EQ(run(processes, name, still, {"--pretrained", path("trained")}), 0) << log(name);
    for (const char* key : {"box_ap", "box_ap50", "box_ap_small", "box_ar100", "samples"})
      EXPECT_EQ(metrics(name, "eval").back().at(key), want.at(key)) << key << " of " << processes;
  }
}

// In each piece the processes wait for each other, so that all must have as many.
TEST_F(ParallelTest, MorePiecesThanAProcessHasSamplesAreRefused) {
  EXPECT_NE(run(2, "many", {"train.batch_size=10", "train.accumulate=6"}), 0);
  EXPECT_NE(log("many").find("train.accumulate = 6 must be at most 5"), std::string::npos) << log("many");
}

// Products are rounded to bfloat16 alike; what differs is the order of sums of weights that stay in float32.
TEST_F(ParallelTest, InBfloat16TheLossesAgree) {
  const std::vector<std::string> settings = {"train.precision=bf16", "train.accumulate=2", "train.steps=12"};
  for (const int processes : {1, 2, 3})
    ASSERT_EQ(run(processes, "bf" + std::to_string(processes), settings), 0);
  for (const char* other : {"bf2", "bf3"}) {
    const auto want = metrics("bf1", "train"), got = metrics(other, "train");
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(want[i].at("loss").get<double>(), got[i].at("loss").get<double>(), 1e-2) << other << i;
  }
}

TEST_F(ParallelTest, TheStepsOfQuantisedLayersAreThoseOfTheWholeBatch) {
  expect_same_runs({1, 3}, {"train.steps=6", "train.accumulate=2", "model.name=illama",
                            "quantization.weights=4", "quantization.activations=4"});
}

TEST_F(ParallelTest, InSinglePrecisionTheyAgreeToRounding) {
  const std::vector<std::string> sgd = {"optimiser.name=sgd", "optimiser.lr=0.05"};
  for (const int processes : {1, 2, 3}) {
    ASSERT_EQ(run(processes, "sgd" + std::to_string(processes), sgd), 0);
    ASSERT_EQ(run(processes, "adamw" + std::to_string(processes)), 0);
  }
  for (const char* other : {"2", "3"}) {
    const auto want = weights("sgd1"), got = weights(std::string("sgd") + other);
    double difference = 0, size = 0;
    for (const auto& [name, numbers] : want)
      for (size_t i = 0; i < numbers.size(); ++i) {
        difference += std::pow(numbers[i] - got.at(name)[i], 2);
        size += numbers[i] * numbers[i];
      }
    EXPECT_LE(std::sqrt(difference), 1e-6 * std::sqrt(size)) << other;
    expect_close_metrics("adamw1", std::string("adamw") + other, 1e-4);
  }
}

TEST_F(ParallelTest, TheTraceHoldsEveryCollectiveWithItsBytes) {
  ASSERT_EQ(run(2, "traced", {"train.steps=14"}, {"--profile", path("trace.json")}), 0) << log("traced");
  std::map<std::string, int64_t> count, bytes;
  const Json trace = Json::parse(read_text(path("trace.json")));
  for (const Json& event : trace) {
    if (event.at("pid") != "collectives") continue;
    EXPECT_GE(event.at("dur").get<double>(), 0);
    EXPECT_GE(event.at("ts").get<double>(), 0);
    ++count[event.at("name")];
    bytes[event.at("name")] += event.at("args").at("bytes").get<int64_t>();
  }
  int64_t parameters = 0;
  for (const auto& [name, numbers] : weights("traced")) parameters += static_cast<int64_t>(numbers.size());
  EXPECT_GE(count["gradients"], 10);
  EXPECT_GE(bytes["gradients"], 10 * 4 * parameters);  // of ten steps
  EXPECT_GE(count["sum"], 10);                         // whether any process' loss is not finite
}

TEST_F(ParallelTest, TheLogHoldsEachKindOfCollective) {
  ASSERT_EQ(run(2, "logged", {"train.steps=10", "train.log_every=5", "train.eval_every=1"}), 0);
  int64_t parameters = 0;
  for (const auto& [name, numbers] : weights("logged")) parameters += static_cast<int64_t>(numbers.size());
  const auto lines = metrics("logged", "train");
  ASSERT_EQ(lines.size(), 2u);
  for (const Json& line : lines) {
    EXPECT_GE(line.at("gradients_exchanges"), 5);
    // Five steps' gradients, and which of the parameters had one.
    EXPECT_GE(line.at("gradients_bytes"), 5 * 4 * parameters);
    EXPECT_LT(line.at("gradients_bytes"), 5 * 5 * parameters);
    EXPECT_GT(line.at("gradients_seconds"), 0);
    EXPECT_GE(line.at("sum_exchanges"), 5);
    EXPECT_GT(line.at("sum_bytes"), 0);
  }
  const std::string out = read_text(path("logged.out"));
  for (const char* kind : {"broadcast", "gather", "gradients", "sum"})
    EXPECT_NE(out.find(std::string("exchange ") + kind + ": "), std::string::npos) << out;
}

TEST_F(ParallelTest, WithoutAGpuEachTheCpuIsTakenOrTheRequestRefused) {
  EXPECT_EQ(run(2, "auto", {"train.device=auto", "train.steps=4"}), 0) << log("auto");
  EXPECT_NE(log("auto").find("on cpu in 2 processes"), std::string::npos) << log("auto");
  EXPECT_NE(read_text(path("auto/recipe.toml")).find("device = \"auto\""), std::string::npos);
  EXPECT_EQ(run(2, "gpu", {"train.device=cuda"}), 2);
  EXPECT_NE(log("gpu").find("device 'cuda': "), std::string::npos) << log("gpu");
  EXPECT_NE(log("gpu").find("; use --device cpu"), std::string::npos) << log("gpu");
  EXPECT_EQ(run(2, "one", {"train.device=cuda:0"}), 2);
  EXPECT_NE(log("one").find("device 'cuda:0' is for one process; several take a GPU each"), std::string::npos)
      << log("one");
}

TEST_F(ParallelTest, RunningStatisticsAreThoseOfAllProcesses) {
  ASSERT_EQ(run(1, "backbone", {"train.steps=4", "model.name=visionllama"}), 0) << log("backbone");
  const std::vector<std::string> probe = {
      "model.name=visionllama",
      "model.head_batch_norm=true",
      "model.pretrained=" + path("backbone/model.safetensors"),
      "train.steps=10",
      "train.precision=fp64",
      "train.freeze=[\"cls_token\", \"patch_embed.*\", \"blocks.*\", \"norm.*\"]",
      "model.drop_path=0.0"};
  ASSERT_EQ(run(2, "probe", probe), 0) << log("probe");
  // The mean of what both saw: a mean over shares is the whole batch's.
  ASSERT_EQ(run(1, "alone", probe), 0) << log("alone");
  const auto want = weights("alone").at("head_norm.running_mean"),
             got = weights("probe").at("head_norm.running_mean");
  double size = 0, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    size += want[i] * want[i];
    difference += std::pow(want[i] - got[i], 2);
  }
  EXPECT_GT(size, 0);
  EXPECT_LE(std::sqrt(difference), 1e-9 * std::sqrt(size));
}

}  // namespace
}  // namespace tessera::parallel_testing
