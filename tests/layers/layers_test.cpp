// The layers of the house, checked: every #include under src/ goes down, or stays in its own folder.
//
// A folder may include folders of a lower level. Folders of one level do not know each other. A folder that
// is free of LibTorch includes neither LibTorch nor a folder built on it. ops, nn and models never touch
// files, so never io.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
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
    {"ops", {2, false}},
    {"nn", {3, false}},
    {"models", {4, false}}, {"diffusion", {4, false}}, {"data", {4, true}}, {"eval", {4, true}},
    {"report", {5, true}},
    {"tasks", {6, false}}, {"parallel", {6, false}},
    {"train", {7, false}}, {"serve", {7, false}},
    {"cli", {8, false}},
};
// clang-format on
const std::vector<std::string> kNeverTouchFiles = {"ops", "nn", "models", "diffusion"};

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

// Why a file of `from` may not include `include`; empty if it may.
std::string objection(const std::string& from, const Include& include, bool is_test) {
  const Layer& layer = kLayers.at(from);
  if (is_torch(include.path)) return layer.torch_free ? from + " is free of LibTorch" : "";
  if (starts_with_any(include.path, {"gtest/", "gmock/", "tests/"}))
    return is_test ? "" : "only a test includes test code";
  const std::string to = include.path.substr(0, include.path.find('/'));
  if (!kLayers.count(to) || to == include.path)
    return include.quoted ? "project headers are included by their path from src/" : "";
  if (!include.quoted) return "project headers are included with quotes";
  if (to == from) return "";
  const Layer& below = kLayers.at(to);
  if (below.level > layer.level) return from + " stands below " + to;
  if (below.level == layer.level) return from + " and " + to + " stand on one level";
  if (layer.torch_free && !below.torch_free) return from + " is free of LibTorch, " + to + " is built on it";
  if (to == "io" && std::count(kNeverTouchFiles.begin(), kNeverTouchFiles.end(), from))
    return from + " never touches files";
  return "";
}

// x_test.cpp and what tests share, testing.h and x_testing.h.
bool is_test_file(const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  return std::regex_search(stem, std::regex("(^|_)test(ing)?$"));
}

// Objections to one file, as "path:line: includes X: why". `path` starts from src/.
std::vector<std::string> check_file(const std::string& path, const std::string& source) {
  const std::string from = path.substr(0, path.find('/'));
  if (!kLayers.count(from)) return {path + ": folder '" + from + "' is missing in the table of layers"};
  const bool is_test = is_test_file(path);
  std::vector<std::string> objections;
  for (const Include& include : includes_of(source)) {
    const std::string why = objection(from, include, is_test);
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
  EXPECT_GT(files, 20) << "the reader saw too little of " << root;
}

struct Planted {
  const char* path;
  const char* source;
  const char* why;  // part of the objection; empty: none
};

TEST(Layers, PlantedIncludesAreCaught) {
  const Planted planted[] = {
      {"core/text.cpp", "#include \"io/file.h\"\n", "core stands below io"},
      {"tasks/classify.cpp", "#include \"train/trainer.h\"\n", "tasks stands below train"},
      {"data/source.h", "  #  include \"models/model.h\"\n", "data and models stand on one level"},
      {"tasks/task.h", "#include \"parallel/world.h\"\n", "tasks and parallel stand on one level"},
      {"models/vit.cpp", "#include \"io/safetensors.h\"\n", "models never touches files"},
      {"core/random.h", "#include <torch/torch.h>\n", "core is free of LibTorch"},
      {"report/svg.cpp", "#include <ATen/ATen.h>\n", "report is free of LibTorch"},
      {"report/svg.cpp", "#include \"tasks/task.h\"\n", "report stands below tasks"},
      {"data/source.h", "#include \"ops/torch.h\"\n", "built on it"},
      {"io/file.cpp", "#include \"file.h\"\n", "by their path from src/"},
      {"io/file.cpp", "#include \"../core/error.h\"\n", "by their path from src/"},
      {"io/file.cpp", "#include <core/error.h>\n", "with quotes"},
      {"io/file.cpp", "#include <gtest/gtest.h>\n", "only a test"},
      {"utils/all.h", "\n", "missing in the table"},
      {"io/file_test.cpp", "#include <gtest/gtest.h>\n#include \"tests/arrays.h\"\n", ""},
      {"models/vit.cpp", "#include <torch/torch.h>\n#include \"nn/linear.h\"\n#include \"core/text.h\"\n",
       ""},
      {"io/io_testing.h", "#include <gtest/gtest.h>\n", ""},
      {"kernels/testing.h", "#include <gtest/gtest.h>\n", ""},
      {"models/vit.cpp", "// #include \"train/trainer.h\"\n", ""},
      {"cli/main.cpp", "#include <vector>\n#include <CLI/CLI.hpp>\n#include \"cli/command.h\"\n", ""},
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
  const auto objections = check_file("core/text.cpp", "// text\n\n#include \"cli/command.h\"\n");
  ASSERT_EQ(objections.size(), 1u);
  EXPECT_EQ(objections.front(), "core/text.cpp:3: includes cli/command.h: core stands below cli");
}

}  // namespace
