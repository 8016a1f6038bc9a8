#include "core/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "core/control_characters.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr size_t kLongestLine = 4000;  // most bytes of a line that is printed above the bar

int file_of(const std::ostream& stream) {
  if (&stream == &std::cout) return STDOUT_FILENO;
  if (&stream == &std::cerr || &stream == &std::clog) return STDERR_FILENO;
  return -1;
}

int terminal_columns(const std::ostream& stream) {
  winsize size{};
  const int file = file_of(stream);
  if (file >= 0 && ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// 12345 -> "12 345": groups of digits make long counters readable.
std::string grouped(int64_t count) {
  std::string digits = std::to_string(count), out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % 3 == 0) out += ' ';
    out += digits[i];
  }
  return out;
}

// Returns a bar of `cells` characters, with a resolution of eighths.
std::string bar(double share, int cells) {
  static constexpr const char* eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * cells * 8);
  std::string out;
  for (int i = 0; i < filled / 8; ++i) out += "█";
  out += eighths[filled % 8];
  for (int i = filled / 8 + (filled % 8 ? 1 : 0); i < cells; ++i) out += " ";
  return out;
}

// Returns the characters that the text takes on the screen (UTF-8 continuation bytes take none).
int width_of(const std::string& line) {
  return static_cast<int>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

ProgressLine::ProgressLine(std::ostream& stream, Options options)
    : stream_(stream), options_(std::move(options)) {
  if (!options_.now) options_.now = steady_seconds;
  terminal_ = options_.columns > 0 || (file_of(stream) >= 0 && isatty(file_of(stream)) == 1);
  began_ = options_.now();
  last_ = began_ - (terminal_ ? 1 : 0);  // draws a bar at once, a plain line only after the interval
  done_ = options_.start;
}

ProgressLine::~ProgressLine() {
  if (!finished_) clear();
}

void ProgressLine::update(int64_t done, const Fields& fields) {
  done_ = done;
  fields_ = fields;
  const double now = options_.now();
  if (now - last_ < (terminal_ ? kRedrawSeconds : options_.plain_seconds)) return;
  last_ = now;
  if (terminal_)
    draw();
  else
    stream_ << plain_line() << "\n" << std::flush;
}

void ProgressLine::print(const std::string& line) {
  clear();
  stream_ << printable(line, kLongestLine) << "\n" << std::flush;
  if (terminal_ && !finished_) draw();
}

void ProgressLine::finish() {
  if (finished_) return;
  clear();
  finished_ = true;
  stream_ << plain_line() << "\n" << std::flush;
}

void ProgressLine::clear() {
  if (drawn_) std::ostream(unfiltered(stream_)) << "\r\x1b[2K" << std::flush;
  drawn_ = false;
}

void ProgressLine::draw() {
  const int columns = options_.columns > 0 ? options_.columns : terminal_columns(stream_);
  std::ostream control(unfiltered(stream_));
  control << "\r" << std::flush;
  stream_ << bar_line(columns) << std::flush;
  control << "\x1b[K" << std::flush;
  drawn_ = true;
}

double ProgressLine::seconds_left() const {
  const auto here = static_cast<double>(done_ - options_.start);
  if (here <= 0) return -1;
  return (options_.now() - began_) / here * static_cast<double>(options_.total - done_);
}

std::string ProgressLine::plain_line() const {
  const double elapsed = options_.now() - began_;
  std::string line = text(options_.label, " ", done_, "/", options_.total);
  for (const auto& [name, value] : fields_) line += text("  ", name, " ", value);
  line += text("  time ", human_duration(elapsed));
  if (const double left = seconds_left(); left >= 0 && done_ < options_.total)
    line += text("  left ", human_duration(left));
  return line;
}

std::string ProgressLine::bar_line(int columns) const {
  const double share =
      options_.total > 0 ? static_cast<double>(done_) / static_cast<double>(options_.total) : 0;
  std::string head = text(options_.label, " ", static_cast<int>(100 * share), "% ");
  std::string tail = text(" ", grouped(done_), "/", grouped(options_.total));
  const double left = seconds_left();
  const std::string end = left >= 0 ? text("  left ", human_duration(left)) : "";
  const int fixed_width = width_of(head) + width_of(tail) + width_of(end);
  if (fixed_width >= columns) return width_of(head) < columns ? head : "";
  // Shows fields in order as long as a bar of ten cells still fits.
  int room = columns - 1 - fixed_width - 10;
  for (const auto& [name, value] : fields_) {
    const std::string field = text("  ", name, " ", value);
    if (width_of(field) > room) break;
    room -= width_of(field);
    tail += field;
  }
  const int cells = std::clamp(columns - 1 - width_of(head) - width_of(tail) - width_of(end), 0, 30);
  return head + bar(share, cells) + tail + end;
}

}  // namespace tessera
