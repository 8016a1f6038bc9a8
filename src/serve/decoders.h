// A pool of threads that decode requests and encode replies.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::serve {

class Decoders {
 public:
  explicit Decoders(int threads);
  ~Decoders();  // after all work is done
  void run(std::function<void()> work);

 private:
  void loop();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::serve
