#include "serve/reloader.h"

#include <utility>

namespace tessera::serve {

Reloader::Reloader(std::function<void()> open, std::function<void(const std::string& line)> print)
    : open_(std::move(open)), print_(std::move(print)) {}

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

// False marks the end under the same lock under which start() looks for it: no request is lost between the two.
bool Reloader::wanted_again() {
  const std::lock_guard lock(mutex_);
  running_ = std::exchange(again_, false);
  return running_;
}

}  // namespace tessera::serve
