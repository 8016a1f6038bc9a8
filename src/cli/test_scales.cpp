#include "cli/test_scales.h"

#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {

std::vector<double> parse_scales(const std::string& list) {
  std::vector<double> scales;
  for (const std::string& part : split(list, ',')) {
    const auto factor = parse_double(trim(part));
    if (!factor) fail_usage("--scales: '", part, "' is no number, as in 0.75,1,1.25");
    scales.push_back(*factor);
  }
  return scales;
}

}  // namespace tessera::cli
