#include "tasks/base/task.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"

namespace tessera::tasks {
namespace {

class Alone final : public Collective {
 public:
  torch::Tensor gather(const torch::Tensor& rows, int64_t, int64_t) override { return rows; }
  torch::Tensor sum(const torch::Tensor& values) override { return values; }
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::function<torch::Tensor()> pass_on(const torch::Tensor& rows, int64_t) override {
    return [rows] { return rows; };
  }
};

class FunctionEvaluator final : public Evaluator {
 public:
  FunctionEvaluator(Task& task, std::function<Findings(const EvaluateOptions&)> run)
      : task_(task), run_(std::move(run)) {}
  std::string name() const override { return "eval"; }
  Findings run(const EvaluateOptions& options) override {
    const torch::NoGradGuard no_grad;
    const double began = steady_seconds();
    set_training(task_.parts(), false);
    Findings findings = run_(options);
    findings.seconds = steady_seconds() - began;
    if (const auto source = task_.validation().source) note_unmeasured(findings, source->describe());
    return findings;
  }

 private:
  Task& task_;
  std::function<Findings(const EvaluateOptions&)> run_;
};

}  // namespace

std::vector<std::unique_ptr<Evaluator>> one_evaluator(
    Task& task, std::function<Findings(const EvaluateOptions& options)> run) {
  std::vector<std::unique_ptr<Evaluator>> all;
  all.push_back(std::make_unique<FunctionEvaluator>(task, std::move(run)));
  return all;
}

Collective& Collective::alone() {
  static Alone one;
  return one;
}

double Findings::metric(const std::string& name) const {
  for (const Metric& metric : metrics)
    if (metric.info.name == name) return metric.value;
  fail("evaluation: no metric '", name, "'");
}

Metric mean_metric(MetricInfo info, double sum, double weight) {
  return weight > 0 ? Metric{std::move(info), sum / weight} : unmeasured(std::move(info));
}

Metric unmeasured(MetricInfo info) {
  return {std::move(info), std::numeric_limits<double>::quiet_NaN(), /*measured=*/false};
}

void note_unmeasured(Findings& findings, const std::string& set) {
  std::vector<std::string> names;
  for (const Metric& metric : findings.metrics)
    if (!metric.measured) names.push_back(metric.info.name);
  if (!names.empty())
    findings.notes.push_back(text(set, ": nothing in it counts for ", join(names, ", "), ": no value"));
}

void append(Findings& findings, Findings more) {
  if (findings.metrics.empty()) {
    findings = std::move(more);
    return;
  }
  std::move(more.metrics.begin(), more.metrics.end(), std::back_inserter(findings.metrics));
  std::move(more.blocks.begin(), more.blocks.end(), std::back_inserter(findings.blocks));
  std::move(more.notes.begin(), more.notes.end(), std::back_inserter(findings.notes));
  std::move(more.broken.lines.begin(), more.broken.lines.end(), std::back_inserter(findings.broken.lines));
  findings.broken.count += more.broken.count;
}

bool EvaluateOptions::wants(const std::string& block) const {
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

std::vector<Prediction> Task::predict(const torch::Tensor&, int64_t) {
  fail_usage("these weights give no predictions for single images");
}

NamedTensors named_parameters(const std::vector<Part>& parts) {
  NamedTensors tensors;
  for (const Part& part : parts)
    for (const auto& item : part.module->named_parameters())
      tensors.emplace_back(part.prefix + item.key(), item.value());
  return tensors;
}

NamedTensors named_state(const std::vector<Part>& parts) {
  NamedTensors tensors = named_parameters(parts);
  for (const Part& part : parts)
    for (const auto& item : part.module->named_buffers())
      tensors.emplace_back(part.prefix + item.key(), item.value());
  return tensors;
}

void set_training(const std::vector<Part>& parts, bool on) {
  for (const Part& part : parts) part.module->train(on);
}

void move(const std::vector<Part>& parts, torch::Device device, torch::ScalarType type) {
  for (const Part& part : parts) part.module->to(device, type);
}

int64_t count_parameters(const std::vector<Part>& parts) {
  int64_t count = 0;
  for (const auto& [name, tensor] : named_parameters(parts)) count += tensor.numel();
  return count;
}

}  // namespace tessera::tasks
