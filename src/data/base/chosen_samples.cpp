#include "data/base/chosen_samples.h"

#include "data/base/source_kinds.h"

namespace tessera::data {

uint64_t ChosenSamples::fingerprint() const {
  Fingerprint print;
  print.add("chosen samples 1");
  print.add(static_cast<int64_t>(whole_->fingerprint()));
  for (const int64_t index : indices_) print.add(index);
  return print.value();
}

}  // namespace tessera::data
