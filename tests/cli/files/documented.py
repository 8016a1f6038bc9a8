# documented.py ROOT: the commands that the pages and recipes under ROOT show, against what the program takes. Prints a
# line for each subcommand, option or recipe that does not exist, and how many commands there were.
import pathlib
import re
import shlex
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
options = {}
for line in (root / "tests/cli/files/options.txt").read_text().splitlines():
    command, _, rest = line.partition(":")
    options[command] = {name for name in re.split(r"[ ,]+", rest) if name.startswith("-")}


def shown(text):
    """The commands in a text: lines of code blocks, and what stands between backticks."""
    text = text.replace("\\\n", " ")
    for line in text.splitlines():
        for code in [line] + re.findall(r"`([^`]+)`", line):
            found = re.match(r"\s*(?:#|\$|\||//)?\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\./)?(?:build/)?tessera ([a-z].*)", code)
            if found:
                yield found.group(1).split("`")[0]


def wrong(command):
    """What of one command does not exist."""
    command = re.split(r"\s(?:#|\||>|&&)\s?|\s\(|…|\.\.\.", command)[0]
    try:
        words = shlex.split(command)
    except ValueError:
        return
    words = [word.strip("[]") for word in words]
    if not words:
        return
    name = words[0]
    if len(words) > 1 and f"{name} {words[1]}" in options:
        name = f"{name} {words[1]}"
    if name in ("help", "completion", "version"):
        return
    if name not in options:
        if not any(known.startswith(name + " ") for known in options):
            yield f"there is no command '{name}'"
        return
    for word in words[1:]:
        option = re.match(r"--?[a-z][a-z0-9-]*", word)
        if option and option.group() not in options[name] and word != "--version":
            yield f"'{name}' has no option '{option.group()}'"
        if re.fullmatch(r"recipes/[\w/.-]+\.toml", word) and not (root / word).exists():
            yield f"there is no recipe '{word}'"


count = 0
tracked = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True).stdout.splitlines()
files = [root / name for name in tracked if name.endswith(".md") or name.startswith("recipes/")]
for file in files or sorted(root.glob("*.md")) + sorted(root.glob("docs/*.md")) + sorted(root.glob("recipes/**/*.toml")):
    if file.name == "CHANGELOG.md" or not file.exists():
        continue
    for command in shown(file.read_text()):
        count += 1
        for fault in wrong(command):
            print(f"{file.relative_to(root)}: {fault}: tessera {command}")
print("commands were checked" if count > 100 else f"only {count} commands were found")
