#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"

namespace tessera::data {
namespace {

class CsvReader {
 public:
  CsvReader(std::string_view content, char separator, const std::string& name)
      : content_(content), separator_(separator), name_(name) {
    if (content_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  std::vector<CsvRow> rows() {
    std::vector<CsvRow> rows;
    while (at_ < content_.size()) {
      if (at_line_end()) {
        skip_line_end();
        continue;
      }
      CsvRow row{line_, {}};
      row.fields.push_back(field());
      while (at_ < content_.size() && content_[at_] == separator_) {
        ++at_;
        row.fields.push_back(field());
      }
      if (at_ < content_.size()) skip_line_end();
      const bool blank = std::ranges::all_of(row.fields, [](const auto& one) { return trim(one).empty(); });
      if (!blank) rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  bool at_line_end() const {
    return content_[at_] == '\n' ||
           (content_[at_] == '\r' && (at_ + 1 == content_.size() || content_[at_ + 1] == '\n'));
  }
  bool at_field_end() const { return at_ == content_.size() || content_[at_] == separator_ || at_line_end(); }

  void skip_line_end() {
    if (content_[at_] == '\r') ++at_;
    if (at_ < content_.size()) ++at_;
    ++line_;
  }

  std::string field() {
    if (at_ < content_.size() && content_[at_] == '"') return quoted_field();
    const size_t begin = at_;
    while (!at_field_end()) {
      if (content_[at_] == '"' && (separator_ == ',' || separator_ == ';'))
        fail(name_, " line ", line_, ": a quote inside a field; put the whole field in quotes");
      ++at_;
    }
    return std::string(content_.substr(begin, at_ - begin));
  }

  std::string quoted_field() {
    const int64_t first_line = line_;
    std::string value;
    for (++at_; at_ < content_.size(); ++at_) {
      const char c = content_[at_];
      if (c == '\n') ++line_;
      if (c != '"') {
        value += c;
      } else if (at_ + 1 < content_.size() && content_[at_ + 1] == '"') {
        value += '"';
        ++at_;
      } else {
        ++at_;
        if (!at_field_end()) fail(name_, " line ", line_, ": text after a closing quote");
        return value;
      }
    }
    fail(name_, " line ", first_line, ": a quote that is never closed");
  }

  std::string_view content_;
  char separator_;
  const std::string& name_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view content, char separator, const std::string& name) {
  std::vector<CsvRow> rows = CsvReader(content, separator, name).rows();
  const auto first = std::ranges::find_if(rows, [](const CsvRow& row) {
    return row.fields.size() > 1 || !row.fields[0].starts_with('#');  // else a comment before the titles
  });
  if (first != rows.end()) rows.erase(rows.begin(), first);
  const auto ends_blank = [](const CsvRow& row) {
    return row.fields.size() > 2 && trim(row.fields.back()).empty();
  };
  if (std::ranges::all_of(rows, ends_blank))  // a separator at the end of each line
    for (CsvRow& row : rows) row.fields.pop_back();
  return rows;
}

std::vector<CsvRow> counted_rows(const std::string& content) {
  if (!parse_int(trim(std::string_view(content).substr(0, content.find('\n'))))) return {};
  const std::vector<std::string> lines = split(content, '\n');
  std::vector<CsvRow> rows;
  for (size_t i = 1; i < lines.size(); ++i) {
    CsvRow row{static_cast<int64_t>(i) + 1,
               i == 1 ? std::vector<std::string>{"path"} : std::vector<std::string>()};
    for (const std::string& word : split(trim(lines[i]), ' '))
      if (!word.empty()) row.fields.push_back(word);
    if (!row.fields.empty()) rows.push_back(std::move(row));
  }
  const bool fits =
      rows.size() > 1 && rows[0].fields.size() > 2 && rows[1].fields.size() == rows[0].fields.size();
  return fits && has_picture_extension(rows[1].fields[0]) ? rows : std::vector<CsvRow>();
}

}  // namespace tessera::data
