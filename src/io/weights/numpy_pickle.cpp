#include "io/weights/numpy_pickle.h"

#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera {
namespace {

using Kind = PickleNode::Kind;

constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"f8", DType::f64}, {"f4", DType::f32}, {"f2", DType::f16}, {"i8", DType::i64},
    {"i4", DType::i32}, {"i2", DType::i16}, {"i1", DType::i8},  {"u1", DType::u8}};

// Returns a name: a string, or bytes from Python 2.
std::string_view word(const PickleNode& node) { return node.kind == Kind::bytes ? node.raw : node.text; }

bool calls(const Pickle& pickle, const PickleNode& node, std::string_view name) {
  return node.kind == Kind::call && pickle.at(node.items[0]).text == name;
}

// Returns the items of the tuple that is an object's state; empty if it has no such tuple.
std::span<const uint32_t> state_of(const Pickle& pickle, const PickleNode& made) {
  const PickleNode& state = pickle.at(made.items[2]);
  return state.kind == Kind::tuple ? std::span<const uint32_t>(state.items) : std::span<const uint32_t>();
}

DType read_dtype(const Pickle& pickle, uint32_t place, const std::string& where) {
  const PickleNode& node = pickle.at(place);
  check(calls(pickle, node, "numpy.dtype") && !pickle.at(node.items[1]).items.empty(), where,
        " has elements of an unknown form");
  const std::string_view name = word(pickle.at(pickle.at(node.items[1]).items[0]));
  const std::span<const uint32_t> state = state_of(pickle, node);
  const std::string_view order = state.size() > 1 ? word(pickle.at(state[1])) : "";
  check(order != ">", where, " has big-endian numbers, must be little-endian");
  for (const auto& [known, dtype] : kTypes)
    if (known == name) return dtype;
  fail(where, " has elements of numpy's type '", printable(name, 20), "', which are not read");
}

}  // namespace

bool is_numpy_array(const Pickle& pickle, uint32_t place) {
  const PickleNode& node = pickle.at(place);
  return calls(pickle, node, "numpy.core.multiarray._reconstruct") ||
         calls(pickle, node, "numpy._core.multiarray._reconstruct");
}

NumpyArray read_numpy_array(const Pickle& pickle, uint32_t place, const std::string& where) {
  const std::span<const uint32_t> state = state_of(pickle, pickle.at(place));
  check(state.size() != 5 || !calls(pickle, pickle.at(state[4]), "_codecs.encode"), where,
        " has its bytes as a text (protocol 2 of Python 3): write the file with protocol 4");
  const bool fits = state.size() == 5 && pickle.at(state[1]).kind == Kind::tuple &&
                    pickle.at(state[3]).kind == Kind::boolean && pickle.at(state[4]).kind == Kind::bytes;
  check(fits, where, " is an array of an unknown form");
  NumpyArray out;
  out.dtype = read_dtype(pickle, state[2], where);
  out.column_major = pickle.at(state[3]).integer != 0;
  out.bytes = as_bytes(pickle.at(state[4]).raw);
  auto bytes = static_cast<int64_t>(size_of(out.dtype));
  bool overflows = false;
  for (const uint32_t item : pickle.at(state[1]).items) {
    const PickleNode& extent = pickle.at(item);
    check(extent.kind == Kind::integer && extent.integer >= 0, where, " has a shape of an unknown form");
    out.shape.push_back(extent.integer);
    overflows = overflows || __builtin_mul_overflow(bytes, extent.integer, &bytes);
  }
  check(!overflows, where, " has a size that overflows");
  check(static_cast<uint64_t>(bytes) == out.bytes.size(), where, " has ", out.bytes.size(),
        " bytes, its shape needs ", bytes);
  return out;
}

}  // namespace tessera
