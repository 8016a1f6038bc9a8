#include "models/base/capability.h"

#include "core/text.h"

namespace tessera::models {

std::string lacks_ability(const std::string& who, const std::string& ability, const std::string& family,
                          const std::function<bool(Backbone&)>& able) {
  std::vector<std::string> others;
  for (const Family& other : families()) {
    const auto model = meta_backbone(resolve_model(other.name));
    // A model that needs a condition is no use to a task that provides none.
    if (model->condition_width() == 0 && able(*model)) others.push_back(other.name);
  }
  return text(who, " needs a model that ", ability, "; ", family, " cannot; ",
              others.empty() ? "no family can" : "these can: " + join(others, ", "));
}

}  // namespace tessera::models
