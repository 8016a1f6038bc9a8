// Private to this folder: which process is missing when an exchange fails.
//
// Gloo's errors have addresses only, and a process that waits cannot see who is missing. So each process has a
// thread with its own connection to the store. After an error a process raises an alarm in the store; the
// threads of all living processes answer with the number of exchanges that they began on each channel.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/traffic.h"

namespace tessera::parallel {

class Watch {
 public:
  using Connect = std::function<c10::intrusive_ptr<c10d::Store>()>;
  // `connect` opens a connection for the thread. `served`: the store belongs to the launcher, not to the first
  // process.
  Watch(Connect connect, int rank, int size, bool served);
  ~Watch() { stop(); }
  Watch(const Watch&) = delete;

  // Ends the thread, before the processes leave.
  void stop();

  // Counts an exchange of this process on a channel; returns its number from 1.
  int64_t begin(const std::string& channel);

  // Returns the error line for an exchange that failed with `cause`: the missing processes among `members`,
  // and the exchange. Takes up to three seconds. From any thread.
  std::string explain(const Collective& exchange, const std::string& channel, const std::vector<int>& members,
                      double waited, const std::string& cause);

  // Publishes why this process ends, so that the others can name it. Takes up to a second.
  void publish_failure(const std::string& line);

 private:
  struct Answer {
    std::map<std::string, int64_t> begun;  // by channel
    std::string failure;
  };
  void run();
  bool act(c10d::Store& store, bool asked);
  bool read_answers(c10d::Store& store, std::vector<std::optional<Answer>>& answers) const;
  std::string state() const;
  static Answer read_answer(const std::string& bytes);

  const Connect connect_;
  const int rank_, size_;
  const bool served_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int64_t> begun_;
  std::string failure_;
  bool stopping_ = false, asked_ = false, collected_ = false, store_lost_ = false;
  std::vector<std::optional<Answer>> answers_;  // by rank; set once collected_
  std::thread thread_;
};

}  // namespace tessera::parallel
