// Reads a Python pickle without running anything: what a pickle would build, as a tree of plain nodes.
//
// A call that the pickle asks for ("make an OrderedDict of these") becomes a node that says so; nothing is
// looked up and nothing is made. Names of functions and classes that are not on the caller's list become nodes
// that nothing is like, for the caller to refuse. Opcodes must be among those that dictionaries of tensors and
// numbers need (protocols 2 to 4); all others are refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A tree (or, where the pickle says so, a graph, even with cycles) in one array: nodes name each other by
// place.
struct PickleNode {
  enum class Kind : uint8_t {
    none,
    boolean,     // integer
    integer,     // integer; those beyond 64 bits are of kind `text`, in hexadecimal
    real,        // real
    text,        // text: well-formed UTF-8
    bytes,       // raw
    list,        // items
    tuple,       // items
    set,         // items
    dict,        // items: key, value, key, value, …
    global,      // text: "module.name"; "?module.name" where it is not on the list
    call,        // items: callee, arguments (a tuple), state (or none), then keys and values that were added
    persistent,  // items: the identifier that stands for an object kept elsewhere
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  double real = 0;
  std::string text = {};
  std::string_view raw = {};  // in the pickle itself: weights may be most of it
  std::vector<uint32_t> items = {};
};

struct Pickle {
  std::vector<PickleNode> nodes;
  uint32_t root = 0;
  std::vector<std::string> unknown = {};  // the first few names that are not on the list
  const PickleNode& at(uint32_t place) const { return nodes[place]; }
};

// Throws Error with `where` (file and entry) in front. Besides the contents of `bytes` nodes, at most 64 MiB are read, and at
// most 4 M nodes are made. The nodes look into `bytes`, which must outlive them.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where,
                   std::span<const std::string_view> allowed_globals);

}  // namespace tessera
