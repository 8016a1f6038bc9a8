// Parameters that a weights file may lack.
#pragma once

#include <string>
#include <vector>

namespace tessera::models {

class NeutralParameters {
 public:
  static constexpr const char* kAbility = "has parameters that initially change nothing";
  virtual ~NeutralParameters() = default;
  // Returns their names. With their initial values the model computes the same as without them, so that the
  // weights of a model without them can initialise a model with them.
  virtual std::vector<std::string> neutral_names() const = 0;
};

}  // namespace tessera::models
