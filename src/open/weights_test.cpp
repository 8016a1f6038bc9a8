#include "open/weights.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/config.h"
#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "io/files/json.h"
#include "io/weights/safetensors_shards.h"
#include "models/heads/class_head.h"
#include "open/load.h"
#include "open/open_task.h"
#include "weights/name_tables.h"
#include "weights/stored_tensors.h"

namespace tessera::train {
namespace {

class WeightsTest : public TemporaryFolder {
 protected:
  static Value settings(const std::string& over = "") {
    Value table = parse_json_value(
        R"({"image_size": 32, "patch_size": 16, "dim": 16, "depth": 1, "heads": 2, "classes": 3})",
        "settings");
    if (!over.empty()) merge(table, parse_json_value(over, "over"));
    return table;
  }
  static WeightsInfo info(const std::string& over = "") {
    WeightsInfo out;
    out.model = models::resolve_model("vit", settings(over));
    out.task_metadata = metadata({"a", "b \"quoted\"", "ü"});
    out.preprocess.size = 32;
    out.preprocess.mean = {0.1, 0.2, 0.3};
    out.recipe = "[train]\nepochs = 1\n";
    return out;
  }
  // The metadata of a classifier with these classes.
  static Value metadata(const std::vector<std::string>& class_names) {
    Value out;
    out.set("class_names", Value::Array(class_names.begin(), class_names.end()));
    out.set("multi_label", false);
    return out;
  }
  static std::unique_ptr<tasks::Task> task_of(const models::ModelSpec& model, uint64_t seed,
                                              const Value& of_itself,
                                              models::Init init = models::Init::draw) {
    tasks::TaskSetup setup;
    setup.settings = tasks::task_settings(tasks::resolve_task({}));
    setup.model = model;
    setup.seed = seed;
    setup.init = init;
    setup.metadata = of_itself;
    return tasks::find_task("classify").make(setup);
  }
  // Saves a model with the given seed.
  std::string saved(const std::string& name, uint64_t seed, const std::string& over = "") const {
    const WeightsInfo described = info(over);
    save_weights(path(name), named_state(*models::build_classifier(described.model, seed)->backbone),
                 described);
    return path(name);
  }
  // Returns a copy of the file with tensors changed by `change`.
  std::string changed(const std::string& file, const std::function<void(NamedTensors&)>& change,
                      bool with_metadata = true) const {
    const SafetensorsFile original(file);
    NamedTensors tensors = read_tensors(original);
    change(tensors);
    const Metadata metadata = with_metadata ? original.metadata() : Metadata{};
    save_tensors(path("changed.safetensors"), tensors, metadata);
    return path("changed.safetensors");
  }
};

TEST_F(WeightsTest, AFileIsAllThatIsNeeded) {
  const std::string file = saved("m.safetensors", 7);
  const OpenedTask opened = open_task(file);
  EXPECT_EQ(opened.info.task_metadata, info().task_metadata);
  EXPECT_EQ(opened.info.preprocess.mean, info().preprocess.mean);
  EXPECT_EQ(opened.info.recipe, info().recipe);
  EXPECT_EQ(opened.info.model.family, "vit");
  EXPECT_EQ(opened.info.model.settings, info().model.settings);
  EXPECT_FALSE(opened.task->backbones()[0].model->is_training());
  const torch::Tensor images = torch::ones({2, 3, 32, 32});
  const auto original = models::build_classifier(info().model, 7);
  original->backbone->eval();
  EXPECT_TRUE(torch::equal(original->forward(images), opened.task->classifier()->forward(images)));
}

TEST_F(WeightsTest, SettingsThatChangeNoTensorAreLaidOverTheFiles) {
  const std::string file = saved("m.safetensors", 7);
  OpenOptions options;
  options.settings.set("drop_path", 0.25);
  EXPECT_EQ(open_task(file, options).info.model.settings.find("drop_path")->as_double(), 0.25);
  options.settings.set("drop_path", 2.0);
  EXPECT_NE(error_of([&] { open_task(file, options); }), "");
  options.settings = {};
  options.settings.set("drop_paths", 0.25);
  EXPECT_NE(error_of([&] { open_task(file, options); }).find("did you mean 'drop_path'"), std::string::npos);
}

TEST_F(WeightsTest, EveryElementTypeIsRead) {
  for (const auto type : {torch::kFloat64, torch::kBFloat16, torch::kFloat16}) {
    const std::string file = changed(saved("m.safetensors", 7), [&](NamedTensors& tensors) {
      for (auto& entry : tensors) entry.second = entry.second.to(type);
    });
    const OpenedTask opened = open_task(file);
    const auto original = models::build_classifier(info().model, 7)->backbone->parameters();
    const auto read = tasks::named_parameters(opened.task->parts());
    ASSERT_EQ(read.size(), original.size());
    for (size_t i = 0; i < original.size(); ++i)
      EXPECT_TRUE(torch::equal(read[i].second, original[i].to(type).to(torch::kFloat32)));
  }
}

TEST_F(WeightsTest, WhatDoesNotFitIsNamed) {
  const std::string file = saved("m.safetensors", 7);
  const std::string bad = path("changed.safetensors");
  changed(file, [](NamedTensors& tensors) { tensors.erase(tensors.begin() + 1); });
  EXPECT_NE(error_of([&] { open_task(bad); }).find("1 tensor missing ("), std::string::npos);
  changed(file, [](NamedTensors& tensors) {
    for (const char* name : {"x1", "x2", "x3", "x4", "x5", "x6"})
      tensors.emplace_back(name, torch::zeros({1}));
  });
  EXPECT_EQ(error_of([&] { open_task(bad); }),
            "'" + bad + "' does not fit vit: 6 tensors left over (x1, x2, x3, x4 and 2 more)");
  changed(file, [](NamedTensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name == "head.bias") tensor = torch::zeros({4});
  });
  EXPECT_EQ(error_of([&] { open_task(bad); }),
            "'" + bad + "' does not fit vit: 1 tensor of another shape (head.bias [4], must be [3])");
  changed(file, [](NamedTensors& tensors) {
    for (auto& [name, tensor] : tensors)
      if (name == "head.bias") tensor = torch::zeros({3}, torch::kInt64);
  });
  EXPECT_NE(error_of([&] { open_task(bad); }).find("tensor 'head.bias' is I64"), std::string::npos);
}

TEST_F(WeightsTest, HostileMetadataAllocateNothing) {
  const std::string file = saved("m.safetensors", 7);
  const auto with_model = [&](const std::string& json) {
    const SafetensorsFile original(file);
    Metadata metadata = original.metadata();
    metadata["tessera.model"] = json;
    save_tensors(path("hostile"), read_tensors(original), metadata);
    return error_of([&] { open_task(path("hostile")); });
  };
  const std::string huge =
      with_model(R"({"name":"vit","family":"vit","settings":{"dim":65536,"heads":2,"depth":100,
                                          "image_size":32,"patch_size":16,"classes":3}})");
  EXPECT_NE(huge.find("does not fit"), std::string::npos) << huge;
  const std::string deep =
      with_model(R"({"name":"vit","family":"vit","settings":{"dim":8,"heads":2,"depth":900,
                                          "image_size":32,"patch_size":16,"classes":3}})");
  EXPECT_NE(deep.find("the model would have 900 blocks of width 8"), std::string::npos) << deep;
  const std::string wide =
      with_model(R"({"name":"vit","family":"vit","settings":{"dim":8,"heads":2,"depth":2,"positions":"sincos",
                                          "image_size":8192,"patch_size":2,"classes":3}})");
  EXPECT_NE(wide.find("makes more than 1048576 tokens"), std::string::npos) << wide;
  EXPECT_NE(with_model("{").find("is not JSON"), std::string::npos);
  EXPECT_NE(with_model(R"({"name":"vit"})").find("no 'settings'"), std::string::npos);
  EXPECT_NE(with_model(R"({"name":"x","family":"vitt","settings":{}})").find("did you mean 'vit'"),
            std::string::npos);
  EXPECT_NE(with_model(R"({"name":"vit","family":"vit","settings":{"dimm":3}})").find("dimm"),
            std::string::npos);
}

// Weights of other programs do not record their preprocessing: the published one is found by name.
TEST(PublishedPreprocess, IsKnownForEverySize) {
  const auto of = [](const std::string& name) {
    return read_config<data::Preprocess>(models::published_preprocess(models::resolve_model(name)));
  };
  for (const models::Family& family : models::families())
    for (const models::Size& size : family.sizes) EXPECT_GT(of(size.name).crop, 0.8) << size.name;
  EXPECT_EQ(of("deit_small_patch16_224").crop, 0.9);
  EXPECT_EQ(of("deit3_tiny_patch16_224").crop, 1.0);
  EXPECT_EQ(of("deit3_small_patch16_224").mean, data::Preprocess().mean);
  EXPECT_EQ(of("vit_small_patch16_224").mean, (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(of("vil2-tiny").crop, 1.0);
  EXPECT_EQ(of("illama_base_patch16_384").crop_mode, "squash");
}

TEST_F(WeightsTest, FilesOfOtherProgramsNeedAModelName) {
  const std::string file = changed(
      saved("m.safetensors", 7), [](NamedTensors&) {}, /*with_metadata=*/false);
  EXPECT_EQ(error_of([&] { open_task(file); }),
            "'" + file + "' does not name its model: name it with --model (see `tessera models`)");
  EXPECT_NE(error_of([&] { open_task(file, {.model = "vit"}); }).find("does not fit vit"), std::string::npos);
}

TEST_F(WeightsTest, FineTuningTakesAllButTheHead) {
  const std::string file = saved("m.safetensors", 7);
  const models::ModelSpec spec =
      models::resolve_model("vit", settings(R"({"classes": 5, "image_size": 64})"));
  const auto task = task_of(spec, 1, metadata({"1", "2", "3", "4", "5"}));
  const auto fresh = models::build_classifier(spec, 1), source = models::build_classifier(info().model, 7);
  const LoadReport report = load_pretrained(*task, WeightFile(file));
  EXPECT_EQ(report.fresh, (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_EQ(report.interpolated, std::vector<std::string>{"pos_embed [1, 5, 16] to [1, 17, 16]"});
  EXPECT_EQ(report.lines.size(), 3u);
  const auto parameters = task->backbones()[0].model->named_parameters();
  EXPECT_TRUE(torch::equal(parameters["head.weight"], fresh->backbone->named_parameters()["head.weight"]));
  EXPECT_TRUE(torch::equal(parameters["blocks.0.attn.qkv.weight"],
                           source->backbone->named_parameters()["blocks.0.attn.qkv.weight"]));
}

TEST_F(WeightsTest, TheHeadStaysOnlyForTheSameClasses) {
  const WeightFile file(saved("m.safetensors", 7));
  const auto same = task_of(info().model, 1, info().task_metadata),
             other = task_of(info().model, 1, metadata({"other", "three", "classes"}));
  EXPECT_TRUE(load_pretrained(*same, file).fresh.empty());
  EXPECT_EQ(load_pretrained(*other, file).fresh.size(), 2u);
}

TEST_F(WeightsTest, FineTuningNeedsAllOfTheBackbone) {
  const WeightFile file(saved("m.safetensors", 7));
  const auto refusal = [&](const std::string& over) {
    const auto task = task_of(models::resolve_model("vit", settings(over)), 1, info().task_metadata);
    return error_of([&] { load_pretrained(*task, file); });
  };
  EXPECT_NE(refusal(R"({"depth": 2})").find("missing (blocks.1."), std::string::npos);
  EXPECT_NE(refusal(R"({"dim": 32})").find("of another shape"), std::string::npos);
}

// Fine-tuning adds tables of relative positions, without effect at first; the file need not have them.
TEST_F(WeightsTest, FineTuningAddsWhatHasNoEffectAtFirst) {
  const WeightFile file(saved("m.safetensors", 7));
  const auto task =
      task_of(models::resolve_model("vit", settings(R"({"relative_table": true})")), 1, info().task_metadata);
  const LoadReport report = load_pretrained(*task, file);
  ASSERT_EQ(report.neutral.size(), 1u);
  EXPECT_EQ(report.neutral[0], "blocks.0.attn.relative_position_bias_table");
  EXPECT_EQ(report.lines.back(), "not in the file, first values kept: " + report.neutral[0]);
  const torch::Tensor images = torch::ones({2, 3, 32, 32});
  const torch::Tensor before = open_task(path("m.safetensors")).task->classifier()->forward(images);
  task->classifier()->backbone->eval();
  EXPECT_TRUE(torch::allclose(task->classifier()->forward(images), before, 1e-5, 1e-6));
}

TEST_F(WeightsTest, SeveralFilesAreOpenedAsOne) {
  const WeightFile whole(saved("m.safetensors", 7));
  make_directories(path("parts"));
  const std::string index = path("parts/model.safetensors.index.json");
  write_sharded_safetensors(index, whole.tensors(), whole.metadata(), 4000);
  const torch::Tensor images = torch::ones({2, 3, 32, 32});
  const torch::Tensor scores = open_task(path("m.safetensors")).task->classifier()->forward(images);
  for (const std::string& place : {index, path("parts")}) {
    const OpenedTask opened = open_task(place);
    EXPECT_EQ(opened.info.task_metadata, info().task_metadata);
    EXPECT_TRUE(torch::equal(opened.task->classifier()->forward(images), scores));
  }
}

TEST_F(WeightsTest, APyTorchArchiveIsFineTuned) {
  const WeightFile file(std::string(TESSERA_TEST_DATA) + "/torch/vit.pth");
  const models::ModelSpec spec =
      models::resolve_model("vit", settings(R"({"dim": 32, "depth": 2, "patch_size": 8, "image_size": 48})"));
  const auto task = task_of(spec, 1, metadata({"a", "b", "c"}), models::Init::skip);
  const LoadReport report = load_pretrained(*task, file);
  EXPECT_EQ(report.lines[0], "loaded 30 tensors from " + file.path() + " (PyTorch archive, 'model')");
  EXPECT_EQ(report.lines[1], "new head for 3 classes (a, b, c): head.weight, head.bias");
  EXPECT_EQ(report.lines[2], "positions interpolated: pos_embed [1, 17, 32] to [1, 37, 32]");
  EXPECT_TRUE(report.left_over.empty());
  // A new head is initialised, even if nothing else is.
  EXPECT_TRUE(torch::equal(task->backbones()[0].model->named_parameters()["head.weight"],
                           models::build_classifier(spec, 1)->backbone->named_parameters()["head.weight"]));
}

TEST_F(WeightsTest, WhatIsNotDrawnIsNotDrawn) {
  const auto model = models::build_backbone(info().model, 7, models::Init::skip),
             drawn = models::build_backbone(info().model, 7);
  EXPECT_EQ(model->named_parameters()["blocks.0.mlp.fc1.weight"].abs().max().item<float>(), 0);
  EXPECT_GT(drawn->named_parameters()["blocks.0.mlp.fc1.weight"].abs().max().item<float>(), 0);
}

// A folder as timm writes it: its config.json has the arguments of the constructor, its tensors have axes of
// extent 1 more (convolutions in the MLPs) and the prefixes of wrappers.
TEST_F(WeightsTest, AFolderOfAHubIsOpenedAsItsConfigurationSays) {
  models::ModelSpec spec = models::resolve_model(
      "convnext_tiny",
      parse_json_value(R"({"dims": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "image_size": 64, "classes": 3})",
                       "settings"));
  const auto original = models::build_classifier(spec, 5);
  original->backbone->eval();
  NamedTensors tensors;
  for (const auto& [name, tensor] : named_state(*original->backbone))
    tensors.emplace_back("model._orig_mod." + name,
                         name.find(".mlp.fc") != std::string::npos && tensor.dim() == 2
                             ? tensor.unsqueeze(-1).unsqueeze(-1)
                             : tensor);
  make_directories(path("hub"));
  save_tensors(path("hub/model.safetensors"), tensors, {});
  write_text_atomic(path("hub/config.json"),
                    R"({"architecture": "convnext_tiny", "model_args": {"dims": [8, 8, 8, 8],
      "depths": [1, 1, 1, 1], "conv_mlp": true, "global_pool": "avg"}, "label_names": ["a", "b", "c"],
      "pretrained_cfg": {"input_size": [3, 64, 64], "crop_pct": 1.0, "crop_mode": "squash"}})");
  write_text_atomic(path("hub/extra.bin"), "x");
  const OpenedTask opened = open_task(path("hub"));
  EXPECT_EQ(opened.info.preprocess.size, 64);
  EXPECT_EQ(opened.info.preprocess.crop_mode, "squash");
  const torch::Tensor images = torch::rand({2, 3, 64, 64});
  EXPECT_TRUE(
      torch::allclose(opened.task->classifier()->forward(images), original->forward(images), 1e-5, 1e-6));
  EXPECT_EQ(opened.notes.back(), path("hub") + ": not read: extra.bin");
  write_text_atomic(path("hub/config.json"),
                    R"({"architecture": "convnext_tiny", "model_args": {"dims": [8, 8, 8, 8],
      "depths": [1, 1, 1, 1]}, "label_names": ["a", "b"], "pretrained_cfg": {"input_size": [3, 64, 64]}})");
  EXPECT_EQ(open_task(path("hub")).notes.front(),
            path("hub/model.safetensors") +
                ": its config.json names 2 classes, its head has 3: the names are not used");
  write_text_atomic(path("hub/config.json"),
                    R"({"architecture": "convnext_tiny", "model_args": {"act_layer": "relu"}})");
  EXPECT_NE(error_of([&] { open_task(path("hub")); }).find("model_args.act_layer is relu"),
            std::string::npos);
}

TEST_F(WeightsTest, VariantsOfAPublishedFolderAreOpened) {
  const auto error = [&] { return error_of([&] { weights_file_of(path("variants")); }); };
  make_directories(path("variants"));
  EXPECT_TRUE(error().ends_with("or a checkpoint directory"));
  for (const char* name :
       {"checkpoint-2/model.safetensors", "checkpoint-1/pytorch_model.bin", "logs/x.txt"}) {
    make_directories(path(text("variants/", std::string(name).substr(0, std::string(name).find('/')))));
    write_text_atomic(path(text("variants/", name)), "x");
  }
  EXPECT_TRUE(error().ends_with("; give one of its folders: checkpoint-1, checkpoint-2"));
  write_text_atomic(path("variants/adapter_config.json"), "{}");
  EXPECT_NE(error().find("its adapter of PEFT belongs to a base model"), std::string::npos);
  std::filesystem::remove(path("variants/adapter_config.json"));
  for (const char* name : {"b.pth", "a.safetensors", "notes.txt"})
    write_text_atomic(path(text("variants/", name)), "x");
  EXPECT_TRUE(error().ends_with("; give one of its files: a.safetensors, b.pth"));
  for (const char* name :
       {"pytorch_model.fp16.bin", "model.bf16.safetensors", "model.fp16.safetensors", "model.safetensors"}) {
    write_text_atomic(path(text("variants/", name)), "x");
    EXPECT_EQ(weights_file_of(path("variants")), path(text("variants/", name)));
  }
}

// The hub's cache has the files of each commit in a folder of snapshots/.
TEST_F(WeightsTest, ARepositoryOfTheHubsCacheIsOpened) {
  for (const char* commit : {"0a1b", "2c3d"}) {
    make_directories(path(text("cache/snapshots/", commit)));
    write_text_atomic(path(text("cache/snapshots/", commit, "/model.safetensors")), "x");
  }
  make_directories(path("cache/refs"));
  EXPECT_EQ(error_of([&] { weights_file_of(path("cache")); }),
            text("'", path("cache"),
                 "' has 2 snapshots and no refs/main that names one of them: give one, such as '",
                 path("cache/snapshots/0a1b"), "'"));
  write_text_atomic(path("cache/refs/main"), "2c3d\n");
  EXPECT_EQ(weights_file_of(path("cache")), path("cache/snapshots/2c3d/model.safetensors"));
  std::filesystem::remove_all(path("cache/snapshots/2c3d"));
  EXPECT_EQ(weights_file_of(path("cache")), path("cache/snapshots/0a1b/model.safetensors"));
  std::filesystem::create_symlink("../../blobs/77", path("cache/snapshots/0a1b/config.json"));
  EXPECT_EQ(
      error_of([&] { weights_file_of(path("cache")); }),
      text("'", path("cache/snapshots/0a1b/config.json"), "' is a link to '",
           path("cache/snapshots/0a1b/../../blobs/77"), "', which does not exist: fetch the file again"));
}

// torchvision's layer scales are [dim, 1, 1].
TEST_F(WeightsTest, FilesOfTorchvisionNameTheirModel) {
  const auto named = [&](const std::string& model) {
    const auto ours =
        models::meta_classifier(models::resolve_model(model, Value(Value::Table{{"classes", 10}})));
    NamedTensors tensors = named_state(*ours->backbone);
    for (const NameTable& table : name_tables())
      if (table.program() == "torchvision" && table.family() == models::resolve_model(model).family)
        tensors = by_names_of(table, tensors);
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : tensors) {
      TensorView& view = views.emplace_back();
      view.name = name;
      view.shape = tensor.sizes().vec();
      if (name.ends_with("layer_scale")) view.shape = {tensor.numel(), 1, 1};
    }
    return sizes_that_fit(views);
  };
  EXPECT_EQ(named("convnext_tiny"), std::vector<std::string>{"convnext_tiny"});
  EXPECT_EQ(named("vit_base_patch32_224"), std::vector<std::string>{"vit_base_patch32_224"});
}

// The size of the configuration is another than that of the stored positions, as timm resamples them.
TEST_F(WeightsTest, AFoldersSizeInterpolatesPositions) {
  make_directories(path("hub"));
  save_tensors(path("hub/model.safetensors"), read_tensors(SafetensorsFile(saved("m.safetensors", 7))), {});
  write_text_atomic(path("hub/config.json"),
                    R"({"architecture": "vit_tiny_patch16_224", "model_args": {"embed_dim": 16,
      "depth": 1, "num_heads": 2, "img_size": 48}, "pretrained_cfg": {"fixed_input_size": true}})");
  const OpenedTask opened = open_task(path("hub"));
  EXPECT_EQ(opened.info.preprocess.size, 48);
  EXPECT_EQ(opened.notes.back(), "positions interpolated: pos_embed [1, 5, 16] to [1, 10, 16]");
}

TEST_F(WeightsTest, AnotherInputSizeInterpolatesPositions) {
  const OpenedTask opened = open_task(saved("m.safetensors", 7), {.size = 48});
  EXPECT_EQ(opened.notes,
            std::vector<std::string>{"positions interpolated: pos_embed [1, 5, 16] to [1, 10, 16]"});
  EXPECT_EQ(opened.info.preprocess.size, 48);
  EXPECT_EQ(opened.task->classifier()->forward(torch::zeros({1, 3, 48, 48})).sizes(),
            (std::vector<int64_t>{1, 3}));
}

TEST_F(WeightsTest, JsonKeepsEveryBitOfANumber) {
  Value table;
  table.set("a", 0.1);
  table.set("b", 1.0 / 3);
  table.set("c", 5e-324);
  table.set("d", int64_t{9007199254740993});
  table.set("e", Value::Array{1.0, 2, true, "x\n\"ü\""});
  EXPECT_EQ(parse_json_value(json_text(table), "t"), table);
  EXPECT_NE(error_of([] { parse_json_value(std::string(100, '['), "t"); }), "");
  EXPECT_NE(error_of([] { parse_json_value("null", "t"); }), "");
  EXPECT_NE(error_of([] { parse_json_value("[18446744073709551615]", "t"); }), "");
  Value nan;
  nan.set("x", std::nan(""));
  EXPECT_NE(error_of([&] { json_text(nan); }), "");
}

}  // namespace
}  // namespace tessera::train
