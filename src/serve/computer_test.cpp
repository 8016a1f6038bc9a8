// Queues, batches and turns of the computing thread, with a model that only records.
#include "serve/computer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>

#include "core/progress.h"
#include "serve/http.h"

namespace tessera::serve {
namespace {

// Records the batches of all models in one list. A gate holds the first batch until the test has queued the others.
class Recorder final : public answer::Answerer {
 public:
  explicit Recorder(std::string name, bool slow = false) : name_(std::move(name)) {
    description_.slow = slow;
  }

  const answer::Description& description() const override { return description_; }
  std::unique_ptr<answer::Prepared> prepare(const answer::Request&) const override { return nullptr; }
  std::vector<answer::Reply> answer(std::span<answer::Prepared* const> requests,
                                    const answer::Control& control) override {
    {
      std::unique_lock lock(mutex);
      batches.push_back(name_ + std::to_string(requests.size()));
      changed.notify_all();
      changed.wait(lock, [] { return open; });
    }
    if (control.between) control.between();
    std::vector<answer::Reply> replies;
    for (const answer::Prepared* one : requests) {
      if (one->key == "bad") fail("bad");
      replies.emplace_back().results = one->key;
    }
    return replies;
  }

  static inline std::mutex mutex;
  static inline std::condition_variable changed;
  static inline bool open = true;
  static inline std::vector<std::string> batches;

 private:
  std::string name_;
  answer::Description description_;
};

class ComputerTest : public testing::Test {
 protected:
  void SetUp() override { Recorder::open = true, Recorder::batches.clear(); }

  void close() {
    const std::lock_guard lock(Recorder::mutex);
    Recorder::open = false;
  }
  void open_gate() {
    {
      const std::lock_guard lock(Recorder::mutex);
      Recorder::open = true;
    }
    Recorder::changed.notify_all();
  }
  void wait_for_batches(size_t count) {
    std::unique_lock lock(Recorder::mutex);
    Recorder::changed.wait(lock, [&] { return Recorder::batches.size() >= count; });
  }

  bool ask(Computer& computer, size_t queue, const std::shared_ptr<Recorder>& model, const std::string& key,
           double deadline = 1e300, std::function<bool()> cancelled = {}) {
    if (!computer.admit(queue, 10)) return false;
    Work work;
    work.answerer = model;
    work.prepared = std::make_unique<answer::Prepared>();
    work.prepared->key = key;
    work.prepared->bytes = 10;
    work.deadline = deadline;
    work.control.cancelled = std::move(cancelled);
    work.done = [this](std::exception_ptr error, answer::Reply* reply) {
      const std::lock_guard lock(mutex_);
      if (reply) answers_.push_back(reply->results.get<std::string>());
      if (!error) return;
      try {
        std::rethrow_exception(error);
      } catch (const HttpError& one) {
        answers_.push_back("status " + std::to_string(one.status));
      } catch (const Error& one) {
        answers_.push_back(std::string("error ") + one.what());
      }
    };
    return computer.push(queue, 10, std::move(work));
  }

  Metrics metrics_;
  std::mutex mutex_;
  std::vector<std::string> answers_;
};

TEST_F(ComputerTest, EqualRequestsFormBatchesAndAreAnsweredInOrder) {
  const auto model = std::make_shared<Recorder>("m");
  {
    Computer computer(metrics_);
    const size_t queue = computer.queue("m", {.batch = 4, .wait_seconds = 0, .eager = true});
    close();
    ask(computer, queue, model, "first");
    wait_for_batches(1);
    for (const char* key : {"a", "a", "b", "a", "a", "a", "b"}) ask(computer, queue, model, key);
    open_gate();
  }
  EXPECT_EQ(Recorder::batches, (std::vector<std::string>{"m1", "m4", "m2", "m1"}));
  EXPECT_EQ(answers_, (std::vector<std::string>{"first", "a", "a", "a", "a", "b", "b", "a"}));
}

TEST_F(ComputerTest, AFullQueueRefuses) {
  const auto model = std::make_shared<Recorder>("m");
  Computer computer(metrics_);
  const size_t queue = computer.queue("m", {.eager = true, .requests = 3});
  const size_t bytes = computer.queue("bytes", {.eager = true, .requests = 100, .bytes = 25});
  close();
  ask(computer, queue, model, "a");
  wait_for_batches(1);
  EXPECT_TRUE(ask(computer, queue, model, "a"));
  EXPECT_TRUE(ask(computer, queue, model, "a"));
  EXPECT_FALSE(ask(computer, queue, model, "a"));
  EXPECT_TRUE(computer.admit(bytes, 20));
  EXPECT_FALSE(computer.admit(bytes, 20));
  computer.withdraw(bytes, 20);
  EXPECT_TRUE(computer.admit(bytes, 1000));  // alone it fits
  computer.withdraw(bytes, 1000);
  open_gate();
}

TEST_F(ComputerTest, ModelsTakeTurns) {
  const auto a = std::make_shared<Recorder>("a"), b = std::make_shared<Recorder>("b");
  {
    Computer computer(metrics_);
    const size_t first = computer.queue("a", {.eager = true}), second = computer.queue("b", {.eager = true});
    close();
    ask(computer, first, a, "0");
    wait_for_batches(1);
    for (int i = 0; i < 3; ++i) ask(computer, first, a, "0");
    for (int i = 0; i < 3; ++i) ask(computer, second, b, "0");
    open_gate();
  }
  // Each batch of the loop lets the other model compute one between its steps: a b, b a, a b, a.
  EXPECT_EQ(Recorder::batches, (std::vector<std::string>{"a1", "b1", "b1", "a1", "a1", "b1", "a1"}));
}

TEST_F(ComputerTest, SlowWorkDoesNotBeginWithinOtherWork) {
  const auto drawing = std::make_shared<Recorder>("drawing", true),
             chat = std::make_shared<Recorder>("chat", true), quick = std::make_shared<Recorder>("quick");
  {
    Computer computer(metrics_);
    const size_t first = computer.queue("drawing", {.eager = true}),
                 second = computer.queue("chat", {.eager = true}),
                 third = computer.queue("quick", {.eager = true});
    close();
    ask(computer, first, drawing, "0");
    wait_for_batches(1);
    ask(computer, second, chat, "0");
    ask(computer, third, quick, "0");
    open_gate();
  }
  EXPECT_EQ(Recorder::batches, (std::vector<std::string>{"drawing1", "quick1", "chat1"}));
}

TEST_F(ComputerTest, OneFaultHarmsNoOther) {
  const auto model = std::make_shared<Recorder>("m");
  {
    Computer computer(metrics_);
    const size_t queue = computer.queue("m", {.batch = 8, .wait_seconds = 10});
    for (int i = 0; i < 7; ++i) ask(computer, queue, model, "bad");
    ask(computer, queue, model, "bad");
  }
  EXPECT_EQ(Recorder::batches.size(), 9u);  // the batch, then each alone
  EXPECT_EQ(answers_, std::vector<std::string>(8, "error bad"));
}

TEST_F(ComputerTest, LateAndLeftRequestsAreNotComputed) {
  const auto model = std::make_shared<Recorder>("m");
  {
    Computer computer(metrics_);
    const size_t queue = computer.queue("m", {.batch = 2, .eager = true});
    close();
    ask(computer, queue, model, "first");
    wait_for_batches(1);
    ask(computer, queue, model, "late", /*deadline=*/0);
    ask(computer, queue, model, "left", 1e300, [] { return true; });
    ask(computer, queue, model, "good");
    open_gate();
  }
  EXPECT_EQ(Recorder::batches, (std::vector<std::string>{"m1", "m1"}));
  EXPECT_EQ(answers_, (std::vector<std::string>{"first", "status 503", "status 503", "good"}));
}

TEST_F(ComputerTest, TheEndWaitsForAllThatWasAdmitted) {
  const auto model = std::make_shared<Recorder>("m");
  for (int round = 0; round < 50; ++round) {
    answers_.clear();
    Computer computer(metrics_);
    const size_t queue = computer.queue("m", {.batch = 3, .wait_seconds = 0.001});
    for (int i = 0; i < 20; ++i) ask(computer, queue, model, std::to_string(i % 2));
  }
  EXPECT_EQ(answers_.size(), 20u);
}

TEST_F(ComputerTest, RunsInItsThreadAndRethrows) {
  Computer computer(metrics_);
  std::thread::id inside;
  computer.run([&] { inside = std::this_thread::get_id(); });
  EXPECT_NE(inside, std::this_thread::get_id());
  EXPECT_THROW(computer.run([] { fail("x"); }), Error);
}

}  // namespace
}  // namespace tessera::serve
