#include "serve/computer.h"

#include <algorithm>
#include <future>
#include <limits>

#include "core/progress.h"
#include "serve/http.h"

namespace tessera::serve {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNewShare = 0.1;  // weight of the latest batch in the running mean

void complete(Work& work, std::exception_ptr error, answer::Reply* reply) {
  if (const auto done = std::exchange(work.done, nullptr)) done(std::move(error), reply);
}

}  // namespace

Computer::Computer(Metrics& metrics) : metrics_(metrics), thread_([this] { loop(); }) {}

Computer::~Computer() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

size_t Computer::queue(const std::string& name, const QueueLimits& limits) {
  const Lock lock(mutex_);
  for (size_t i = 0; i < queues_.size(); ++i)
    if (queues_[i].name == name) {
      queues_[i].limits = limits;
      return i;
    }
  queues_.emplace_back().name = name;
  queues_.back().limits = limits;
  return queues_.size() - 1;
}

bool Computer::admit(size_t index, size_t bytes) {
  const Lock lock(mutex_);
  Queue& queue = queues_[index];
  const bool full = queue.admitted >= queue.limits.requests ||
                    (queue.admitted > 0 && queue.bytes + bytes > queue.limits.bytes);
  if (full) return false;
  ++queue.admitted, queue.bytes += bytes;
  return true;
}

void Computer::withdraw(size_t index, size_t bytes) {
  {
    const Lock lock(mutex_);
    --queues_[index].admitted, queues_[index].bytes -= bytes;
  }
  changed_.notify_all();
}

bool Computer::push(size_t index, size_t admitted_bytes, Work work) {
  {
    const Lock lock(mutex_);
    Queue& queue = queues_[index];
    queue.bytes -= admitted_bytes;
    if (queue.admitted > 1 && queue.bytes + work.prepared->bytes > queue.limits.bytes) {
      --queue.admitted;
      return false;
    }
    queue.bytes += work.prepared->bytes;
    work.queued = steady_seconds();
    queue.waiting.push_back(std::move(work));
  }
  changed_.notify_all();
  return true;
}

double Computer::expected_seconds(size_t index) const {
  const Lock lock(mutex_);
  double seconds = 0;
  for (const Queue& queue : queues_)
    if (&queue == &queues_[index] || !queue.waiting.empty())
      seconds += queue.seconds_each * static_cast<double>(queue.admitted);
  return seconds;
}

void Computer::run(const std::function<void()>& act) {
  std::packaged_task<void()> task(act);
  std::future<void> done = task.get_future();
  {
    const Lock lock(mutex_);
    acts_.push_back([&task] { task(); });
  }
  changed_.notify_all();
  done.get();
}

void Computer::measure_queues() const {
  const Lock lock(mutex_);
  for (const Queue& queue : queues_) {
    metrics_.set("tessera_queue_requests", "Requests that wait or are decoded.", {{"model", queue.name}},
                 static_cast<double>(queue.admitted));
    metrics_.set("tessera_queue_bytes", "Bytes that they hold.", {{"model", queue.name}},
                 static_cast<double>(queue.bytes));
  }
}

bool Computer::is_ready(const Queue& queue, double now) {
  if (queue.busy || queue.waiting.empty()) return false;
  int64_t rows = 0;
  for (const Work& work : queue.waiting) rows += work.prepared->rows;
  const bool all_here = std::ssize(queue.waiting) == queue.admitted;
  return rows >= queue.limits.batch || now >= queue.waiting.front().queued + queue.limits.wait_seconds ||
         (queue.limits.eager && all_here);
}

Computer::Queue* Computer::ready_queue(double now) {
  for (size_t i = 1; i <= queues_.size(); ++i) {
    const size_t index = (last_ + i) % queues_.size();
    if (!is_ready(queues_[index], now)) continue;
    last_ = index;
    return &queues_[index];
  }
  return nullptr;
}

double Computer::next_time() const {
  double time = kNever;
  for (const Queue& queue : queues_)
    if (!queue.waiting.empty())
      time = std::min(time, queue.waiting.front().queued + queue.limits.wait_seconds);
  return time;
}

void Computer::loop() {
  Lock lock(mutex_);
  for (;;) {
    if (!acts_.empty()) {
      const std::function<void()> act = std::move(acts_.front());
      acts_.pop_front();
      lock.unlock();
      act();
      lock.lock();
      continue;
    }
    if (Queue* queue = ready_queue(steady_seconds())) {
      compute_batch(lock, *queue);
      continue;
    }
    const bool idle = std::ranges::all_of(queues_, [](const Queue& queue) { return queue.admitted == 0; });
    if (stopping_ && idle) return;
    if (const double time = next_time(); time < kNever)
      changed_.wait_for(lock, std::chrono::duration<double>(std::max(0.0, time - steady_seconds())));
    else if (stopping_)
      changed_.wait_for(lock, std::chrono::milliseconds(20));  // a decoder may still push or withdraw
    else
      changed_.wait(lock);
  }
}

std::vector<Work> Computer::take_batch(Queue& queue, std::vector<Work>& refused) {
  std::vector<Work> batch;
  int64_t rows = 0;
  const double now = steady_seconds();
  for (auto work = queue.waiting.begin(); work != queue.waiting.end();) {
    const bool over = work->control.stopped() || now > work->deadline;
    const bool fits = batch.empty() ||
                      (work->answerer == batch[0].answerer && work->prepared->key == batch[0].prepared->key &&
                       rows + work->prepared->rows <= queue.limits.batch);
    if (!over && !fits) {
      ++work;
      continue;
    }
    if (!over) rows += work->prepared->rows;
    (over ? refused : batch).push_back(std::move(*work));
    work = queue.waiting.erase(work);
    if (rows >= queue.limits.batch) break;
  }
  return batch;
}

void Computer::compute_batch(Lock& lock, Queue& queue) {
  std::vector<Work> refused, batch = take_batch(queue, refused);
  queue.busy = true, ++depth_;
  lock.unlock();
  size_t bytes = 0;
  const auto count = std::ssize(refused) + std::ssize(batch);
  for (const auto* list : {&refused, &batch})
    for (const Work& work : *list) bytes += work.prepared->bytes;
  for (Work& work : refused)
    complete(work,
             std::make_exception_ptr(
                 HttpError(503, "the request waited longer than its time: the server is busy")),
             nullptr);
  const double began = steady_seconds();
  if (!batch.empty()) answer(queue, batch);
  const double each =
      (steady_seconds() - began) / static_cast<double>(std::max<int64_t>(1, std::ssize(batch)));
  lock.lock();
  if (!batch.empty()) queue.seconds_each += kNewShare * (each - queue.seconds_each);
  queue.busy = false, --depth_;
  queue.admitted -= count, queue.bytes -= bytes;
}

void Computer::answer(Queue& queue, std::vector<Work>& batch) {
  const double began = steady_seconds();
  std::vector<answer::Prepared*> prepared;
  int64_t rows = 0;
  for (const Work& work : batch) {
    prepared.push_back(work.prepared.get());
    rows += work.prepared->rows;
    metrics_.observe("tessera_stage_seconds", "Seconds of a request in a stage.",
                     {{"model", queue.name}, {"stage", "queue"}}, began - work.queued,
                     Metrics::seconds_bounds());
  }
  metrics_.observe("tessera_batch_images", "Images of a batch.", {{"model", queue.name}},
                   static_cast<double>(rows), Metrics::batch_bounds());
  if (depth_ == 1)
    for (Work& work : batch) work.control.between = [this] { serve_others(); };
  if (batch.size() == 1) {
    answer_alone(batch[0]);
  } else {
    try {
      // No caller may cancel the answers of the others in its batch.
      std::vector<answer::Reply> replies =
          batch[0].answerer->answer(prepared, {.between = batch[0].control.between});
      for (size_t i = 0; i < batch.size(); ++i) complete(batch[i], nullptr, &replies.at(i));
    } catch (...) {
      for (Work& work : batch) answer_alone(work);  // one of the requests is at fault
    }
  }
  metrics_.observe("tessera_stage_seconds", "Seconds of a request in a stage.",
                   {{"model", queue.name}, {"stage", "compute"}}, steady_seconds() - began,
                   Metrics::seconds_bounds());
}

void Computer::answer_alone(Work& work) {
  if (!work.done) return;
  try {
    answer::Prepared* const one = work.prepared.get();
    std::vector<answer::Reply> replies = work.answerer->answer({&one, 1}, work.control);
    complete(work, nullptr, &replies.at(0));
  } catch (...) {
    complete(work, std::current_exception(), nullptr);
  }
}

// Between two steps of long work, every other model may compute one batch, unless it is slow: the long work, its
// callers who leave, and all other models would wait for its end.
void Computer::serve_others() {
  Lock lock(mutex_);
  for (size_t i = 0; i < queues_.size(); ++i)
    if (is_ready(queues_[i], steady_seconds()) && !queues_[i].waiting.front().answerer->description().slow)
      compute_batch(lock, queues_[i]);
}

}  // namespace tessera::serve
