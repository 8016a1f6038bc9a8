#include "text/pattern.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tessera::tokens {
namespace {

bool is_boundary(Pattern::Op op, std::u32string_view text, size_t at) {
  if (op == Pattern::Op::line_begin)  // no line begins after the last line end
    return at == 0 || (text[at - 1] == '\n' && at < text.size());
  if (op == Pattern::Op::line_end) return at == text.size() || text[at] == '\n';
  return at == (op == Pattern::Op::begin ? 0 : text.size());
}

}  // namespace

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
  const auto member = [c](const Set& set) { return set.holds(c); };
  held = held || std::any_of(any.begin(), any.end(), member);
  if (!all.empty()) held = std::all_of(all.begin(), all.end(), member);
  return held != negated;
}

void Pattern::Set::settle() {
  for (Set& part : any) part.settle();
  for (Set& part : all) part.settle();
  for (char32_t c = 0; c < 128; ++c) ascii[c] = look_up(c);
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

std::optional<Match> Pattern::find(std::u32string_view text, size_t from, uint64_t& steps) const {
  constexpr size_t kShortProgram = 1024;
  const uint64_t share = 1 + program_.size() / kShortProgram;  // share of a step that one instruction counts
  uint64_t left = steps * share;
  std::optional<Match> found;
  for (size_t at = from; at < text.size() && !found; ++at)
    if (const auto end = run(0, text, at, left); end && *end > at) found = Match{at, *end};
  steps = left / share;
  return found;
}

std::optional<size_t> Pattern::match_at(std::u32string_view text, size_t at) const {
  uint64_t left = steps_for(text.size());
  return run(0, text, at, left);
}

// A way through a program, and the other ways to try if it fails.
struct Pattern::Ways {
  // Where to resume: at `place`, or after a repeat at every position from there up (lazy) or down (greedy) to
  // `limit`. If `program` is kMany, marks[limit] was `place` before.
  struct Other {
    size_t program, place, limit;
    bool shrinks;
  };
  size_t program, at;
  std::vector<size_t> marks;
  std::vector<Other> others = {};

  void mark(size_t index) {
    others.push_back({kMany, marks[index], index, true});
    marks[index] = at;
  }
  // Repeats a set; returns false if too few of its characters follow. Subtracts its steps from `left`.
  bool repeat(const Instruction& now, const Set& set, std::u32string_view text, uint64_t& left) {
    const size_t most = now.max == kMany ? text.size() : std::min(text.size(), at + now.max);
    size_t end = at;
    while (end < most && set.holds(text[end])) ++end;
    left -= std::min<uint64_t>(left, end - at);
    const size_t least = at + now.min;
    ++program;
    if (end < least) return false;
    at = now.mode == 'l' ? least : end;
    if (now.mode == 'g' && end > least) others.push_back({program, end - 1, least, true});
    if (now.mode == 'l' && end > least) others.push_back({program, least + 1, end, false});
    return true;
  }
  // Resumes at the most recent alternative; false if there is none.
  bool back() {
    for (; !others.empty() && others.back().program == kMany; others.pop_back())
      marks[others.back().limit] = others.back().place;
    if (others.empty()) return false;
    Other& last = others.back();
    program = last.program, at = last.place;
    if (last.place == last.limit)
      others.pop_back();
    else
      last.place += last.shrinks ? -1 : 1;
    return true;
  }
};

std::optional<size_t> Pattern::run(size_t start, std::u32string_view text, size_t from,
                                   uint64_t& left) const {
  Ways way{start, from, std::vector<size_t>(marks_)};
  while (true) {
    if (left-- == 0)
      fail(where_, ": the splitting expression takes too long on this text: more than ", steps_for(0),
           " steps and ", steps_for(1) - steps_for(0), " a character");
    const Instruction& now = program_[way.program];
    bool goes_on = true;
    switch (now.op) {
      case Op::match:
        return way.at;
      case Op::line_begin:
      case Op::line_end:
      case Op::begin:
      case Op::end:
        goes_on = is_boundary(now.op, text, way.at), ++way.program;
        break;
      case Op::jump:
        way.program = now.x;
        break;
      case Op::mark:
        way.mark(now.x), ++way.program;
        break;
      case Op::leave:
        way.program = way.at == way.marks[now.x] ? now.y : way.program + 1;
        break;
      case Op::split:
        way.others.push_back({now.y, way.at, way.at, true});
        way.program = now.x;
        break;
      case Op::set:
        goes_on = way.at < text.size() && sets_[now.x].holds(text[way.at]);
        ++way.at, ++way.program;
        break;
      case Op::repeat:
        goes_on = way.repeat(now, sets_[now.x], text, left);
        break;
      case Op::look:
      case Op::atomic: {
        const auto end = run(now.x, text, way.at, left);
        goes_on = now.op == Op::look ? end.has_value() != now.negated : end.has_value();
        if (now.op == Op::atomic && end) way.at = *end;
        way.program = now.y;
        break;
      }
    }
    if (!goes_on && !way.back()) return std::nullopt;
  }
}

Pattern read_pattern(const nlohmann::json& settings, const std::string& where) {
  if (const auto regex = settings.find("Regex"); regex != settings.end())
    return Pattern(regex->get<std::string>(), where);
  return Pattern::literal(to_code_points(settings.at("String").get<std::string>(), where));
}

}  // namespace tessera::tokens
