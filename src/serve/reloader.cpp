#include "serve/reloader.h"

#include <utility>

namespace tessera::serve {

Reloader::Reloader(std::function<void()> open, std::function<void(const std::string& line)> print,
                   std::function<void()> at_end)
    : open_(std::move(open)), print_(std::move(print)), at_end_(std::move(at_end)) {}

Reloader::~Reloader() {
  if (thread_.joinable()) thread_.join();
}

void Reloader::begin(std::function<void(std::exception_ptr error)> opened) {
  start([this, opened = std::move(opened)] {
    std::exception_ptr error;
    try {
      open_();
    } catch (...) {
      error = std::current_exception();
    }
    opened(error);
  });
}

void Reloader::reload() {
  start([this] { open_again(); });
}

// Runs `first` in a new thread. If one runs, it opens the weights once more before it ends.
void Reloader::start(std::function<void()> first) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(running_, true)) {
    again_ = true;
    return;
  }
  if (thread_.joinable()) thread_.join();  // it has ended
  thread_ = std::thread([this, first = std::move(first)] {
    first();
    while (wanted_again()) open_again();
  });
}

void Reloader::open_again() {
  try {
    open_();
    print_("reloaded");
  } catch (const std::exception& error) {
    print_(std::string("tessera: the models of before stay: ") + error.what());
  }
}

// Looks for another call and marks the end under one lock, which start() takes too: no call is lost between the two.
bool Reloader::wanted_again() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(again_, false)) return true;
  if (at_end_) at_end_();
  running_ = false;
  return false;
}

}  // namespace tessera::serve
