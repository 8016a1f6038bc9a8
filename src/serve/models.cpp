#include "serve/models.h"

#include <algorithm>
#include <filesystem>

#include "core/progress.h"
#include "core/text.h"
#include "serve/http.h"

namespace tessera::serve {
namespace {

namespace fs = std::filesystem;

constexpr double kLongestMeasure = 2, kGain = 1.05, kEagerWait = 0.005;  // seconds, ratio, seconds

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 128 && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

std::string name_of_path(const std::string& path) {
  fs::path place = fs::path(path).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  if (fs::is_directory(path)) return place.filename().string();
  const std::string stem = place.stem().string();
  return stem == "model" || stem == "best" ? place.parent_path().filename().string() : stem;
}

}  // namespace

std::vector<ModelPath> model_paths(const std::vector<std::string>& words) {
  std::vector<ModelPath> paths;
  for (const std::string& word : words) {
    const size_t sign = word.find('=');
    const bool named = sign != std::string::npos && is_name(word.substr(0, sign));
    ModelPath one{named ? word.substr(0, sign) : name_of_path(word), named ? word.substr(sign + 1) : word};
    if (!is_name(one.name))
      fail_usage("'", printable(word),
                 "' has no name of letters, digits, '.', '_' and '-': give it one by NAME=PATH");
    for (const ModelPath& other : paths)
      if (other.name == one.name)
        fail_usage("'", other.weights, "' and '", one.weights, "' would both be model '", one.name,
                   "': give one another name by NAME=PATH");
    paths.push_back(std::move(one));
  }
  return paths;
}

int64_t best_batch(answer::Answerer& answerer, int64_t most) {
  int64_t best = 1;
  double best_rate = 0;
  for (int64_t rows = 1; rows <= most; rows *= 2) {
    if (!answerer.rehearse(rows)) return 1;
    double seconds = 1e9;
    for (int i = 0; i < 2; ++i) {
      const double began = steady_seconds();
      answerer.rehearse(rows);
      seconds = std::min(seconds, steady_seconds() - began);
    }
    const double rate = static_cast<double>(rows) / seconds;
    if (rate > kGain * best_rate) best = rows, best_rate = rate;
    if (seconds > kLongestMeasure / 4) break;
  }
  return best;
}

Models::Models(std::vector<ModelPath> paths, answer::OpenRequest how, BatchOptions batches,
               Computer& computer, OpenAnswerers open_answerers)
    : paths_(std::move(paths)),
      how_(std::move(how)),
      batches_(batches),
      computer_(computer),
      open_answerers_(std::move(open_answerers)) {}

QueueLimits Models::limits_of(answer::Answerer& answerer) const {
  QueueLimits limits{.requests = batches_.requests, .bytes = batches_.bytes};
  limits.batch = batches_.batch;
  if (limits.batch == 0) computer_.run([&] { limits.batch = best_batch(answerer, how_.batch); });
  limits.eager = batches_.wait_ms < 0;
  limits.wait_seconds = limits.eager ? kEagerWait : batches_.wait_ms / 1000;
  return limits;
}

std::vector<std::string> Models::open() {
  std::vector<std::string> lines;
  auto table = std::make_shared<ModelTable>();
  for (const ModelPath& path : paths_) {
    answer::OpenRequest request = how_;
    request.weights = path.weights;
    // An index holds the vectors of one model.
    if (!request.index.empty() && paths_.size() > 1) request.index += "." + path.name;
    std::vector<std::string> answers;
    std::optional<QueueLimits> limits;
    for (const answer::NamedAnswerer& one : open_answerers_(request, lines)) {
      const std::string name = path.name + one.suffix;
      if (!limits) {
        const auto known = limits_.find(path.name);
        limits = known != limits_.end() ? known->second : limits_of(*one.answerer);
        limits_[path.name] = *limits;
      }
      if (!table->emplace(name, ServedAnswer{one.answerer, computer_.queue(name, *limits)}).second)
        fail_usage("two models would be '", name, "': give one another name by NAME=PATH");
      answers.push_back(name + " (" + one.answerer->description().kind + ")");
    }
    lines.push_back(
        text("model    ", join(answers, ", "), " of ", path.weights, ", batches of up to ", limits->batch));
  }
  const bool searches = std::ranges::any_of(
      *table, [](const auto& entry) { return entry.second.answerer->description().kind == "retrieve"; });
  if (!how_.gallery.empty() && !searches)
    fail_usage("--gallery is for models of images and texts (task clip or coca): none is served");
  const std::lock_guard lock(mutex_);
  table_ = std::move(table);
  return lines;
}

std::shared_ptr<const ModelTable> Models::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

ServedAnswer Models::find(const std::string& name) const {
  const std::shared_ptr<const ModelTable> table = this->table();
  if (const auto found = table->find(name); found != table->end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [one, ignored] : *table) known.push_back(one);
  throw HttpError(404, text("there is no model '", printable(name), "', it must be ", some_of(known, 8),
                            did_you_mean(name, known)));
}

}  // namespace tessera::serve
