#include "plan/layout.h"

#include <algorithm>

namespace tessera::plan {
namespace {

// The passes of a stage, in order.
std::vector<Slot> order_of(int64_t stage, int64_t stages, int64_t microbatches) {
  const int64_t ahead = std::min(microbatches, stages - stage);
  std::vector<Slot> order;
  for (int64_t i = 0; i < ahead; ++i) order.push_back({Work::forward, i});
  for (int64_t i = 0; i < microbatches; ++i) {
    order.push_back({Work::backward, i});
    if (ahead + i < microbatches) order.push_back({Work::forward, ahead + i});
  }
  return order;
}

}  // namespace

Schedule one_forward_one_backward(int64_t stages, int64_t microbatches) {
  const auto p = static_cast<size_t>(stages), m = static_cast<size_t>(microbatches);
  std::vector<std::vector<Slot>> orders;
  for (int64_t stage = 0; stage < stages; ++stage) orders.push_back(order_of(stage, stages, microbatches));
  // The slot after each pass; 0 = not done.
  std::vector<std::vector<size_t>> forward(p, std::vector<size_t>(m)), backward = forward;
  Schedule schedule(p);
  std::vector<size_t> next(p);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < p; ++s) {
      if (next[s] == orders[s].size()) continue;
      const Slot pass = orders[s][next[s]];
      const auto i = static_cast<size_t>(pass.microbatch);
      const bool ahead = pass.work == Work::forward;
      // A pass must wait for the same microbatch on the stage that feeds it.
      const size_t input =
          ahead ? (s == 0 ? 0 : forward[s - 1][i]) : (s + 1 == p ? forward[s][i] : backward[s + 1][i]);
      const bool ready = ahead ? s == 0 || input > 0 : input > 0;
      if (!ready) continue;
      while (schedule[s].size() < input) schedule[s].push_back({});
      for (int slot = 0; slot < (ahead ? 1 : 2); ++slot) schedule[s].push_back(pass);
      (ahead ? forward : backward)[s][i] = schedule[s].size();
      ++next[s];
      moved = true;
    }
  }
  size_t length = 0;
  for (const auto& stage : schedule) length = std::max(length, stage.size());
  for (auto& stage : schedule) stage.resize(length);
  return schedule;
}

double bubble_of(const Schedule& schedule) {
  const auto& first = schedule.at(0);
  const auto idle =
      std::count_if(first.begin(), first.end(), [](const Slot& s) { return s.work == Work::idle; });
  return static_cast<double>(idle) / static_cast<double>(std::ssize(first) - idle);
}

}  // namespace tessera::plan
