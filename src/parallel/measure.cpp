#include "parallel/measure.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/progress.h"

namespace tessera::parallel {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Wakes every few milliseconds and adds up the time by which it woke too late.
class Pulse {
 public:
  Pulse() : thread_([this] { run(); }) {}
  ~Pulse() {
    stopping_ = true;
    thread_.join();
  }
  Pulse(const Pulse&) = delete;
  // Returns the share of the time so far during which the process was stopped. Short delays, which a busy
  // scheduler explains, do not count.
  double still() const {
    const double all = steady_seconds() - began_;
    return all > 0 ? still_ / all : 0;
  }

 private:
  void run() {
    constexpr double kNap = 2e-3, kLate = 25e-3;
    while (!stopping_) {
      const double before = steady_seconds();
      std::this_thread::sleep_for(std::chrono::duration<double>(kNap));
      const double late = steady_seconds() - before - kNap;
      if (late > kLate) still_ = still_ + late;
    }
  }
  const double began_ = steady_seconds();
  std::atomic<double> still_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// Returns the processor seconds of a fixed chain of integer products, the least of 25. Slow cores need more. Busy
// ones do not: each product needs the one before, so that the other thread of a core takes nothing away.
double work_seconds() {
  const auto processor_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  std::vector<double> rounds;
  volatile uint64_t kept = 1;
  for (int round = 0; round < 25; ++round) {
    const double before = processor_seconds();
    uint64_t x = kept;
    for (int i = 0; i < 1000000; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
    kept = x;
    rounds.push_back(processor_seconds() - before);
  }
  return *std::min_element(rounds.begin(), rounds.end());
}

// One kind of exchange with tensors of one size.
struct Trial {
  const char* kind;
  std::function<Axis::Wait()> start;
  std::function<bool()> right;    // true if the result is right
  std::function<void()> prepare;  // called before each start
};

// Returns a trial for each kind. All values of process r are r + 1, so that each result is known.
std::vector<Trial> trials_of(const Axis& axis, int64_t bytes, torch::Device device) {
  const int64_t n = axis.size(), rank = axis.rank(), rows = std::max<int64_t>(1, bytes / 4 / n);
  const auto options = torch::TensorOptions(torch::kFloat32).device(device);
  const auto value = [](int64_t r) { return static_cast<double>(r + 1); };
  const torch::Tensor own = torch::full({rows, 1}, value(rank), options), part = torch::empty_like(own),
                      whole = torch::full({rows * n, 1}, value(rank), options),
                      into = torch::empty_like(whole);
  const std::vector<int64_t> counts(static_cast<size_t>(n), rows);
  const double total = static_cast<double>(n * (n + 1)) / 2;
  const auto is = [](const torch::Tensor& tensor, double want) { return tensor.eq(want).all().item<bool>(); };
  const auto is_each = [=] {
    bool right = true;
    for (int64_t r = 0; r < n; ++r) right = right && is(into.narrow(0, r * rows, rows), value(r));
    return right;
  };
  const auto nothing = [] {};
  const auto fill = [=] { into.fill_(value(rank)); };
  return {
      {kSum, [=, &axis] { return axis.start_sum(into); }, [=] { return is(into, total); }, fill},
      {kGather, [=, &axis] { return axis.start_gather(own, into, counts); }, is_each, nothing},
      {kScatter, [=, &axis] { return axis.start_scatter_sum(whole, part, counts); },
       [=] { return is(part, total); }, nothing},
      {kExchange, [=, &axis] { return axis.start_exchange(whole, counts, into, counts); }, is_each, nothing},
      {kRing, [=, &axis] { return axis.start_shift(whole, into); },
       [=] { return is(into, value((rank + n - 1) % n)); }, nothing},
      {kBroadcast, [=, &axis] { return axis.start_broadcast(into); }, [=] { return is(into, value(0)); },
       fill}};
}

// Waits until a GPU has done all its work, so that the host's clock measures it.
void settle(torch::Device device) {
  if (device.is_cuda()) torch::zeros({1}, device).item<float>();
}

MeasuredExchange measure(World& world, const Axis& axis, const Trial& trial, int64_t bytes,
                         const MeasureOptions& options) {
  const auto once = [&] {
    trial.prepare();
    settle(options.device);
    const double before = steady_seconds();
    trial.start()();
    settle(options.device);
    return steady_seconds() - before;
  };
  const torch::Tensor first = torch::tensor({once(), trial.right() ? 0.0 : 1.0}, torch::kFloat64);
  world.sum(first);
  const double expected = first[0].item<double>() / world.size();
  const auto rounds = static_cast<int>(std::clamp(options.seconds / std::max(expected, 1e-6), 3.0, 200.0));
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(once());
  const torch::Tensor mean = torch::tensor({median(times), trial.right() ? 0.0 : 1.0}, torch::kFloat64);
  world.sum(mean);
  return {axis.name(),
          trial.kind,
          axis.size(),
          bytes,
          mean[0].item<double>() / world.size(),
          first[1].item<double>() + mean[1].item<double>() == 0};
}

std::vector<const Axis*> axes_of(const World& world) {
  std::vector<const Axis*> axes;
  for (size_t i = 0; i < kAxes; ++i)
    if (const Axis& axis = world.axis(static_cast<AxisName>(i)); axis.size() > 1) axes.push_back(&axis);
  std::set<std::string> names;
  for (const Axis* axis : axes) names.insert(axis->name());
  for (const Axis* product : {&world.samples(), &world.holders()})
    if (product->size() > 1 && names.insert(product->name()).second) axes.push_back(product);
  return axes;
}

// Marks processes far above the median: those that need 1.5 times its arithmetic time, or were stopped for 0.15 of
// the time more.
void mark_slow(std::vector<MeasuredProcess>& processes) {
  std::vector<double> still, work;
  for (const MeasuredProcess& one : processes) still.push_back(one.still), work.push_back(one.work_seconds);
  const double usual_still = median(still), usual_work = median(work);
  for (MeasuredProcess& one : processes)
    one.slow = one.still > usual_still + 0.15 || one.work_seconds > 1.5 * usual_work;
}

}  // namespace

MeasuredCluster measure_cluster(World& world, const MeasureOptions& options) {
  MeasuredCluster out;
  double still = 0;
  double work = work_seconds();
  {
    const Pulse pulse;
    for (const Axis* axis : axes_of(world))
      for (const int64_t bytes : options.sizes)
        for (const Trial& trial : trials_of(*axis, bytes, options.device))
          out.exchanges.push_back(measure(world, *axis, trial, bytes, options));
    still = pulse.still();
  }
  work = std::min(work, work_seconds());  // at another moment
  const torch::Tensor all = torch::zeros({world.size(), 2}, torch::kFloat64);
  all[world.rank()][0] = still, all[world.rank()][1] = work;
  world.sum(all);
  for (int rank = 0; rank < world.size(); ++rank)
    out.processes.push_back({rank, world.machines().at(static_cast<size_t>(rank)),
                             all[rank][0].item<double>(), all[rank][1].item<double>(), false});
  mark_slow(out.processes);
  return out;
}

}  // namespace tessera::parallel
