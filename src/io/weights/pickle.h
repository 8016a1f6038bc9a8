// Reads a Python pickle without running anything, into a tree of plain nodes.
//
// A call in the pickle ("make an OrderedDict of these") becomes a node; nothing is looked up or created.
// Functions and classes that are not on the caller's list become nodes of unknown name, for the caller to
// refuse. Only the opcodes for dictionaries of tensors and numbers are accepted (protocols 2 to 4); all
// others are refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A tree (or a graph, even with cycles, if the pickle contains one) in one array: nodes refer to each other
// by index.
struct PickleNode {
  enum class Kind : uint8_t {
    none,
    boolean,     // integer
    integer,     // integer; beyond 64 bits, kind `text`, in hexadecimal
    real,        // real
    text,        // text: well-formed UTF-8
    bytes,       // raw
    list,        // items
    tuple,       // items
    set,         // items
    dict,        // items: key, value, key, value, …
    global,      // text: "module.name"; "?module.name" if it is not on the list
    call,        // items: callee, arguments (a tuple), state (or none), then keys and values added later
    persistent,  // items: the identifier of an object stored elsewhere
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  double real = 0;
  std::string text = {};
  std::string_view raw = {};  // a view of the pickle, since weights may be most of it
  std::vector<uint32_t> items = {};
};

struct Pickle {
  std::vector<PickleNode> nodes;
  uint32_t root = 0;
  std::vector<std::string> unknown = {};  // the first few names not on the list
  const PickleNode& at(uint32_t place) const { return nodes[place]; }
};

// Throws Error that starts with `where` (file and entry). Reads at most 64 MiB in addition to the contents of
// `bytes` nodes, and makes at most 4 M nodes. The nodes point into `bytes`, which must outlive them.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where,
                   std::span<const std::string_view> allowed_globals);

}  // namespace tessera
