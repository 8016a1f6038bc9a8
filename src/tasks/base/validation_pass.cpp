#include "tasks/base/validation_pass.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace tessera::tasks {

Findings evaluate_each(const EvaluateOptions& options, const StreamSpec& stream,
                       const std::function<void(data::Batch& batch)>& see, const PassWords& words) {
  const auto loader = options.open(stream);
  int64_t whole = 0, done = 0;  // number of samples over all processes, and in this one
  while (auto batch = loader->next()) {
    batch->first += whole;
    whole += batch->whole;
    if (batch->size == 0) continue;  // the last batch may have fewer samples than processes
    see(*batch);
    done += batch->size;
    if (options.progress && !options.progress(done))
      throw Error(ErrorKind::interrupted, text("interrupted after ", done, " evaluated ", words.counted));
  }
  Findings findings;
  findings.broken = loader->bad_images();
  return findings;
}

Findings evaluate_rows(const EvaluateOptions& options, const StreamSpec& stream, SampleRows& rows,
                       const std::function<torch::Tensor(data::Batch& batch)>& see, const PassWords& words) {
  Findings findings = evaluate_each(
      options, stream, [&](data::Batch& batch) { rows.add(batch, see(batch)); }, words);
  rows.collect(options);
  findings.samples = rows.size();
  require_samples(findings.samples, words);
  return findings;
}

void require_samples(int64_t samples, const PassWords& words) {
  check(samples > 0, "there is no ", words.sample, " to evaluate on");
}

bool gives_numbers(const Findings& findings, const MetricInfo& main) {
  for (const std::string_view name : {std::string_view("loss"), std::string_view(main.name)})
    for (const Metric& metric : findings.metrics)
      if (metric.info.name == name) return !metric.measured || std::isfinite(metric.value);
  return std::isfinite(findings.metric(main.name));
}

bool gives_numbers(const Prediction& prediction) {
  return std::all_of(prediction.begin(), prediction.end(), [](const PredictionLine& line) {
    return std::all_of(line.values.begin(), line.values.end(), [](const auto& value) {
      return !value.second.is_double() || std::isfinite(value.second.as_double());
    });
  });
}

}  // namespace tessera::tasks
