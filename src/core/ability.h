// An ability is something that only some objects of a kind have: a class with virtual functions that they
// derive from in addition. `kAbility`, if present, completes "… needs".
#pragma once

#include <type_traits>

namespace tessera {

// Returns the object as T; null if it lacks the ability.
template <class T, class Object>
auto* ability_of(Object& object) {
  return dynamic_cast<std::conditional_t<std::is_const_v<Object>, const T, T>*>(&object);
}

}  // namespace tessera
