// Checks the layers: every #include under src/ goes to a lower hall, or stays in its own.
//
// A hall is a folder under src/, a room is a folder in a hall. A hall includes halls of a lower level, never
// one of its own level. A hall that is free of LibTorch includes neither LibTorch nor a hall built on it.
// ops, nn, models and diffusion never touch files, so never io. A room includes its hall's `base` and the
// siblings listed in kSiblings. The top of a hall includes all its rooms. Tests may include every room of
// their hall. The commands that hall answer serves too reach models by it alone (kFrontEnds).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Layer {
  int level;
  bool torch_free;
};

// clang-format off
const std::map<std::string, Layer> kLayers = {
    {"core", {0, true}},
    {"io", {1, true}}, {"kernels", {1, true}},
    {"ops", {2, false}}, {"text", {2, true}},
    {"nn", {3, false}},
    {"onnx", {4, false}}, {"models", {4, false}}, {"diffusion", {4, false}}, {"data", {4, true}},
    {"eval", {4, true}}, {"report", {5, true}}, {"weights", {5, false}}, {"laws", {5, true}},
    {"tasks", {6, false}}, {"parallel", {6, false}}, {"analysis", {6, false}},
    {"plan", {6, true}},
    {"runs", {7, false}},
    {"open", {8, false}}, {"optim", {8, false}},
    {"recipe", {9, false}},
    {"train", {10, false}},
    {"answer", {11, false}},
    {"serve", {12, false}},
    {"cli", {13, false}},
};
// The rooms of each hall, and the siblings that a room may include in addition to `base`.
const std::map<std::string, std::vector<std::string>> kSiblings = {
    {"io/files", {}}, {"io/images", {"files"}}, {"io/weights", {"files"}}, {"io/onnx", {"files"}},
    {"kernels/gpu", {}}, {"kernels/activation", {"gpu"}}, {"kernels/optimiser", {"gpu"}}, {"kernels/norm", {"gpu"}},
    {"kernels/patches", {"gpu"}}, {"kernels/residual", {"gpu"}}, {"kernels/rotate", {"gpu"}},
    {"kernels/attention", {"gpu"}}, {"kernels/bi_wkv", {}}, {"kernels/cached_attention", {"gpu"}}, {"kernels/depthwise", {}}, {"kernels/linear", {}},
    {"kernels/mlstm", {"gpu"}}, {"kernels/mlstm_mixer", {"mlstm", "gpu"}}, {"kernels/nms", {}}, {"kernels/paste_mask", {}},
    {"kernels/roi_align", {}}, {"kernels/selective_scan", {}}, {"kernels/winograd", {}},
    {"ops/graphs", {}},
    {"data/base", {}}, {"data/transforms", {}}, {"data/sources", {"transforms"}}, {"data/loading", {"transforms"}},
    {"data/detection", {"sources"}}, {"data/masks", {"sources", "transforms"}}, {"data/tools", {"sources", "transforms"}},
    {"models/base", {}}, {"models/heads", {}}, {"models/detection", {}},
    {"models/backbones", {"heads"}}, {"models/backbones/vil", {}}, {"models/language", {}}, {"models/pairs", {"language"}},
    {"tasks/base", {}}, {"tasks/classify", {}}, {"tasks/pretrain", {}}, {"tasks/generate", {}}, {"tasks/dense", {}},
    {"tasks/pairs", {}}, {"tasks/language", {}},
    {"weights/base", {}}, {"weights/names", {}},
    {"cli/base", {}}, {"cli/run", {}}, {"cli/measure", {}}, {"cli/images", {}}, {"cli/analyse", {}}, {"cli/data", {}},
    {"cli/bench", {}}, {"cli/scale", {}}, {"cli/front", {}},
};
// clang-format on
const std::vector<std::string> kNeverTouchFiles = {"ops", "nn", "models", "diffusion"};

// The eight commands that hall answer serves too, with the files that only they use.
const std::set<std::string> kFrontEnds = {
    "cli/images/caption.cpp",         "cli/images/chat.cpp",          "cli/images/complete.cpp",
    "cli/images/detect.cpp",          "cli/images/generate.cpp",      "cli/images/drawn_patches.cpp",
    "cli/images/generate_options.h",  "cli/images/generate_output.h", "cli/images/generate_output.cpp",
    "cli/images/generate_shards.cpp", "cli/images/retrieve.cpp",      "cli/images/segment.cpp",
    "cli/images/zeroshot.cpp"};
const std::vector<std::string> kNotInFrontEnds = {"tasks", "models", "diffusion", "ops"};

struct Include {
  std::string path;
  bool quoted;
  int line;
};

std::vector<Include> includes_of(const std::string& source) {
  static const std::regex pattern(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> found;
  std::istringstream lines(source);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back({match[2], match[1] == "\"", number});
  }
  return found;
}

bool starts_with_any(const std::string& path, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* p) { return path.rfind(p, 0) == 0; });
}

bool is_torch(const std::string& path) {
  return starts_with_any(path, {"torch/", "ATen/", "c10/", "caffe2/"});
}

// Returns the folder of a path from src/: "data/sources", or "core".
std::string folder_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }

// Returns the room of a folder: "sources" for "data/sources", "" at the top of a hall.
std::string room_of(const std::string& folder) {
  const size_t slash = folder.find('/');
  return slash == std::string::npos ? "" : folder.substr(slash + 1);
}

// Returns why a room may not include a file of its own hall, or "".
std::string room_objection(const std::string& from, const std::string& to) {
  const std::string room = room_of(from), other = room_of(to);
  if (room.empty() || room == other) return "";
  if (other.empty()) return from.starts_with("kernels/") ? "" : from + " is below the top of its hall";
  const std::vector<std::string>& siblings = kSiblings.at(from);
  if (other == "base" || std::count(siblings.begin(), siblings.end(), other)) return "";
  return from + " does not list " + to + " as a sibling";
}

// Returns why a file of the folder `place` may not include `include`, or "".
std::string objection(const std::string& place, const Include& include, bool is_test) {
  const std::string from = place.substr(0, place.find('/'));
  const Layer& layer = kLayers.at(from);
  if (is_torch(include.path)) return layer.torch_free ? from + " is free of LibTorch" : "";
  if (starts_with_any(include.path, {"gtest/", "gmock/", "tests/"}))
    return is_test ? "" : "only a test includes test code";
  const std::string to = include.path.substr(0, include.path.find('/'));
  if (!kLayers.count(to) || to == include.path)
    return include.quoted ? "project headers are included by their path from src/" : "";
  if (!include.quoted) return "project headers are included with quotes";
  if (to == from) return is_test ? "" : room_objection(place, folder_of(include.path));
  const Layer& below = kLayers.at(to);
  if (below.level > layer.level) return from + " is below " + to;
  if (below.level == layer.level) return from + " and " + to + " are of one level";
  if (layer.torch_free && !below.torch_free) return from + " is free of LibTorch, " + to + " is built on it";
  if (to == "io" && std::count(kNeverTouchFiles.begin(), kNeverTouchFiles.end(), from))
    return from + " never touches files";
  return "";
}

// True for x_test.cpp, and for code shared by tests: testing.h and x_testing.h.
bool is_test_file(const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  return std::regex_search(stem, std::regex("(^|_)test(ing)?$"));
}

// Returns the objections to one file, as "path:line: includes X: why". `path` starts from src/.
std::vector<std::string> check_file(const std::string& path, const std::string& source) {
  const std::string from = path.substr(0, path.find('/'));
  if (!kLayers.count(from)) return {path + ": folder '" + from + "' is missing in the table of layers"};
  const std::string place = folder_of(path);
  if (place != from && !kSiblings.count(place))
    return {path + ": folder '" + place + "' is missing in the table of rooms"};
  const bool is_test = is_test_file(path);
  std::vector<std::string> objections;
  for (const Include& include : includes_of(source)) {
    std::string why = objection(place, include, is_test);
    const std::string to = include.path.substr(0, include.path.find('/'));
    if (why.empty() && kFrontEnds.count(path) &&
        std::count(kNotInFrontEnds.begin(), kNotInFrontEnds.end(), to))
      why = "a command of hall answer reaches " + to + " by it alone";
    if (!why.empty())
      objections.push_back(path + ":" + std::to_string(include.line) + ": includes " + include.path + ": " +
                           why);
  }
  return objections;
}

bool is_source(const fs::path& path) {
  const std::string kind = path.extension().string();
  return kind == ".h" || kind == ".cpp" || kind == ".cu" || kind == ".cuh" || kind == ".inc";
}

TEST(Layers, EveryIncludeGoesDown) {
  const fs::path root = TESSERA_SOURCE_DIR;
  std::vector<std::string> objections;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file() || !is_source(entry.path())) continue;
    ++files;
    std::ostringstream source;
    source << std::ifstream(entry.path()).rdbuf();
    for (auto& line : check_file(fs::relative(entry.path(), root).generic_string(), source.str()))
      objections.push_back(std::move(line));
  }
  for (const std::string& line : objections) ADD_FAILURE() << line;
  for (const std::string& path : kFrontEnds) EXPECT_TRUE(fs::exists(root / path)) << path;
  EXPECT_GT(files, 20) << "the reader saw too little of " << root;
}

struct Planted {
  const char* path;
  const char* source;
  const char* why;  // part of the objection; empty: none
};

TEST(Layers, PlantedIncludesAreCaught) {
  const Planted planted[] = {
      {"core/text.cpp", "#include \"io/files/file.h\"\n", "core is below io"},
      {"tasks/classify/classify.cpp", "#include \"train/trainer.h\"\n", "tasks is below train"},
      {"data/base/source.h", "  #  include \"models/base/model.h\"\n", "data and models are of one level"},
      {"tasks/base/task.h", "#include \"parallel/world.h\"\n", "tasks and parallel are of one level"},
      {"models/backbones/vit.cpp", "#include \"io/weights/safetensors.h\"\n", "models never touches files"},
      {"core/random.h", "#include <torch/torch.h>\n", "core is free of LibTorch"},
      {"report/svg.cpp", "#include <ATen/ATen.h>\n", "report is free of LibTorch"},
      {"report/svg.cpp", "#include \"tasks/base/task.h\"\n", "report is below tasks"},
      {"data/base/source.h", "#include \"ops/torch.h\"\n", "built on it"},
      {"io/files/file.cpp", "#include \"file.h\"\n", "by their path from src/"},
      {"io/files/file.cpp", "#include \"../core/error.h\"\n", "by their path from src/"},
      {"io/files/file.cpp", "#include <core/error.h>\n", "with quotes"},
      {"io/files/file.cpp", "#include <gtest/gtest.h>\n", "only a test"},
      {"utils/all.h", "\n", "missing in the table of layers"},
      {"data/utils/all.h", "\n", "missing in the table of rooms"},
      {"data/base/source.cpp", "#include \"data/sources/latents.h\"\n",
       "data/base does not list data/sources"},
      {"tasks/dense/segment.cpp", "#include \"tasks/classify/classify.h\"\n",
       "tasks/dense does not list tasks/classify"},
      {"cli/images/segment.cpp", "#include \"tasks/dense/segment.h\"\n", "reaches tasks by it alone"},
      {"cli/images/chat.cpp", "#include \"models/language/llava.h\"\n", "reaches models by it alone"},
      {"cli/images/generate.cpp", "#include \"diffusion/samplers.h\"\n", "reaches diffusion by it alone"},
      {"cli/images/retrieve.cpp", "#include \"ops/torch.h\"\n", "reaches ops by it alone"},
      {"cli/images/features.cpp", "#include \"tasks/base/task.h\"\n", ""},
      {"cli/images/predict.cpp", "#include \"cli/measure/eval.h\"\n", "cli/images does not list cli/measure"},
      {"models/backbones/vil/blocks.h", "#include \"models/heads/class_head.h\"\n",
       "models/backbones/vil does not list models/heads"},
      {"models/base/model.h", "#include \"models/registry.h\"\n", "models/base is below the top of its hall"},
      {"weights/load.cpp", "#include \"tasks/base/task.h\"\n", "weights is below tasks"},
      {"train/trainer.h", "#include \"serve/server.h\"\n", "train is below serve"},
      {"data/tools/check.cpp", "#include \"data/sources/latents.h\"\n#include \"data/base/source.h\"\n", ""},
      {"data/source.cpp", "#include \"data/sources/latents.h\"\n", ""},
      {"data/base/field_test.cpp", "#include \"data/loading/loader.h\"\n", ""},
      {"io/files/file_test.cpp", "#include <gtest/gtest.h>\n#include \"tests/arrays.h\"\n", ""},
      {"models/backbones/vit.cpp",
       "#include <torch/torch.h>\n#include \"nn/linear.h\"\n#include \"core/text.h\"\n", ""},
      {"io/files/io_testing.h", "#include <gtest/gtest.h>\n", ""},
      {"kernels/testing.h", "#include <gtest/gtest.h>\n", ""},
      {"models/backbones/vit.cpp", "// #include \"train/trainer.h\"\n", ""},
      {"cli/main.cpp", "#include <vector>\n#include <CLI/CLI.hpp>\n#include \"cli/base/command.h\"\n", ""},
  };
  for (const Planted& p : planted) {
    const auto objections = check_file(p.path, p.source);
    if (*p.why == '\0') {
      EXPECT_TRUE(objections.empty()) << p.path << ": " << p.source << objections.front();
      continue;
    }
    ASSERT_EQ(objections.size(), 1u) << p.path << ": " << p.source;
    EXPECT_NE(objections.front().find(p.why), std::string::npos) << objections.front();
  }
}

TEST(Layers, AnObjectionNamesFileAndLine) {
  const auto objections = check_file("core/text.cpp", "// text\n\n#include \"cli/base/command.h\"\n");
  ASSERT_EQ(objections.size(), 1u);
  EXPECT_EQ(objections.front(), "core/text.cpp:3: includes cli/base/command.h: core is below cli");
}

}  // namespace
