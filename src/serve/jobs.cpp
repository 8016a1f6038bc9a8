#include "serve/jobs.h"

#include <sys/random.h>

#include <algorithm>

#include "core/progress.h"
#include "core/text.h"

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kKeptSeconds = 600, kPreviewSeconds = 0.5, kTextSeconds = 0.5;
constexpr size_t kKeptJobs = 64, kKeptBytes = size_t{256} << 20;

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Random, so that nobody can guess the id of another client's job.
std::string random_id() {
  uint64_t words[2] = {};
  if (::getrandom(words, sizeof words, 0) != sizeof words) fail("the system has no random numbers");
  char id[33];
  std::snprintf(id, sizeof id, "%016lx%016lx", words[0], words[1]);
  return id;
}

}  // namespace

Job::Job(std::string id, std::string model) : id_(std::move(id)), model_(std::move(model)) {}

answer::Control Job::control() {
  return {.cancelled = [this] { return cancelled_.load(); },
          .progress = [this](int64_t step, int64_t steps,
                             const std::function<Image()>& preview) { progress(step, steps, preview); },
          .text = [this](std::string_view piece) { write(piece); }};
}

void Job::progress(int64_t step, int64_t steps, const std::function<Image()>& preview) {
  const double now = steady_seconds();
  std::string drawn;
  const bool draws = now - drawn_ >= kPreviewSeconds && preview;
  if (draws)
    if (const Image image = preview(); !image.pixels.empty()) drawn = to_base64(encode_png(image));
  const std::lock_guard lock(mutex_);
  if (began_ == 0) began_ = now;
  state_ = "running", step_ = step, steps_ = steps;
  if (draws) preview_ = std::move(drawn), drawn_ = now;
  // A text is its own progress: few lines next to it.
  if (!text_.empty() && now - told_ < kTextSeconds) return;
  told_ = now;
  Json event = status_now();
  if (draws && !preview_.empty()) event["preview"] = preview_;
  send("progress", dump(event));
}

void Job::write(std::string_view piece) {
  const std::lock_guard lock(mutex_);
  text_ += piece;
  send("text", dump({{"text", piece}}));
}

void Job::send(const std::string& event, const std::string& data) {
  for (const auto& listener : listeners_)
    listener.exchange->part("event: " + event + "\ndata: " + data + "\n\n");
}

void Job::end(const std::string& state) {
  if (finished_ > 0) return;
  state_ = state, finished_ = steady_seconds();
  for (const auto& [listener, with_results] : listeners_) {
    listener->part("event: " + state +
                   "\ndata: " + (with_results ? status_with_results() : dump(status_now())) + "\n\n");
    listener->end();
  }
  listeners_.clear();
}

void Job::finish(std::string results) {
  const std::lock_guard lock(mutex_);
  results_ = std::move(results);
  end("done");
}

void Job::fail(const std::string& message) {
  const std::lock_guard lock(mutex_);
  error_ = message;
  end(cancelled_ ? "cancelled" : "failed");
}

void Job::cancel() { cancelled_ = true; }

bool Job::over() const { return finished() > 0; }

double Job::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

size_t Job::bytes() const {
  const std::lock_guard lock(mutex_);
  return results_.size() + preview_.size() + text_.size();
}

Json Job::status_now() const {
  Json status = {{"id", id_}, {"model", model_}, {"state", state_}, {"step", step_}, {"steps", steps_}};
  // The first step is not counted: it may have waited for memory.
  if (state_ == "running" && step_ > 1)
    status["seconds_left"] =
        (steady_seconds() - began_) / static_cast<double>(step_ - 1) * static_cast<double>(steps_ - step_);
  if (!error_.empty()) status["error"] = error_;
  return status;
}

std::string Job::status(bool with_results) const {
  const std::lock_guard lock(mutex_);
  return with_results ? status_with_results() : dump(status_now());
}

std::string Job::status_with_results() const {
  std::string text = dump(status_now());
  if (!results_.empty()) text.replace(text.size() - 1, 1, ",\"results\":" + results_ + "}");
  return text;
}

void Job::listen(const std::shared_ptr<Exchange>& exchange, bool with_results) {
  const std::lock_guard lock(mutex_);
  exchange->begin({.type = "text/event-stream", .headers = {{"Cache-Control", "no-store"}}});
  if (!text_.empty()) exchange->part("event: text\ndata: " + dump({{"text", text_}}) + "\n\n");
  const bool over = finished_ > 0;
  exchange->part("event: " + std::string(over ? state_ : "progress") +
                 "\ndata: " + (over && with_results ? status_with_results() : dump(status_now())) + "\n\n");
  if (over) return exchange->end();
  listeners_.push_back({exchange, with_results});
}

void Job::leave(const std::shared_ptr<Exchange>& exchange) {
  const std::lock_guard lock(mutex_);
  listeners_.remove_if([&](const Listener& one) { return one.exchange == exchange; });
  if (listeners_.empty()) cancelled_ = true;
}

std::shared_ptr<Job> Jobs::add(const std::string& model) {
  forget_old();
  const std::lock_guard lock(mutex_);
  const auto alive = std::ranges::count_if(jobs_, [](const auto& job) { return !job->over(); });
  if (alive >= most_) throw HttpError(429, text(alive, " jobs are not done, no more are accepted"));
  return jobs_.emplace_back(std::make_shared<Job>(random_id(), model));
}

std::shared_ptr<Job> Jobs::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  for (const auto& job : jobs_)
    if (job->id() == id) return job;
  throw HttpError(404, "there is no job '" + printable(id) + "'");
}

void Jobs::cancel_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& job : jobs_) job->cancel();
}

void Jobs::forget_old() {
  const std::lock_guard lock(mutex_);
  const double now = steady_seconds();
  std::erase_if(jobs_, [&](const auto& job) { return job->over() && now - job->finished() > kKeptSeconds; });
  size_t bytes = 0;
  for (const auto& job : jobs_) bytes += job->bytes();
  for (auto job = jobs_.begin(); job != jobs_.end() && (jobs_.size() > kKeptJobs || bytes > kKeptBytes);) {
    if (!(*job)->over()) {
      ++job;
      continue;
    }
    bytes -= (*job)->bytes();
    job = jobs_.erase(job);
  }
}

}  // namespace tessera::serve
