// Tasks through the whole program: trained, killed and continued, over processes, evaluated, reported, loaded.
// The program of this test is `tessera` with one more task.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>

#include "cli/base/command.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "io/images/image.h"
#include "io/weights/safetensors.h"
#include "nn/units_testing.h"
#include "open/open_task.h"
#include "serve/service.h"
#include "tests/tasks/mean_colour.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct TaskCase {
  const char *name, *settings, *metric, *block;
  const char* model = "name = \"vit\"";
  const char* data = "shapes:train=64,val=21";
  bool images = true;  // false: the model has no backbone, the data are texts of the test's own
  const char* preprocess = "";
};
void PrintTo(const TaskCase& one, std::ostream* out) { *out << one.name; }

constexpr TaskCase kCases[] = {
    {"mean_colour", "", "error", "Colours"},
    {"mae", "decoder_dim = 16\ndecoder_depth = 1\ndecoder_heads = 2\n", "loss", "Reconstructions"},
    {"simmim", "mask_patch = 8\n", "loss", "Curves"},
    {"maskfeat", "cell = 4\nmask_least = 2\n", "loss", "Curves", "name = \"eva02\""},
    {"dino",
     "out_dim = 12\nhead_hidden = 20\nhead_bottleneck = 8\nlocal_crops = 2\nlocal_size = 16\n"
     "warmup_teacher_temp_epochs = 2\n",
     "loss", "Curves"},
    {"moco_v3", "dim = 8\nhidden = 20\n", "loss", "Curves"},
    {"igpt", "", "loss", "Completions", "name = \"igpt\"\ncolours = 8", "shapes:train=64,val=21", true,
     "mean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n"},
    {"darl", "", "loss", "Error by patch", "name = \"darl\""},
    {"darl", "objective = \"diffusion\"\ngamma = true\norder = \"nested\"\n", "loss", "Completions",
     "name = \"illama\"\nmask = \"before\""},
    {"darl", "order = \"random\"\n", "loss", "Error by patch",
     "name = \"darl\"\ntwo_stream = true\ndrop_path = 0"},
    {"segment",
     "channels = 8\nauxiliary_channels = 8\nblocks = [0, 1]\nfactors = [4, 1]\nauxiliary_index = 1\n"
     "scale = [32, 32]\nratio = [0.75, 1.5]\n",
     "miou", "Masks", "name = \"vit\"", "shapes:task=segment,train=64,val=21"},
    {"glip",
     "prompt = 96\nwidth = 8\ninner = 8\nheads = 2\nlayers = 1\n"
     "text = {dim = 8, depth = 1, heads = 2, context = 96}\n",
     "box_ap", "Curves", "name = \"vit\"", "shapes:task=detect,train=64,val=21"},
    {"clip",
     "embed_dim = 8\ntext_dim = 16\ntext_depth = 1\ntext_heads = 2\ncontext_length = 24\npiece = 3\n"
     "equal_captions = \"ignored\"\n",
     "image_to_text_r1", "Curves"},
    {"clip",
     "embed_dim = 8\ntext_dim = 16\ntext_depth = 1\ntext_heads = 2\ncontext_length = 24\npiece = 3\n"
     "declip = {views = true, bank = 24, hidden = 8, bottleneck = 4}\n",
     "image_to_text_r1", "Curves"},
    {"clip",
     "embed_dim = 8\ntext_dim = 16\ntext_depth = 1\ntext_heads = 2\ncontext_length = 24\n"
     "nclip = {weight = 1, contrast = 0, hidden = 8, outputs = 12}\n",
     "image_to_text_r1", "Curves"},
    {"coca",
     "embed_dim = 8\ntext_dim = 16\ntext_depth = 1\ntext_heads = 2\ndecoder_depth = 1\ndecoder_heads = 2\n"
     "queries = 3\npooler_heads = 2\ncontext_length = 24\nlongest = 8\n",
     "cider", "Curves", "name = \"vit\"\nfinal_norm = false"},
    {"simvlm",
     "text_dim = 16\ntext_depth = 1\ndecoder_depth = 1\ntext_heads = 2\ncontext_length = 24\nlongest = 8\n",
     "cider", "Curves"},
    {"language", "length = 12\nlanguage = {dim = 16, depth = 2, heads = 2, context = 16}\n", "perplexity",
     "Curves", "name = \"none\"", "", false},
    {"bert", "length = 12\nencoder = {dim = 16, depth = 2, heads = 2, context = 16}\n", "perplexity",
     "Curves", "name = \"none\"", "", false},
    {"classify", "label_smoothing = 0.1\n[task.mixup]\nmixup = 0.5\n", "top1", "Predictions"},
};

struct Stop {};  // a crash

class Crash final : public train::Observer {
 public:
  explicit Crash(int64_t checkpoints) : left_(checkpoints) {}
  void checkpointed(const std::string&, uint64_t, double) override {
    if (left_-- == 0) throw Stop();
  }

 private:
  int64_t left_;
};

class WholeTask : public TemporaryFolder, public testing::WithParamInterface<TaskCase> {
 protected:
  void SetUp() override {
    std::string words;
    for (int i = 0; i < 300; ++i) words += text(i * i, i % 7 == 0 ? ".\n" : " ");
    write_text_atomic(path("words.txt"), words);
    const char* const tower = R"(
dim = 16
depth = 2
heads = 2
patch_size = 8
)";
    const bool drops = std::string(GetParam().model).find("drop_path") == std::string::npos;
    const std::string data = GetParam().images ? GetParam().data : "text:" + path("words.txt");
    write_text_atomic(path("recipe.toml"), text("[model]\n", GetParam().model, GetParam().images ? tower : "",
                                                GetParam().images && drops ? "drop_path = 0.2" : "", R"(
[data]
path = ")",
                                                data, R"("
[preprocess]
size = 32
)",
                                                GetParam().preprocess, R"([task]
name = ")",
                                                GetParam().name, "\"\n", GetParam().settings, R"([optimiser]
name = "adamw"
lr = 0.003
[schedule]
name = "cosine"
[train]
epochs = 3
batch_size = 8
threads = 1
device = "cpu"
ema_decay = 0.9
clip_grad = 1.0
log_every = 3
)"));
  }
  train::Recipe recipe(const std::string& run, std::vector<std::string> settings = {}) const {
    settings.push_back("train.output=\"" + path(run) + "\"");
    return train::load_recipe(path("recipe.toml"), settings);
  }
  // The program in a process of its own, or several.
  int program(int processes, std::vector<std::string> words) const {
    words.insert(words.begin(), fs::read_symlink("/proc/self/exe").string());
#ifdef TESSERA_MPIRUN
    if (processes > 1)
      words.insert(words.begin(),
                   {TESSERA_MPIRUN, "-n", std::to_string(processes), "--oversubscribe", "--bind-to", "none"});
#endif
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1), ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::vector<std::string> training(const std::string& run, std::vector<std::string> settings = {}) const {
    std::vector<std::string> words = {"train", path("recipe.toml"), "-o", path(run)};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return words;
  }
};

TEST_P(WholeTask, ContinuedRunsAreTheSameByteForByte) {
  train::run_training(recipe("whole"));
  const train::Recipe parts = recipe("parts", {"train.checkpoint_steps=1", "train.keep_last=1"});
  int64_t crashes = 0;
  for (const int64_t checkpoints : {0, 2, 5, 1, 7, 100}) {
    Crash crash(checkpoints);
    try {
      train::run_training(parts, {.resume = train::Resume::automatic, .observers = {&crash}});
    } catch (const Stop&) {
      ++crashes;
    }
  }
  EXPECT_EQ(crashes, 5);
  for (const char* name : {"model.safetensors", "best.safetensors", "checkpoints/latest/weights.safetensors",
                           "checkpoints/latest/ema.safetensors", "checkpoints/latest/optimiser.safetensors"})
    EXPECT_TRUE(read_file(path("whole/") + name) == read_file(path("parts/") + name)) << name;
}

// With a decay of 0 the average is the model after the step, a momentum teacher and buffers of the task included.
TEST_P(WholeTask, TheFirstAverageIsTheModelAfterTheStep) {
  train::run_training(recipe("run", {"train.steps=1", "train.ema_warmup=true"}));
  const SafetensorsFile model(path("run/checkpoints/latest/weights.safetensors")),
      average(path("run/checkpoints/latest/ema.safetensors"));
  ASSERT_EQ(model.tensors().size(), average.tensors().size());
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const TensorView &a = model.tensors()[i], &b = average.tensors()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) << a.name;
  }
}

TEST_P(WholeTask, IsEvaluatedAndReported) {
  ASSERT_EQ(program(1, training("run")), 0);
  const std::string page = read_text(path("run/report.html"));
  EXPECT_NE(page.find(GetParam().block), std::string::npos);
  EXPECT_NE(read_text(path("run/metrics.jsonl")).find(text("\"", GetParam().metric, "\"")),
            std::string::npos);
  EXPECT_EQ(program(1, {"eval", "-w", path("run"), "--json"}), 0);
  const train::OpenedTask opened = train::open_task(path("run"));
  EXPECT_EQ(tasks::task_name(opened.info.task), GetParam().name);
  EXPECT_EQ(opened.task->metadata(), opened.info.task_metadata);
  EXPECT_EQ(opened.task->main_metric().name, GetParam().metric);
}

// Evaluations read the weights of a block while it runs alone: pictures, completions and captions too.
TEST_P(WholeTask, IsEvaluatedWithTheWeightsOfTheRunningBlock) {
  train::Setup setup = train::make_setup(recipe("run", {"train.precision=fp32"}), false);
  tasks::EvaluateOptions options;
  options.open = [&](const tasks::StreamSpec& stream) {
    return std::make_unique<data::Loader>(*stream.source, stream.transform(32),
                                          train::loader_config(setup.recipe.train, stream, false));
  };
  options.blocks = {"classes", "samples", "pictures", "completions", "confusion"};
  const auto evaluated = [&] {
    tasks::Findings all;
    for (const auto& evaluator : setup.model.task->evaluators()) tasks::append(all, evaluator->run(options));
    return all;
  };
  // Stage 3 refuses these tasks by name: their second networks read all weights.
  if (!setup.model.task->why_weights_stay_whole().empty()) GTEST_SKIP() << "its weights stay whole";
  const tasks::Findings whole = evaluated();
  std::vector<std::vector<torch::Tensor>> units;
  for (const tasks::Part& part : setup.model.parts)
    for (auto& unit : nn::units_of(*part.module)) units.push_back(std::move(unit));
  nn::PoisonedUnits poisoned(units);
  const nn::UnitScope scope(&poisoned);
  const tasks::Findings parts = evaluated();
  ASSERT_EQ(whole.metrics.size(), parts.metrics.size());
  for (size_t i = 0; i < whole.metrics.size(); ++i)
    EXPECT_EQ(text(whole.metrics[i].value), text(parts.metrics[i].value)) << whole.metrics[i].info.name;
  ASSERT_EQ(whole.blocks.size(), parts.blocks.size());
  for (size_t i = 0; i < whole.blocks.size(); ++i) {
    const auto* const pictures = std::get_if<report::PicturesBlock>(&whole.blocks[i]);
    for (size_t k = 0; pictures && k < pictures->pictures.size(); ++k)
      EXPECT_TRUE(encode_png(pictures->pictures[k].image) ==
                  encode_png(std::get<report::PicturesBlock>(parts.blocks[i]).pictures.at(k).image));
  }
}

// Gets one response of a service without a connection.
class Mailbox final : public serve::Exchange {
 public:
  void reply(serve::HttpResponse response) override { response_.set_value(std::move(response)); }
  void begin(serve::HttpResponse) override {}
  void part(std::string) override {}
  void end() override {}
  void on_gone(std::function<void()>) override {}
  serve::HttpResponse get() { return response_.get_future().get(); }

 private:
  std::promise<serve::HttpResponse> response_;
};

serve::HttpResponse response_of(serve::Service& service, const std::string& method, const std::string& target,
                                const std::string& body = "") {
  const auto mailbox = std::make_shared<Mailbox>();
  service.handle({method, target, body, {{"host", "localhost"}}}, mailbox);
  return mailbox->get();
}

// A server of one run, as model "toy".
struct ToyServer {
  explicit ToyServer(const std::string& run)
      : models({{"toy", run}}, on_cpu(), {}, computer, answer::open_answerers),
        service(serve::ServiceOptions(), models, computer, decoders, jobs, metrics) {
    models.open();
    service.set_ready(true);
  }
  static answer::OpenRequest on_cpu() {
    answer::OpenRequest how;
    how.device = "cpu";
    return how;
  }
  serve::Metrics metrics;
  serve::Jobs jobs{1};
  serve::Decoders decoders{1};
  serve::Computer computer{metrics};
  serve::Models models;
  serve::Service service;
};

// No line of the server names a task.
TEST_P(WholeTask, IsServedDescribedAndCounted) {
  if (!GetParam().images) GTEST_SKIP() << "it answers no image";
  train::run_training(recipe("run", {"train.epochs=1"}));
  ToyServer server(path("run"));
  serve::Service& service = server.service;
  const std::string name = server.models.table()->count("toy.features") > 0 ? "toy.features" : "toy";
  const std::vector<std::byte> png = encode_png(Image(40, 30));
  const std::string picture(reinterpret_cast<const char*>(png.data()), png.size());
  const serve::HttpResponse answer = response_of(service, "POST", "/models/" + name + "/predict", picture);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_NE(answer.body.find("\"features\":["), std::string::npos) << answer.body;
  EXPECT_NE(response_of(service, "GET", "/openapi.json").body.find("\"/models/" + name + "/predict\""),
            std::string::npos);
  EXPECT_NE(response_of(service, "GET", "/metrics").body.find("{model=\"" + name + "\",status=\"200\"} 1\n"),
            std::string::npos);
}

class ToyTask : public WholeTask {};

// The file of a task alone makes its answer: values of its own are outputs, described and counted.
TEST_P(ToyTask, AnswersInAWayOfItsOwn) {
  train::run_training(recipe("run", {"train.epochs=1"}));
  ToyServer server(path("run"));
  serve::Service& service = server.service;
  const std::vector<std::byte> png = encode_png(Image(40, 30));
  const std::string picture(reinterpret_cast<const char*>(png.data()), png.size());
  const serve::HttpResponse answer = response_of(service, "POST", "/models/toy/predict", picture);
  EXPECT_EQ(answer.status, 200) << answer.body;
  const auto answered = nlohmann::json::parse(answer.body);
  EXPECT_TRUE(answered.at("predictions").at(0).at("green").is_number()) << answer.body;
  const auto metadata = nlohmann::json::parse(response_of(service, "GET", "/v2/models/toy").body);
  std::vector<std::string> outputs;
  for (const auto& output : metadata.at("outputs")) outputs.push_back(output.at("name"));
  EXPECT_EQ(outputs, (std::vector<std::string>{"red", "green", "blue"}));
  EXPECT_TRUE(nlohmann::json::parse(response_of(service, "GET", "/openapi.json").body)
                  .at("paths")
                  .contains("/models/toy/predict"));
  EXPECT_NE(response_of(service, "GET", "/metrics")
                .body.find("tessera_requests_total{model=\"toy\",status=\"200\"} 1\n"),
            std::string::npos);
}

// What is learned without labels starts a classifier: the backbone is taken, the rest is named as left over.
TEST_P(WholeTask, ItsBackboneStartsAClassifier) {
  if (!GetParam().images) GTEST_SKIP() << "it has no backbone";
  train::run_training(recipe("run", {"train.epochs=1"}));
  std::ofstream(path("classify.toml")) << text(R"([model]
name = "auto"
pretrained = ")",
                                               path("run/model.safetensors"), R"("
[data]
path = "shapes:train=64,val=21"
[train]
epochs = 1
batch_size = 8
threads = 1
device = "cpu"
)");
  EXPECT_EQ(program(1, {"train", path("classify.toml"), "-o", path("tuned")}), 0);
}

#ifdef TESSERA_MPIRUN
TEST_P(WholeTask, InDoublePrecisionTwoProcessesMakeTheSameWeights) {
  const std::vector<std::string> settings = {"train.precision=fp64", "train.steps=6"};
  ASSERT_EQ(program(1, training("one", settings)), 0);
  ASSERT_EQ(program(2, training("two", settings)), 0);
  const SafetensorsFile one(path("one/model.safetensors")), two(path("two/model.safetensors"));
  ASSERT_EQ(one.tensors().size(), two.tensors().size());
  for (size_t i = 0; i < one.tensors().size(); ++i) {
    const TensorView &a = one.tensors()[i], &b = two.tensors()[i];
    if (a.dtype != DType::f64) continue;
    double difference = 0, size = 0;
    for (size_t at = 0; at < a.bytes.size(); at += sizeof(double)) {
      double x = 0, y = 0;
      std::memcpy(&x, a.bytes.data() + at, sizeof(x)), std::memcpy(&y, b.bytes.data() + at, sizeof(y));
      // A key's bias has no true gradient: what Adam makes of rounding is no larger than the steps it makes.
      difference += (x - y) * (x - y), size += x * x;
    }
    // Neither has a bias before the batch norms of MoCo v3 and DeCLIP; the mean of their values is zero.
    const bool before_norm = (GetParam().name == std::string("moco_v3") &&
                              (a.name.ends_with("norm.bias") || a.name == "predictor.1.running_mean")) ||
                             (a.name.starts_with("declip.") && a.name.ends_with(".bias"));
    const bool cancels = before_norm || a.name.ends_with(".attn.qkv.bias") || a.name.ends_with(".kv.bias") ||
                         a.name.ends_with(".self.key.bias");
    EXPECT_LE(std::sqrt(difference), 1e-9 * std::max(std::sqrt(size), cancels ? 1e-2 : 0.0)) << a.name;
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Toy, ToyTask, testing::Values(kCases[0]));
INSTANTIATE_TEST_SUITE_P(Tasks, WholeTask, testing::ValuesIn(kCases), [](const auto& tested) {
  return std::string(tested.param.name) + std::to_string(tested.index);
});

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::tasks::add_task_kind(tessera::tasks::mean_colour_kind());
  if (argc > 1 && std::string(argv[1]).rfind("--gtest", 0) != 0) return tessera::cli::run_program(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
