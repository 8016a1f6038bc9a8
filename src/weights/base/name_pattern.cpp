#include "weights/base/name_pattern.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera::train {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the leading digits of a name, none if they are not a canonical number.
std::string_view leading_number(std::string_view name) {
  size_t length = 0;
  while (length < name.size() && is_digit(name[length])) ++length;
  return length > 9 || (length > 1 && name[0] == '0') ? std::string_view() : name.substr(0, length);
}

}  // namespace

NamePattern::NamePattern(std::string_view pattern) {
  const auto add_literal = [&](char c) {
    if (parts_.empty() || parts_.back().kind != Kind::literal) parts_.push_back({Kind::literal});
    parts_.back().text += c;
  };
  for (size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == '*') {
      const bool rest = pattern.substr(at).starts_with("**");
      parts_.push_back({rest ? Kind::rest : Kind::word});
      at += rest ? 1 : 0;
      continue;
    }
    if (pattern[at] != '{') {
      add_literal(pattern[at]);
      continue;
    }
    const size_t end = pattern.find('}', at);
    check(end != std::string_view::npos, "pattern '", pattern, "' has no '}'");
    const std::string inside(pattern.substr(at + 1, end - at - 1));
    at = end;
    if (inside == "-") {
      parts_.push_back({Kind::down});
    } else if (inside == "0" || inside == "each") {
      parts_.push_back({inside == "0" ? Kind::alone : Kind::each});
    } else if (inside == "any") {
      parts_.push_back({Kind::any});
    } else {
      Part number{Kind::number};
      const size_t sign = inside.find_first_of("+-");
      if (inside.starts_with('*')) number.scale = parse_int(inside.substr(1, sign - 1)).value();
      if (sign != std::string::npos) number.offset = parse_int(inside.substr(sign + 1)).value();
      if (sign != std::string::npos && inside[sign] == '-') number.offset = -number.offset;
      parts_.push_back(number);
    }
  }
  if (!parts_.empty() && parts_.front().kind == Kind::literal) beginning_ = parts_.front().text;
}

bool NamePattern::has(Kind kind) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.kind == kind; });
}

bool NamePattern::match_from(size_t index, std::string_view name, int64_t count, Captures& captures) const {
  if (index == parts_.size()) return name.empty();
  const Part& part = parts_[index];
  if (part.kind == Kind::literal || part.kind == Kind::alone) {
    const std::string_view literal = part.kind == Kind::alone ? std::string_view("0") : part.text;
    return name.starts_with(literal) && match_from(index + 1, name.substr(literal.size()), count, captures);
  }
  if (part.kind == Kind::number || part.kind == Kind::down || part.kind == Kind::each) {
    const std::string_view digits = leading_number(name);
    if (digits.empty()) return false;
    const int64_t written = parse_int(digits).value();
    const int64_t number =
        part.kind == Kind::down ? count - 1 - written : (written - part.offset) / part.scale;
    if (written < part.offset || number < 0 ||
        (part.kind == Kind::number && number * part.scale + part.offset != written))
      return false;
    if (part.kind != Kind::each) captures.push_back({number, {}});
    if (match_from(index + 1, name.substr(digits.size()), count, captures)) return true;
    if (part.kind != Kind::each) captures.pop_back();
    return false;
  }
  const size_t dot = part.kind == Kind::word ? std::min(name.find('.'), name.size()) : name.size();
  for (size_t length = 1; length <= dot; ++length) {
    if (part.kind != Kind::any) captures.push_back({0, std::string(name.substr(0, length))});
    if (match_from(index + 1, name.substr(length), count, captures)) return true;
    if (part.kind != Kind::any) captures.pop_back();
  }
  return false;
}

std::optional<NamePattern::Captures> NamePattern::match(std::string_view name, int64_t count) const {
  if (!name.starts_with(beginning_)) return std::nullopt;
  Captures captures;
  if (!match_from(0, name, count, captures)) return std::nullopt;
  return captures;
}

std::string NamePattern::fill(const Captures& captures, int64_t count, int64_t each) const {
  std::string name;
  size_t next = 0;
  for (const Part& part : parts_) {
    if (part.kind == Kind::literal) {
      name += part.text;
    } else if (part.kind == Kind::alone) {
      name += '0';
    } else if (part.kind == Kind::each) {
      name += std::to_string(each);
    } else {
      const Capture& capture = captures.at(next++);
      if (part.kind == Kind::word || part.kind == Kind::rest)
        name += capture.text;
      else
        name += std::to_string(part.kind == Kind::down ? count - 1 - capture.number
                                                       : capture.number * part.scale + part.offset);
    }
  }
  return name;
}

NamePattern::Captures NamePattern::sample(int64_t i) const {
  Captures captures;
  for (const Part& part : parts_) {
    if (part.kind == Kind::number || part.kind == Kind::down)
      captures.push_back({(i == 0 ? 0 : i++ % 3) + (part.offset < 0 ? 1 : 0), {}});
    if (part.kind == Kind::word || part.kind == Kind::rest)
      captures.push_back({0, i % 2 == 0 ? "weight" : "bias"});
  }
  return captures;
}

int64_t count_after(const std::vector<std::string>& names, const std::string& beginning) {
  int64_t count = 0;
  for (const std::string& name : names) {
    if (!name.starts_with(beginning)) continue;
    const std::string_view digits = leading_number(std::string_view(name).substr(beginning.size()));
    if (!digits.empty()) count = std::max(count, parse_int(digits).value() + 1);
  }
  return count;
}

}  // namespace tessera::train
