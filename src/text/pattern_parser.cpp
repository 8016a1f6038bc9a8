// Parses splitting expressions: text to a tree, the tree to a program.
#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "text/pattern.h"

namespace tessera::tokens {
namespace {

using Set = Pattern::Set;

constexpr size_t kMany = Pattern::kMany;
constexpr size_t kMaxInstructions = 20000, kMaxDepth = 60, kMaxRepeat = 1000;

// Case-insensitivity also applies to nested classes.
void ignore_case_in(Set& set) {
  set.ignore_case = true;
  for (Set& part : set.any) ignore_case_in(part);
  for (Set& part : set.all) ignore_case_in(part);
}

}  // namespace

// The expression as a tree, from which the program is emitted.
struct PatternNode {
  enum class Kind {
    empty,
    set,
    sequence,
    choice,
    repeat,
    look,
    atomic,
    line_begin,
    line_end,
    begin,
    end
  } kind = Kind::empty;
  std::vector<PatternNode> parts;
  size_t set = 0, min = 0, max = 0;
  char mode = 'g';
  bool negated = false;
};

class PatternParser {
 public:
  PatternParser(Pattern& pattern, std::u32string text) : pattern_(pattern), text_(std::move(text)) {}

  void compile() {
    constexpr size_t kLongest = size_t{1} << 16;
    if (text_.size() > kLongest)
      fail(pattern_.where_, ": a splitting expression has ", text_.size(), " characters, must have at most ",
           kLongest);
    const PatternNode tree = choice(0);
    if (at_ < text_.size()) refuse("a ')' without its '('");
    lay_out(tree);
    emit({Pattern::Op::match});
    for (Pattern::Set& set : pattern_.sets_) set.settle();
  }

 private:
  using Node = PatternNode;
  using Kind = PatternNode::Kind;

  [[noreturn]] void refuse(const char* what) const {
    fail(pattern_.where_, ": the splitting expression '", printable(to_utf8(text_)), "' has ", what,
         " at character ", at_ + 1);
  }
  bool more() const { return at_ < text_.size(); }
  bool take(char32_t c) { return more() && text_[at_] == c ? ++at_, true : false; }
  bool take(std::u32string_view what) {
    if (std::u32string_view(text_).substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  char32_t next() {
    if (!more()) refuse("no end");
    return text_[at_++];
  }

  Node choice(size_t depth) {
    if (depth > kMaxDepth) refuse("groups nested too deep");
    Node node{Kind::choice, {sequence(depth)}};
    while (take(U'|')) node.parts.push_back(sequence(depth));
    return node.parts.size() == 1 ? std::move(node.parts[0]) : node;
  }

  Node sequence(size_t depth) {
    Node node{Kind::sequence, {}};
    while (more() && text_[at_] != U'|' && text_[at_] != U')') {
      if (take(U"(?i)")) {
        ignore_case_ = true;  // applies to the end of the group, across its "|"
        continue;
      }
      Node one = atom(depth);
      repeat(one);
      node.parts.push_back(std::move(one));
    }
    return node;
  }

  Node atom(size_t depth) {
    if (take(U'(')) return group(depth);
    if (take(U'[')) return set_node(bracket(0));
    if (take(U'^')) return {Kind::line_begin, {}};
    if (take(U'$')) return {Kind::line_end, {}};
    if (take(U"\\A")) return {Kind::begin, {}};
    if (take(U"\\z")) return {Kind::end, {}};
    Set set;
    if (take(U'.')) {
      set.ranges.push_back({U'\n', U'\n'});
      set.negated = true;
    } else if (take(U'\\')) {
      escape(set);
    } else {
      const char32_t c = next();
      if (c == U'*' || c == U'+' || c == U'?') refuse("a repeat of nothing");
      set.ranges.push_back({c, c});
    }
    return set_node(std::move(set));
  }

  Node group(size_t depth) {
    const bool case_before = ignore_case_;
    Node node{Kind::sequence, {}};
    if (take(U"?i:")) {
      ignore_case_ = true;
    } else if (take(U"?=")) {
      node.kind = Kind::look;
    } else if (take(U"?!")) {
      node.kind = Kind::look;
      node.negated = true;
    } else if (take(U"?>")) {
      node.kind = Kind::atomic;
    } else if (!take(U"?:") && more() && text_[at_] == U'?') {
      refuse("a kind of group that is not understood");
    }
    node.parts.push_back(choice(depth + 1));
    if (!take(U')')) refuse("a '(' without its ')'");
    ignore_case_ = case_before;
    return node;
  }

  Node set_node(Set set) {
    if (ignore_case_) ignore_case_in(set);
    pattern_.sets_.push_back(std::move(set));
    Node node{Kind::set, {}};
    node.set = pattern_.sets_.size() - 1;
    return node;
  }

  size_t count() {
    size_t value = 0;
    bool any = false;
    while (more() && text_[at_] >= U'0' && text_[at_] <= U'9') {
      value = value * 10 + (text_[at_++] - U'0');
      any = true;
      if (value > kMaxRepeat) refuse("a count above 1000");
    }
    if (!any) refuse("a repeat without its count");
    return value;
  }

  // Parses the repeats after a node, and repeats of repeats. Only "?+", "*+" and "++" are possessive;
  // "{1,3}+" is a repeat of a repeat and "{3}?" an optional one.
  void repeat(Node& node) {
    for (size_t depth = 0;; ++depth) {
      if (depth > kMaxDepth) refuse("repeats nested too deep");
      Node out{Kind::repeat, {}};
      bool counted = false;
      if (take(U'?')) {
        out.max = 1;
      } else if (take(U'*')) {
        out.max = kMany;
      } else if (take(U'+')) {
        out.min = 1, out.max = kMany;
      } else if (take(U'{')) {
        counted = true;
        out.min = more() && text_[at_] == U',' ? 0 : count();
        out.max = out.min;
        if (take(U',')) out.max = more() && text_[at_] == U'}' ? kMany : count();
        if (!take(U'}') || out.max < out.min) refuse("a repeat that is not understood");
      } else {
        return;
      }
      if ((!counted || out.min < out.max) && take(U'?')) out.mode = 'l';
      if (!counted && out.mode == 'g' && take(U'+')) out.mode = 'p';
      if (!widens(node, out)) {
        out.parts.push_back(std::move(node));
        node = std::move(out);
      }
    }
  }

  // "(?:x{0,3})+" and the like try the same lengths in the same order as "x*", so one repeat replaces both
  // loops.
  static bool widens(Node& inner, const Node& outer) {
    if (inner.kind != Kind::repeat || inner.parts[0].kind != Kind::set || inner.mode != 'g' ||
        outer.mode != 'g' || outer.max != kMany || inner.max == 0 || inner.min > 1 || outer.min > 1)
      return false;
    inner.min = std::min(inner.min, outer.min);
    inner.max = kMany;
    return true;
  }

  // Parses \x in or outside a class; adds to the set.
  void escape(Set& set) {
    static constexpr std::u32string_view letters = U"nrtfv", controls = U"\n\r\t\f\v";
    const char32_t c = next();
    const auto one = [&](char32_t value) { set.ranges.push_back({value, value}); };
    if (const size_t at = letters.find(c); at != letters.npos) return one(controls[at]);
    if (add_class(c, set)) return;
    if (c == U'p' || c == U'P') return property(set, c == U'P');
    if (c == U'x') return one(hex(2));
    if (c == U'u') return one(hex(4));
    if ((c >= U'0' && c <= U'9') || (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z'))
      refuse("a '\\' that is not understood");
    one(c);
  }

  // Adds the characters that \c is short for. Returns false if it is no such letter.
  static bool add_class(char32_t c, Set& set) {
    const bool negated = c == U'W' || c == U'H';
    Set& to = negated ? set.any.emplace_back() : set;
    if (c == U's')
      to.spaces = true;
    else if (c == U'S')
      to.no_spaces = true;
    else if (c == U'd')
      to.categories |= bit(Category::Nd);
    else if (c == U'D')
      to.categories |= ~bit(Category::Nd);
    else if (c == U'w' || c == U'W')
      add_word(to);
    else if (c == U'h' || c == U'H')
      add_hex_digits(to);
    else
      return false;
    if (negated) to.negated = true;
    return true;
  }

  char32_t hex(int digits) {
    const bool braces = take(U'{');
    char32_t value = 0;
    for (int i = 0; braces ? !take(U'}') : i < digits; ++i) {
      const char32_t c = next();
      const int digit = c >= U'0' && c <= U'9'   ? static_cast<int>(c - U'0')
                        : c >= U'a' && c <= U'f' ? static_cast<int>(c - U'a') + 10
                        : c >= U'A' && c <= U'F' ? static_cast<int>(c - U'A') + 10
                                                 : -1;
      if (digit < 0 || i > 7) refuse("a character's number that is not understood");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }

  void property(Set& set, bool negated) {
    std::string name;
    if (take(U'{')) {
      if (take(U'^')) negated = !negated;
      while (!take(U'}')) append_utf8(next(), name);
    } else {
      append_utf8(next(), name);
    }
    if (const std::vector<Set::Range>* script = script_ranges(name)) {
      Set& within = set.any.emplace_back();
      within.ranges = *script;
      within.negated = negated;
      return;
    }
    const uint32_t mask = category_mask(name);
    if (mask == 0) refuse("a property that is neither a general category nor a known script");
    set.categories |= negated ? ~mask : mask;
  }

  // Parses "[:alpha:]" within a class.
  bool take_posix(Set& set) {
    constexpr size_t kLongestName = 8;
    size_t end = at_ + 2;
    while (end < text_.size() && end - at_ < kLongestName + 3 && text_[end] != U':') ++end;
    if (std::u32string_view(text_).substr(end, 2) != U":]") return false;
    std::u32string_view name = std::u32string_view(text_).substr(at_ + 2, end - at_ - 2);
    const bool negated = name.starts_with(U'^');
    if (negated) name.remove_prefix(1);
    Set named;
    if (!add_posix(to_utf8(name), named)) refuse("a class with an unknown POSIX name");
    named.negated = negated;
    set.any.push_back(std::move(named));
    at_ = end + 2;
    return true;
  }

  // Parses a class after its '['.
  Set bracket(size_t depth) {
    if (depth > kMaxDepth) refuse("classes nested too deep");
    Set whole, part;
    whole.negated = take(U'^');
    for (bool first = true; first || !more() || text_[at_] != U']'; first = false) {
      if (take(U"&&")) {
        whole.all.push_back(std::move(part));
        part = {};
      } else if (std::u32string_view(text_).substr(at_, 2) == U"[:" && take_posix(part)) {
        continue;
      } else if (take(U'[')) {
        part.any.push_back(bracket(depth + 1));
      } else {
        member(part);
      }
    }
    ++at_;
    if (!whole.all.empty()) {
      whole.all.push_back(std::move(part));
      return whole;
    }
    part.negated = whole.negated;
    return part;
  }

  // Parses one character of a class, or a range.
  void member(Set& set) {
    const char32_t c = next();
    const size_t before = set.ranges.size();
    const bool named = c == U'\\';
    const bool many = named && more() && (text_[at_] == U'h' || text_[at_] == U'w');
    if (named)
      escape(set);
    else
      set.ranges.push_back({c, c});
    const bool range = !many && set.ranges.size() > before && at_ + 1 < text_.size() && text_[at_] == U'-' &&
                       text_[at_ + 1] != U']' && text_[at_ + 1] != U'[';
    if (!range) return;
    ++at_;
    Set last;
    if (take(U'\\'))
      escape(last);
    else
      last.ranges.push_back({text_[at_], text_[at_]}), ++at_;
    if (last.ranges.size() != 1 || last.ranges[0].low < set.ranges.back().low)
      refuse("a range that runs backwards");
    set.ranges.back().high = last.ranges[0].low;
  }

  size_t emit(Pattern::Instruction instruction) {
    if (pattern_.program_.size() >= kMaxInstructions) refuse("too many repeats");
    pattern_.program_.push_back(instruction);
    return pattern_.program_.size() - 1;
  }
  size_t here() const { return pattern_.program_.size(); }

  void lay_out(const Node& node) {
    using Op = Pattern::Op;
    switch (node.kind) {
      case Kind::empty:
        return;
      case Kind::line_begin:
        emit({Op::line_begin});
        return;
      case Kind::line_end:
        emit({Op::line_end});
        return;
      case Kind::begin:
        emit({Op::begin});
        return;
      case Kind::end:
        emit({Op::end});
        return;
      case Kind::set:
        emit({Op::set, node.set});
        return;
      case Kind::sequence:
        for (const Node& part : node.parts) lay_out(part);
        return;
      case Kind::choice:
        return lay_out_choice(node);
      case Kind::repeat:
        return lay_out_repeat(node);
      case Kind::look:
      case Kind::atomic:
        return lay_out_inner(node.kind == Kind::look ? Op::look : Op::atomic, node.negated, [&] {
          for (const Node& part : node.parts) lay_out(part);
        });
    }
  }

  // Lays out a program within the program, which ends with its own match.
  template <class Body>
  void lay_out_inner(Pattern::Op op, bool negated, const Body& body) {
    Pattern::Instruction inner{op};
    inner.negated = negated;
    const size_t at = emit(inner);
    pattern_.program_[at].x = here();
    body();
    emit({Pattern::Op::match});
    pattern_.program_[at].y = here();
  }

  void lay_out_choice(const Node& node) {
    std::vector<size_t> jumps;
    for (size_t i = 0; i < node.parts.size(); ++i) {
      if (i + 1 == node.parts.size()) {
        lay_out(node.parts[i]);
        break;
      }
      const size_t split = emit({Pattern::Op::split});
      pattern_.program_[split].x = here();
      lay_out(node.parts[i]);
      jumps.push_back(emit({Pattern::Op::jump}));
      pattern_.program_[split].y = here();
    }
    for (const size_t jump : jumps) pattern_.program_[jump].x = here();
  }

  static bool may_be_empty(const Node& node) {
    const auto& parts = node.parts;
    switch (node.kind) {
      case Kind::set:
        return false;
      case Kind::choice:
        return std::any_of(parts.begin(), parts.end(), may_be_empty);
      case Kind::repeat:
        return node.min == 0 || may_be_empty(parts[0]);
      case Kind::sequence:
      case Kind::atomic:
        return std::all_of(parts.begin(), parts.end(), may_be_empty);
      default:
        return true;
    }
  }

  void lay_out_repeat(const Node& node) {
    using Op = Pattern::Op;
    if (const Node& part = node.parts[0]; part.kind == Kind::set)
      emit({Op::repeat, part.set, 0, node.min, node.max, node.mode});
    else if (node.mode == 'p')
      lay_out_inner(Op::atomic, false, [&] { lay_out_copies(node); });
    else
      lay_out_copies(node);
  }

  void lay_out_copies(const Node& node) {
    using Op = Pattern::Op;
    const Node& part = node.parts[0];
    for (size_t i = 0; i < node.min; ++i) lay_out(part);
    const bool lazy = node.mode == 'l';
    const auto branch = [&](size_t split, size_t into, size_t past) {
      pattern_.program_[split].x = lazy ? past : into;
      pattern_.program_[split].y = lazy ? into : past;
    };
    if (node.max == kMany) {
      const bool ends = may_be_empty(part);  // a repetition that matches nothing is the last
      const size_t split = emit({Op::split}), mark = pattern_.marks_;
      if (ends) emit({Op::mark, pattern_.marks_++});
      lay_out(part);
      if (ends) emit({Op::leave, mark, here() + 2});
      emit({Op::jump, split});
      branch(split, split + 1, here());
    } else {
      std::vector<size_t> splits;
      for (size_t i = node.min; i < node.max; ++i) {
        splits.push_back(emit({Op::split}));
        lay_out(part);
      }
      for (const size_t split : splits) branch(split, split + 1, here());
    }
  }

  Pattern& pattern_;
  std::u32string text_;
  size_t at_ = 0;
  bool ignore_case_ = false;
};

Pattern::Pattern(std::string_view expression, const std::string& where) : where_(where) {
  PatternParser(*this, to_code_points(expression, where)).compile();
}

}  // namespace tessera::tokens
