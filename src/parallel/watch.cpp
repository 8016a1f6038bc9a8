#include "parallel/watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera::parallel {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook(400);      // between two looks at the alarm
constexpr milliseconds kAnswers(1000);  // in which living processes have answered it
constexpr milliseconds kStore(2000);    // in which the store itself has answered
constexpr const char* kAlarm = "alarm";

std::string answer_key(int rank) { return "answer/" + std::to_string(rank); }

std::string string_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<uint8_t> store_bytes(const std::string& words) { return {words.begin(), words.end()}; }

}  // namespace

Watch::Watch(Connect connect, int rank, int size, bool served)
    : connect_(std::move(connect)), rank_(rank), size_(size), served_(served), thread_([this] { run(); }) {}

void Watch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

int64_t Watch::begin(const std::string& channel) {
  const std::lock_guard lock(mutex_);
  return ++begun_[channel];
}

std::string Watch::state() const {
  const std::lock_guard lock(mutex_);
  std::string out = printable(failure_, 1000) + "\n";
  for (const auto& [channel, count] : begun_) out += channel + "\t" + std::to_string(count) + "\n";
  return out;
}

Watch::Answer Watch::read_answer(const std::string& bytes) {
  Answer answer;
  const std::vector<std::string> lines = split(bytes, '\n');
  if (!lines.empty()) answer.failure = lines[0];
  for (size_t i = 1; i < lines.size(); ++i)
    if (const auto parts = split(lines[i], '\t'); parts.size() == 2)
      answer.begun[parts[0]] = parse_int(parts[1]).value_or(0);
  return answer;
}

void Watch::run() {
  c10::intrusive_ptr<c10d::Store> store;
  while (true) {
    bool asked = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLook, [&] { return stopping_ || asked_ || !store; });
      if (stopping_) return;
      asked = asked_;
    }
    try {
      if (!store) store = connect_();
      if (act(*store, asked)) return;
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      store_lost_ = true;  // explain() names the process that kept it
      changed_.notify_all();
      return;
    }
  }
}

// An answer is in the store before its alarm, and a process answers an alarm only once it has read the answers so
// far. So a process that ends early, with the store, is not taken for a dead one.
bool Watch::act(c10d::Store& store, bool asked) {
  if (!asked && !store.check({kAlarm})) return false;
  std::vector<std::optional<Answer>> answers(static_cast<size_t>(size_));
  try {
    if (!asked) read_answers(store, answers);
    store.set(answer_key(rank_), store_bytes(state()));
    if (asked) store.set(kAlarm, store_bytes("1"));
    const auto end = std::chrono::steady_clock::now() + kAnswers;
    while (!read_answers(store, answers) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(milliseconds(20));
  } catch (const std::exception&) {
    if (!answers[0]) throw;  // the store is lost without an alarm from the process that keeps it
  }
  const std::lock_guard lock(mutex_);
  answers_ = std::move(answers);
  collected_ = true;
  changed_.notify_all();
  return true;
}

// Adds answers that have come; true if all have.
bool Watch::read_answers(c10d::Store& store, std::vector<std::optional<Answer>>& answers) const {
  bool all = true;
  for (int rank = 0; rank < size_; ++rank) {
    auto& answer = answers[static_cast<size_t>(rank)];
    const std::string key = answer_key(rank);
    if (!answer && store.check({key})) answer = read_answer(string_of(store.get(key)));
    all = all && answer;
  }
  return all;
}

std::string Watch::explain(const Collective& exchange, const std::string& channel,
                           const std::vector<int>& members, double waited, const std::string& cause) {
  std::unique_lock lock(mutex_);
  asked_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kStore, [&] { return collected_ || store_lost_; });
  const std::string what =
      text("exchange ", exchange.number, " on axis '", exchange.axis, "' (", exchange.kind, ", ",
           human_bytes(static_cast<uint64_t>(std::max<int64_t>(0, exchange.bytes))), ") has waited ",
           fixed(waited, 1), " s for ");
  if (!collected_)
    return served_ ? text(what, "the launcher's store, which does not answer")
                   : text(what, "process 0, which is dead or stopped");
  std::vector<std::string> silent, late;
  for (const int member : members) {
    if (member == rank_) continue;
    const auto& answer = answers_[static_cast<size_t>(member)];
    if (answer && !answer->failure.empty())
      return text(what, "process ", member, ", which failed: ", answer->failure);
    const std::string number = std::to_string(member);
    if (!answer)
      silent.push_back(number);
    else if (const auto begun = answer->begun.find(channel);
             begun == answer->begun.end() || begun->second < exchange.number)
      late.push_back(number);
  }
  const auto processes = [](const std::vector<std::string>& ranks) {
    return text(ranks.size() == 1 ? "process " : "processes ", join(ranks, ", "));
  };
  if (!silent.empty())
    return text(what, processes(silent), silent.size() == 1 ? ", which is" : ", which are",
                " dead or stopped");
  if (!late.empty()) return text(what, processes(late), ", which did not come to it");
  return text(what, "the others, which all came to it: ", printable(cause));
}

void Watch::publish_failure(const std::string& line) {
  std::unique_lock lock(mutex_);
  failure_ = line;
  asked_ = true;
  changed_.notify_all();
  // The others read it before this process ends, which may serve the store.
  changed_.wait_for(lock, kAnswers, [&] { return collected_ || store_lost_; });
}

}  // namespace tessera::parallel
