// `tessera completion SHELL`: a script with which bash, zsh or fish complete commands and options.

#include <iostream>
#include <map>
#include <memory>

#include "cli/base/command.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

// Commands by their first word; those in a group ("data") have a second word.
struct Tree {
  std::vector<std::string> first;                          // in the order of the table
  std::map<std::string, std::vector<std::string>> second;  // for each group
};

Tree tree_of(const std::vector<CommandWords>& commands) {
  Tree tree;
  for (const CommandWords& command : commands) {
    const auto words = split(command.name, ' ');
    if (tree.first.empty() || tree.first.back() != words[0]) tree.first.push_back(words[0]);
    if (words.size() > 1) tree.second[words[0]].push_back(words[1]);
  }
  tree.first.emplace_back("help");
  return tree;
}

std::string options_of(const CommandWords& command) {
  std::vector<std::string> names;
  for (const CommandWords::Option& option : command.options) names.push_back(option.name);
  return join(names, " ");
}

// Returns the branches `train) words="--set …" ;;` for bash and zsh; `second`: the shell's second word.
std::string branches(const std::vector<CommandWords>& commands, const Tree& tree, const std::string& second,
                     const std::string& at_second) {
  std::string out;
  for (const std::string& first : tree.first) {
    if (first == "help") {
      out += text("    help) found='", join(tree.first, " "), "' ;;\n");
    } else if (!tree.second.contains(first)) {
      for (const CommandWords& command : commands)
        if (command.name == first) out += text("    ", first, ") found='", options_of(command), "' ;;\n");
    } else {
      out += text("    ", first, ")\n      if ", at_second, "; then found='",
                  join(tree.second.at(first), " "), "'\n      else case ", second, " in\n");
      for (const CommandWords& command : commands)
        if (command.name.starts_with(first + " "))
          out += text("        ", command.name.substr(first.size() + 1), ") found='", options_of(command),
                      "' ;;\n");
      out += "      esac; fi ;;\n";
    }
  }
  return out;
}

std::string bash(const std::vector<CommandWords>& commands) {
  const Tree tree = tree_of(commands);
  return text("# bash: source <(tessera completion bash), or write it to /etc/bash_completion.d/tessera\n",
              "_tessera() {\n  local current=${COMP_WORDS[COMP_CWORD]} found=\n",
              "  if [ \"$COMP_CWORD\" -eq 1 ]; then found='", join(tree.first, " "),
              "'\n  else case ${COMP_WORDS[1]} in\n",
              branches(commands, tree, "${COMP_WORDS[2]}", "[ \"$COMP_CWORD\" -eq 2 ]"),
              "  esac; fi\n  COMPREPLY=($(compgen -W \"$found\" -- \"$current\"))\n}\n",
              "complete -o default -F _tessera tessera\n");
}

std::string zsh(const std::vector<CommandWords>& commands) {
  const Tree tree = tree_of(commands);
  return text(
      "#compdef tessera\n# zsh: source <(tessera completion zsh), or write it to a file _tessera in $fpath\n",
      "_tessera() {\n  local found=\n  if (( CURRENT == 2 )); then found='", join(tree.first, " "),
      "'\n  else case $words[2] in\n", branches(commands, tree, "$words[3]", "(( CURRENT == 3 ))"),
      "  esac; fi\n  compadd -- ${=found}\n  _files\n}\n",
      "if [ \"$funcstack[1]\" = _tessera ]; then _tessera \"$@\"; else compdef _tessera tessera; fi\n");
}

std::string quoted(const std::string& words) {
  std::string out = "'";
  for (const char c : words) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

// Words are compared by position: in `tessera tokens train`, `train` is another command.
constexpr const char* kFishFunctions =
    "function __tessera_words\n  set -l words (commandline -opc)\n  set -e words[1]\n  printf '%s\\n' "
    "$words\nend\n"
    "function __tessera_after\n  set -l words (__tessera_words)\n  test \"$words\" = \"$argv\"\nend\n"
    "function __tessera_in\n  set -l words (__tessera_words)\n  set -l count (count $argv)\n"
    "  test (count $words) -ge $count; and test \"$words[1..$count]\" = \"$argv\"\nend\n";

std::string fish(const std::vector<CommandWords>& commands) {
  const Tree tree = tree_of(commands);
  std::string out =
      "# fish: tessera completion fish | source, or write it to ~/.config/fish/completions/tessera.fish\n";
  out += kFishFunctions;
  const auto offer = [&](const std::string& after, const std::string& word, const std::string& summary) {
    out += text("complete -c tessera -f -n '__tessera_after", after.empty() ? "" : " " + after, "' -a ", word,
                " -d ", quoted(summary), "\n");
  };
  for (const auto& [group, words] : tree.second) offer("", group, std::string(group_summary(group)));
  offer("", "help", "what a command does, with its options");
  for (const std::string& first : tree.first) offer("help", first, "help");
  for (const CommandWords& command : commands) {
    const auto words = split(command.name, ' ');
    offer(words.size() > 1 ? words[0] : "", words.back(), command.summary);
    for (const CommandWords::Option& option : command.options)
      out += text("complete -c tessera -n '__tessera_in ", command.name, "' -l ", option.name.substr(2),
                  " -d ", quoted(option.help), "\n");
  }
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CommandWords>& commands) {
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  fail_usage("no completion for the shell '", shell, "', must be bash, zsh or fish");
}

namespace {

struct CompletionOptions {
  std::string shell;

  template <class V>
  void visit(V& v) {
    v("shell", shell, {.choices = {"bash", "zsh", "fish"}, .argument = "SHELL", .required = true},
      "bash, zsh or fish");
  }
};

void complete(const CompletionOptions& options) {
  std::cout << completion_script(options.shell, command_words());
}

}  // namespace

void add_completion(Arguments& command, Action& action) {
  action = with_options<CompletionOptions>(command, complete);
}

}  // namespace tessera::cli
