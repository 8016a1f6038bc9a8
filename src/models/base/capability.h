// A capability is something that only some models can do: a class with virtual functions that a backbone also
// derives from. A task asks for it once, when it is built.
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

// "task mae needs a model that …; swin cannot; these can: vit, illama": the families whose default model
// passes `able`.
std::string lacks_ability(const std::string& who, const std::string& ability, const std::string& family,
                          const std::function<bool(Backbone&)>& able);

// The model as what `who` needs; a usage error that names the families that can. Whether the model can with
// its very settings too, its own *_refusal() says.
template <class T>
T& require(Backbone& model, const std::string& family, const std::string& who) {
  if (auto* able = dynamic_cast<T*>(&model)) return *able;
  fail_usage(lacks_ability(who, T::kAbility, family,
                           [](Backbone& other) { return dynamic_cast<T*>(&other) != nullptr; }));
}

}  // namespace tessera::models
