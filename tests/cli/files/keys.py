"""The keys of JSON from standard input, one line for each distinct list of them; `a.b` is a key within `a`, `a[]` one of
every object of a list. Words of the command line are keys whose values are not looked into."""
import json
import sys


def keys(value, prefix=""):
    for key, inner in value.items():
        inside = isinstance(inner, list) and inner and isinstance(inner[0], dict)
        yield prefix + key
        if key in sys.argv[1:]:
            continue
        if isinstance(inner, dict):
            yield from keys(inner, prefix + key + ".")
        elif inside:
            yield from keys(inner[0], prefix + key + "[].")


text, at, seen, decoder = sys.stdin.read().strip(), 0, set(), json.JSONDecoder()
while at < len(text):
    value, at = decoder.raw_decode(text, at)
    at += len(text[at:]) - len(text[at:].lstrip())
    line = " ".join(keys(value[0] if isinstance(value, list) else value))
    if line not in seen:
        seen.add(line)
        print(line)
