// Training over processes: the same run whatever their number, and what happens when one of them dies.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/text.h"
#include "io/file.h"
#include "io/io_testing.h"
#include "io/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// 24 pictures a step: shares of 24, 12 and 8. The last evaluation batch is not a multiple of three.
constexpr const char* kRecipe = R"(
[model]
name = "vit"
dim = 32
depth = 2
heads = 2
patch_size = 8
drop_path = 0.3
[data]
path = "shapes:train=240,val=50"
[preprocess]
size = 32
[augment]
crop = "padded"
[mixup]
mixup = 0.8
cutmix = 1.0
[optimiser]
name = "adamw"
lr = 0.001
[schedule]
name = "cosine"
warmup_steps = 3
[train]
steps = 20
batch_size = 24
eval_batch_size = 16
device = "cpu"
threads = 1
clip_grad = 1.0
ema_decay = 0.9
log_every = 5
)";

class ParallelTest : public TemporaryFolder {
 protected:
  void SetUp() override { write_text_atomic(path("recipe.toml"), kRecipe); }

  // Starts `processes` of the program; what they print goes to RUN.out and RUN.log.
  pid_t start(int processes, const std::string& run, const std::vector<std::string>& settings,
              const std::vector<std::string>& options = {}) const {
    const std::vector<std::string> words = training(run, settings, options);
    return start_words(path(run), processes > 1 ? mpirun(processes, words) : words);
  }
  std::vector<std::string> training(const std::string& run, const std::vector<std::string>& settings,
                                    const std::vector<std::string>& options = {}) const {
    std::vector<std::string> words = {TESSERA_PROGRAM, "train", path("recipe.toml"), "--output", path(run)};
    words.insert(words.end(), options.begin(), options.end());
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return words;
  }
  static std::vector<std::string> mpirun(int processes, const std::vector<std::string>& program) {
    std::vector<std::string> words = {TESSERA_MPIRUN,    "-n",        std::to_string(processes),
                                      "--oversubscribe", "--bind-to", "none"};
    words.insert(words.end(), program.begin(), program.end());
    return words;
  }
  static pid_t start_words(const std::string& output, std::vector<std::string> words) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::dup2(::open((output + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), 1);
    ::dup2(::open((output + ".log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    for (const char* variable : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
      ::setenv(variable, "1", 1);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  static int exit_code(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(int processes, const std::string& name, const std::vector<std::string>& settings = {},
          const std::vector<std::string>& options = {}) const {
    return exit_code(start(processes, name, settings, options));
  }
  std::string log(const std::string& run) const { return read_text(path(run + ".log")); }

  std::map<std::string, std::vector<double>> weights(const std::string& run,
                                                     const std::string& which = "weights") const {
    const SafetensorsFile file(path(run + "/checkpoints/latest/" + which + ".safetensors"));
    std::map<std::string, std::vector<double>> out;
    for (const TensorView& view : file.tensors()) {
      auto& numbers = out[view.name];
      const auto take = [&](auto element) {
        using Element = decltype(element);
        numbers.resize(view.bytes.size() / sizeof(Element));
        for (size_t i = 0; i < numbers.size(); ++i) {
          std::memcpy(&element, view.bytes.data() + i * sizeof(Element), sizeof(Element));
          numbers[i] = static_cast<double>(element);
        }
      };
      if (view.dtype == DType::f64)
        take(double{});
      else
        take(float{});
    }
    return out;
  }
  std::vector<Json> metrics(const std::string& run, const std::string& kind) const {
    std::vector<Json> lines;
    std::istringstream content(read_text(path(run + "/metrics.jsonl")));
    for (std::string line; std::getline(content, line);)
      if (const Json object = Json::parse(line); object.at("kind") == kind) lines.push_back(object);
    return lines;
  }
  // A key's bias adds the same to all scores of a query: its true gradient is zero, and what Adam makes of
  // rounding is held to the step that it can make. It is the middle third of its tensor.
  static bool is_key_bias(const std::string& name, size_t i, size_t count) {
    return name.ends_with(".attn.qkv.bias") && i >= count / 3 && i < 2 * count / 3;
  }
  // To 1e-9 of each tensor, of the weights and of their moving average.
  void expect_close_weights(const std::string& run, const std::string& other) const {
    for (const char* which : {"weights", "ema"}) {
      const auto want = weights(run, which), got = weights(other, which);
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [name, numbers] : want) {
        double difference = 0, size = 0, of_keys = 0;
        for (size_t i = 0; i < numbers.size(); ++i) {
          const double square = std::pow(numbers[i] - got.at(name)[i], 2);
          (is_key_bias(name, i, numbers.size()) ? of_keys : difference) += square;
          size += numbers[i] * numbers[i];
        }
        EXPECT_LE(std::sqrt(difference), 1e-9 * std::sqrt(size)) << other << " " << which << " " << name;
        EXPECT_LE(std::sqrt(of_keys), 1e-9 * std::max(std::sqrt(size), 1e-2))
            << other << " " << which << " " << name;
      }
    }
  }
  // The same weights and measurements in float64 whatever the number of processes.
  void expect_same_runs(const std::vector<int>& processes, std::vector<std::string> settings) const {
    settings.emplace_back("train.precision=fp64");
    const auto name = [](int count) { return "run" + std::to_string(count); };
    for (const int count : processes) {
      fs::remove_all(path(name(count)));
      ASSERT_EQ(run(count, name(count), settings), 0) << log(name(count));
    }
    for (size_t i = 1; i < processes.size(); ++i) {
      expect_close_weights(name(processes[0]), name(processes[i]));
      expect_close_metrics(name(processes[0]), name(processes[i]), 1e-9);
    }
  }
  void expect_close_metrics(const std::string& run, const std::string& other, double relative) const {
    for (const char* kind : {"train", "eval"}) {
      const auto a = metrics(run, kind), b = metrics(other, kind);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i)
        for (const char* key : {"loss", "accuracy", "top1", "grad_norm", "samples"}) {
          if (!a[i].contains(key)) continue;
          const double want = a[i][key].get<double>(), got = b[i].at(key).get<double>();
          // Shares of right answers are means in float32.
          const double allowed = std::string(key) == "accuracy" ? std::max(relative, 1e-6) : relative;
          EXPECT_NEAR(want, got, allowed * std::max(1.0, std::abs(want)))
              << kind << " line " << i << " " << key;
        }
    }
  }
};

TEST_F(ParallelTest, InDoublePrecisionOneTwoAndThreeProcessesMakeTheSameWeights) {
  expect_same_runs({1, 2, 3}, {});
  // All 50 held-out pictures were evaluated, each once, and the leader alone has spoken.
  for (const Json& line : metrics("run3", "eval")) EXPECT_EQ(line.at("samples"), 50);
  const std::string out = read_text(path("run3.out"));
  EXPECT_EQ(out.find("held out"), out.rfind("held out")) << out;
}

// Pieces of a share, three views of a picture, labels that weigh differently.
TEST_F(ParallelTest, WhatIsSummedOverABatchIsSummedOverAllProcesses) {
  expect_same_runs({1, 3}, {"train.accumulate=2", "train.repeats=3", "mixup.mixup=0.0", "mixup.cutmix=0.0",
                            "train.steps=6", "train.class_weights=[1, 9, 1, 1, 4, 1, 1, 0.1, 1, 1]"});
}

// Rates by layer over an optimiser that looks at whole tensors, in pieces, with everything that is drawn.
TEST_F(ParallelTest, OptimisersOfWholeTensorsMakeTheSameWeights) {
  const std::vector<std::string> all = {"train.accumulate=2", "train.steps=8", "optimiser.layer_decay=0.7",
                                        "mixup.mode=elem", "train.ema_warmup=true"};
  for (const char* optimiser : {"lamb", "lars"}) {
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
                               "train.checkpoint_activations=true", "train.clip_mode=agc", "mixup.mode=pair",
                               "train.clip_grad=0.05"});
}

// Pictures that grow from epoch to epoch, drawn by class, with a yes or no for each class.
TEST_F(ParallelTest, GrowingPicturesAndBalancedClassesMakeTheSameWeights) {
  expect_same_runs(
      {1, 3}, {"train.sizes=[16, 32]", "train.steps=20", "train.balanced_sampling=true", "train.loss=bce",
               "train.target_threshold=0.0", "train.clip_mode=value", "train.clip_grad=0.01",
               "augment.erase.probability=0.5", "augment.auto_augment=rand-m9-mstd0.5-inc1"});
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

// What NCCL needs before its first collective: one store for all, found over MPI.
TEST_F(ParallelTest, ProcessesMeetInAStore) {
  EXPECT_EQ(exit_code(start_words(path("meeting"), mpirun(3, {TESSERA_MEETING}))), 0) << log("meeting");
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

// Children of a process.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, state;
    pid_t ppid = 0;
    if (stat >> pid >> name >> state >> ppid && ppid == parent) found.push_back(std::stoi(pid));
  }
  return found;
}

TEST_F(ParallelTest, AProcessThatDiesEndsTheJobAndFewerContinue) {
  ASSERT_EQ(run(1, "whole", {"train.precision=fp64", "train.checkpoint_steps=4"}), 0);
  const std::vector<std::string> slow = {"train.precision=fp64", "train.checkpoint_steps=4"};
  const pid_t job = start(3, "parts", slow, {"--resume", "auto"});
  while (!fs::exists(path("parts/checkpoints/step-000004/manifest.json")) && is_running(job))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto processes = children_of(job);
  const auto killed = std::chrono::steady_clock::now();
  ASSERT_FALSE(processes.empty());
  ::kill(processes.back(), SIGKILL);
  const int code = exit_code(job);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(30));
  EXPECT_NE(code, 0);
  EXPECT_NE(log("parts").find("signal 9"), std::string::npos) << log("parts");
  ASSERT_EQ(run(2, "parts", slow, {"--resume", "required"}), 0) << log("parts");
  EXPECT_NE(log("parts").find("the run was made by 3 processes, now there are 2"), std::string::npos)
      << log("parts");
  expect_close_metrics("whole", "parts", 1e-9);
  expect_close_weights("whole", "parts");
}

TEST_F(ParallelTest, WhatIsWrongIsSaidOnce) {
  EXPECT_EQ(run(2, "typo", {"train.epoch=1"}), 2);
  const std::string line = "tessera: process 0 of 2: " + path("recipe.toml") + ": unknown key 'train.epoch'";
  const std::string said = log("typo");
  EXPECT_NE(said.find(line), std::string::npos) << said;
  EXPECT_EQ(said.find("unknown key"), said.rfind("unknown key")) << said;
  EXPECT_EQ(run(2, "small", {"train.batch_size=3"}), 2);
  EXPECT_NE(log("small").find("batch size is 3, must be at least twice the number of ranks, 2"),
            std::string::npos)
      << log("small");
}

// The process of a rank among the children of mpirun.
pid_t process_of(pid_t job, int rank) {
  for (const pid_t child : children_of(job)) {
    std::ifstream file("/proc/" + std::to_string(child) + "/environ");
    for (std::string variable; std::getline(file, variable, '\0');)
      if (variable == "OMPI_COMM_WORLD_RANK=" + std::to_string(rank)) return child;
  }
  return 0;
}

// Variables of the environment for the programs that are started meanwhile.
using Variables = std::vector<std::pair<const char*, const char*>>;
class Environment {
 public:
  explicit Environment(Variables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name, value, 1);
  }
  ~Environment() {
    for (const auto& variable : variables_) ::unsetenv(variable.first);
  }

 private:
  Variables variables_;
};

constexpr const char* kRightLauncher = "srun --mpi=pmix --kill-on-bad-exit=1";

TEST_F(ParallelTest, ProcessesThatCannotFindEachOtherDoNotMakeTheSameRunEach) {
  const auto refused = [&](const std::string& name, Variables variables) {
    const Environment environment(std::move(variables));
    EXPECT_EQ(run(1, name), 2) << log(name);
    EXPECT_FALSE(fs::exists(path(name))) << name;
    return log(name);
  };
  EXPECT_NE(refused("slurm", {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}})
                .find("srun started 4 processes that cannot find each other"),
            std::string::npos);
  EXPECT_NE(refused("pmi", {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).find(kRightLauncher), std::string::npos);
  EXPECT_NE(refused("other", {{"OMPI_COMM_WORLD_SIZE", "3"}})
                .find("3 processes were started, but MPI finds this one alone"),
            std::string::npos);
  // One process of a job of several tasks is alone and may run.
  const Environment one(
      Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_EQ(run(1, "one", {"train.steps=1", "schedule.warmup_steps=0"}), 0) << log("one");
}

TEST_F(ParallelTest, OtherDataOnOneMachineIsSeenBeforeTheFirstStep) {
  std::vector<std::string> words = mpirun(1, training("other", {}));
  const auto second = training("other", {"data.path=shapes:train=264,val=50"});
  words.insert(words.end(), {":", "-n", "1"});
  words.insert(words.end(), second.begin(), second.end());
  EXPECT_EQ(exit_code(start_words(path("other"), words)), 1) << log("other");
  EXPECT_NE(log("other").find("has another train_data than the first one"), std::string::npos)
      << log("other");
  EXPECT_FALSE(fs::exists(path("other")));
}

// Each process reads a file of its own: the run is that of the first one's.
TEST_F(ParallelTest, OtherFirstWeightsGiveWayToThoseOfTheFirstProcess) {
  const auto pretrained = [&](const std::string& run) {
    return "model.pretrained=" + path(run + "/checkpoints/latest/weights.safetensors");
  };
  for (const char* seed : {"1", "2"})
    ASSERT_EQ(run(1, text("weights", seed),
                  {"train.steps=1", "schedule.warmup_steps=0", text("train.seed=", seed)}),
              0);
  const std::string doubles = "train.precision=fp64";
  ASSERT_EQ(run(2, "same", {doubles, pretrained("weights1")}), 0) << log("same");
  std::vector<std::string> words = mpirun(1, training("other", {doubles, pretrained("weights1")}));
  const auto second = training("other", {doubles, pretrained("weights2")});
  words.insert(words.end(), {":", "-n", "1"});
  words.insert(words.end(), second.begin(), second.end());
  ASSERT_EQ(exit_code(start_words(path("other"), words)), 0) << log("other");
  EXPECT_NE(log("other").find("the first weights differ between processes"), std::string::npos)
      << log("other");
  EXPECT_EQ(log("same").find("the first weights differ"), std::string::npos) << log("same");
  expect_close_weights("same", "other");
}

TEST_F(ParallelTest, AProcessThatIsStoppedIsNamedByThoseThatWait) {
  const Environment environment(Variables{{"TESSERA_WAIT_SECONDS", "6"}});
  const pid_t job = start(3, "stuck", {"train.steps=1000000", "train.checkpoint_steps=4"});
  while (!fs::exists(path("stuck/checkpoints/step-000004/manifest.json")) && is_running(job))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const pid_t stopped = process_of(job, 2);
  ASSERT_GT(stopped, 0);
  const auto began = std::chrono::steady_clock::now();
  ::kill(stopped, SIGSTOP);
  EXPECT_EQ(exit_code(job), 1) << log("stuck");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  EXPECT_NE(log("stuck").find("tessera: process 0 of 3: the "), std::string::npos) << log("stuck");
  EXPECT_NE(log("stuck").find(" s for process 2, which is stopped or stuck"), std::string::npos)
      << log("stuck");
}

TEST_F(ParallelTest, WhatFailsInOneProcessEndsAllInItsName) {
  const fs::path picture = fs::path(TESSERA_TEST_DATA) / "../../examples/pictures/star.png";
  for (const char* place : {"train/a", "train/b", "val/a", "val/b"}) {
    fs::create_directories(path("photos") / fs::path(place));
    for (int i = 0; i < 60; ++i)
      fs::copy_file(picture, path("photos") / fs::path(place) / (std::to_string(i) + ".png"));
  }
  write_text_atomic(path("photos/train/b/broken.png"), "no picture");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(run(2, "bad", {"data.path=" + path("photos"), "train.on_bad_image=fail", "train.steps=100"}), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  const std::string said = log("bad");
  const size_t line = said.find("tessera: process "), name = said.find("train/b/broken.png");
  ASSERT_NE(line, std::string::npos) << said;
  EXPECT_NE(said.find(" of 2: ", line), std::string::npos) << said;
  EXPECT_NE(name, std::string::npos) << said;

  const Environment full(Variables{{"TESSERA_FAULT", "write:40+:ENOSPC"}});
  EXPECT_EQ(run(2, "full", {"train.steps=1000", "train.checkpoint_steps=4"}), 1);
  EXPECT_NE(log("full").find("tessera: process 0 of 2: "), std::string::npos) << log("full");
  EXPECT_NE(log("full").find("No space left on device"), std::string::npos) << log("full");
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

TEST_F(ParallelTest, ASignalStopsAllAfterTheSameStep) {
  const pid_t job = start(2, "stopped", {"train.steps=100000", "train.checkpoint_steps=4"});
  while (!fs::exists(path("stopped/checkpoints/step-000004/manifest.json")) && is_running(job))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const pid_t process : children_of(job)) ::kill(process, SIGTERM);
  EXPECT_EQ(exit_code(job), 130) << log("stopped");
  EXPECT_NE(log("stopped").find("interrupted after step "), std::string::npos) << log("stopped");
}

}  // namespace
}  // namespace tessera
