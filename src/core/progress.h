// Long work: its progress, its interruption by signals, and its time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

// One line with the progress of long work.
//
// On a terminal: a bar redrawn in place, at most ten times a second, cut to the terminal's width:
//   train  42% ███████████▌               1 640/3 900  loss 1.234  acc 0.567  210 img/s  wait 0 %  left 10:44
// In a file or pipe: plain lines, one every few seconds, no control codes.
class ProgressLine {
 public:
  struct Options {
    std::string label;
    int64_t total = 0;
    int64_t start = 0;          // done before this process began
    double plain_seconds = 10;  // time between plain lines
    int columns = 0;            // terminal width, 0 = detect it; > 0 also means "draw the bar" (for tests)
    std::function<double()> now = {};  // seconds; default: the steady clock
  };
  using Fields = std::vector<std::pair<std::string, std::string>>;  // name and value, in display order

  // Draws a bar if `stream` is standard output or standard error and is a terminal.
  ProgressLine(std::ostream& stream, Options options);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;

  void update(int64_t done, const Fields& fields);
  // Prints a line above the bar.
  void print(const std::string& line);
  // Leaves the last state on the screen as a plain line.
  void finish();

 private:
  void draw();
  void clear();
  std::string plain_line() const;
  std::string bar_line(int columns) const;
  double seconds_left() const;

  std::ostream& stream_;
  Options options_;
  bool terminal_ = false, drawn_ = false, finished_ = false;
  double began_ = 0, last_ = 0;
  int64_t done_ = 0;
  Fields fields_;
};

// SIGINT and SIGTERM as a flag that long work checks between steps, so that it can first save its state.

// The scope of work that checks interrupted() regularly. Scopes may nest.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

// Call it at the start of a program. Within an Interruptible scope, the first signal sets the flag, and a
// second one ends the process at once with exit code 130. Outside such scopes a signal ends the process as
// usual. A write beyond the file size limit (ulimit -f) then gives an error instead of a signal.
void catch_interrupts();
bool interrupted();
// Clears the flag: for programs that continue after a signal, and for tests.
void forget_interrupts();

// Steady time for durations, wall-clock time for people and logs.

inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds since 1970.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
