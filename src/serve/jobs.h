// Long requests: their state, progress and results, until these are fetched or expire.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "answer/request.h"
#include "serve/http.h"

namespace tessera::serve {

// Thread-safe.
class Job {
 public:
  Job(std::string id, std::string model);

  const std::string& id() const { return id_; }
  // Follows the computation; `cancelled` is that of cancel().
  answer::Control control();
  void finish(std::string results);  // JSON
  void fail(const std::string& message);
  // Stops within one step of the computation.
  void cancel();
  bool over() const;
  double finished() const;  // steady seconds
  size_t bytes() const;

  // State, step, steps, seconds left, error, results.
  std::string status(bool with_results) const;
  // Sends events until the job is over; the last has the results if `with_results`. leave() cancels it if nobody else
  // listens.
  void listen(const std::shared_ptr<Exchange>& exchange, bool with_results = false);
  void leave(const std::shared_ptr<Exchange>& exchange);

 private:
  struct Listener {
    std::shared_ptr<Exchange> exchange;
    bool with_results = false;
  };

  void progress(int64_t step, int64_t steps, const std::function<Image()>& preview);
  void write(std::string_view piece);
  void send(const std::string& event, const std::string& data);
  void end(const std::string& state);
  nlohmann::ordered_json status_now() const;
  std::string status_with_results() const;

  const std::string id_, model_;
  mutable std::mutex mutex_;
  std::string state_ = "waiting", error_, results_, preview_, text_;
  int64_t step_ = 0, steps_ = 0;
  double began_ = 0, told_ = 0, drawn_ = 0, finished_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::list<Listener> listeners_;
};

class Jobs {
 public:
  explicit Jobs(int64_t most) : most_(most) {}
  // Throws a 429 if there are too many unfinished jobs.
  std::shared_ptr<Job> add(const std::string& model);
  // Throws a 404.
  std::shared_ptr<Job> find(const std::string& id) const;
  void cancel_all();
  // Removes jobs that ended long ago, and the oldest ones beyond the limits on number and bytes.
  void forget_old();

 private:
  const int64_t most_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<Job>> jobs_;
};

}  // namespace tessera::serve
