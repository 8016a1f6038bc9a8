// Runs a text file of commands and compares what they print, line by line.
//
//   # why this is tested
//   $ tessera version
//   > tessera <version> (LibTorch <version>)
//   $ tessera trian
//   ! tessera: unknown command 'trian', did you mean 'train'?<any>
//   = 2
//
// `$` is a command for sh, `>` a line it prints to stdout, `!` to stderr, `=` its exit code (0 if absent);
// `> ...` and `! ...` stand for any number of lines. All output must be named. In an expected line <number>,
// <time>, <size>, <version>, <path> and <any> stand for what changes; the rest is compared letter by letter.
// The commands of a file run in one empty folder that is removed afterwards, with the program's folder first
// in PATH, no input and no terminal.
//
// Every command in the ```sh blocks of a page (FILE.md) is run and must exit with 0, whatever it prints;
// commands that are not the program's (make, git, …) are passed over. The folder then holds what pages speak
// of: recipes/, examples/, photo.jpg and photos/.
//
//   cli_runner PROGRAM_FOLDER FILE
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

struct Step {
  int line = 0;
  std::string command;
  Lines out, err;
  int exit_code = 0;
};

struct Result {
  Lines out, err;
  int exit_code = 0;
};

Lines read_lines(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + ": cannot read");
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<Step> read_steps(const fs::path& path) {
  std::vector<Step> steps;
  int number = 0;
  for (const std::string& line : read_lines(path)) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::string rest = line.size() > 2 ? line.substr(2) : "";
    if (line.starts_with("$ ")) {
      steps.push_back({number, rest, {}, {}, 0});
      continue;
    }
    const bool known =
        (line[0] == '>' || line[0] == '!' || line[0] == '=') && (line.size() == 1 || line[1] == ' ');
    if (!known || steps.empty())
      throw std::runtime_error(path.string() + ":" + std::to_string(number) +
                               ": expected '$ command', then lines " + "that start with '> ', '! ' or '= '");
    if (line[0] == '>') steps.back().out.push_back(rest);
    if (line[0] == '!') steps.back().err.push_back(rest);
    if (line[0] == '=') steps.back().exit_code = std::stoi(rest);
  }
  if (steps.empty()) throw std::runtime_error(path.string() + ": no command");
  return steps;
}

std::string without_comment(const std::string& line) {
  const size_t comment = line.find(" #");
  const std::string command = line.substr(0, comment);
  return command.substr(0, command.find_last_not_of(' ') + 1);
}

// The program's commands in the ```sh blocks of a page; a line that ends in a backslash goes on in the next.
std::vector<Step> read_page(const fs::path& path) {
  std::vector<Step> steps;
  bool inside = false;
  int number = 0, begin = 0;
  std::string command;
  for (const std::string& line : read_lines(path)) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside && line == "```sh";
      continue;
    }
    if (!inside || line.empty() || line[0] == '#') continue;
    if (command.empty()) begin = number;
    command += without_comment(line);
    if (command.ends_with("\\")) {
      command.back() = ' ';
      continue;
    }
    if (command.starts_with("tessera ")) steps.push_back({begin, command, {"..."}, {"..."}, 0});
    command.clear();
  }
  return steps;
}

void lay_out_page_folder(const fs::path& root, const fs::path& folder) {
  for (const char* name : {"recipes", "examples"}) fs::create_symlink(root / name, folder / name);
  const fs::path picture = root / "examples/pictures/star.png";
  for (const char* place : {"photos", "DIR/train/star", "DIR/train/disc", "DIR/val/star", "DIR/val/disc"}) {
    fs::create_directories(folder / place);
    for (const char* name : {"1.png", "2.png", "3.png", "4.png", "5.png"})
      fs::copy_file(picture, folder / place / name);
  }
  fs::copy_file(picture, folder / "photo.jpg");
}

// The expected line as a pattern.
std::regex pattern_of(const std::string& line) {
  static const std::map<std::string, std::string> masks = {
      {"<number>", R"([-+]?[0-9][0-9,]*(\.[0-9]+)?(e[-+]?[0-9]+)?)"},
      {"<time>", R"([0-9]+(:[0-9]{2})+)"},
      {"<size>", R"([0-9]+(\.[0-9]+)? [kMGT]?B)"},
      {"<version>", R"([0-9]+\.[0-9]+(\.[0-9]+)?[-+.a-z0-9]*)"},
      {"<path>", R"(\S+)"},
      {"<any>", ".*"},
  };
  std::string pattern;
  for (size_t i = 0; i < line.size();) {
    const size_t end = line[i] == '<' ? line.find('>', i) : std::string::npos;
    const auto mask = end == std::string::npos ? masks.end() : masks.find(line.substr(i, end + 1 - i));
    if (mask != masks.end()) {
      pattern += mask->second;
      i = end + 1;
      continue;
    }
    if (std::string(R"(\^$.|?*+()[]{})").find(line[i]) != std::string::npos) pattern += '\\';
    pattern += line[i++];
  }
  return std::regex(pattern);
}

// Whether lines match from the given places on; "..." takes none, one or more.
bool matches(const Lines& expected, size_t e, const Lines& got, size_t g) {
  if (e == expected.size()) return g == got.size();
  if (expected[e] == "...") {
    for (size_t skip = g; skip <= got.size(); ++skip)
      if (matches(expected, e + 1, got, skip)) return true;
    return false;
  }
  return g < got.size() && std::regex_match(got[g], pattern_of(expected[e])) &&
         matches(expected, e + 1, got, g + 1);
}

Result run(const std::string& command, const fs::path& scratch) {
  const fs::path script = scratch / "command", out = scratch / "out", err = scratch / "err";
  std::ofstream(script) << "cd '" << (scratch / "work").string() << "'\n" << command << "\n";
  const std::string line =
      "exec sh '" + script.string() + "' >'" + out.string() + "' 2>'" + err.string() + "' </dev/null";
  const int status = std::system(line.c_str());
  if (status == -1) throw std::runtime_error("cannot start a shell");
  return {read_lines(out), read_lines(err), WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

void show(const char* mark, const Lines& lines) {
  for (const std::string& line : lines) std::cout << "    " << mark << " " << line << "\n";
}

bool check_step(const fs::path& file, const Step& step, const Result& result) {
  const bool out = matches(step.out, 0, result.out, 0), err = matches(step.err, 0, result.err, 0);
  const bool code = step.exit_code == result.exit_code;
  if (out && err && code) return true;
  std::cout << file.string() << ":" << step.line << ": $ " << step.command << "\n";
  if (!code) std::cout << "  exit code " << result.exit_code << ", expected " << step.exit_code << "\n";
  std::cout << "  expected\n";
  show(">", step.out), show("!", step.err);
  std::cout << "  got\n";
  show(">", result.out), show("!", result.err);
  return false;
}

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "tessera-cli-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder");
    path = name;
    fs::create_directory(path / "work");
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

void set_environment(const fs::path& program_folder, const fs::path& home) {
  const char* path = std::getenv("PATH");
  setenv("PATH", (fs::absolute(program_folder).string() + ":" + (path ? path : "/usr/bin:/bin")).c_str(), 1);
  setenv("HOME", home.c_str(), 1);
  setenv("LC_ALL", "C", 1);
  setenv("OMP_NUM_THREADS", "2", 0);
  unsetenv("COLUMNS");
}

// The folder above that holds the recipes.
fs::path root_of(const fs::path& page) {
  for (fs::path folder = fs::absolute(page).parent_path(); folder != folder.parent_path();
       folder = folder.parent_path())
    if (fs::is_directory(folder / "recipes")) return folder;
  throw std::runtime_error(page.string() + ": no folder above it holds recipes/");
}

int run_file(const fs::path& program_folder, const fs::path& file) {
  const bool page = file.extension() == ".md";
  const std::vector<Step> steps = page ? read_page(file) : read_steps(file);
  const ScratchFolder scratch;
  if (page) lay_out_page_folder(root_of(file), scratch.path / "work");
  set_environment(program_folder, scratch.path);
  int failed = 0;
  for (const Step& step : steps) failed += !check_step(file, step, run(step.command, scratch.path));
  std::cout << steps.size() - static_cast<size_t>(failed) << " passed, " << failed << " failed\n";
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: cli_runner PROGRAM_FOLDER FILE");
    return run_file(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cout << "cli_runner: " << error.what() << "\n";
    return 2;
  }
}
