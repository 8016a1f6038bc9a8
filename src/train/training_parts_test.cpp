// Options of a recipe beyond the plain loop: accumulation, skipped steps, growing pictures, teachers, soft
// masks, weight selection.
#include <filesystem>

#include "core/text.h"
#include "core/threads.h"
#include "io/images/image.h"
#include "io/weights/safetensors.h"
#include "models/backbones/baselines.h"
#include "models/heads/class_head.h"
#include "open/device.h"
#include "open/load.h"
#include "open/open_task.h"
#include "runs/checkpoint.h"
#include "train/setup.h"
#include "train/train_testing.h"
#include "train/trainer_run.h"

namespace tessera::train {
namespace {

TEST(Threads, DecodersCountAgainstThemWhereOneIsNotMissed) {
  const int before = num_threads();
  EXPECT_EQ(use_threads_beside(1, 2), 2);
  EXPECT_EQ(use_threads_beside(1, 7), 7);
  EXPECT_EQ(use_threads_beside(1, 8), 7);
  EXPECT_EQ(num_threads(), 7);
  EXPECT_EQ(use_threads_beside(3, 16), 14);
  EXPECT_EQ(use_threads_beside(2, 16), 14);
  use_threads(before);
}

TEST(PictureSheet, ShowsEachPictureInItsPlaceAndColours) {
  data::Batch batch;
  batch.size = 9;
  const std::span<float> images = batch.add({"image", DType::f32, {3, 2, 3}}).values<float>();
  for (int i = 0; i < 9; ++i)
    for (int c = 0; c < 3; ++c)
      for (int p = 0; p < 6; ++p)
        images[static_cast<size_t>(18 * i + 6 * c + p)] = static_cast<float>(10 * i + c + (p == 5 ? 100 : 0));
  data::Preprocess preprocess;
  preprocess.mean = {0, 0, 0};
  preprocess.std = {1.0 / 255, 1.0 / 255, 1.0 / 255};
  const Image sheet = picture_sheet(batch, preprocess);
  ASSERT_EQ(sheet.width, 24);
  ASSERT_EQ(sheet.height, 4);
  EXPECT_EQ(sheet.row(0)[3 * 21 + 2], 72);  // the eighth picture's blue
  EXPECT_EQ(sheet.row(1)[3 * 2 + 1], 101);  // the first picture's last pixel
  EXPECT_EQ(sheet.row(2)[0], 80);           // the ninth, in a second row
  EXPECT_EQ(sheet.row(2)[3 * 3], 0);        // empty next to it
  preprocess.mean = {0.9, 0.9, 0.9};
  EXPECT_EQ(picture_sheet(batch, preprocess, 3).width, 9);
  EXPECT_EQ(picture_sheet(batch, preprocess, 3).row(1)[3 * 2], 255);  // no overflow
}

class TrainingPartsTest : public TemporaryFolder {
 protected:
  Recipe tiny(const std::string& run, const std::vector<std::string>& settings = {}) const {
    return tiny_recipe(path(run), settings);
  }
  NamedTensors weights(const std::string& run) const {
    return read_tensors(SafetensorsFile(path(run + "/checkpoints/latest/weights.safetensors")));
  }
};

class Notes : public Observer {
 public:
  std::vector<std::string> lines;
  void note(const std::string& line) override { lines.push_back(line); }
};

struct StopSoon {};  // a crash

// Crashes after `checkpoints` checkpoints.
class Stopper : public Observer {
 public:
  explicit Stopper(int64_t checkpoints) : left_(checkpoints) {}
  void checkpointed(const std::string&, uint64_t, double) override {
    if (--left_ == 0) throw StopSoon();
  }

 private:
  int64_t left_;
};

TEST_F(TrainingPartsTest, PiecesOfABatchGiveItsGradient) {
  run_training(tiny("teacher", {"train.seed=1", "train.epochs=1"}));
  const std::vector<std::vector<std::string>> recipes = {
      {},
      // Unequal class weights: the pieces contain different classes.
      {"task.mixup.mixup=0.0", "task.mixup.cutmix=0.0",
       "task.class_weights=[1.0, 9.0, 1.0, 2.0, 1.0, 5.0, 1.0, 1.0, 1.0, 3.0]"},
      // Pieces with none, one or two of the unlabelled distillation pictures.
      {"task.distil.teacher=\"" + path("teacher") + "\"",
       "task.distil.unlabelled=\"shapes:train=64,val=8,seed=5\"", "task.distil.unlabelled_batch=5"},
      {"train.repeats=2"}};
  for (size_t r = 0; r < recipes.size(); ++r)
    for (const char* pieces : {"1", "3", "8"}) {
      const std::string run = text("run", r, "-", pieces);
      std::vector<std::string> settings = {"train.precision=fp64", "train.epochs=1",
                                           text("train.accumulate=", pieces)};
      settings.insert(settings.end(), recipes[r].begin(), recipes[r].end());
      run_training(tiny(run, settings));
      const NamedTensors want = weights(text("run", r, "-1")), got = weights(run);
      for (size_t i = 0; i < want.size(); ++i) {
        // A key's bias has no gradient except rounding, which Adam amplifies.
        const double largest = want[i].second.abs().max().item<double>();
        EXPECT_LE((want[i].second - got[i].second).abs().max().item<double>(), 1e-9 * std::max(largest, 1e-3))
            << run << " " << want[i].first;
      }
    }
}

TEST_F(TrainingPartsTest, BrokenPicturesAreToldOnceCountedAndLeftOutOfWhatIsMeasured) {
  for (const char* folder : {"train/a", "train/b", "val/a", "val/b"})
    std::filesystem::create_directories(path(folder));
  for (const char* split : {"train", "val"})
    for (int i = 0; i < 24; ++i) {
      Image image(20, 20, 3);
      std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(40 * (i % 5)));
      const bool bad = i == 3 || (i == 5 && *split == 'v');
      write_file_atomic(path(text(split, i % 2 ? "/b/" : "/a/", i, ".png")),
                        bad ? std::vector<std::byte>(9) : encode_png(image));
    }
  const std::vector<std::string> settings = {"data.path=\"" + path("") + "\"", "train.checkpoint_steps=2",
                                             "train.log_every=100"};
  Notes first, second;
  Stopper stopper(3);
  EXPECT_THROW(run_training(tiny("run", settings), {.observers = {&first, &stopper}}), StopSoon);
  const RunSummary summary =
      run_training(tiny("run", settings), {.resume = Resume::required, .observers = {&second}});
  const auto told = [](const Notes& notes, const char* what) {
    return std::count_if(notes.lines.begin(), notes.lines.end(),
                         [&](const std::string& line) { return line.starts_with(what); });
  };
  EXPECT_EQ(told(first, "replaced a broken image: "), 1);
  EXPECT_EQ(told(second, "replaced a broken image: "), 0) << "told again after the continuation";
  EXPECT_EQ(told(second, "left out of the evaluation, a broken image: "), 2);
  EXPECT_EQ(summary.bad_images, 3);
  for (const HistoryPoint& point : read_history(path("run")))
    for (const auto& [name, value] : point.values)
      EXPECT_TRUE(point.kind != "eval" || name != "samples" || value == 22) << value;
}

TEST_F(TrainingPartsTest, ASizeThatTheModelCannotTakeIsSaidAtOnce) {
  const std::string line = error_of([&] { make_setup(tiny("run", {"train.sizes=[16, 30, 32]"})); });
  EXPECT_TRUE(line.starts_with("train.sizes holds 30: ")) << line;
}

TEST_F(TrainingPartsTest, StepsWithoutAFiniteLossAreSkippedAndCounted) {
  Notes notes;
  const Recipe recipe = tiny("run", {"optimiser.lr=1e30", "train.max_skipped=3", "train.checkpoint_steps=1",
                                     "train.clip_grad=0", "train.log_every=1"});
  const std::string line = error_of([&] { run_training(recipe, {.observers = {&notes}}); });
  EXPECT_NE(line.find("not finite in 4 steps in a row"), std::string::npos) << line;
  EXPECT_NE(line.find("the newest checkpoint with a finite loss is "), std::string::npos) << line;
  const auto skips = std::count_if(notes.lines.begin(), notes.lines.end(), [](const std::string& note) {
    return note.ends_with("skipped: the loss or its gradient is not finite");
  });
  EXPECT_EQ(skips, 3);
  // Checkpoints from before the first skipped step were not deleted for later ones.
  const int64_t newest = CheckpointStore(path("run/checkpoints")).steps().back();
  double counted = 0;
  int64_t last_good = 0;
  for (const HistoryPoint& point : read_history(path("run"))) {
    double skipped = 0;
    for (const auto& [name, value] : point.values)
      if (name == "skipped_steps") skipped = value;
    if (skipped == 0) last_good = point.step;
    counted = std::max(counted, skipped);
  }
  EXPECT_EQ(counted, 3);
  EXPECT_EQ(newest, last_good);
}

TEST_F(TrainingPartsTest, PicturesGrowOverTheRun) {
  const std::vector<std::string> growing = {"train.sizes=[16, 24, 32]", "model.patch_size=8"};
  const train::Setup setup = make_setup(tiny("plan", growing));
  for (const auto& [epoch, side] : {std::pair(0, 16), {1, 24}, {2, 32}})
    EXPECT_EQ(input_size(setup.recipe, setup.plan, epoch), side);
  run_training(tiny("whole", growing));
  // Continued at and around the changes of size.
  const Recipe recipe = [&] {
    auto settings = growing;
    settings.push_back("train.checkpoint_steps=4");
    return tiny("parts", settings);
  }();
  for (int attempt = 0; attempt < 8; ++attempt) {
    Stopper stopper(2);
    try {
      run_training(recipe, {.resume = Resume::automatic, .observers = {&stopper}});
    } catch (const StopSoon&) {
    }
  }
  expect_same_history(path("whole"), path("parts"));
  expect_same_weights(path("whole"), path("parts"));
}

TEST_F(TrainingPartsTest, ATeacherIsFollowed) {
  run_training(tiny("teacher", {"train.seed=1"}));
  // alpha = 1: only the teacher's labels count.
  const std::vector<std::string> settings = {"task.distil.teacher=\"" + path("teacher") + "\"",
                                             "task.distil.alpha=1.0",
                                             "task.distil.kind=\"hard\"",
                                             "task.distil.unlabelled=\"shapes:train=64,val=8,seed=5\"",
                                             "task.distil.unlabelled_batch=5",
                                             "train.checkpoint_steps=5"};
  run_training(tiny("student", settings));
  std::vector<std::string> smooth = settings;
  smooth.push_back("task.label_smoothing=0.3");
  run_training(tiny("smooth", smooth));
  run_training(tiny("alone"));
  const NamedTensors student = weights("student"), same = weights("smooth"), alone = weights("alone");
  for (size_t i = 0; i < student.size(); ++i)
    EXPECT_TRUE(torch::equal(student[i].second, same[i].second)) << student[i].first;
  EXPECT_FALSE(torch::equal(student.front().second, alone.front().second));
  // When continued, it reads the unlabelled pictures that would have come next.
  Stopper stopper(3);
  EXPECT_THROW(run_training(tiny("parts", settings), {.observers = {&stopper}}), StopSoon);
  run_training(tiny("parts", settings), {.resume = Resume::required});
  expect_same_weights(path("student"), path("parts"));
  // A changed teacher is refused.
  std::filesystem::copy(path("alone/model.safetensors"), path("teacher/model.safetensors"),
                        std::filesystem::copy_options::overwrite_existing);
  const std::string line =
      error_of([&] { run_training(tiny("parts", settings), {.resume = Resume::required}); });
  EXPECT_NE(line.find("data has changed"), std::string::npos) << line;
  EXPECT_NE(error_of([&] { make_setup(tiny("x", {"task.distil.teacher=\"nowhere\""})); }), "");
  EXPECT_EQ(
      error_of([&] {
        tiny("x", {"task.distil.unlabelled=\"shapes:\"", "task.distil.unlabelled_batch=4"});
      }),
      "tiny: task.distil.unlabelled needs task.distil.teacher: images without a label have no other loss");
}

// The schedule itself is the model's (models/llama_test.cpp).
TEST_F(TrainingPartsTest, TheSoftMaskFallsToTheCausalOne) {
  const std::vector<std::string> settings = {"model.name=illama", "model.heads=2", "model.soft_mask=1.0",
                                             "model.soft_mask_mode=soft", "model.soft_mask_cutoff=2"};
  run_training(tiny("soft", settings));
  run_training(tiny("hard", {"model.name=illama", "model.heads=2"}));
  EXPECT_NE(read_file(path("soft/model.safetensors")), read_file(path("hard/model.safetensors")));
  // The old keys mean the same run.
  run_training(tiny(
      "before", {"model.name=illama", "model.heads=2", "soft_mask.share=1.0", "soft_mask.cutoff_epoch=2"}));
  expect_same_weights(path("soft"), path("before"));
  EXPECT_NE(error_of([&] {
              make_setup(tiny("x", {"model.soft_mask=1.0", "model.soft_mask_cutoff=2"}));
            }).find("unknown key 'model.soft_mask'"),
            std::string::npos);
  for (const char* cutoff : {"model.soft_mask_cutoff=9", "soft_mask.cutoff_epoch=9"})
    EXPECT_EQ(error_of([&] {
                make_setup(tiny("x", {"model.name=illama", "model.heads=2", "model.soft_mask=1.0",
                                      "model.soft_mask_mode=soft", cutoff}));
              }),
              "model.soft_mask_cutoff = 9 is beyond the run's 3 epochs");
}

TEST_F(TrainingPartsTest, QuantisedTrainingLearnsItsStepsAndIsReadBackAsItWas) {
  const std::vector<std::string> settings = {"model.name=illama", "model.heads=2", "quantization.weights=4",
                                             "quantization.activations=4", "train.checkpoint_steps=5"};
  const RunSummary whole = run_training(tiny("whole", settings));
  Stopper crash(3);  // the first one is before the first step
  EXPECT_THROW(run_training(tiny("parts", settings), {.observers = {&crash}}), StopSoon);
  run_training(tiny("parts", settings), {.resume = Resume::required});
  expect_same_weights(path("whole"), path("parts"));
  expect_same_history(path("whole"), path("parts"));

  const auto first = read_tensors(SafetensorsFile(path("parts/checkpoints/step-000020/weights.safetensors")));
  const auto last = weights("whole");
  int64_t steps = 0;
  for (size_t i = 0; i < last.size(); ++i) {
    if (!last[i].first.ends_with("log_step")) continue;
    ++steps;
    EXPECT_TRUE(torch::isfinite(last[i].second).all().item<bool>()) << last[i].first;
    EXPECT_FALSE(torch::equal(first[i].second, last[i].second)) << last[i].first;
  }
  EXPECT_EQ(steps, 2 * 5 * 2);  // two blocks of qkv, proj, fc1, fc2, fc3, two kinds of steps

  // The file records its quantisation: the opened model gives the final evaluation.
  const train::Setup setup = make_setup(tiny("again", settings));
  const OpenedTask opened = open_task(path("whole"), {.validation = setup.data.validation});
  EXPECT_EQ(opened.info.quantization.weights, 4);
  EXPECT_DOUBLE_EQ(evaluate(setup, *opened.task).metric("loss"), whole.final.metric("loss"));

  EXPECT_EQ(error_of([&] { tiny("x", {"quantization.weights=4"}); }),
            "tiny: quantization.activations = 0, must be 2 to 16 bits, or 0 like weights");
  EXPECT_EQ(
      error_of([&] {
        make_setup(tiny("x", {"model.name=vil", "quantization.weights=8", "quantization.activations=8"}));
      }).substr(0, 16),
      "[quantization] i");
}

TEST_F(TrainingPartsTest, AttentionIsQuantisedInTheFormOfQVit) {
  const std::vector<std::string> settings = {"model.name=illama",       "model.heads=2",
                                             "quantization.weights=4",  "quantization.activations=4",
                                             "quantization.form=q_vit", "train.checkpoint_steps=5"};
  const RunSummary whole = run_training(tiny("whole", settings));
  Stopper crash(3);  // the first one is before the first step
  EXPECT_THROW(run_training(tiny("parts", settings), {.observers = {&crash}}), StopSoon);
  run_training(tiny("parts", settings), {.resume = Resume::required});
  expect_same_weights(path("whole"), path("parts"));
  int64_t roundings = 0;
  for (const auto& [name, tensor] : weights("whole")) {
    if (name.find(".attn.rounding.") == std::string::npos) continue;
    EXPECT_TRUE(torch::isfinite(tensor).all().item<bool>()) << name;
    if (name.ends_with("weights_signed")) {
      EXPECT_EQ(tensor.item<float>(), 0) << name;
    }
    if (name.ends_with("q_signed")) {
      EXPECT_EQ(tensor.item<float>(), 1) << name;
    }
    if (name.ends_with("_log_step")) ++roundings;
  }
  EXPECT_EQ(roundings, 2 * 4);  // two blocks of q, k, v and the probabilities

  const train::Setup setup = make_setup(tiny("again", settings));
  const OpenedTask opened = open_task(path("whole"), {.validation = setup.data.validation});
  EXPECT_DOUBLE_EQ(evaluate(setup, *opened.task).metric("loss"), whole.final.metric("loss"));

  EXPECT_EQ(error_of([&] { tiny("x", {"quantization.form=q_vit"}); }),
            "tiny: quantization.form = \"q_vit\" needs quantization.weights and quantization.activations");
}

TEST_F(TrainingPartsTest, CheckpointedActivationsChangeNothing) {
  run_training(tiny("kept", {"train.precision=fp64"}));
  run_training(tiny("again", {"train.precision=fp64", "train.checkpoint_activations=true"}));
  const NamedTensors want = weights("kept"), got = weights("again");
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(torch::allclose(want[i].second, got[i].second, 1e-9, 1e-12)) << want[i].first;
}

TEST_F(TrainingPartsTest, TheRateGrowsWithTheBatch) {
  EXPECT_DOUBLE_EQ(make_setup(tiny("x")).optimisation.schedule->rate(0), 0.003);
  EXPECT_DOUBLE_EQ(make_setup(tiny("x", {"optimiser.lr_batch=32"})).optimisation.schedule->rate(0),
                   0.003 * 8 / 32);
}

TEST_F(TrainingPartsTest, AdaptiveClippingLeavesTheHeadAlone) {
  const Optimisation all = make_setup(tiny("x")).optimisation,
                     adaptive = make_setup(tiny("x", {"train.clip_mode=agc"})).optimisation;
  EXPECT_EQ(all.clipped.size(), all.trained.size());
  EXPECT_EQ(adaptive.clipped.size() + 2, adaptive.trained.size());  // head.weight and head.bias
  EXPECT_EQ(adaptive.unclipped.size(), 2u);
}

// --- first weights from a larger model

models::ModelSpec vit_of(int64_t dim, int64_t depth) {
  Value settings;
  settings.set("dim", dim), settings.set("depth", depth), settings.set("heads", 2);
  settings.set("image_size", 32), settings.set("patch_size", 16), settings.set("classes", 3);
  return models::resolve_model("vit", settings);
}

TEST_F(TrainingPartsTest, FirstWeightsAreSelectedFromALargerModel) {
  const auto large = models::build_classifier(vit_of(32, 3), 1),
             small = models::build_classifier(vit_of(16, 2), 2);
  const torch::Tensor head = small->backbone->named_parameters()["head.weight"].detach().clone();
  save_tensors(path("large.safetensors"), named_state(*large->backbone));
  const LoadReport report =
      select_pretrained(*small->backbone, vit_of(16, 2), WeightFile(path("large.safetensors")));
  const auto from = large->backbone->named_parameters(), to = small->backbone->named_parameters();
  EXPECT_EQ(report.loaded + 2, static_cast<int64_t>(to.size()));
  using torch::indexing::Slice;
  for (const char* name : {"blocks.1.attn.qkv.weight", "blocks.0.mlp.fc1.weight"})
    EXPECT_TRUE(
        torch::equal(to[name], from[name].index({Slice(torch::indexing::None, torch::indexing::None, 2),
                                                 Slice(torch::indexing::None, torch::indexing::None, 2)})))
        << name;
  EXPECT_TRUE(torch::equal(to["head.weight"], head));
  const auto smaller = models::build_classifier(vit_of(8, 1), 1);
  save_tensors(path("smaller.safetensors"), named_state(*smaller->backbone));
  EXPECT_NE(error_of([&] {
              select_pretrained(*small->backbone, vit_of(16, 2), WeightFile(path("smaller.safetensors")));
            }).find("cannot be cut"),
            std::string::npos);
}

// ViT and iLLaMA share the names of common layers. ViT's first MLP matrix initialises the gate's; the gate's
// other matrix, missing in ViT, keeps its random values.
TEST_F(TrainingPartsTest, VitGivesItsBlocksToIllama) {
  Value settings;
  settings.set("dim", 16), settings.set("depth", 2), settings.set("heads", 2);
  settings.set("image_size", 32), settings.set("patch_size", 16), settings.set("classes", 3);
  const auto spec = models::resolve_model("illama", settings);
  const auto model = models::build_classifier(spec, 0), drawn = models::build_classifier(spec, 0);
  const auto vit = models::build_classifier(vit_of(64, 3), 1);
  save_tensors(path("vit.safetensors"), named_state(*vit->backbone));
  const LoadReport report = select_pretrained(*model->backbone, spec, WeightFile(path("vit.safetensors")));
  const auto from = vit->backbone->named_parameters(), to = model->backbone->named_parameters(),
             first = drawn->backbone->named_parameters();
  int64_t selected = 0;
  for (const auto& item : to) {
    const bool fresh = std::find(report.fresh.begin(), report.fresh.end(), item.key()) != report.fresh.end();
    selected += !fresh;
    const torch::Tensor want =
        fresh ? first[item.key()] : models::select_weights(from[item.key()], item.value().sizes());
    EXPECT_TRUE(torch::equal(item.value(), want)) << item.key();
  }
  EXPECT_EQ(selected, report.loaded);
  for (const char* name : {"patch_embed.proj.weight", "blocks.1.attn.qkv.weight", "blocks.0.mlp.fc1.weight",
                           "blocks.0.mlp.fc2.weight", "blocks.1.norm1.weight", "norm.weight"})
    EXPECT_EQ(std::count(report.fresh.begin(), report.fresh.end(), name), 0) << name;
  EXPECT_EQ(std::count(report.fresh.begin(), report.fresh.end(), "blocks.0.mlp.fc3.weight"), 1);
}

TEST_F(TrainingPartsTest, LlamaGivesItsBlocksToIllama) {
  Value settings;
  settings.set("dim", 16), settings.set("depth", 1), settings.set("heads", 2);
  settings.set("image_size", 32), settings.set("patch_size", 16), settings.set("classes", 3);
  const auto spec = models::resolve_model("illama", settings);
  const auto model = models::build_classifier(spec, 0);
  NamedTensors llama;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    llama.emplace_back(name, torch::randn(shape));
  };
  for (const char* name : {"wq", "wk", "wv", "wo"})
    add(std::string("layers.0.attention.") + name + ".weight", {64, 64});
  add("layers.0.feed_forward.w1.weight", {512, 64});
  add("layers.0.feed_forward.w2.weight", {64, 512});
  add("layers.0.feed_forward.w3.weight", {512, 64});
  add("layers.0.attention_norm.weight", {64});
  add("layers.0.ffn_norm.weight", {64});
  add("norm.weight", {64});
  add("tok_embeddings.weight", {100, 64});
  save_tensors(path("llama.safetensors"), llama);
  const LoadReport report = select_pretrained(*model->backbone, spec, WeightFile(path("llama.safetensors")));
  EXPECT_EQ(report.loaded, 8);
  const torch::Tensor qkv = model->backbone->named_parameters()["blocks.0.attn.qkv.weight"];
  for (int64_t part = 0; part < 3; ++part)
    EXPECT_TRUE(torch::equal(qkv.narrow(0, 16 * part, 16),
                             models::select_weights(llama[static_cast<size_t>(part)].second, {16, 16})));
  EXPECT_TRUE(torch::equal(model->backbone->named_parameters()["blocks.0.mlp.fc2.weight"],
                           models::select_weights(llama[5].second, {16, 256})));
  llama.erase(llama.begin() + 1);  // wk: q and v alone are not split into three
  save_tensors(path("part.safetensors"), llama);
  EXPECT_NE(error_of([&] {
              select_pretrained(*model->backbone, spec, WeightFile(path("part.safetensors")));
            }).find("'blocks.0.attn.qkv.weight' is made of 3 tensors"),
            std::string::npos);
  save_tensors(path("other.safetensors"), {{"a", torch::zeros({2})}});
  EXPECT_NE(error_of([&] {
              select_pretrained(*model->backbone, spec, WeightFile(path("other.safetensors")));
            }).find("holds no tensor to select from"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::train
