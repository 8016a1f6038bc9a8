// Counters and histograms of a server, and their text for Prometheus (format 0.0.4).
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tessera::serve {

// The names and values of a series, in order.
using Labels = std::vector<std::pair<std::string, std::string>>;

// Thread-safe. A family has one type and one help text; its series differ in their labels.
class Metrics {
 public:
  void count(const std::string& family, const std::string& help, const Labels& labels, double amount = 1);
  void set(const std::string& family, const std::string& help, const Labels& labels, double value);
  // Adds a value to a histogram with these upper bounds, ascending.
  void observe(const std::string& family, const std::string& help, const Labels& labels, double value,
               const std::vector<double>& bounds);
  std::string text() const;

  static const std::vector<double>& seconds_bounds();
  static const std::vector<double>& batch_bounds();

 private:
  struct Series {
    double value = 0;  // of a histogram: the sum
    std::vector<uint64_t> buckets;
    uint64_t observations = 0;
  };
  struct Family {
    std::string type, help;
    std::vector<double> bounds;
    std::map<std::string, Series> series;  // by their labels as text
  };
  Family& family(const std::string& name, const char* type, const std::string& help);

  mutable std::mutex mutex_;
  std::map<std::string, Family> families_;
};

}  // namespace tessera::serve
