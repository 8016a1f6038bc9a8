// A page in one file: style, drawings and images inline, no script, nothing fetched (the page's content
// policy forbids it).
//
// The markup is also XML, so that a test can check it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/images/image.h"

namespace tessera::report {

struct Fact {
  std::string label{}, value{}, note{};  // "top-1", "95.4 %", "best 95.9 % in epoch 18"
};

struct Column {
  std::string name{};
  bool number = false;  // right-aligned
};

// A picture with a caption. `good` and `bad` colour its frame.
struct Picture {
  Image image{};
  std::string caption{}, detail{};
  enum class Mark { none, good, bad } mark = Mark::none;
};

// An SVG, and a version for phones, on which the first would be too small to read.
struct Drawing {
  std::string wide{}, narrow{};
};

class Page {
 public:
  explicit Page(std::string title, std::string subtitle = {});

  // Starts a section for all following content, and adds its heading to the list at the top.
  void section(std::string_view heading, std::string_view note = {});

  void paragraph(std::string_view words);
  void facts(const std::vector<Fact>& facts);           // a row of large numbers
  void drawings(const std::vector<Drawing>& drawings);  // side by side if they fit
  void large_drawing(const std::string& svg);           // keeps its size and scrolls on a small screen
  // A grid; each group of `together` pictures, such as an image and its output, stays side by side.
  void pictures(const std::vector<Picture>& pictures, size_t together = 1);
  void table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows);
  void pairs(const std::vector<std::pair<std::string, std::string>>& names_and_values);
  void code(std::string_view words);

  std::string finish() const;

 private:
  void close_section();
  std::string title_, subtitle_, body_, contents_;
  int sections_ = 0;
};

}  // namespace tessera::report
