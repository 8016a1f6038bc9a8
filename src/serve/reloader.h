// Opens the weights of a server in a thread of its own, while requests are answered.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::serve {

// Thread-safe. At most one opening runs at a time.
class Reloader {
 public:
  // `open` opens all weights, or throws. `print` gets lines for people. `at_end`, for tests, is called between the last
  // look for another call and the mark that a new thread is needed.
  Reloader(std::function<void()> open, std::function<void(const std::string& line)> print,
           std::function<void()> at_end = {});
  ~Reloader();  // after the opening that runs
  // Opens the weights, then calls `opened` with the error, or null.
  void begin(std::function<void(std::exception_ptr error)> opened);
  // Opens them again, after the opening that runs. An error is printed: the models of before stay.
  void reload();

 private:
  void start(std::function<void()> first);
  void open_again();
  bool wanted_again();

  const std::function<void()> open_;
  const std::function<void(const std::string& line)> print_;
  const std::function<void()> at_end_;
  std::mutex mutex_;
  bool running_ = false, again_ = false;
  std::thread thread_;
};

}  // namespace tessera::serve
