// A capability is something that only some models can do: a class with virtual functions that a backbone also
// derives from. A task calls require() once, when it is built.
//
//   auto& encoder = require<TokenEncoder>(*model, spec.family, "task mae");
//
// A capability has `static constexpr const char* kAbility`, which completes "task mae needs a model that …".
#pragma once

#include <functional>
#include <string>

#include "core/error.h"
#include "models/base/model.h"

namespace tessera::models {

// Returns "task mae needs a model that …; swin cannot; these can: vit, illama". It lists the families for
// which `able` accepts the default model.
std::string lacks_ability(const std::string& who, const std::string& ability, const std::string& family,
                          const std::function<bool(Backbone&)>& able);

// Returns the model as the capability that `who` needs. Throws a usage error that names the families with it.
// The model's settings may still rule it out: its own *_refusal() gives the reason.
template <class T>
T& require(Backbone& model, const std::string& family, const std::string& who) {
  if (auto* able = dynamic_cast<T*>(&model)) return *able;
  fail_usage(lacks_ability(who, T::kAbility, family,
                           [](Backbone& other) { return dynamic_cast<T*>(&other) != nullptr; }));
}

}  // namespace tessera::models
