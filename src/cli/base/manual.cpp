// `tessera manual`: man pages of all commands, made from their options.
#include <filesystem>
#include <iostream>

#include "cli/base/command.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera::cli {
namespace {

struct ManualOptions {
  std::string output;

  template <class V>
  void visit(V& v) {
    v("output", output, {.names = "-o", .writes = Writes::together},
      "folder of the pages: tessera.1, tessera-train.1, … (default: prints all pages)");
  }
};

// Returns text as roff prints it literally: no escapes, no request at the start of a line.
std::string roff(const std::string& words) {
  std::string out;
  for (const char c : words) out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string page_name(const std::string& command) {
  std::string out = command.empty() ? "tessera" : "tessera-" + command;
  for (char& c : out)
    if (c == ' ') c = '-';
  return out;
}

std::string head(const std::string& name, const std::string& summary) {
  return text(".TH ", roff(page_name(name)), " 1 \"\" \"tessera ", program_version(), "\"\n.SH NAME\n",
              roff(page_name(name)), " \\- ", roff(summary), "\n");
}

std::string command_page(const CommandWords& words, const std::string& example) {
  std::string out = head(words.name, words.summary);
  out += text(".SH SYNOPSIS\n.B tessera ", roff(words.name), "\n[OPTIONS]\n.SH OPTIONS\n");
  for (const CommandWords::Option& option : words.options)
    out += text(".TP\n.B ", roff(option.name), "\n", roff(option.help), "\n");
  return out + text(".SH EXAMPLE\n.nf\n", roff(example), "\n.fi\n.SH SEE ALSO\n.BR tessera (1)\n");
}

std::string overview(const std::vector<CommandWords>& all) {
  std::string out = head("", "vision models built like language models");
  out += ".SH SYNOPSIS\n.B tessera\nCOMMAND [OPTIONS]\n.SH COMMANDS\n";
  for (const CommandWords& words : all)
    out += text(".TP\n.BR ", roff(page_name(words.name)), " (1)\n", roff(words.summary), "\n");
  return out;
}

void write_manual(const ManualOptions& options) {
  const std::vector<CommandWords> all = command_words();
  std::vector<std::pair<std::string, std::string>> pages = {{page_name(""), overview(all)}};
  for (const Command& command : commands())
    for (const CommandWords& words : all)
      if (words.name == command.name)
        pages.emplace_back(page_name(words.name), command_page(words, command.example));
  if (!options.output.empty()) std::filesystem::create_directories(options.output);
  for (const auto& [name, page] : pages)
    if (options.output.empty())
      std::cout << page;
    else
      write_file_atomic(options.output + "/" + name + ".1", as_bytes(page));
}

}  // namespace

void add_manual(Arguments& command, Action& action) {
  action = with_options<ManualOptions>(command, write_manual);
}

}  // namespace tessera::cli
