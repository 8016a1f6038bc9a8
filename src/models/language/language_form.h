// Describes the differences between published kinds of decoders, and the names of their parts in files.
#pragma once

#include "models/language/language_model.h"

namespace tessera::models {

struct LanguageForm {
  enum class Packing { separate, thirds, by_head };  // layout of q, k and v
  enum class Positions { learned, rotary, alibi };

  NormKind norm;
  bool norm_bias;
  Positions positions;
  Packing packing;
  bool attention_bias, output_bias, mlp_bias, stored_in_out;
  Activation activation;
  bool tied;
  // Paths of blocks are relative to `block` + number.
  const char *embedding, *positions_name, *embedding_norm, *block, *attention_norm, *qkv, *q, *k, *v, *out,
      *mlp_norm, *gate, *up, *down, *last_norm;
};

const LanguageForm& language_form(LanguageKind kind);

}  // namespace tessera::models
