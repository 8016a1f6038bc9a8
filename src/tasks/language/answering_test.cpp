// Tasks that answer questions about images: words and images, gates at 0, batches without images.
#include "tasks/language/answering.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/text.h"
#include "data/sources/conversations.h"
#include "data/sources/interleaved.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "models/language/llava.h"
#include "tasks/language/conversation_input.h"

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

// Examples have a loss in training only; in evaluation they are the same for any seed.
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

// Every order occurs; the image stays first, questions keep their answers, and evaluation keeps the given
// order.
TEST(Answering, QuestionsComeInAnOrderThatIsDrawn) {
  TaskSetup setup = some_setup("instruct", table({{"question_order", "drawn"}}));
  setup.train = setup.validation = conversations_of(
      R"({"id": "a", "image": "0", "conversations": [{"from": "human", "value": "<image>\na?"}, )"
      R"({"from": "gpt", "value": "1"}, {"from": "human", "value": "b?"}, {"from": "gpt", "value": "2"}, )"
      R"({"from": "human", "value": "c?"}, {"from": "gpt", "value": "3"}]})");
  const auto task = make_task(setup, "instruct");
  const auto text_of = [](const StreamInputs& batch) {
    std::string text;
    for (int64_t i = 0; i < batch.at("ids").size(1); ++i) {
      const auto id = batch.at("ids")[0][i].item<int64_t>();
      if (id == 257 && !text.ends_with('#')) text += '#';         // the positions of the image
      if (id > 0 && id < 256) text += static_cast<char>(id - 1);  // 0 pads
    }
    return text;
  };
  const std::string given = text_of(batch_of(task->validation()));
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const std::string text = text_of(batch_of(task->streams().at(0), seed));
    EXPECT_EQ(text.size(), given.size());
    EXPECT_EQ(text.substr(0, text.find('#') + 2), given.substr(0, given.find('#') + 2)) << text;
    for (const char* round : {"a?", "b?", "c?"}) {
      const size_t at = text.find(round);
      ASSERT_NE(at, std::string::npos) << text << " given " << given;
      EXPECT_EQ(text.find_first_of("123", at), text.find(static_cast<char>(round[0] - 'a' + '1'), at))
          << text;
    }
    ++seen[text];
  }
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_TRUE(seen.contains(given));
  EXPECT_EQ(text_of(batch_of(task->validation(), 5)), given);
  setup.train = conversations_of(
      R"({"id": "a", "image": "0", "conversations": [{"from": "human", "value": "look <image> here"}, )"
      R"({"from": "gpt", "value": "1"}, {"from": "human", "value": "b?"}, {"from": "gpt", "value": "2"}]})");
  const auto amid = make_task(setup, "instruct");
  std::set<std::string> same;
  for (uint64_t seed = 0; seed < 20; ++seed) same.insert(text_of(batch_of(amid->streams().at(0), seed)));
  EXPECT_EQ(same.size(), 1u);
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

// The likeliest letter of each question, with each letter scored by the task's loss.
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

// If a question fills the length, its answer counts as wrong and has no loss.
TEST(Answering, AnAnswerThatIsCutIsWrong) {
  TaskSetup setup = some_setup("instruct", table({{"length", 26}}));
  std::string lines;
  for (int i = 0; i < 4; ++i) {
    const std::string question = i == 0 ? "?" : "is it so far?";
    lines += text(R"({"image": ")", i, R"(", "question": ")", question, R"(", "answers": ["y"]})", "\n");
  }
  setup.train = setup.validation = conversations_of(lines);
  const auto task = make_task(setup, "instruct");
  const Findings findings = task->evaluators().at(0)->run(validation_options());
  EXPECT_EQ(findings.metric("texts_cut"), 3);
  EXPECT_LE(findings.metric("exact"), 0.25);
  data::Loader loader(*setup.train, task->streams().at(0).transform(kSide),
                      {.batch_size = 4, .shuffle = false, .on_bad_image = data::OnBadImage::replace});
  const StreamInputs batch = to_device(*loader.next(), "train", torch::kCPU, Precision::fp32);
  EXPECT_TRUE((batch.at("cut") == 0).all().item<bool>());
  ASSERT_EQ(loader.bad_images().count, 3);
  EXPECT_NE(loader.bad_images().lines[0].find("task.length = 26 leaves no answer of its conversation of 38"),
            std::string::npos)
      << loader.bad_images().lines[0];
}

// The model writes its answers; trained on the first annotator's answers, the others determine its score.
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
  // Trained until it gives that answer: then three, or two, of four annotators agree.
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
  // e, e, e, g: among the others 2, 2, 2 and 3 answered e. e, f, e, g: 1, 2, 1 and 2.
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

// With some conversations of a batch without an image, its loss is the sum of those of its rows.
TEST(Answering, ConversationsWithoutAnImageAreLearnedAsText) {
  const auto mixed = conversations_of(R"({"question": "two and two?", "answers": ["four"]})"
                                      "\n"
                                      R"({"image": "3", "question": "what?", "answers": ["a disc"]})"
                                      "\n"
                                      R"({"question": "is <image> a word?", "answers": ["yes"]})"
                                      "\n"
                                      R"({"image": "5", "question": "where?", "answers": ["here"]})"
                                      "\n");
  for (const char* name : kTasks)
    for (const int64_t shots : {0, 1}) {
      TaskSetup setup = some_setup(name, table({{"shots", shots}}));
      setup.train = setup.validation = mixed;
      const auto task = make_task(setup, name);
      const StreamInputs batch = batch_of(task->streams().at(0));
      const torch::Tensor images = (batch.at("ids") == 257).sum(1);
      const int64_t per_image = std::string(name) == "instruct" ? 4 : std::string(name) == "frozen" ? 2 : 1;
      if (shots == 0) {
        EXPECT_TRUE(images.equal(torch::tensor({0, 1, 0, 1}) * per_image)) << name << images;
      }
      EXPECT_TRUE(batch.at("labels").ne(kNotLearned).any(1).all().item<bool>()) << name;
      const double whole = task->loss({{batch}}, {}, Collective::alone()).sum.item<double>();
      double rows = 0;
      for (int64_t row = 0; row < 4; ++row) {
        StreamInputs one = batch;
        for (FieldTensor& field : one.fields) field.values = field.values.slice(0, row, row + 1);
        rows += task->loss({{one}}, {}, Collective::alone()).sum.item<double>();
      }
      EXPECT_NEAR(rows, whole, 1e-3 * whole) << name << shots;
    }
}

// Documents of images and words in the form of OBELICS; the images are uniformly coloured files.
class DocumentFiles {
 public:
  explicit DocumentFiles(const std::vector<std::vector<std::string>>& texts) {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera_tasks_XXXXXX").string();
    check(::mkdtemp(pattern.data()) != nullptr, "no temporary folder");
    folder_ = pattern;
    std::ofstream lines(folder_ + "/docs.jsonl");
    int shade = 0;
    for (const auto& document : texts) {
      nlohmann::json images = nlohmann::json::array(), words = nlohmann::json::array();
      for (const std::string& part : document) {
        if (&part != document.data()) {
          Image image(8, 8);
          image.pixels.assign(image.pixels.size(), static_cast<uint8_t>(shade += 10));
          const std::string name = std::to_string(shade) + ".png";
          write_file_atomic(folder_ + "/" + name, encode_image(image, name));
          images.push_back(name), words.push_back(nullptr);
        }
        images.push_back(nullptr), words.push_back(part);
      }
      lines << nlohmann::json{{"images", images}, {"texts", words}}.dump() << "\n";
    }
  }
  ~DocumentFiles() { std::filesystem::remove_all(folder_); }
  DocumentFiles(const DocumentFiles&) = delete;
  std::shared_ptr<const data::Interleaved> open() const {
    return std::make_shared<data::Interleaved>(
        data::SourceConfig{.path = "interleaved:" + folder_ + "/docs.jsonl", .val_share = 0},
        data::Split::train);
  }

 private:
  std::string folder_;
};

TaskSetup document_setup(const DocumentFiles& documents, const Value& settings) {
  TaskSetup setup = some_setup("flamingo", settings);
  setup.train = setup.validation = documents.open();
  return setup;
}

// The tokens of a row: letters as they are, '#' for an image, '|' for the end of a text and for padding, '.'
// for no loss.
std::string row_of(const Task& task, const StreamInputs& batch, int64_t row, const char* field) {
  const Tokeniser tokeniser = dynamic_cast<const Answers&>(task).answering_model().tokeniser;
  std::string out;
  const torch::Tensor values = batch.at(field)[row].to(torch::kInt64).contiguous();
  for (int64_t i = 0; i < values.numel(); ++i) {
    const auto id = static_cast<int32_t>(values.const_data_ptr<int64_t>()[i]);
    const bool letter = id >= 0 && id != 257 && !tokeniser.is_special(id);
    out += letter ? tokeniser.decode({&id, 1}) : id == kNotLearned ? "." : id == 257 ? "#" : "|";
  }
  return out;
}

TEST(Flamingo, DocumentsAreTextsBehindTheirImages) {
  const DocumentFiles documents({{"in front", "one", "two"}, {"", "", "x"}});
  const auto task =
      make_task(document_setup(documents, table({{"length", 24}, {"document_images", 3}})), "flamingo");
  data::Loader loader(*task->streams().at(0).source, task->streams().at(0).transform(kSide),
                      {.batch_size = 2, .shuffle = false});
  const StreamInputs batch = to_device(*loader.next(), "train", torch::kCPU, Precision::fp32);
  EXPECT_EQ(row_of(*task, batch, 0, "ids"), "in front|#one|#two||||||");
  EXPECT_EQ(row_of(*task, batch, 0, "labels"), "..........one|.two|.....");
  EXPECT_EQ(row_of(*task, batch, 1, "ids"), "##x|||||||||||||||||||||");
  EXPECT_EQ(row_of(*task, batch, 1, "labels"), "..x|....................");
  ASSERT_EQ(batch.at("image").sizes(), (std::vector<int64_t>{2, 3, 3, kSide, kSide}));
  EXPECT_EQ(batch.at("image")[0][2].abs().max().item<double>(), 0);  // no image
  const auto shade = [&](int64_t row, int64_t image) {
    return batch.at("image")[row][image][0][0][0].item<double>();
  };
  EXPECT_LT(shade(0, 0), shade(0, 1));
  EXPECT_LT(shade(0, 1), shade(1, 0));
}

TEST(Flamingo, LongDocumentsAreCutToWindowsThatBeginAtAnImage) {
  const DocumentFiles documents({{"a", "bb", "cc", "dd", "ee"}});
  const auto window = [&](int64_t length, int64_t images, bool training, uint64_t seed) {
    const auto task = make_task(
        document_setup(documents, table({{"length", length}, {"document_images", images}})), "flamingo");
    const StreamSpec stream = training ? task->streams().at(0) : task->validation();
    data::Loader loader(*stream.source, stream.transform(kSide),
                        {.batch_size = 1, .shuffle = false, .seed = seed});
    return row_of(*task, to_device(*loader.next(), "train", torch::kCPU, Precision::fp32), 0, "ids");
  };
  EXPECT_EQ(window(18, 4, true, 0), "a|#bb|#cc|#dd|#ee|");
  EXPECT_EQ(window(10, 4, false, 0), "#bb|#cc|#d");  // the rest does not fit
  EXPECT_EQ(window(18, 2, false, 0), "#bb|#cc|||||||||||");
  std::set<std::string> drawn;
  for (uint64_t seed = 0; seed < 40; ++seed) drawn.insert(window(8, 2, true, seed));
  EXPECT_EQ(drawn, (std::set<std::string>{"#bb|#cc|", "#cc|#dd|", "#dd|#ee|", "#ee|||||"}));
}

// Places without an image are not computed, whatever their content; a text sees only the image before it.
TEST(Flamingo, ATextOfADocumentSeesTheImageBeforeIt) {
  const DocumentFiles documents({{"", "one", "two"}, {"", "three"}});
  const auto task =
      make_task(document_setup(documents, table({{"length", 16}, {"document_images", 3}})), "flamingo");
  const torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : named_parameters(task->parts()))
    if (name.ends_with("_gate")) parameter.fill_(1);
  data::Loader loader(*task->streams().at(0).source, task->streams().at(0).transform(kSide),
                      {.batch_size = 2, .shuffle = false});
  const StreamInputs batch = to_device(*loader.next(), "train", torch::kCPU, Precision::fp32);
  // The loss of the kept labels, with noise in an image.
  const auto loss = [&](int64_t first, int64_t last, int64_t row, int64_t image) {
    StreamInputs changed = batch;
    for (FieldTensor& field : changed.fields) {
      field.values = field.values.clone();
      if (field.name == "labels") {
        field.values.slice(1, 0, first).fill_(kNotLearned), field.values.slice(1, last).fill_(kNotLearned);
        field.values[1 - row].fill_(kNotLearned);
      }
      if (field.name == "image" && image >= 0) field.values[row][image] += torch::rand({3, kSide, kSide});
    }
    return task->loss({{changed}}, {}, Collective::alone()).sum.item<double>();
  };
  EXPECT_EQ(row_of(*task, batch, 0, "ids"), "#one|#two|||||||");
  EXPECT_NE(loss(1, 5, 0, 0), loss(1, 5, 0, -1));    // "one" and the first image
  EXPECT_EQ(loss(1, 5, 0, 1), loss(1, 5, 0, -1));    // but not the second
  EXPECT_NE(loss(6, 10, 0, 1), loss(6, 10, 0, -1));  // "two" and the second
  EXPECT_EQ(loss(0, 16, 1, 1), loss(0, 16, 1, -1));  // a place without an image
  const Findings findings = task->evaluators().at(0)->run(validation_options());
  EXPECT_EQ(findings.samples, 2);
  EXPECT_NEAR(findings.metric("perplexity"), std::exp(findings.metric("loss")), 1e-6);
  EXPECT_EQ(task->main_metric().name, "perplexity");
}

TEST(Flamingo, DocumentsAreForItAlone) {
  const DocumentFiles documents({{"", "one"}, {"", "two"}});
  for (const char* name : {"instruct", "frozen"}) {
    TaskSetup setup = some_setup(name);
    setup.train = documents.open();
    EXPECT_THROW(make_task(setup, name), Error) << name;
  }
}

TEST(Flamingo, WithGatesAtZeroItIsItsLanguageModelToTheBit) {
  const auto task = make_task(some_setup("flamingo"), "flamingo");
  const StreamInputs batch = batch_of(task->streams().at(0));
  const auto language = dynamic_cast<const Answers&>(*task).answering_model().language;
  // The task skips positions after the last label; other sizes round differently.
  const int64_t places =
      batch.at("labels").ne(models::kIgnoredLabel).any(0).nonzero().max().item<int64_t>() + 1;
  const torch::Tensor ids = batch.at("ids").slice(1, 0, places).to(torch::kInt64),
                      labels = batch.at("labels").slice(1, 0, places).to(torch::kInt64);
  const torch::NoGradGuard no_grad;
  const torch::Tensor alone = models::next_token_loss_sum(language->forward({.ids = ids}), labels);
  EXPECT_TRUE(torch::equal(task->loss({{batch}}, {}, Collective::alone()).sum, alone));
  for (const auto& [name, parameter] : named_parameters(task->parts()))
    if (name.ends_with("_gate")) parameter.fill_(1);
  EXPECT_FALSE(torch::equal(task->loss({{batch}}, {}, Collective::alone()).sum, alone));
}

// Positions after the last answer of a batch cost nothing and change nothing.
TEST(Answering, PlacesBehindTheLastAnswerAreNotRead) {
  const auto sum_of = [](int64_t length, int64_t* places) {
    const auto task = make_task(some_setup("instruct", table({{"length", length}})), "instruct");
    const StreamInputs batch = batch_of(task->streams().at(0));
    const torch::NoGradGuard no_grad;
    *places = batch.at("ids").size(1);
    return task->loss({{batch}}, {}, Collective::alone()).sum.item<double>();
  };
  int64_t narrow = 0, wide = 0;
  const double expected = sum_of(60, &narrow), found = sum_of(120, &wide);
  EXPECT_EQ(wide, 2 * narrow);
  EXPECT_EQ(found, expected);  // the same positions were read, so equal bit by bit
}

TEST(Answering, SettingsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(make_task(some_setup("flamingo", table({{"every", 3}})), "flamingo"), Error);
  EXPECT_THROW(make_task(some_setup("instruct", table({{"eval_shots", Value::Array{}}})), "instruct"), Error);
  // An image takes four positions.
  EXPECT_THROW(make_task(some_setup("instruct", table({{"length", 3}})), "instruct"), Error);
  const auto cramped = make_task(some_setup("instruct", table({{"length", 6}})), "instruct");
  data::Loader loader(*cramped->streams().at(0).source, cramped->streams().at(0).transform(kSide),
                      {.batch_size = 4, .on_bad_image = data::OnBadImage::fail});
  EXPECT_THROW(loader.next(), Error);
}

}  // namespace
}  // namespace tessera::tasks
