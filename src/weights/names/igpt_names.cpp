// iGPT in transformers: GPT-2's projections have their inputs first.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows igpt_transformers() {
  return joined({below("transformer.", "", {{"wte.*", "wte.*"}, {"wpe.*", "wpe.*"}, {"ln_f.*", "norm.*"}}),
                 below("transformer.h.{}.", "blocks.{}.",
                       {{"ln_1.*", "norm1.*"},
                        {"ln_2.*", "norm2.*"},
                        {"attn.bias", ""},
                        {"attn.masked_bias", ""},
                        {"attn.c_attn.weight", "attn.qkv.weight", kTransposed},
                        {"attn.c_attn.*", "attn.qkv.*"},
                        {"attn.c_proj.weight", "attn.proj.weight", kTransposed},
                        {"attn.c_proj.*", "attn.proj.*"},
                        {"mlp.c_fc.weight", "mlp.fc1.weight", kTransposed},
                        {"mlp.c_fc.*", "mlp.fc1.*"},
                        {"mlp.c_proj.weight", "mlp.fc2.weight", kTransposed},
                        {"mlp.c_proj.*", "mlp.fc2.*"}}),
                 {{"score.*", "head.*"}}});
}

}  // namespace

std::vector<NameTable> igpt_names() { return {{"transformers", "igpt", igpt_transformers()}}; }

}  // namespace tessera::train
