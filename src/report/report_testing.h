// Reads markup as XML, strictly enough to catch escaping mistakes.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::report::testing {

class XmlReader {
 public:
  explicit XmlReader(std::string_view markup) : rest_(markup) {
    if (rest_.starts_with("<!DOCTYPE html>")) rest_.remove_prefix(15);
    while (!rest_.empty() && problem.empty()) rest_.front() == '<' ? tag() : words();
    if (problem.empty() && !open_.empty()) problem = "<" + open_.back() + "> is never closed";
  }

  std::string problem;              // empty: well-formed
  std::vector<std::string> tags;    // names of all elements, in order
  std::vector<std::string> values;  // values of all attributes, as written

 private:
  void fail(const std::string& what) {
    problem = what + " before: " + std::string(rest_.substr(0, 60));
    rest_ = {};
  }

  void words() {
    if (rest_.front() == '&') return entity();
    if (rest_.front() == '>') return fail("a bare >");
    if (static_cast<unsigned char>(rest_.front()) < 0x20 &&
        !std::isspace(static_cast<unsigned char>(rest_.front())))
      return fail("a control character");
    rest_.remove_prefix(1);
  }

  void entity() {
    for (const std::string_view known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
      if (rest_.starts_with(known)) return rest_.remove_prefix(known.size());
    fail("a bare &");
  }

  std::string name() {
    size_t end = 0;
    while (end < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[end])) || rest_[end] == '-' || rest_[end] == ':'))
      ++end;
    std::string found(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return found;
  }

  void spaces() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front()))) rest_.remove_prefix(1);
  }

  void closing() {
    const std::string element = name();
    if (open_.empty() || open_.back() != element) return fail("</" + element + "> closes nothing");
    open_.pop_back();
    if (!rest_.starts_with(">")) return fail("no > after </" + element);
    rest_.remove_prefix(1);
  }

  void attribute() {
    const std::string key = name();
    if (key.empty() || !rest_.starts_with("=\"")) return fail("an attribute without =\"\"");
    rest_.remove_prefix(2);
    const size_t end = rest_.find('"');
    if (end == std::string_view::npos) return fail("an open attribute");
    const std::string_view value = rest_.substr(0, end);
    if (value.find('<') != std::string_view::npos) return fail("a < in an attribute");
    values.emplace_back(value);
    rest_.remove_prefix(end + 1);
  }

  void tag() {
    rest_.remove_prefix(1);
    if (rest_.starts_with("/")) return rest_.remove_prefix(1), closing();
    const std::string element = name();
    if (element.empty()) return fail("a bare <");
    tags.push_back(element);
    for (spaces(); problem.empty() && !rest_.empty() && rest_.front() != '>' && rest_.front() != '/';
         spaces())
      attribute();
    if (!problem.empty()) return;
    const bool empty = rest_.starts_with("/");
    if (empty) rest_.remove_prefix(1);
    if (!rest_.starts_with(">")) return fail("no > after <" + element);
    rest_.remove_prefix(1);
    if (empty) return;
    open_.push_back(element);
    // A style sheet contains its own > characters, and no markup.
    if (element == "style") rest_.remove_prefix(std::min(rest_.size(), rest_.find("</style>")));
  }

  std::string_view rest_;
  std::vector<std::string> open_;
};

}  // namespace tessera::report::testing
