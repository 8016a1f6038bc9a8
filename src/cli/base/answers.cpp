// The table of the front (cli/front): what the program prints for its help, version and completion scripts.
#include <iostream>
#include <set>
#include <sstream>

#include "cli/base/command.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera::cli {
namespace {

// Returns what the program prints to standard output for these words.
std::string printed(const std::string& words) {
  std::vector<std::string> kept = words.empty() ? std::vector<std::string>() : split(words, ' ');
  std::vector<const char*> given = {"tessera"};
  for (const std::string& word : kept) given.push_back(word.c_str());
  std::ostringstream out;
  std::streambuf* const own = std::cout.rdbuf(out.rdbuf());
  const int code = run_program(static_cast<int>(given.size()), given.data());
  std::cout.rdbuf(own);
  check(code == 0, "`tessera ", words, "` exits with ", code);
  return out.str();
}

// Every line of words with an answer.
std::vector<std::string> answered_words() {
  std::vector<std::string> all = {"", "--help", "version", "version --json"};
  for (const char* shell : {"bash", "zsh", "fish"}) all.push_back(text("completion ", shell));
  std::set<std::string> groups;
  for (const Command& command : commands()) {
    const std::string name = command.name;
    all.push_back(name + " --help");
    if (const size_t space = name.find(' '); space != std::string::npos) groups.insert(name.substr(0, space));
  }
  for (const std::string& group : groups) all.push_back(group + " --help");
  return all;
}

}  // namespace

void write_answers(const std::string& file) {
  constexpr const char* kMark = "tessera";  // of raw strings
  std::string source =
      "#include \"cli/front/answers.h\"\n\nnamespace tessera::cli {\n\nconst Answer kAnswers[] = {\n";
  size_t count = 0;
  for (const std::string& words : answered_words()) {
    source += text("{\"", words, "\", R\"", kMark, "(", printed(words), ")", kMark, "\"},\n");
    ++count;
  }
  source += text("};\nconst size_t kAnswerCount = ", count, ";\n\n}  // namespace tessera::cli\n");
  write_text_atomic(file, source);
}

}  // namespace tessera::cli
