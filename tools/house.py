#!/usr/bin/env python3
"""Measures the sources for tools/lint, which lists the commands: sizes, prose, equal code, build time."""
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = re.compile(r"\.(h|cpp|cu|cuh|inc)$")
TEST = re.compile(r"(^|_|/)test(ing)?\.(h|cpp)$")
MOST_FILES, MOST_LINES, FEW_LINES, MOST_SMALL, MOST_FUNCTION, MOST_P99 = 25, 500, 30, 20, 60, 36
MOST_MARKERS = 1.0  # in 1,000 words

# Words that a reader of English stumbles over, by the rules of CONTRIBUTING.md.
MARKERS = [re.compile(pattern, re.I) for pattern in (
    r"\bbehind\b", r"\bbesides?\b", r"\bin front of\b", r"\bbut for\b",
    r"\b(stands?|stood|standing)\b(?! (alone|out\b))", r"\b(lies|lie|lay|lying)\b",
    r"\b(says?|said|tells?|told|knows?|knew|asks?|asked|wants?|wanted)\b",
    r"\bso (many|much)\b(?! (as|that))", r"\b(of|with|from|for|to|by|than|in|on|as|beside|behind|and|or|is|are) what\b",
    r"^what (?!\b(is|are|do|does|if|to)\b)", r"\bof which\b", r"\bwhose\b", r"\bas far as\b", r"\banew\b", r"\bnothing but\b",
    r"\bof one's own\b", r"\bat hand\b", r"\b(is|are) there\b(?!\?)",
    r"\bwhere (there|it|they|none|nothing|that|this|these|both|one|neither) (is|are|has|have|was|does|do|can|may|must)\b",
    r"(^|[.:;] )Of (a|an|the|its|their|several|two|all|each|one|such)\b", r"\bby itself alone\b", r"\bdearer\b",
)]


# Literals there are questions and answers of generated data sets, not messages.
QUESTIONS = ("src/data/sources/shapes.cpp", "src/data/tools/instruct.cpp")


def files(*folders):
    """Returns the tracked and new files below `folders`, without what git ignores."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted({name for name in listed if name and os.path.isfile(os.path.join(ROOT, name))})


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


TOKEN = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<raw>R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)")'
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<char>\'(?:[^\'\\\n]|\\.)+\')|(?P<include>^[ \t]*#[ \t]*include[^\n]*)'
    r"|(?P<word>\w+)|(?P<mark2>[^\s\w])", re.S | re.M)


def tokens(source):
    for match in TOKEN.finditer(source):
        yield match.lastgroup if match.lastgroup != "mark" else "raw", match


def comments(source):
    """Yields each comment as (line, text); lines that follow one another are one comment."""
    text, first, last = [], 0, -2
    for kind, match in tokens(source):
        if kind != "comment":
            continue
        line = source.count("\n", 0, match.start()) + 1
        alone = source[source.rfind("\n", 0, match.start()) + 1:match.start()].strip() == ""
        words = re.sub(r"^(//+|/\*+|\*/)\s?|\*/$", "", match.group("comment")).strip()
        if words.startswith(("clang-format", "NOLINT", "---")):
            continue
        if text and alone and line == last + 1:
            text.append(words)
        else:
            if text:
                yield first, " ".join(text)
            text, first = [words], line
        last = line if alone else -2
    if text:
        yield first, " ".join(text)


def messages(source):
    """Yields the string literals for people as (line, text); neighbours are joined as the compiler joins them."""
    joined, first, end = "", 0, None
    for kind, match in tokens(source):
        if kind == "comment":
            continue
        if kind == "string":
            if end is None:
                joined, first = "", source.count("\n", 0, match.start()) + 1
            joined, end = joined + match.group("string")[1:-1], match.end()
        elif end is not None:
            if joined.count(" ") >= 2:
                yield first, joined
            end = None


def paragraphs(source):
    """Yields the paragraphs and table rows of a Markdown page, without code."""
    source = re.sub(r"^(```|~~~).*?^\1[^\n]*$", lambda match: "\n" * match.group(0).count("\n"), source, flags=re.S | re.M)
    line = 1
    for block in re.split(r"(\n\s*\n|\n(?=[|#*-]))", source):
        plain = re.sub(r"`[^`]*`", "x", block).strip()
        if len(plain.split()) > 3:
            yield line + (len(block) - len(block.lstrip("\n"))), plain
        line += block.count("\n")


def prose_of(name):
    source = read(name)
    if name.endswith(".md"):
        return list(paragraphs(source))
    if name.endswith((".toml", ".py", ".sh", ".cmake", ".txt")) or "." not in os.path.basename(name):
        lines = ((i + 1, line.strip().lstrip("# ")) for i, line in enumerate(source.split("\n")) if line.strip().startswith("#"))
        return [(i, text) for i, text in lines if not text.startswith("!")]
    found = list(comments(source))
    return found if TEST.search(name) or name in QUESTIONS else found + list(messages(source))


def prose_files():
    for name in files("src", "docs", "recipes", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        if SOURCE.search(name) or name.endswith((".md", ".toml")):
            yield name


def markers_in(name):
    words, found = 0, []
    for line, text in prose_of(name):
        words += len(text.split())
        for marker in MARKERS:
            found += [(line, match.group(0), text) for match in marker.finditer(text)]
    return words, found


def prose():
    """Prints the rate of each folder. Fails if a file, or all of them, has more than one marker in 1,000 words."""
    total, by_folder, places = [0, 0], {}, []
    for name in prose_files():
        words, found = markers_in(name)
        counts = by_folder.setdefault(os.path.dirname(name) or ".", [0, 0])
        for sums in (total, counts):
            sums[0] += words
            sums[1] += len(found)
        # One marker is no rate: a short file may have one.
        if len(found) > max(1, words * MOST_MARKERS / 1000):
            places += [f"{name}:{line}: '{marker}'" for line, marker, _ in found]
    for folder, (words, count) in sorted(by_folder.items()):
        if 1000 * count > words * MOST_MARKERS:
            print(f"{1000 * count / max(1, words):6.1f}  {count:5d} of {words:6d}  {folder}")
    print("\n".join(places[:200]))
    print(f"{1000 * total[1] / max(1, total[0]):.2f} markers in 1,000 words ({total[1]} of {total[0]})")
    return 1 if places or 1000 * total[1] > total[0] * MOST_MARKERS else 0


def is_table(body, indent):
    """True for a list of rows: one statement that opens a list, not a lambda or block, and at most a `return` after it."""
    statements = [line.strip() for line in body if re.match(rf" {{{indent + 2}}}[^\s}}/]", line)]
    return (len(statements) in (1, 2) and re.search(r"(= |\()\{", statements[0]) is not None
            and not re.search(r"[\])] \{$", statements[0]) and all(line.startswith("return ") for line in statements[1:]))


def functions(source):
    """Yields (line, name, lines, whether it is a table) of function bodies: a `{` at the end of a line that holds a `)` at
    depth zero of braces."""
    lines = source.split("\n")
    opened = None
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if opened is None:
            if re.search(r"\)[^;=]*\{$", line) and not re.match(r"\s*(if|for|while|switch|else|namespace|struct|class|\}|TEST)", line):
                start = i
                while start > 0 and "(" not in line and "(" not in lines[start]:
                    start -= 1
                name = re.search(r"([\w:~]+)\(", lines[start])
                if name and indent <= 2:
                    opened = (i, indent, name.group(1))
        elif line.startswith(" " * opened[1] + "}") and indent == opened[1]:
            yield opened[0] + 1, opened[2], i - opened[0] + 1, is_table(lines[opened[0] + 1:i], opened[1])
            opened = None


def sizes():
    rooms, small, large, lengths, long_ones, tables, total = {}, [], [], [], [], 0, 0
    for name in files("src"):
        if not SOURCE.search(name) or TEST.search(name):
            continue
        source = read(name)
        count = source.count("\n")
        total += count
        if name.endswith((".cpp", ".cu")):
            folder = os.path.dirname(name)
            rooms[folder] = rooms.get(folder, 0) + 1
        if count < FEW_LINES:
            small.append((count, name))
        if count > MOST_LINES:
            large.append((count, name))
        for line, function, length, table in functions(source):
            lengths.append(length)
            if length > MOST_FUNCTION and table:
                tables += 1
            elif length > MOST_FUNCTION:
                long_ones.append((length, f"{name}:{line} {function}"))
    lengths.sort()
    median, p90, p99, longest = (lengths[int(q * (len(lengths) - 1))] for q in (0.5, 0.9, 0.99, 1))
    crowded = [(count, room) for room, count in rooms.items() if count > MOST_FILES]
    print(f"lines without tests        {total}")
    print(f"rooms over {MOST_FILES} sources       {len(crowded)}")
    print(f"files over {MOST_LINES} lines        {len(large)}")
    print(f"files under {FEW_LINES} lines        {len(small)} (at most {MOST_SMALL})")
    print(f"functions: median, p90, p99 (at most {MOST_P99}), longest  {median}, {p90}, {p99}, {longest}")
    print(f"functions over {MOST_FUNCTION} lines     {len(long_ones)} (and {tables} tables)")
    for count, place in sorted(crowded + large + long_ones, reverse=True):
        print(f"  {count:5d}  {place}")
    return 1 if crowded or large or long_ones or p99 > MOST_P99 else 0


def sample(seed):
    draw = random.Random(seed)
    found = [(name, line, text) for name in files("src") if SOURCE.search(name) and not TEST.search(name)
             for line, text in comments(read(name)) if len(text.split()) > 5]
    pages = [(name, line, text) for name in files("docs", "README.md", "CONTRIBUTING.md") if name.endswith(".md")
             for line, text in paragraphs(read(name)) if not text.startswith("|") and len(text.split()) > 12]
    for name, line, text in draw.sample(found, 40) + draw.sample(pages, 20):
        print(f"{name}:{line}\n  {text}\n")
    return 0


def code_of(source):
    return [match.group(0) for kind, match in tokens(source) if kind not in ("comment", "include")]


def same(base, folders):
    """Compares the code of all files that differ from `base`, by names that git follows through moves."""
    command = ["git", "diff", "--name-status", "-M40%", base, "--", *(folders or ["src"])]
    rows = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip().split("\n")
    differ, compared = 0, 0
    for row in filter(None, rows):
        kind, *names = row.split("\t")
        if not SOURCE.search(names[-1]):
            continue
        if kind[0] in "AD":
            print(f"{names[0]}: only on one side")
            differ += 1
            continue
        before = subprocess.run(["git", "show", f"{base}:{names[0]}"], cwd=ROOT, capture_output=True, text=True, check=True)
        compared += 1
        old, new = code_of(before.stdout), code_of(read(names[-1]))
        if old != new:
            differ += 1
            at = next((i for i, pair in enumerate(zip(old, new)) if pair[0] != pair[1]), min(len(old), len(new)))
            print(f"{names[-1]}: {' '.join(old[at:at + 8])} -> {' '.join(new[at:at + 8])}")
    print(f"{compared} files compared, {differ} differ")
    return 1 if differ else 0


def build_time(log):
    """Prints the seconds of all compilations in a log of ninja, by folder."""
    seconds = {}
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 5 and fields[3].endswith((".o", ".gch")):
                seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    folders = {}
    for output, time in seconds.items():
        found = re.match(r"src/(\w+)/", output)
        folder = found.group(1) if found else "others"
        folders[folder] = folders.get(folder, 0) + time
    for folder, time in sorted(folders.items(), key=lambda item: -item[1]):
        print(f"{time:7.0f}  {folder}")
    print(f"{sum(seconds.values()):7.0f}  compiler seconds in {len(seconds)} compilations")
    return 0


def main(arguments):
    commands = {"house": (0, sizes), "prose": (0, prose), "sample": (1, lambda seed: sample(int(seed))),
                "same": (1, lambda base: same(base, [])), "build-time": (1, build_time)}
    name, rest = (arguments or [""])[0], arguments[1:]
    if name == "markers":
        for file in rest:
            for line, marker, text in markers_in(file)[1]:
                print(f"{file}:{line}: '{marker}': {text[:160]}")
        return 0
    if name not in commands or len(rest) != commands[name][0]:
        print("tools/lint lists the commands", file=sys.stderr)
        return 2
    return commands[name][1](*rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
