// Files that claim more than any machine has: every command must report it in one line and use little memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "io/weights/safetensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{2} << 30;

constexpr const char* kRecipe = R"(
[model]
name = "%s"
dim = 16
depth = 2
heads = 2
patch_size = 8
[data]
path = "shapes:train=16,val=16"
[preprocess]
size = 16
[train]
steps = 1
batch_size = 8
device = "cpu"
threads = 1
)";

struct Ended {
  int status = 0;
  int64_t memory = 0;  // peak, in bytes
  std::string output;
};

class Hostile : public TemporaryFolder {
 protected:
  Ended run(std::vector<std::string> words) const {
    words.insert(words.begin(), "tessera");
    const pid_t child = ::fork();
    if (child == 0) {
      const int log = ::open(path("log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      ::dup2(log, 1);
      ::dup2(log, 2);
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execv(TESSERA_PROGRAM, arguments.data());
      ::_exit(127);
    }
    Ended ended;
    rusage used{};
    ::wait4(child, &ended.status, 0, &used);
    ended.memory = int64_t{used.ru_maxrss} * 1024;
    ended.output = read_text(path("log"));
    return ended;
  }

  // Checks that it fails, with its own error line and little memory.
  void expect_refused(const std::vector<std::string>& words) const {
    const Ended ended = run(words);
    ASSERT_TRUE(WIFEXITED(ended.status)) << words[0] << " " << words[1] << "\n" << ended.output;
    EXPECT_TRUE(WEXITSTATUS(ended.status) == 1 || WEXITSTATUS(ended.status) == 2)
        << words[0] << " " << words[1] << "\n"
        << ended.output;
    EXPECT_NE(ended.output.find("tessera: "), std::string::npos) << ended.output;
    expect_little(ended, words);
  }
  static void expect_little(const Ended& ended, const std::vector<std::string>& words) {
    EXPECT_LT(ended.memory, kMostBytes) << words[0] << " " << words[1] << "\n" << ended.output;
  }

  // Trains a run of one step of that family. Returns its weights file.
  std::string trained(const std::string& family) const {
    char recipe[1024];
    std::snprintf(recipe, sizeof recipe, kRecipe, family.c_str());
    write_text_atomic(path(family + ".toml"), recipe);
    const Ended ended = run({"train", path(family + ".toml"), "--output", path(family)});
    EXPECT_EQ(ended.status, 0) << ended.output;
    return path(family + "/model.safetensors");
  }

  // Returns a copy of a weights file with metadata edited by `change`.
  template <class Change>
  std::string changed(const std::string& weights, const Change& change) const {
    const SafetensorsFile file(weights);
    Metadata metadata = file.metadata();
    Json model = Json::parse(metadata.at("tessera.model")),
         preprocess = Json::parse(metadata.at("tessera.preprocess"));
    change(model["settings"], preprocess);
    metadata["tessera.model"] = model.dump();
    metadata["tessera.preprocess"] = preprocess.dump();
    write_safetensors(path("hostile.safetensors"), file.tensors(), metadata);
    return path("hostile.safetensors");
  }

  void expect_refused_by_all(const std::string& weights) const {
    expect_refused({"convert", weights, path("out.safetensors")});
    expect_refused({"predict", TESSERA_TEST_IMAGE, "--weights", weights});
    expect_refused({"eval", "--weights", weights});
    write_text_atomic(path("auto.toml"), "[model]\nname = \"auto\"\n[train]\nsteps = 1\n");
    expect_refused({"train", path("auto.toml"), "--dry-run", "--data", "shapes:train=16,val=16",
                    "--pretrained", weights});
    const Ended shown = run({"inspect", weights});  // builds nothing, prints the file's contents
    EXPECT_EQ(shown.status, 0) << shown.output;
    expect_little(shown, {"inspect", weights});
  }
};

TEST_F(Hostile, MetadataThatClaimTooMuch) {
  for (const char* family : {"vil", "vit"}) {
    const std::string weights = trained(family);
    for (const char* key : {"depth", "dim", "classes"})
      expect_refused_by_all(changed(weights, [&](Json& settings, Json&) { settings[key] = 200'000; }));
    expect_refused_by_all(changed(weights, [](Json& settings, Json& preprocess) {
      settings["image_size"] = preprocess["size"] = 16384;
      settings["positions"] = settings["positions"].is_boolean() ? Json(false) : Json("none");
    }));
  }
}

TEST_F(Hostile, ASettingOfARecipeThatIsTooLarge) {
  trained("vit");
  for (const char* setting : {"model.depth=1000000", "model.dim=1000000000", "model.patch_size=0",
                              "model.reg_tokens=1000000000000", "model.mlp_ratio=1e18", "model.classes=-1"})
    expect_refused({"train", path("vit.toml"), "--dry-run", "--set", setting});
}

TEST_F(Hostile, FilesThatAreCutOrEndless) {
  const std::string weights = trained("vit");
  std::string content = read_text(weights);
  write_text_atomic(path("cut.safetensors"), content.substr(0, content.size() / 2));
  content.replace(0, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  write_text_atomic(path("header.safetensors"), content);
  std::ofstream(path("sparse.safetensors")).close();
  fs::resize_file(path("sparse.safetensors"), uintmax_t{1} << 36);
  std::ofstream(path("zip.pth"), std::ios::binary) << "PK\x03\x04" << std::string(1000, '\xff');
  for (const char* name : {"cut.safetensors", "header.safetensors", "sparse.safetensors", "zip.pth"}) {
    expect_refused({"convert", path(name), path("out.safetensors")});
    expect_refused({"inspect", path(name)});
    expect_refused({"predict", TESSERA_TEST_IMAGE, "--weights", path(name)});
    expect_refused({"train", path("vit.toml"), "--output", path("run"), "--pretrained", path(name)});
  }
}

TEST_F(Hostile, ACheckpointThatIsNone) {
  trained("vit");
  const std::string manifest = path("vit/checkpoints/step-000001/manifest.json");
  const std::string whole = read_text(manifest);
  fs::remove_all(path("vit/checkpoints/step-000000"));
  for (const std::string& content :
       {std::string(100'000, '['), std::string("{}"), whole.substr(0, whole.size() / 2), std::string()}) {
    write_text_atomic(manifest, content);
    expect_refused({"train", path("vit.toml"), "--output", path("vit"), "--resume"});
  }
  fs::remove(manifest);
  std::ofstream(manifest).close();
  fs::resize_file(manifest, uintmax_t{1} << 36);
  expect_refused({"train", path("vit.toml"), "--output", path("vit"), "--resume"});
}

}  // namespace
}  // namespace tessera
