#include "io/weights/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20, kMaxNodes = size_t{4} << 20, kMaxMarks = 1000;
constexpr size_t kMaxUnknown = 4;        // names to keep
constexpr size_t kMaxGlobal = 200;       // characters in the name of a module or function
constexpr size_t kMaxIntegerBytes = 64;  // bytes in an integer beyond 64 bits
constexpr int kLastProtocol = 4;

using Kind = PickleNode::Kind;

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& where,
          std::span<const std::string_view> allowed)
      : bytes_(bytes), where_(where), allowed_(allowed) {}

  Pickle run() {
    while (!stopped_) {
      step();
      check(at_ - raw_ <= kMaxBytes, where_, ": a pickle of ", bytes_.size() - raw_, " bytes, at most ",
            kMaxBytes, " are read");
    }
    check(at_ == bytes_.size(), where_, ": bytes after the end of the pickle at byte ", at_);
    return std::move(pickle_);
  }

 private:
  // --- input

  [[noreturn]] void damaged(const char* what) const {
    fail(where_, ": damaged pickle at byte ", opcode_at_, ": ", what);
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) damaged("it ends too early");
    const std::string_view out = as_text(bytes_.subspan(at_, size));
    at_ += size;
    return out;
  }

  uint64_t number(size_t size) {  // little endian, unsigned
    const std::string_view raw = take(size);
    uint64_t out = 0;
    for (size_t i = size; i-- > 0;) out = out << 8 | static_cast<unsigned char>(raw[i]);
    return out;
  }

  std::string_view line() {
    const std::string_view rest = as_text(bytes_.subspan(at_));
    const size_t end = rest.substr(0, kMaxGlobal + 1).find('\n');
    if (end == std::string_view::npos) damaged("a name that does not end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  // --- the stack: indices of nodes, with marks between them

  uint32_t make(PickleNode node) {
    if (pickle_.nodes.size() >= kMaxNodes) damaged("it builds too many things");
    pickle_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(pickle_.nodes.size() - 1);
  }
  void push(Kind kind) { stack_.push_back(make({.kind = kind})); }
  void push(Kind kind, int64_t integer) { stack_.push_back(make({.kind = kind, .integer = integer})); }
  void push(Kind kind, std::string_view content) {
    if (kind == Kind::text && !is_utf8(content)) damaged("a text that is not UTF-8");
    stack_.push_back(make({.kind = kind, .text = std::string(content)}));
  }

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  void push_mark() {
    if (marks_.size() >= kMaxMarks) damaged("it nests too deep");
    marks_.push_back(stack_.size());
  }
  uint32_t pop() {
    if (stack_.size() <= floor()) damaged("it takes from an empty stack");
    const uint32_t out = stack_.back();
    stack_.pop_back();
    return out;
  }
  uint32_t top() const {
    if (stack_.size() <= floor()) damaged("it looks at an empty stack");
    return stack_.back();
  }
  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) damaged("it lacks a mark");
    std::vector<uint32_t> out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }

  void push_items(Kind kind, std::vector<uint32_t> items) {
    stack_.push_back(make({.kind = kind, .items = std::move(items)}));
  }
  void push_tuple(size_t size) {
    std::vector<uint32_t> items(size);
    for (size_t i = size; i-- > 0;) items[i] = pop();
    push_items(Kind::tuple, std::move(items));
  }

  // --- the meaning of opcodes

  // Adds items to the list, set, dictionary or object on top. `pairs`: keys and values.
  void add(const std::vector<uint32_t>& items, bool pairs) {
    PickleNode& target = pickle_.nodes[top()];
    const bool fits = pairs ? target.kind == Kind::dict || target.kind == Kind::call
                            : target.kind == Kind::list || target.kind == Kind::set;
    if (!fits) damaged(pairs ? "it adds keys to a non-dictionary" : "it adds items to a non-list");
    if (pairs && items.size() % 2 != 0) damaged("a key without a value");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  void push_global(std::string_view module, std::string_view name) {
    std::string full = text(module, ".", name);
    if (std::find(allowed_.begin(), allowed_.end(), full) == allowed_.end()) {
      auto& unknown = pickle_.unknown;
      if (unknown.size() < kMaxUnknown && std::find(unknown.begin(), unknown.end(), full) == unknown.end())
        unknown.push_back(full);
      full.insert(full.begin(), '?');
    }
    if (!is_utf8(full)) damaged("a name that is not UTF-8");
    push(Kind::global, full);
  }

  void push_global_from_stack() {
    const PickleNode &name = pickle_.nodes[pop()], &module = pickle_.nodes[pop()];
    if (name.kind != Kind::text || module.kind != Kind::text) damaged("a name that is no text");
    const std::string module_name = module.text, own_name = name.text;  // push_global may move the nodes
    push_global(module_name, own_name);
  }

  void push_call() {
    const uint32_t arguments = pop(), callee = pop();
    if (pickle_.nodes[callee].kind != Kind::global) damaged("it calls a non-function");
    if (pickle_.nodes[arguments].kind != Kind::tuple) damaged("its call has no tuple of arguments");
    push_items(Kind::call, {callee, arguments, make({})});
  }

  void set_state() {
    const uint32_t state = pop();
    PickleNode& target = pickle_.nodes[top()];
    if (target.kind != Kind::call) damaged("it sets the state of an object that no call made");
    target.items[2] = state;
  }

  void push_integer(size_t size) {  // two's complement, little endian, of any length
    const std::string_view raw = take(size);
    if (size > kMaxIntegerBytes) damaged("an integer that is too long");
    if (size > 8) {
      std::string digits = "0x";
      for (size_t i = size; i-- > 0;) {
        const auto c = static_cast<unsigned char>(raw[i]);
        digits += {"0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
      }
      return push(Kind::text, digits);
    }
    uint64_t value = size > 0 && static_cast<unsigned char>(raw[size - 1]) >= 0x80 ? ~uint64_t{0} : 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[i]);
    push(Kind::integer, static_cast<int64_t>(value));
  }

  void push_real() {  // big endian
    uint64_t bits = 0;
    for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
    stack_.push_back(make({.kind = Kind::real, .real = std::bit_cast<double>(bits)}));
  }

  void remember(uint64_t place) {
    if (memo_.size() >= kMaxNodes) damaged("it remembers too many things");
    memo_[place] = top();
  }
  void recall(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) damaged("it recalls an unknown value");
    stack_.push_back(found->second);
  }

  void read_protocol() {
    const uint64_t protocol = number(1);
    if (protocol > kLastProtocol)
      fail(where_, ": a pickle of protocol ", protocol, ", at most ", kLastProtocol, " is read");
  }

  void stop() {
    pickle_.root = pop();
    if (!stack_.empty() || !marks_.empty()) damaged("it leaves things on the stack");
    stopped_ = true;
  }

  void push_raw(size_t size_bytes) {
    const std::string_view content = take(number(size_bytes));
    raw_ += content.size();
    stack_.push_back(make({.kind = Kind::bytes, .raw = content}));
  }
  void push_integer_of(uint64_t value) { push(Kind::integer, static_cast<int64_t>(value)); }
  void push_text(size_t size_bytes) { push(Kind::text, take(number(size_bytes))); }

  void read_global() {
    const std::string_view module = line();
    push_global(module, line());
  }

  void add_last(size_t count, bool pairs) {
    std::array<uint32_t, 2> items{};
    for (size_t i = count; i-- > 0;) items[i] = pop();
    add({items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count)}, pairs);
  }

  // --- the opcodes

  struct Opcode {
    uint8_t code;
    const char* name;
    void (*act)(Machine&);  // null: refused
  };
  static const Opcode kOpcodes[];

  static const Opcode* find(uint8_t code);  // null if unknown

  void step() {
    opcode_at_ = at_;
    const auto code = static_cast<uint8_t>(number(1));
    const Opcode* opcode = find(code);
    if (!opcode)
      fail(where_, ": damaged pickle at byte ", opcode_at_, ": no such opcode as ", static_cast<int>(code));
    if (!opcode->act)
      fail(where_, ": the pickle holds ", opcode->name, " at byte ", opcode_at_, ", which is not allowed");
    opcode->act(*this);
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::span<const std::string_view> allowed_;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint64_t, uint32_t> memo_;
  size_t at_ = 0, opcode_at_ = 0;
  size_t raw_ = 0;  // bytes that nodes point to
  bool stopped_ = false;
};

// Every opcode of protocols 0 to 5, by kind.
const Machine::Opcode Machine::kOpcodes[] = {
    // The stream.
    {0x80, "PROTO", [](Machine& m) { m.read_protocol(); }},
    {0x95, "FRAME", [](Machine& m) { m.number(8); }},  // only a hint for buffers
    {'.', "STOP", [](Machine& m) { m.stop(); }},
    {'(', "MARK", [](Machine& m) { m.push_mark(); }},
    // Values.
    {'N', "NONE", [](Machine& m) { m.push(Kind::none); }},
    {0x88, "NEWTRUE", [](Machine& m) { m.push(Kind::boolean, 1); }},
    {0x89, "NEWFALSE", [](Machine& m) { m.push(Kind::boolean, 0); }},
    {'K', "BININT1", [](Machine& m) { m.push_integer_of(m.number(1)); }},
    {'M', "BININT2", [](Machine& m) { m.push_integer_of(m.number(2)); }},
    {'J', "BININT", [](Machine& m) { m.push_integer(4); }},
    {0x8A, "LONG1", [](Machine& m) { m.push_integer(m.number(1)); }},
    {'G', "BINFLOAT", [](Machine& m) { m.push_real(); }},
    {'X', "BINUNICODE", [](Machine& m) { m.push_text(4); }},
    {0x8C, "SHORT_BINUNICODE", [](Machine& m) { m.push_text(1); }},
    {'T', "BINSTRING", [](Machine& m) { m.push_raw(4); }},
    {'U', "SHORT_BINSTRING", [](Machine& m) { m.push_raw(1); }},
    {'B', "BINBYTES", [](Machine& m) { m.push_raw(4); }},
    {0x8E, "BINBYTES8", [](Machine& m) { m.push_raw(8); }},
    {'C', "SHORT_BINBYTES", [](Machine& m) { m.push_raw(1); }},
    // Tuples, lists, sets and dictionaries.
    {')', "EMPTY_TUPLE", [](Machine& m) { m.push(Kind::tuple); }},
    {0x85, "TUPLE1", [](Machine& m) { m.push_tuple(1); }},
    {0x86, "TUPLE2", [](Machine& m) { m.push_tuple(2); }},
    {0x87, "TUPLE3", [](Machine& m) { m.push_tuple(3); }},
    {'t', "TUPLE", [](Machine& m) { m.push_items(Kind::tuple, m.pop_to_mark()); }},
    {']', "EMPTY_LIST", [](Machine& m) { m.push(Kind::list); }},
    {0x8F, "EMPTY_SET", [](Machine& m) { m.push(Kind::set); }},
    {'}', "EMPTY_DICT", [](Machine& m) { m.push(Kind::dict); }},
    {'a', "APPEND", [](Machine& m) { m.add_last(1, false); }},
    {'e', "APPENDS", [](Machine& m) { m.add(m.pop_to_mark(), false); }},
    {0x90, "ADDITEMS", [](Machine& m) { m.add(m.pop_to_mark(), false); }},
    {'s', "SETITEM", [](Machine& m) { m.add_last(2, true); }},
    {'u', "SETITEMS", [](Machine& m) { m.add(m.pop_to_mark(), true); }},
    // These opcodes store and fetch remembered values.
    {'q', "BINPUT", [](Machine& m) { m.remember(m.number(1)); }},
    {'r', "LONG_BINPUT", [](Machine& m) { m.remember(m.number(4)); }},
    {0x94, "MEMOIZE", [](Machine& m) { m.remember(m.memo_.size()); }},
    {'h', "BINGET", [](Machine& m) { m.recall(m.number(1)); }},
    {'j', "LONG_BINGET", [](Machine& m) { m.recall(m.number(4)); }},
    // Objects.
    {'c', "GLOBAL", [](Machine& m) { m.read_global(); }},
    {0x93, "STACK_GLOBAL", [](Machine& m) { m.push_global_from_stack(); }},
    {'R', "REDUCE", [](Machine& m) { m.push_call(); }},
    {0x81, "NEWOBJ", [](Machine& m) { m.push_call(); }},
    {'b', "BUILD", [](Machine& m) { m.set_state(); }},
    {'Q', "BINPERSID", [](Machine& m) { m.push_items(Kind::persistent, {m.pop()}); }},
    // These opcodes have no use in dictionaries of tensors and numbers.
    {'0', "POP", nullptr},
    {'1', "POP_MARK", nullptr},
    {'2', "DUP", nullptr},
    {'F', "FLOAT", nullptr},
    {'I', "INT", nullptr},
    {'L', "LONG", nullptr},
    {'P', "PERSID", nullptr},
    {'S', "STRING", nullptr},
    {'V', "UNICODE", nullptr},
    {'d', "DICT", nullptr},
    {'g', "GET", nullptr},
    {'i', "INST", nullptr},
    {'l', "LIST", nullptr},
    {'o', "OBJ", nullptr},
    {'p', "PUT", nullptr},
    {0x82, "EXT1", nullptr},
    {0x83, "EXT2", nullptr},
    {0x84, "EXT4", nullptr},
    {0x8B, "LONG4", nullptr},
    {0x8D, "BINUNICODE8", nullptr},
    {0x91, "FROZENSET", nullptr},
    {0x92, "NEWOBJ_EX", nullptr},
    {0x96, "BYTEARRAY8", nullptr},
    {0x97, "NEXT_BUFFER", nullptr},
    {0x98, "READONLY_BUFFER", nullptr},
};

const Machine::Opcode* Machine::find(uint8_t code) {
  static const std::array<const Opcode*, 256> by_code = [] {
    std::array<const Opcode*, 256> all{};
    for (const Opcode& opcode : kOpcodes) all[opcode.code] = &opcode;
    return all;
  }();
  return by_code[code];
}

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where,
                   std::span<const std::string_view> allowed_globals) {
  return Machine(bytes, where, allowed_globals).run();
}

}  // namespace tessera
