// Tasks that answer questions about images: their words and images, gates at 0, batches without images.
#include "tasks/answering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "data/conversations.h"
#include "tasks/conversation_input.h"

namespace tessera::tasks {
namespace {

using models::table;

constexpr const char* kTasks[] = {"instruct", "frozen", "flamingo"};
constexpr int64_t kConversations = 8, kSide = 32;

std::shared_ptr<const data::Conversations> conversations() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera_tasks_XXXXXX").string();
  const int descriptor = ::mkstemp(pattern.data());
  check(descriptor >= 0, "no temporary file");
  std::ofstream out(pattern);
  for (int64_t i = 0; i < kConversations; ++i)
    out << R"({"image": ")" << i << R"(", "question": "what is )" << i << R"(?", "answers": ["it is )"
        << i * i << R"("], "answer_type": ")" << (i % 2 == 0 ? "even" : "odd") << "\"}\n";
  out.close();
  const auto images = std::shared_ptr<const data::Source>(
      data::open_source({.path = "shapes:train=8,val=8"}, data::Split::train));
  auto made = std::make_shared<data::Conversations>(pattern, images);
  std::filesystem::remove(pattern);
  return made;
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
