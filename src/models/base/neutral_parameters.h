// Parameters that a file of weights need not have.
#pragma once

#include <string>
#include <vector>

namespace tessera::models {

class NeutralParameters {
 public:
  static constexpr const char* kAbility = "has parameters whose first values change nothing";
  virtual ~NeutralParameters() = default;
  // Their names: with their first values the model computes what it does without them, so that weights of a
  // model without them start one that has them.
  virtual std::vector<std::string> neutral_names() const = 0;
};

}  // namespace tessera::models
