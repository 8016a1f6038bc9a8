#include "serve/metrics.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace tessera::serve {
namespace {

std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

// Returns `model="a",stage="b"`.
std::string labels_text(const Labels& labels) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : labels) parts.push_back(name + "=\"" + escaped(value) + "\"");
  return join(parts, ",");
}

std::string number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return std::to_string(static_cast<int64_t>(value));
  return shortest(value);
}

std::string line(const std::string& name, const std::string& labels, const std::string& value) {
  return name + (labels.empty() ? "" : "{" + labels + "}") + " " + value + "\n";
}

}  // namespace

const std::vector<double>& Metrics::seconds_bounds() {
  static const std::vector<double> bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                             0.5,   1,      2.5,   5,    10,    30,   60};
  return bounds;
}

const std::vector<double>& Metrics::batch_bounds() {
  static const std::vector<double> bounds = {1, 2, 4, 8, 16, 32, 64};
  return bounds;
}

Metrics::Family& Metrics::family(const std::string& name, const char* type, const std::string& help) {
  Family& found = families_[name];
  if (found.type.empty()) found.type = type, found.help = help;
  return found;
}

void Metrics::count(const std::string& name, const std::string& help, const Labels& labels, double amount) {
  const std::lock_guard lock(mutex_);
  family(name, "counter", help).series[labels_text(labels)].value += amount;
}

void Metrics::set(const std::string& name, const std::string& help, const Labels& labels, double value) {
  const std::lock_guard lock(mutex_);
  family(name, "gauge", help).series[labels_text(labels)].value = value;
}

void Metrics::observe(const std::string& name, const std::string& help, const Labels& labels, double value,
                      const std::vector<double>& bounds) {
  const std::lock_guard lock(mutex_);
  Family& found = family(name, "histogram", help);
  found.bounds = bounds;
  Series& series = found.series[labels_text(labels)];
  series.buckets.resize(bounds.size());
  for (size_t i = 0; i < bounds.size(); ++i)
    if (value <= bounds[i]) ++series.buckets[i];
  series.value += value, ++series.observations;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    out += "# HELP " + name + " " + family.help + "\n# TYPE " + name + " " + family.type + "\n";
    for (const auto& [labels, series] : family.series) {
      if (family.type != "histogram") {
        out += line(name, labels, number(series.value));
        continue;
      }
      const std::string more = labels.empty() ? "" : labels + ",";
      for (size_t i = 0; i < family.bounds.size(); ++i)
        out += line(name + "_bucket", more + "le=\"" + number(family.bounds[i]) + "\"",
                    std::to_string(series.buckets[i]));
      out += line(name + "_bucket", more + "le=\"+Inf\"", std::to_string(series.observations));
      out += line(name + "_sum", labels, number(series.value));
      out += line(name + "_count", labels, std::to_string(series.observations));
    }
  }
  return out;
}

}  // namespace tessera::serve
