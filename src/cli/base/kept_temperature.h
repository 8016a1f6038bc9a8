// A temperature stored in a weights file, with the images that it was fitted on: these are excluded from all
// measurements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/base/measure_options.h"
#include "core/config.h"
#include "tasks/base/score_accumulator.h"

namespace tessera::cli {

// An entry of the metadata "temperature_fits", with one entry per fit in order: `temperature` is the product
// of all fits so far. The images of the fit are drawn again from these numbers.
struct TemperatureFit {
  std::string data;                      // fingerprint of the set; "" if the file does not record it
  double share = 0;                      // share of the images that no earlier fit used
  int64_t seed = 0;                      // draws them
  std::vector<int64_t> unreadable = {};  // images of the set that could not be decoded then
  template <class V>
  void visit(V& v) {
    v("data", data);
    v("share", share, between(0, 1), "of the images that were left");
    v("seed", seed);
    v("unreadable", unreadable, at_least(0), "images");
  }
};

// Returns the indices of a set's images that these weights' temperatures were fitted on. Errors name `file`.
std::vector<int64_t> fitted_images(const Value& task_metadata, const data::Source& set,
                                   const std::string& file);

// Returns the set without the images on which a temperature of any of the weights was fitted, and a note for
// each such temperature. Throws a usage error if no image is left.
std::shared_ptr<const data::Source> without_fitted(std::shared_ptr<const data::Source> set,
                                                   const std::vector<DescribedWeights>& weights,
                                                   std::vector<std::string>& notes);

// Returns the record of a fit on a share of the scored images; `measured` is `whole`, or
// without_fitted() of it.
TemperatureFit fit_on(const data::Source& whole, const data::Source& measured,
                      const tasks::ScoredSamples& scored, double share, int64_t seed);

// Adds the temperature, times any earlier one, to the weights' metadata; scores are divided by it.
void keep_temperature(const std::string& keep, const DescribedWeights& weights, double fitted,
                      const TemperatureFit& fit);

// Returns a note if a fitted temperature is at the end of its search range; else "".
std::string search_end(double temperature);

}  // namespace tessera::cli
