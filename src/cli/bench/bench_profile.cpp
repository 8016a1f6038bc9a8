#include "cli/bench/bench_profile.h"

#include <ATen/record_function.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "core/progress.h"

namespace tessera::cli {

struct Profile::State {
  // A point in time: on a GPU, when its queue comes to it.
  struct Mark {
    double seconds;
    std::optional<c10::Event> event;
  };
  struct Span {
    std::string name;
    size_t start, end, outer;  // places in marks, and of the operation around it
  };
  static constexpr size_t kNone = ~size_t{0};

  explicit State(const torch::Device& on) : device(on) {}
  size_t mark() {
    marks.push_back({steady_seconds(), std::nullopt});
    if (device.is_cpu()) return marks.size() - 1;
    const c10::impl::VirtualGuardImpl guard(device.type());
    marks.back().event.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    marks.back().event->record(guard.getStream(device));
    return marks.size() - 1;
  }
  double between(size_t start, size_t end) const {
    const Mark &from = marks[start], &to = marks[end];
    return from.event ? 1e-3 * from.event->elapsedTime(*to.event) : to.seconds - from.seconds;
  }
  void add_up();

  torch::Device device;
  std::mutex mutex;  // the backward pass on a GPU has a thread of its own
  std::deque<Mark> marks;
  std::deque<Span> spans;
  std::map<std::string, Row> rows;
  at::CallbackHandle handle{};
};

namespace {

// LibTorch's callbacks accept no context: these are the profiles in progress.
std::vector<void*> running;
// The operations of this thread that have begun, as places in spans.
thread_local std::vector<size_t> open;

}  // namespace

Profile::Profile(const torch::Device& device) : state_(std::make_unique<State>(device)) {
  running.push_back(state_.get());
  open.clear();
  const auto callback = at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        State& state = *static_cast<State*>(running.back());
        const std::lock_guard lock(state.mutex);
        state.spans.push_back(
            {function.name(), state.mark(), State::kNone, open.empty() ? State::kNone : open.back()});
        open.push_back(state.spans.size() - 1);
        return nullptr;
      },
      [](const at::RecordFunction&, at::ObserverContext*) {
        if (open.empty() || running.empty()) return;  // began before the profile did
        State& state = *static_cast<State*>(running.back());
        const std::lock_guard lock(state.mutex);
        state.spans[open.back()].end = state.mark();
        open.pop_back();
      });
  state_->handle = device.is_cpu() ? at::addThreadLocalCallback(callback) : at::addGlobalCallback(callback);
}

// Computes the time of each operation without that of the operations within it.
void Profile::State::add_up() {
  if (!marks.empty() && marks.back().event) marks.back().event->synchronize();
  for (const Span& span : spans) {
    if (span.end == kNone) continue;
    const double seconds = between(span.start, span.end);
    Row& row = rows[span.name];
    ++row.calls, row.seconds += seconds;
    if (span.outer != kNone) rows[spans[span.outer].name].seconds -= seconds;
  }
}

void Profile::stop() {
  if (running.empty() || running.back() != state_.get()) return;
  at::removeCallback(state_->handle);
  running.pop_back();
  state_->add_up();
}

Profile::~Profile() { stop(); }

const std::map<std::string, Profile::Row>& Profile::rows() const { return state_->rows; }

}  // namespace tessera::cli
