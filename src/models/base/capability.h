// A capability is something that only some models can do: a class with virtual functions that a backbone also
// derives from. A task calls require() once, when it is built.
//
//   auto& encoder = require<TokenEncoder>(*model, spec.family, "task mae");
//
// A capability has `static constexpr const char* kAbility`, which completes "task mae needs a model that …".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "models/base/model.h"

namespace tessera::models {

// Returns "task mae needs a model that …; swin cannot; these can: vit, illama". It lists the families whose
// default model passes `able`.
std::string lacks_ability(const std::string& who, const std::string& ability, const std::string& family,
                          const std::function<bool(Backbone&)>& able);

// Returns the model as the capability that `who` needs. Throws a usage error that names the families with it.
// The model's settings may still exclude it; then its *_refusal() gives the reason.
template <class T>
T& require(Backbone& model, const std::string& family, const std::string& who) {
  if (auto* able = dynamic_cast<T*>(&model)) return *able;
  fail_usage(lacks_ability(who, T::kAbility, family,
                           [](Backbone& other) { return dynamic_cast<T*>(&other) != nullptr; }));
}

// The cost of attention if a mask makes some products unnecessary.
class MaskedAttention {
 public:
  static constexpr const char* kAbility = "masks attention to later tokens";
  virtual ~MaskedAttention() = default;
  // Returns the multiply-adds in Backbone::macs that the mask makes redundant; 0 if these settings have no
  // mask.
  virtual int64_t masked_out_macs(int64_t height, int64_t width) const = 0;
};

// Returns the redundant multiply-adds of one causal attention. For N tokens of width D, Wang et al. 2024,
// Table 2, count 4 N D^2 + N^2 D + (floor(N^2 / 2) + 1) D instead of 4 N D^2 + 2 N^2 D: all scores, and the
// values that a token sees.
inline int64_t causal_attention_saves(int64_t tokens, int64_t width) {
  return (tokens * tokens - (tokens * tokens / 2 + 1)) * width;
}

// The cost of mLSTM cells in each of their forms.
enum class MlstmForm { recurrent, chunkwise, parallel };

class MlstmCells {
 public:
  static constexpr const char* kAbility = "has mLSTM cells";
  virtual ~MlstmCells() = default;
  // Returns the multiply-adds of all cells of an image, without the layers around them. recurrent: each token
  // updates the state [d, d] of its head and reads it. parallel: the scores of each token with itself and
  // those before it, and their values. chunkwise: the parallel form inside chunks, and the state between
  // them.
  virtual int64_t cell_macs(MlstmForm form, int64_t height, int64_t width) const = 0;
};

// Parameters that may be absent in a weights file.
class NeutralParameters {
 public:
  static constexpr const char* kAbility = "has parameters that initially change nothing";
  virtual ~NeutralParameters() = default;
  // Returns their names. At their initial values they do not change the output, so weights of a model without
  // them can initialise a model with them.
  virtual std::vector<std::string> neutral_names() const = 0;
};

}  // namespace tessera::models
