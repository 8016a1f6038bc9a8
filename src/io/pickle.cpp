#include "io/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/file.h"

namespace tessera {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20, kMaxNodes = size_t{4} << 20, kMaxMarks = 1000;
constexpr size_t kMaxGlobal = 200;       // characters of a module's or a function's name
constexpr size_t kMaxIntegerBytes = 64;  // of an integer beyond 64 bits
constexpr int kLastProtocol = 4;

using Kind = PickleNode::Kind;

// The names of the opcodes that are refused, for the error line; those that are read stand in Machine::step.
constexpr std::pair<uint8_t, const char*> kRefused[] = {{'0', "POP"},          {'1', "POP_MARK"},
                                                        {'2', "DUP"},          {'F', "FLOAT"},
                                                        {'I', "INT"},          {'L', "LONG"},
                                                        {'P', "PERSID"},       {'S', "STRING"},
                                                        {'V', "UNICODE"},      {'d', "DICT"},
                                                        {'g', "GET"},          {'i', "INST"},
                                                        {'l', "LIST"},         {'o', "OBJ"},
                                                        {'p', "PUT"},          {0x82, "EXT1"},
                                                        {0x83, "EXT2"},        {0x84, "EXT4"},
                                                        {0x8B, "LONG4"},       {0x8D, "BINUNICODE8"},
                                                        {0x8E, "BINBYTES8"},   {0x91, "FROZENSET"},
                                                        {0x92, "NEWOBJ_EX"},   {0x96, "BYTEARRAY8"},
                                                        {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"}};

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& where,
          std::span<const std::string_view> allowed)
      : bytes_(bytes), where_(where), allowed_(allowed) {}

  Pickle run() {
    check(bytes_.size() <= kMaxBytes, where_, ": a pickle of ", bytes_.size(), " bytes, at most ", kMaxBytes,
          " are read");
    while (!stopped_) step();
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

  // --- the stack: places of nodes, with marks between them

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

  // --- what opcodes mean

  // Puts items into the list, set, dictionary or made object on top. `pairs`: keys and values.
  void add(const std::vector<uint32_t>& items, bool pairs) {
    PickleNode& target = pickle_.nodes[top()];
    const bool fits = pairs ? target.kind == Kind::dict || target.kind == Kind::call
                            : target.kind == Kind::list || target.kind == Kind::set;
    if (!fits)
      damaged(pairs ? "it puts keys into what is no dictionary" : "it puts items into what is no list");
    if (pairs && items.size() % 2 != 0) damaged("a key without a value");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  void push_global(std::string_view module, std::string_view name) {
    const std::string full = text(module, ".", name);
    if (std::find(allowed_.begin(), allowed_.end(), full) == allowed_.end())
      fail(where_, ": names '", printable(full),
           "', which is not among what a file of weights may hold; none of it was run");
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
    if (pickle_.nodes[callee].kind != Kind::global) damaged("it calls what is no function");
    if (pickle_.nodes[arguments].kind != Kind::tuple) damaged("it calls with what is no tuple");
    push_items(Kind::call, {callee, arguments, make({})});
  }

  void set_state() {
    const uint32_t state = pop();
    PickleNode& target = pickle_.nodes[top()];
    if (target.kind != Kind::call) damaged("it gives a state to what was not made by a call");
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
    if (found == memo_.end()) damaged("it recalls what was not remembered");
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

  void step() {
    opcode_at_ = at_;
    const auto opcode = static_cast<uint8_t>(number(1));
    switch (opcode) {
      case 0x80:
        return read_protocol();  // PROTO
      case 0x95:
        return static_cast<void>(number(8));  // FRAME: only a hint for buffers
      case '.':
        return stop();  // STOP
      case '(':
        return push_mark();  // MARK
      case 'N':
        return push(Kind::none);  // NONE
      case 0x88:
        return push(Kind::boolean, 1);  // NEWTRUE
      case 0x89:
        return push(Kind::boolean, 0);  // NEWFALSE
      case 'K':
        return push_integer_of(number(1));  // BININT1
      case 'M':
        return push_integer_of(number(2));  // BININT2
      case 'J':
        return push_integer(4);  // BININT
      case 0x8A:
        return push_integer(number(1));  // LONG1
      case 'G':
        return push_real();  // BINFLOAT
      case 'X':
        return push(Kind::text, take(number(4)));  // BINUNICODE
      case 0x8C:
        return push(Kind::text, take(number(1)));  // SHORT_BINUNICODE
      case 'U':
        return push(Kind::bytes, take(number(1)));  // SHORT_BINSTRING
      case 'T':
        return push(Kind::bytes, take(number(4)));  // BINSTRING
      case 'C':
        return push(Kind::bytes, take(number(1)));  // SHORT_BINBYTES
      case 'B':
        return push(Kind::bytes, take(number(4)));  // BINBYTES
      case ')':
        return push(Kind::tuple);  // EMPTY_TUPLE
      case 0x85:
        return push_tuple(1);  // TUPLE1
      case 0x86:
        return push_tuple(2);  // TUPLE2
      case 0x87:
        return push_tuple(3);  // TUPLE3
      case 't':
        return push_items(Kind::tuple, pop_to_mark());  // TUPLE
      case ']':
        return push(Kind::list);  // EMPTY_LIST
      case 0x8F:
        return push(Kind::set);  // EMPTY_SET
      case '}':
        return push(Kind::dict);  // EMPTY_DICT
      case 'a':
        return add_last(1, false);  // APPEND
      case 's':
        return add_last(2, true);  // SETITEM
      case 'e':
        return add(pop_to_mark(), false);  // APPENDS
      case 0x90:
        return add(pop_to_mark(), false);  // ADDITEMS
      case 'u':
        return add(pop_to_mark(), true);  // SETITEMS
      case 'q':
        return remember(number(1));  // BINPUT
      case 'r':
        return remember(number(4));  // LONG_BINPUT
      case 0x94:
        return remember(memo_.size());  // MEMOIZE
      case 'h':
        return recall(number(1));  // BINGET
      case 'j':
        return recall(number(4));  // LONG_BINGET
      case 'c':
        return read_global();  // GLOBAL
      case 0x93:
        return push_global_from_stack();  // STACK_GLOBAL
      case 'R':
        return push_call();  // REDUCE
      case 0x81:
        return push_call();  // NEWOBJ
      case 'b':
        return set_state();  // BUILD
      case 'Q':
        return push_items(Kind::persistent, {pop()});  // BINPERSID
      default:
        return refuse(opcode);
    }
  }

  void push_integer_of(uint64_t value) { push(Kind::integer, static_cast<int64_t>(value)); }

  void read_global() {
    const std::string_view module = line();
    push_global(module, line());
  }

  void add_last(size_t count, bool pairs) {
    std::array<uint32_t, 2> items{};
    for (size_t i = count; i-- > 0;) items[i] = pop();
    add({items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count)}, pairs);
  }

  [[noreturn]] void refuse(uint8_t opcode) const {
    for (const auto& [code, name] : kRefused)
      if (code == opcode)
        fail(where_, ": the pickle holds ", name, " at byte ", opcode_at_, ", which is not allowed");
    fail(where_, ": damaged pickle at byte ", opcode_at_, ": no such opcode as ", static_cast<int>(opcode));
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::span<const std::string_view> allowed_;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::unordered_map<uint64_t, uint32_t> memo_;
  size_t at_ = 0, opcode_at_ = 0;
  bool stopped_ = false;
};

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& where,
                   std::span<const std::string_view> allowed_globals) {
  return Machine(bytes, where, allowed_globals).run();
}

}  // namespace tessera
