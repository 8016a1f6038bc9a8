#include "data/detection/label_parsers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera::data {
namespace {

constexpr int kDeepest = 16;

class XmlReader {
 public:
  XmlReader(std::string content, std::string path) : path_(std::move(path)), content_(std::move(content)) {}

  XmlElement document() {
    skip_misc();
    if (!at("<")) wrong("must begin with an element");
    XmlElement root = element(1);
    skip_misc();
    if (place_ < content_.size()) wrong("has more than one root element");
    return root;
  }

 private:
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(path_, " line ", line_, ": ", parts...);
  }
  bool at(std::string_view word) const { return content_.compare(place_, word.size(), word) == 0; }
  void take(size_t bytes) {
    line_ += std::count(content_.begin() + static_cast<std::ptrdiff_t>(place_),
                        content_.begin() + static_cast<std::ptrdiff_t>(place_ + bytes), '\n');
    place_ += bytes;
  }
  // Returns the bytes before the next `end` and moves past it.
  std::string_view until(std::string_view end) {
    const size_t found = content_.find(end, place_);
    if (found == std::string::npos) wrong("ends before '", end, "'");
    const std::string_view between = std::string_view(content_).substr(place_, found - place_);
    take(between.size() + end.size());
    return between;
  }
  // Skips white space, comments and processing instructions.
  void skip_misc() {
    while (place_ < content_.size()) {
      if (content_.find_first_not_of(" \t\r\n", place_) != place_)
        take(std::min(content_.find_first_not_of(" \t\r\n", place_), content_.size()) - place_);
      else if (at("<!--"))
        until("-->");
      else if (at("<?"))
        until("?>");
      else if (at("<!"))
        wrong("a document type is not supported, only elements");
      else
        return;
    }
  }
  std::string name() {
    size_t end = place_;
    while (end < content_.size() &&
           std::string_view(" \t\r\n/><=\"'&").find(content_[end]) == std::string::npos)
      ++end;
    if (end == place_) wrong("a '<' without the name of an element");
    std::string found = content_.substr(place_, end - place_);
    take(found.size());
    return found;
  }
  // Moves past the attributes; true if the element has no content.
  bool end_of_tag() {
    while (place_ < content_.size()) {
      const char c = content_[place_];
      take(1);
      if (c == '>') return false;
      if (c == '"' || c == '\'') until(std::string_view(&c, 1));
      if (c == '<') break;
      if (c != '/') continue;
      if (!at(">")) break;
      take(1);
      return true;
    }
    wrong("an element's tag has no end");
  }
  XmlElement element(int depth) {
    if (depth > kDeepest) wrong("elements are nested deeper than ", kDeepest);
    XmlElement made{.line = line_};
    take(1);
    made.name = name();
    if (end_of_tag()) return made;
    while (true) {
      add_text(made.text, text_before_tag());
      if (at("</")) break;
      if (at("<!--"))
        until("-->");
      else if (at("<![CDATA["))
        take(9), made.text += until("]]>");
      else if (at("<?"))
        until("?>");
      else
        made.children.push_back(element(depth + 1));
    }
    take(2);
    const std::string closed = name();
    if (closed != made.name)
      wrong("</", printable(closed, 40), "> ends <", printable(made.name, 40), "> of line ", made.line);
    if (std::string_view rest = until(">"); !trim(rest).empty()) wrong("an element's end has attributes");
    made.text = trim(made.text);
    return made;
  }
  std::string_view text_before_tag() {
    const size_t end = content_.find('<', place_);
    if (end == std::string::npos) wrong("ends inside an element");
    const std::string_view found = std::string_view(content_).substr(place_, end - place_);
    take(found.size());
    return found;
  }
  void add_text(std::string& to, std::string_view raw) const {
    static constexpr std::array<std::pair<std::string_view, char>, 5> kEntities = {
        {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};
    while (!raw.empty()) {
      const size_t mark = std::min(raw.find('&'), raw.size());
      to += raw.substr(0, mark);
      raw.remove_prefix(mark);
      if (raw.empty()) return;
      const auto* known =
          std::ranges::find_if(kEntities, [&](const auto& one) { return raw.starts_with(one.first); });
      if (known == kEntities.end())
        wrong("'", printable(raw.substr(0, 12)), "' is no entity of XML's own five");
      to += known->second;
      raw.remove_prefix(known->first.size());
    }
  }

  std::string path_, content_;
  size_t place_ = 0;
  int64_t line_ = 1;
};

}  // namespace

const XmlElement* XmlElement::find(std::string_view child) const {
  const auto found = std::ranges::find(children, child, &XmlElement::name);
  return found == children.end() ? nullptr : &*found;
}

XmlElement parse_xml(std::string content, const std::string& where) {
  return XmlReader(std::move(content), where).document();
}

}  // namespace tessera::data
