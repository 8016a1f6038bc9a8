#include "report/html.h"

#include <algorithm>

#include "core/error.h"
#include "report/markup.h"

namespace tessera::report {
namespace {

constexpr std::string_view kStyle = R"(
:root{--font:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;
--page:#f5f6fa;--card:#fff;--ink:#1c2230;--muted:#667085;--grid:#e6e9f0;--axis:#b8bfcc;--accent:#3b6fd4;
--good:#2a9d7f;--miss:#d1495b;--code:#f8f9fc}
@media(prefers-color-scheme:dark){:root{--page:#11141b;--card:#191d27;--ink:#e6e9f0;--muted:#98a2b3;--grid:#2a3040;
--axis:#475066;--accent:#6b97ee;--good:#43b899;--miss:#e36a79;--code:#141822}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 var(--font);font-variant-numeric:tabular-nums}
main{max-width:1120px;margin:0 auto;padding:40px 24px 64px}
header{margin-bottom:28px}
.brand{font-size:12px;font-weight:600;letter-spacing:.12em;text-transform:uppercase;color:var(--accent)}
h1{font-size:30px;line-height:1.2;letter-spacing:-.015em;margin:6px 0;overflow-wrap:anywhere}
.subtitle{color:var(--muted);font-size:16px;margin:0;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:4px 18px;margin-top:16px;font-size:14px}
a{color:var(--accent);text-decoration:none}a:hover{text-decoration:underline}
section{background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:22px 24px 24px;margin:0 0 20px}
h2{font-size:18px;letter-spacing:-.01em;margin:0}
.note{color:var(--muted);font-size:14px;margin:2px 0 0}
p{margin:12px 0 0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px;margin:0 0 20px}
.fact{background:var(--card);border:1px solid var(--grid);border-radius:12px;padding:14px 18px}
section .facts{margin:16px 0 0}section .fact{background:var(--code)}
.fact .label{color:var(--muted);font-size:13px}
.fact .value{font-size:26px;font-weight:650;line-height:1.25;letter-spacing:-.02em;white-space:nowrap}
.fact .detail{color:var(--muted);font-size:12.5px}
.drawings{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:16px;margin-top:14px}
.drawings svg{display:block;width:100%;height:auto;margin:0 auto}
.drawings.one{grid-template-columns:1fr}.drawings.one svg{max-width:760px}
.drawings.scrolled{overflow-x:auto}.drawings.scrolled svg{min-width:660px}
.narrow{display:none}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(112px,1fr));gap:14px;margin-top:16px}
.pictures.of2{grid-template-columns:repeat(auto-fill,minmax(min(238px,100%),1fr))}
.pictures.of3{grid-template-columns:repeat(auto-fill,minmax(min(364px,100%),1fr))}
.together{display:grid;grid-auto-flow:column;grid-auto-columns:minmax(0,1fr);gap:6px}
figure{margin:0;font-size:12.5px;line-height:1.35;overflow-wrap:anywhere}
figure img{display:block;width:100%;aspect-ratio:1;object-fit:contain;background:var(--code);border-radius:8px;
border:1px solid var(--grid);margin-bottom:6px}
figure img.tiny{image-rendering:pixelated}
figure.good img{border:2px solid var(--good)}figure.bad img{border:2px solid var(--miss)}
figure.bad .caption{color:var(--miss)}
.caption{font-weight:600}.detail{color:var(--muted)}
.scroll{overflow:auto;max-height:560px;margin-top:14px}
table{border-collapse:collapse;width:100%;font-size:14px}
th{position:sticky;top:0;background:var(--card);color:var(--muted);font-weight:500;font-size:13px;text-align:left;
white-space:nowrap}
th,td{padding:6px 28px 6px 0;border-bottom:1px solid var(--grid);vertical-align:top;overflow-wrap:break-word;
max-width:26em}
.number{text-align:right;white-space:nowrap}
td:last-child,th:last-child{padding-right:0}
.pairs{display:grid;grid-template-columns:max-content 1fr;gap:4px 24px;margin:14px 0 0;font-size:14px}
.pairs dt{color:var(--muted)}.pairs dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--code);border:1px solid var(--grid);border-radius:8px;padding:14px 16px;margin:14px 0 0;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;overflow:auto;max-height:520px}
footer{color:var(--muted);font-size:13px;text-align:center}
@media(max-width:640px){main{padding:24px 12px 40px}section{padding:18px 16px}h1{font-size:26px}
.facts{grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px}.fact{padding:10px 14px}
.fact .value{font-size:22px}.wide{display:none}.narrow{display:block}th,td{padding-right:18px}
.pairs{grid-template-columns:1fr;gap:0}.pairs dd{margin-bottom:8px}}
@media print{body{background:#fff}section,.fact{break-inside:avoid}.scroll,pre{max-height:none}}
)";

// The style has columns for at most this number of pictures side by side.
constexpr size_t kMostTogether = 3;

std::string class_attribute(bool number) { return number ? " class=\"number\"" : ""; }

std::string figure(const Picture& picture) {
  const char* mark = picture.mark == Picture::Mark::good  ? " class=\"good\""
                     : picture.mark == Picture::Mark::bad ? " class=\"bad\""
                                                          : "";
  const bool tiny = std::max(picture.image.width, picture.image.height) <= 96;
  return text("<figure", mark, "><img", tiny ? " class=\"tiny\"" : "", " src=\"", data_uri(picture.image),
              "\" alt=\"", escape(picture.caption), "\"/><figcaption><div class=\"caption\">",
              escape(picture.caption), "</div><div class=\"detail\">", escape(picture.detail),
              "</div></figcaption></figure>\n");
}

}  // namespace

Page::Page(std::string title, std::string subtitle)
    : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

void Page::close_section() {
  if (sections_ > 0) body_ += "</section>\n";
}

void Page::section(std::string_view heading, std::string_view note) {
  close_section();
  const std::string name = text("section-", ++sections_);
  contents_ += text("<a href=\"#", name, "\">", escape(heading), "</a>");
  body_ += text("<section id=\"", name, "\"><h2>", escape(heading), "</h2>\n");
  if (!note.empty()) body_ += text("<p class=\"note\">", escape(note), "</p>\n");
}

void Page::paragraph(std::string_view words) { body_ += text("<p>", escape(words), "</p>\n"); }

void Page::facts(const std::vector<Fact>& facts) {
  if (facts.empty()) return;
  body_ += "<div class=\"facts\">";
  for (const Fact& fact : facts)
    body_ +=
        text("<div class=\"fact\"><div class=\"label\">", escape(fact.label), "</div><div class=\"value\">",
             escape(fact.value), "</div><div class=\"detail\">", escape(fact.note), "</div></div>");
  body_ += "</div>\n";
}

void Page::drawings(const std::vector<Drawing>& drawings) {
  if (drawings.empty()) return;
  body_ += drawings.size() == 1 ? "<div class=\"drawings one\">" : "<div class=\"drawings\">";
  for (const Drawing& drawing : drawings)
    body_ += text("<div><div class=\"wide\">", drawing.wide, "</div><div class=\"narrow\">", drawing.narrow,
                  "</div></div>\n");
  body_ += "</div>\n";
}

void Page::large_drawing(const std::string& svg) {
  body_ += text("<div class=\"drawings one scrolled\">", svg, "</div>\n");
}

void Page::pictures(const std::vector<Picture>& pictures, size_t together) {
  if (pictures.empty()) return;
  check(together >= 1 && together <= kMostTogether, together, " pictures side by side, must be 1 to ",
        kMostTogether);
  body_ += together == 1 ? std::string("<div class=\"pictures\">\n")
                         : text("<div class=\"pictures of", together, "\">\n");
  for (size_t first = 0; first < pictures.size(); first += together) {
    if (together > 1) body_ += "<div class=\"together\">";
    for (size_t i = first; i < std::min(first + together, pictures.size()); ++i) body_ += figure(pictures[i]);
    if (together > 1) body_ += "</div>\n";
  }
  body_ += "</div>\n";
}

void Page::table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows) {
  body_ += "<div class=\"scroll\"><table><thead><tr>";
  for (const Column& column : columns)
    body_ += text("<th", class_attribute(column.number), ">", escape(column.name), "</th>");
  body_ += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    check(row.size() == columns.size(), "table: a row of ", row.size(), " cells under ", columns.size(),
          " columns");
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      body_ += text("<td", class_attribute(columns[i].number), ">", escape(row[i]), "</td>");
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

void Page::pairs(const std::vector<std::pair<std::string, std::string>>& names_and_values) {
  if (names_and_values.empty()) return;
  body_ += "<dl class=\"pairs\">";
  for (const auto& [name, value] : names_and_values)
    body_ += text("<dt>", escape(name), "</dt><dd>", escape(value), "</dd>");
  body_ += "</dl>\n";
}

void Page::code(std::string_view words) { body_ += text("<pre>", escape(words), "</pre>\n"); }

std::string Page::finish() const {
  std::string page = text("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n",
                          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n",
                          "<meta http-equiv=\"Content-Security-Policy\" ",
                          "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\"/>\n",
                          "<title>", escape(title_), "</title>\n<style>", kStyle,
                          "</style></head>\n<body><main>\n<header><div class=\"brand\">tessera</div>\n<h1>",
                          escape(title_), "</h1>\n");
  if (!subtitle_.empty()) page += text("<p class=\"subtitle\">", escape(subtitle_), "</p>\n");
  if (sections_ > 1) page += text("<nav>", contents_, "</nav>\n");
  page += "</header>\n" + body_;
  if (sections_ > 0) page += "</section>\n";
  return page + "</main></body></html>\n";
}

}  // namespace tessera::report
