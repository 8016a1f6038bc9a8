// Events of jobs: their texts and results, and the end of a job that nobody follows.
#include "serve/jobs.h"

#include <gtest/gtest.h>

namespace tessera::serve {
namespace {

class Listener final : public Exchange {
 public:
  void reply(HttpResponse) override {}
  void begin(HttpResponse) override {}
  void part(std::string bytes) override { events += bytes; }
  void end() override { ended = true; }
  void on_gone(std::function<void()>) override {}
  std::string events;
  bool ended = false;
};

// Runs steps as a sampler does: progress, then the question whether to go on. Calls `act` within step 5.
int64_t steps_of(Job& job, const std::function<void()>& act) {
  const answer::Control control = job.control();
  for (int64_t step = 1; step <= 1000; ++step) {
    if (step == 5) act();
    control.progress(step, 1000, {});
    if (control.stopped()) return step;
  }
  return 1000;
}

TEST(Jobs, EndWithinTheStepInWhichTheyAreDeletedOrLeft) {
  Job deleted("a", "m"), left("b", "m"), followed("c", "m");
  const auto one = std::make_shared<Listener>(), other = std::make_shared<Listener>();
  EXPECT_EQ(steps_of(deleted, [&] { deleted.cancel(); }), 5);
  left.listen(one);
  EXPECT_EQ(steps_of(left, [&] { left.leave(one); }), 5);
  followed.listen(one), followed.listen(other);
  EXPECT_EQ(steps_of(followed, [&] { followed.leave(one); }), 1000);
}

TEST(Jobs, EveryListenerGetsTheWholeText) {
  Job job("a", "m");
  const auto first = std::make_shared<Listener>(), late = std::make_shared<Listener>();
  const answer::Control control = job.control();
  job.listen(first, /*with_results=*/true);
  control.text("a ca"), control.progress(1, 2, {});
  job.listen(late);
  control.text("t\n\""), control.progress(2, 2, {});
  job.finish(R"({"answer":"a cat"})");
  EXPECT_NE(first->events.find("event: text\ndata: {\"text\":\"a ca\"}\n\n"), std::string::npos);
  EXPECT_NE(late->events.find("event: text\ndata: {\"text\":\"a ca\"}\n\n"), std::string::npos);
  for (const auto& listener : {first, late}) {
    EXPECT_NE(listener->events.find("event: text\ndata: {\"text\":\"t\\n\\\"\"}\n\n"), std::string::npos);
    EXPECT_TRUE(listener->ended);
  }
  EXPECT_NE(first->events.find("\"results\":{\"answer\":\"a cat\"}}\n\n"), std::string::npos);
  EXPECT_EQ(late->events.find("results"), std::string::npos);
  const auto after = std::make_shared<Listener>();
  job.listen(after);
  EXPECT_NE(after->events.find("{\"text\":\"a cat\\n\\\"\"}"), std::string::npos);
  EXPECT_TRUE(after->ended);
}

}  // namespace
}  // namespace tessera::serve
