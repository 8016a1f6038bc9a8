#include "cli/bench/bench_profile.h"

#include <ATen/record_function.h>

#include <vector>

#include "core/progress.h"

namespace tessera::cli {

struct Profile::State {
  struct Open {
    double start, inside;
  };
  std::vector<Open> open;
  std::map<std::string, Row> rows;
  at::CallbackHandle handle{};
};

namespace {

// LibTorch's callbacks accept no context: this is the profile that the thread runs.
thread_local std::vector<void*> running;

}  // namespace

Profile::Profile() : state_(std::make_unique<State>()) {
  running.push_back(state_.get());
  state_->handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        static_cast<State*>(running.back())->open.push_back({steady_seconds(), 0});
        return nullptr;
      },
      [](const at::RecordFunction& function, at::ObserverContext*) {
        State& state = *static_cast<State*>(running.back());
        if (state.open.empty()) return;  // began before the profile did
        const State::Open done = state.open.back();
        state.open.pop_back();
        const double seconds = steady_seconds() - done.start;
        Row& row = state.rows[function.name()];
        ++row.calls;
        row.seconds += seconds - done.inside;
        if (!state.open.empty()) state.open.back().inside += seconds;
      }));
}

void Profile::stop() {
  if (running.empty() || running.back() != state_.get()) return;
  at::removeCallback(state_->handle);
  running.pop_back();
}

Profile::~Profile() { stop(); }

const std::map<std::string, Profile::Row>& Profile::rows() const { return state_->rows; }

}  // namespace tessera::cli
