// The computing thread of a server: a bounded queue per model, batches of equal requests, models in turn. Between the
// steps of a batch other models may compute; slow ones (answer::Description::slow) begin only after it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "answer/answerer.h"
#include "serve/metrics.h"

namespace tessera::serve {

struct QueueLimits {
  int64_t batch = 1;                 // images of a batch
  double wait_seconds = 0;           // longest wait for a full batch
  bool eager = false;                // waits only while further requests are being decoded
  int64_t requests = 64;             // that wait or are decoded
  size_t bytes = size_t{256} << 20;  // that those hold
};

// An admitted request. `done` is called once, by the computing thread, with a reply or an exception.
struct Work {
  std::shared_ptr<answer::Answerer> answerer;  // that prepared it
  std::unique_ptr<answer::Prepared> prepared;
  answer::Control control = {};
  std::function<void(std::exception_ptr error, answer::Reply* reply)> done;
  double deadline = 0;  // steady seconds; if work has not begun by then, it is refused
  double queued = 0;    // set by push()
};

class Computer {
 public:
  explicit Computer(Metrics& metrics);
  ~Computer();  // after everything admitted is done

  // Returns the queue of that name; creates it if there is none. Changes its limits.
  size_t queue(const std::string& name, const QueueLimits& limits);
  // Reserves a place in the queue for a request with a body of `bytes`. False if the queue is full.
  bool admit(size_t queue, size_t bytes);
  // Gives back the place of a request that is not pushed.
  void withdraw(size_t queue, size_t bytes);
  // Queues an admitted request. Its prepared bytes now count instead of its body; if they do not fit,
  // withdraws it and returns false.
  bool push(size_t queue, size_t admitted_bytes, Work work);
  // Returns the estimated seconds until a new request would be answered.
  double expected_seconds(size_t queue) const;
  // Runs `act` in the computing thread and waits for it; rethrows its exception.
  void run(const std::function<void()>& act);
  // Writes the lengths of the queues into the metrics.
  void measure_queues() const;

 private:
  struct Queue {
    std::string name;
    QueueLimits limits;
    std::deque<Work> waiting;
    int64_t admitted = 0;
    size_t bytes = 0;
    double seconds_each = 0.05;  // a running mean
    bool busy = false;           // its batch is computed
  };
  using Lock = std::unique_lock<std::mutex>;

  void loop();
  Queue* ready_queue(double now);
  double next_time() const;
  static bool is_ready(const Queue& queue, double now);
  void compute_batch(Lock& lock, Queue& queue);
  std::vector<Work> take_batch(Queue& queue, std::vector<Work>& refused);
  void answer(Queue& queue, std::vector<Work>& batch);
  void answer_alone(Work& work);
  void serve_others();

  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Queue> queues_;
  std::deque<std::function<void()>> acts_;
  size_t last_ = 0;    // the queue that computed last
  int64_t depth_ = 0;  // of nested batches
  bool stopping_ = false;
  std::thread thread_;
};

// A pool of threads that decode requests and encode replies.
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
