// Tasks that answer questions about images: their words and images, gates at 0, batches without images.
#include "tasks/answering.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/text.h"
#include "data/conversations.h"
#include "tasks/conversation_input.h"

namespace tessera::tasks {
namespace {

using models::table;

constexpr const char* kTasks[] = {"instruct", "frozen", "flamingo"};
constexpr int64_t kConversations = 8, kSide = 32;

std::shared_ptr<const data::Conversations> conversations_of(const std::string& lines) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera_tasks_XXXXXX").string();
  const int descriptor = ::mkstemp(pattern.data());
  check(descriptor >= 0, "no temporary file");
  std::ofstream(pattern) << lines;
  const auto images = std::shared_ptr<const data::Source>(
      data::open_source({.path = "shapes:train=8,val=8"}, data::Split::train));
  auto made = std::make_shared<data::Conversations>(pattern, images);
  std::filesystem::remove(pattern);
  return made;
}

std::shared_ptr<const data::Conversations> conversations() {
  std::ostringstream out;
  for (int64_t i = 0; i < kConversations; ++i)
    out << R"({"image": ")" << i << R"(", "question": "what is )" << i << R"(?", "answers": ["it is )"
        << i * i << R"("], "answer_type": ")" << (i % 2 == 0 ? "even" : "odd") << "\"}\n";
  return conversations_of(out.str());
}

TaskSetup some_setup(const char* name, const Value& settings = {}) {
  Value all = table({{"length", 120},
                     {"tokenizer", "bytes"},
                     {"language", table({{"dim", 16}, {"depth", 2}, {"heads", 2}, {"context", 128}})}});
  if (std::string(name) == "flamingo")
    merge(all, table({{"every", 1},
                      {"latents", 3},
                      {"resampler_depth", 1},
                      {"resampler_heads", 2},
                      {"cross_heads", 2},
                      {"head_dim", 8}}));
  merge(all, settings);
  TaskSetup setup;
  setup.settings = find_task(name).resolve(all);
  setup.model = models::resolve_model("vit", table({{"image_size", kSide},
                                                    {"patch_size", 16},
                                                    {"dim", 16},
                                                    {"depth", 2},
                                                    {"heads", 2},
                                                    {"classes", 0}}));
  setup.preprocess.size = kSide;
  setup.augment.crop = "center";
  setup.train = setup.validation = conversations();
  setup.sides = {kSide};
  setup.seed = 3;
  return setup;
}

std::unique_ptr<Task> make_task(const TaskSetup& setup, const char* name) {
  auto task = find_task(name).make(setup);
  move(task->parts(), torch::kCPU, torch::kFloat32);
  return task;
}

StreamInputs batch_of(const StreamSpec& stream, uint64_t seed = 0) {
  data::Loader loader(*stream.source, stream.transform(kSide),
                      {.batch_size = 4, .shuffle = false, .drop_last = false, .seed = seed});
  return to_device(*loader.next(), stream.name, torch::kCPU, Precision::fp32);
}

TEST(Answering, EachImageHasItsPlaces) {
  for (const char* name : kTasks)
    for (const int64_t shots : {0, 1, 2}) {
      const auto task = make_task(some_setup(name, table({{"shots", shots}})), name);
      const StreamInputs batch = batch_of(task->streams().at(0));
      const torch::Tensor images = batch.at("image");
      EXPECT_EQ(images.dim(), shots > 0 ? 5 : 4) << name;
      if (shots > 0) {
        EXPECT_EQ(images.size(1), 1 + shots);
      }
      const int64_t per_image = std::string(name) == "instruct" ? 4 : std::string(name) == "frozen" ? 2 : 1;
      EXPECT_TRUE(((batch.at("ids") == 257).sum(1) == (1 + shots) * per_image).all().item<bool>()) << name;
      const Inputs inputs{{batch}};
      const Loss loss = task->loss(inputs, {}, Collective::alone());
      EXPECT_TRUE(std::isfinite(loss.sum.item<double>())) << name;
    }
}

// A loss of the examples in training; of the question alone where it is measured, with the same examples for any seed.
TEST(Answering, ExamplesStandInFrontOfTheQuestion) {
  const auto task =
      make_task(some_setup("frozen", table({{"shots", 2}, {"eval_shots", Value::Array{2, 0}}})), "frozen");
  const StreamInputs train = batch_of(task->streams().at(0)), measured = batch_of(task->validation()),
                     again = batch_of(task->validation(), 7);
  const auto learned = [](const StreamInputs& batch) { return (batch.at("labels") != kNotLearned).sum(1); };
  EXPECT_TRUE((learned(train) > 2 * learned(measured)).all().item<bool>());
  EXPECT_TRUE(torch::equal(measured.at("ids"), again.at("ids")));
  EXPECT_TRUE(torch::equal(measured.at("image"), again.at("image")));
  EXPECT_FALSE(torch::equal(batch_of(task->streams().at(0), 1).at("ids"), train.at("ids")));
}

EvaluateOptions validation_options() {
  EvaluateOptions options;
  options.open = [](const StreamSpec& stream) {
    return std::make_unique<data::Loader>(
        *stream.source, stream.transform(kSide),
        data::LoaderConfig{.batch_size = 3, .shuffle = false, .drop_last = false});
  };
  return options;
}

// The likeliest letter of each question, each compared on its own with the task's loss.
TEST(Answering, AChoiceIsTheLikeliestOfTheLetters) {
  std::string lines;
  for (int i = 0; i < 6; ++i)
    lines += text(R"({"image": ")", i, R"(", "question": "which?", "hint": "look", "choices": ["x", "y", "z)",
                  i, R"("], "answer": )", i % 3, "}\n");
  const auto questions = conversations_of(lines);
  EXPECT_TRUE(questions->has_choices());
  EXPECT_EQ(
      questions->read(4).annotation.captions,
      (std::vector<std::string>{"look\nwhich?\nA. x\nB. y\nC. z4\nAnswer with the option's letter from the "
                                "given choices directly.",
                                "B"}));
  TaskSetup setup = some_setup("instruct", table({{"length", 128}}));
  setup.train = setup.validation = questions;
  const auto task = make_task(setup, "instruct");
  const Findings findings = task->evaluators().at(0)->run(validation_options());
  const torch::NoGradGuard no_grad;
  int right = 0;
  for (int64_t i = 0; i < questions->size(); ++i) {
    std::vector<double> losses;
    for (const char* letter : {"A", "B", "C"}) {
      const auto one = conversations_of(text(
          R"({"image": ")", i,
          R"(", "conversations": [{"from": "human", "value": "look\nwhich?\nA. x\nB. y\nC. z)", i,
          R"(\nAnswer with the option's letter from the given choices directly."}, {"from": "gpt", "value": ")",
          letter, "\"}]}\n"));
      data::Loader loader(*one, task->validation().transform(kSide), {.batch_size = 1, .shuffle = false});
      const StreamInputs batch = to_device(*loader.next(), "validation", torch::kCPU, Precision::fp32);
      losses.push_back(task->loss({{batch}}, {}, Collective::alone()).sum.item<double>());
    }
    right += std::min_element(losses.begin(), losses.end()) - losses.begin() == i % 3;
  }
  EXPECT_NEAR(findings.metric("choice"), right / 6.0, 1e-9);
}

// The model writes its answers; once it is taught to say what the first annotator says, the others decide.
TEST(Answering, AnswersOfSeveralAnnotatorsAreScoredAsVqaDoes) {
  std::string lines;
  for (int i = 0; i < 4; ++i)
    lines +=
        text(R"({"image": ")", i, R"(", "question": "how many?", "answers": [{"answer": "e"}, {"answer": ")",
             i < 2 ? "e" : "f", R"("}, {"answer": "e"}, {"answer": "g"}]})", "\n");
  TaskSetup setup = some_setup("instruct");
  setup.train = setup.validation = conversations_of(lines);
  const auto task = make_task(setup, "instruct");
  const torch::NoGradGuard no_grad;
  const Findings drawn = task->evaluators().at(0)->run(validation_options());
  EXPECT_GE(drawn.metric("vqa_accuracy"), 0);
  EXPECT_LE(drawn.metric("vqa_accuracy"), 1);
  // Trained until it says it: then three, or two, of four annotators agree.
  {
    const torch::AutoGradMode with_gradients(true);
    std::vector<torch::Tensor> trained;
    for (const auto& [name, parameter] : named_parameters(task->parts())) trained.push_back(parameter);
    torch::optim::Adam adam(trained, 1e-2);
    for (int step = 0; step < 60; ++step) {
      adam.zero_grad();
      task->loss({{batch_of(task->streams().at(0))}}, {}, Collective::alone()).sum.backward();
      adam.step();
    }
  }
  const Findings taught = task->evaluators().at(0)->run(validation_options());
  EXPECT_EQ(taught.metric("exact"), 1);
  // e, e, e, g: of the others 2, 2, 2 and 3 say e. e, f, e, g: 1, 2, 1 and 2.
  const double three = (2.0 / 3 * 3 + 1) / 4, two = (1.0 / 3 * 2 + 2.0 / 3 * 2) / 4;
  EXPECT_NEAR(taught.metric("vqa_accuracy"), (three + two) / 2, 1e-6);
}

TEST(Answering, ATextWithoutImagesChangesNoLoss) {
  for (const char* name : kTasks) {
    const auto task = make_task(some_setup(name), name);
    Inputs inputs{{batch_of(task->streams().at(0))}};
    for (FieldTensor& field : inputs.streams[0].fields)
      if (field.name == "ids") field.values = field.values.clamp_max(256);
    const double loss = task->loss(inputs, {}, Collective::alone()).sum.item<double>();
    for (FieldTensor& field : inputs.streams[0].fields)
      if (field.name == "image") field.values = field.values + 1;
    EXPECT_EQ(task->loss(inputs, {}, Collective::alone()).sum.item<double>(), loss) << name;
  }
}

TEST(Flamingo, WithGatesAtZeroItIsItsLanguageModelToTheBit) {
  const auto task = make_task(some_setup("flamingo"), "flamingo");
  const StreamInputs batch = batch_of(task->streams().at(0));
  const auto language = dynamic_cast<const Answers&>(*task).answering_model().language;
  const torch::Tensor ids = batch.at("ids").to(torch::kInt64), labels = batch.at("labels").to(torch::kInt64);
  const torch::NoGradGuard no_grad;
  const torch::Tensor alone = models::next_token_loss_sum(language->forward({.ids = ids}), labels);
  EXPECT_TRUE(torch::equal(task->loss({{batch}}, {}, Collective::alone()).sum, alone));
  for (const auto& [name, parameter] : named_parameters(task->parts()))
    if (name.ends_with("_gate")) parameter.fill_(1);
  EXPECT_FALSE(torch::equal(task->loss({{batch}}, {}, Collective::alone()).sum, alone));
}

TEST(Answering, SettingsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(make_task(some_setup("flamingo", table({{"every", 3}})), "flamingo"), Error);
  EXPECT_THROW(make_task(some_setup("instruct", table({{"eval_shots", Value::Array{}}})), "instruct"), Error);
  const auto cramped = make_task(some_setup("instruct", table({{"length", 3}})), "instruct");
  data::Loader loader(*cramped->streams().at(0).source, cramped->streams().at(0).transform(kSide),
                      {.batch_size = 4, .on_bad_image = data::OnBadImage::fail});
  EXPECT_THROW(loader.next(), Error);
}

}  // namespace
}  // namespace tessera::tasks
