#include "text/pattern.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"

namespace tessera::tokens {
namespace {

constexpr size_t kMany = std::numeric_limits<size_t>::max();
constexpr size_t kMaxInstructions = 20000, kMaxDepth = 60, kMaxRepeat = 1000;
// Backtracking of published expressions stays below ten steps a character; this stops what others might do.
constexpr uint64_t kStepsAtLeast = 1 << 20, kStepsPerCharacter = 256;

uint32_t word_mask() {
  return category_mask("L") | category_mask("M") | bit(Category::Nd) | bit(Category::Pc);
}

}  // namespace

// The expression as a tree, which is then laid out as a program.
struct PatternNode {
  enum class Kind { empty, set, sequence, choice, repeat, look, atomic, begin, end } kind = Kind::empty;
  std::vector<PatternNode> parts;
  size_t set = 0, min = 0, max = 0;
  char mode = 'g';
  bool negated = false;
};

class PatternParser {
 public:
  PatternParser(Pattern& pattern, std::u32string text) : pattern_(pattern), text_(std::move(text)) {}

  void compile() {
    const PatternNode tree = choice(0);
    if (at_ < text_.size()) refuse("a ')' without its '('");
    lay_out(tree);
    emit({Pattern::Op::match});
    for (Pattern::Set& set : pattern_.sets_) set.settle();
  }

 private:
  using Node = PatternNode;
  using Kind = PatternNode::Kind;
  using Set = Pattern::Set;

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
        ignore_case_ = true;  // to the end of the group, over the bars in it
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
    if (take(U'[')) return set_node(bracket());
    if (take(U'^')) return {Kind::begin, {}};
    if (take(U'$')) return {Kind::end, {}};
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
    set.ignore_case = ignore_case_;
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

  void repeat(Node& node) {
    Node out{Kind::repeat, {}};
    if (take(U'?')) {
      out.max = 1;
    } else if (take(U'*')) {
      out.max = kMany;
    } else if (take(U'+')) {
      out.min = 1, out.max = kMany;
    } else if (take(U'{')) {
      out.min = more() && text_[at_] == U',' ? 0 : count();
      out.max = out.min;
      if (take(U',')) out.max = more() && text_[at_] == U'}' ? kMany : count();
      if (!take(U'}') || out.max < out.min) refuse("a repeat that is not understood");
    } else {
      return;
    }
    if (take(U'?')) out.mode = 'l';
    if (out.mode == 'g' && take(U'+')) out.mode = 'p';
    out.parts.push_back(std::move(node));
    node = std::move(out);
  }

  // \x in or outside a class; adds to the set.
  void escape(Set& set) {
    const char32_t c = next();
    const auto one = [&](char32_t value) { set.ranges.push_back({value, value}); };
    switch (c) {
      case U'n':
        return one(U'\n');
      case U'r':
        return one(U'\r');
      case U't':
        return one(U'\t');
      case U'f':
        return one(U'\f');
      case U'v':
        return one(U'\v');
      case U's':
        set.spaces = true;
        return;
      case U'S':
        set.no_spaces = true;
        return;
      case U'd':
        set.categories |= bit(Category::Nd);
        return;
      case U'D':
        set.categories |= ~bit(Category::Nd);
        return;
      case U'w':
        set.categories |= word_mask();
        return;
      case U'W':
        set.categories |= ~word_mask();
        return;
      case U'p':
      case U'P':
        return property(set, c == U'P');
      case U'x':
        return one(hex(2));
      case U'u':
        return one(hex(4));
      default:
        break;
    }
    if ((c >= U'0' && c <= U'9') || (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z'))
      refuse("a '\\' that is not understood");
    one(c);
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
    const uint32_t mask = category_mask(name);
    if (mask == 0) refuse("a property that is no general category");
    set.categories |= negated ? ~mask : mask;
  }

  Set bracket() {
    Set set;
    set.negated = take(U'^');
    for (bool first = true; first || !more() || text_[at_] != U']'; first = false) {
      const char32_t c = next();
      const size_t before = set.ranges.size();
      if (c == U'[') refuse("a class within a class");
      if (c == U'&' && more() && text_[at_] == U'&') refuse("an intersection of classes");
      if (c == U'\\')
        escape(set);
      else
        set.ranges.push_back({c, c});
      const bool range = set.ranges.size() > before && at_ + 1 < text_.size() && text_[at_] == U'-' &&
                         text_[at_ + 1] != U']';
      if (!range) continue;
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
    ++at_;
    return set;
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
      case Kind::atomic: {
        Pattern::Instruction inner{node.kind == Kind::look ? Op::look : Op::atomic};
        inner.negated = node.negated;
        const size_t at = emit(inner);
        pattern_.program_[at].x = here();
        for (const Node& part : node.parts) lay_out(part);
        emit({Op::match});
        pattern_.program_[at].y = here();
        return;
      }
    }
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

  void lay_out_repeat(const Node& node) {
    using Op = Pattern::Op;
    const Node& part = node.parts[0];
    if (part.kind == Kind::set) {
      emit({Op::repeat, part.set, 0, node.min, node.max, node.mode});
      return;
    }
    size_t atomic = 0;
    if (node.mode == 'p') {
      atomic = emit({Op::atomic});
      pattern_.program_[atomic].x = here();
    }
    for (size_t i = 0; i < node.min; ++i) lay_out(part);
    const bool lazy = node.mode == 'l';
    const auto branch = [&](size_t split, size_t into, size_t past) {
      pattern_.program_[split].x = lazy ? past : into;
      pattern_.program_[split].y = lazy ? into : past;
    };
    if (node.max == kMany) {
      const size_t split = emit({Op::split});
      lay_out(part);
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
    if (node.mode == 'p') {
      emit({Op::match});
      pattern_.program_[atomic].y = here();
    }
  }

  Pattern& pattern_;
  std::u32string text_;
  size_t at_ = 0;
  bool ignore_case_ = false;
};

bool Pattern::Set::look_up(char32_t c) const {
  const auto in = [&](char32_t value) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const Range& range) { return value >= range.low && value <= range.high; });
  };
  bool held = in(c) || (categories && in_categories(c, categories));
  if (!held && (spaces || no_spaces)) held = is_space(c) ? spaces : no_spaces;
  if (!held && ignore_case) {
    const char32_t small = folded(c);
    const char32_t large = small >= 'a' && small <= 'z' ? small - 32 : small;
    held = in(small) || in(large);
  }
  return held != negated;
}

void Pattern::Set::settle() {
  for (char32_t c = 0; c < 128; ++c) ascii[c] = look_up(c);
}

Pattern::Pattern(std::string_view expression, const std::string& where) : where_(where) {
  PatternParser(*this, to_code_points(expression, where)).compile();
}

Pattern Pattern::literal(std::u32string_view chars) {
  Pattern out;
  for (const char32_t c : chars) {
    out.program_.push_back({Op::set, out.sets_.size()});
    out.sets_.emplace_back().ranges.push_back({c, c});
    out.sets_.back().settle();
  }
  out.program_.push_back({Op::match});
  return out;
}

std::optional<Match> Pattern::find(std::u32string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    uint64_t steps = 0;
    const auto end = run(0, text, at, steps);
    if (end && *end > at) return Match{at, *end};
  }
  return std::nullopt;
}

std::optional<size_t> Pattern::run(size_t start, std::u32string_view text, size_t at, uint64_t& steps) const {
  // Where to go on if this way fails: at `place`, or, after a repeat, at any place from there up (greedy) or
  // down to `limit`.
  struct Other {
    size_t program, place, limit;
    bool shrinks;
  };
  std::vector<Other> others;
  size_t program = start;
  const auto back = [&] {
    if (others.empty()) return false;
    Other& last = others.back();
    program = last.program, at = last.place;
    if (last.place == last.limit)
      others.pop_back();
    else
      last.place += last.shrinks ? -1 : 1;
    return true;
  };
  while (true) {
    if (++steps > kStepsAtLeast + kStepsPerCharacter * text.size())
      fail(where_, ": the splitting expression takes too long on this text");
    const Instruction& now = program_[program];
    bool goes_on = true;
    switch (now.op) {
      case Op::match:
        return at;
      case Op::begin:
        goes_on = at == 0, ++program;
        break;
      case Op::end:
        goes_on = at == text.size(), ++program;
        break;
      case Op::jump:
        program = now.x;
        break;
      case Op::split:
        others.push_back({now.y, at, at, true});
        program = now.x;
        break;
      case Op::set:
        goes_on = at < text.size() && sets_[now.x].holds(text[at]);
        ++at, ++program;
        break;
      case Op::repeat: {
        const size_t most = now.max == kMany ? text.size() : std::min(text.size(), at + now.max);
        size_t end = at;
        const Set& set = sets_[now.x];
        while (end < most && set.holds(text[end])) ++end;
        steps += end - at;
        const size_t least = at + now.min;
        goes_on = end >= least;
        ++program;
        if (!goes_on) break;
        at = now.mode == 'l' ? least : end;
        if (now.mode == 'g' && end > least) others.push_back({program, end - 1, least, true});
        if (now.mode == 'l' && end > least) others.push_back({program, least + 1, end, false});
        break;
      }
      case Op::look:
      case Op::atomic: {
        const auto end = run(now.x, text, at, steps);
        goes_on = now.op == Op::look ? end.has_value() != now.negated : end.has_value();
        if (now.op == Op::atomic && end) at = *end;
        program = now.y;
        break;
      }
    }
    if (!goes_on && !back()) return std::nullopt;
  }
}

Pattern read_pattern(const nlohmann::json& settings, const std::string& where) {
  if (const auto regex = settings.find("Regex"); regex != settings.end())
    return Pattern(regex->get<std::string>(), where);
  return Pattern::literal(to_code_points(settings.at("String").get<std::string>(), where));
}

}  // namespace tessera::tokens
