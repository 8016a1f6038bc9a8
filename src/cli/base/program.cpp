// Parsing, help, and the only place that turns errors into lines and exit codes.
#include <torch/version.h>
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>

#include "cli/base/command.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/progress.h"
#include "core/text.h"
#include "parallel/traffic.h"

namespace tessera::cli {

namespace {

struct Program {
  CLI::App app{"Vision backbones built like language models: train, evaluate, predict, analyse.", "tessera"};
  std::map<CLI::App*, Action> actions;
};

// Finds or makes the group app ("data") that a two-word command lives in.
CLI::App* group_of(CLI::App& app, const std::string& group) {
  for (CLI::App* existing : app.get_subcommands([](const CLI::App*) { return true; }))
    if (existing->get_name() == group) return existing;
  CLI::App* made = app.add_subcommand(group, std::string(group_summary(group)));
  made->require_subcommand(1);
  made->footer(text("Each command explains itself: tessera ", group, " COMMAND --help"));
  return made;
}

void declare(Program& program) {
  program.app.require_subcommand(1);
  program.app.set_help_flag("-h,--help", "this help");
  program.app.footer("Each command explains itself: tessera help COMMAND, or tessera COMMAND --help");
  for (const Command& command : commands()) {
    const std::string name = command.name;
    const size_t space = name.find(' ');
    CLI::App* parent =
        space == std::string::npos ? &program.app : group_of(program.app, name.substr(0, space));
    CLI::App* app =
        parent->add_subcommand(space == std::string::npos ? name : name.substr(space + 1), command.summary);
    app->footer(text("Example:\n  ", command.example));
    Arguments arguments(*app);
    command.add(arguments, program.actions[app]);
  }
}

CLI::App* deepest(CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? &app : deepest(*chosen.front());
}

// Returns the words that are possible instead of `word`.
std::vector<std::string> possible_words(const CLI::App& app, bool option) {
  std::vector<std::string> words;
  if (option)
    for (const CLI::Option* known : app.get_options())
      for (const std::string& name : known->get_lnames()) words.push_back("--" + name);
  else
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
      words.push_back(known->get_name());
  return words;
}

std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent ? full_name(*parent) + " " + app.get_name() : app.get_name();
}

// Returns the parser's message in Tessera's wording.
std::string plain_words(const CLI::ParseError& error) {
  std::string message = error.what();
  for (char& c : message)
    if (c == '\n') c = ' ';
  const std::string words(trim(message));
  if (error.get_name() == "RequiredError" && words.ends_with(" is required"))
    return words.substr(0, words.size() - std::string_view(" is required").size()) + " is missing";
  if (const size_t end = words.find(": At Most 1 required"); end != std::string::npos)
    return words.substr(0, end) + " is given more than once";
  if (const size_t end = words.find(": 1 required "); end != std::string::npos && words.ends_with(" missing"))
    return words.substr(0, end) + " has no value";
  return words;
}

// Returns one line for an error of the parser.
std::string usage_line(CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& at = *deepest(app);
  const std::vector<std::string> extras = at.remaining(true);
  if (!extras.empty()) {
    const std::string word = split(extras.front(), '=').front();
    const bool option = word.starts_with("-");
    return text(full_name(at), ": unknown ", option ? "option" : "argument", " '", word, "'",
                did_you_mean(word, possible_words(at, option)));
  }
  if (error.get_name() == "RequiredError" && !possible_words(at, false).empty())
    return text(full_name(at), ": choose one: ", join(possible_words(at, false), ", "));
  return text(full_name(at), ": ", plain_words(error));
}

int report(const Error& error) {
  std::cout.flush();
  constexpr size_t kLongestLine = 4000;
  const std::string line = printable(error.what(), kLongestLine);
  // Messages about a command begin with its name, "tessera train: …".
  std::cerr << text(line.starts_with("tessera ") ? "" : "tessera: ", line, "\n");
  switch (error.kind) {
    case ErrorKind::usage:
      return 2;
    case ErrorKind::interrupted:
      return 130;
    default:
      return 1;
  }
}

// An unknown first word is the most frequent typo; the parser would call it a missing subcommand.
void check_command_word(CLI::App& app, int argc, const char* const* argv) {
  CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto words = possible_words(*at, false);
    if (words.empty() || word.starts_with("-")) return;
    const std::string near = did_you_mean(word, words);
    if (std::find(words.begin(), words.end(), word) == words.end())
      fail_usage("unknown command '", word, "'", near.empty() ? ":" : near, " `", full_name(*at),
                 " --help` lists the commands");
    at = at->get_subcommand(word);
  }
}

// The parser would read a file name such as '[2020]' as a list. Returns the last word first, as the parser
// needs it.
std::vector<std::string> parser_words(int argc, const char* const* argv) {
  std::vector<std::string> words;
  for (int i = argc - 1; i > 0; --i) {
    const std::string word = argv[i];
    words.push_back(word.starts_with("[") && word.ends_with("]") ? "./" + word : word);
  }
  return words;
}

// `tessera help data check` is `tessera data check --help`, `tessera --version` is `tessera version`, `tessera tokens TEXT`
// is `tessera tokens show TEXT`.
std::vector<const char*> spelled_out(int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--version" && argc == 2) words[1] = "version";
  const std::string_view second = argc > 2 ? argv[2] : "";
  if (first == "tokens" && argc > 2 && second != "show" && second != "train" && second != "--help" &&
      second != "-h")
    words.insert(words.begin() + 2, "show");
  if (first == "help") {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  return words;
}

int run_parsed(Program& program, int argc, const char* const* argv) {
  if (argc == 1) {
    std::cout << program.app.help();
    return 0;
  }
  check_command_word(program.app, argc, argv);
  try {
    program.app.parse(parser_words(argc, argv));
  } catch (const CLI::CallForHelp&) {
    std::cout << program.app.help();  // help for the named command, with its full name
    return 0;
  } catch (const CLI::ParseError& error) {
    fail_usage(usage_line(program.app, error), " (`", full_name(*deepest(program.app)),
               " --help` lists the options)");
  } catch (const Error& error) {  // the value of an option
    const std::string name = full_name(*deepest(program.app));
    fail_usage(name, ": ", error.what(), " (`", name, " --help` lists the options)");
  }
  program.actions.at(deepest(program.app))();
  std::cout.flush();
  if (!std::cout) fail("standard output: cannot write (is the disk full?)");
  return 0;
}

}  // namespace

std::vector<CommandWords> command_words() {
  Program program;
  declare(program);
  std::vector<CommandWords> all;
  for (const Command& command : commands()) {
    CLI::App* app = &program.app;
    for (const std::string& word : split(command.name, ' ')) app = app->get_subcommand(word);
    CommandWords words{command.name, command.summary, {}};
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames())
        words.options.push_back({"--" + name, option->get_description()});
    all.push_back(std::move(words));
  }
  return all;
}

int run_program(int argc, const char* const* argv) {
  const PrintableStream out(std::cout), err(std::cerr);
  try {
    catch_interrupts();
    Program program;
    declare(program);
    const std::vector<const char*> words = spelled_out(argc, argv);
    return run_parsed(program, static_cast<int>(words.size()), words.data());
  } catch (const parallel::Lost& lost) {
    report(lost);
    return parallel::kLostExitCode;
  } catch (const Error& error) {
    return report(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(Error(ErrorKind::failed,
                        text("'", printable(error.path1().string()), "': ", error.code().message())));
  } catch (const std::exception& error) {
    if (const auto failed = failed_allocation(error))
      return report(
          Error(ErrorKind::failed,
                out_of_memory_line(*failed, "a smaller batch or size, or --precision bf16, needs less")));
    // LibTorch's messages carry a stack trace after the first line.
    const std::string message = error.what();
    return report(Error(ErrorKind::failed, message.substr(0, message.find('\n'))));
  }
}

namespace {

struct VersionOptions {
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("json", json, "one JSON object");
  }
};

void print_version(const VersionOptions& options) {
  if (options.json)
    std::cout << "{\"version\":\"" << program_version() << "\",\"libtorch\":\"" << TORCH_VERSION << "\"}\n";
  else
    std::cout << "tessera " << program_version() << " (LibTorch " << TORCH_VERSION << ")\n";
}

}  // namespace

void add_version(Arguments& command, Action& action) {
  action = with_options<VersionOptions>(command, print_version);
}

std::string program_version() { return TESSERA_VERSION; }

}  // namespace tessera::cli
