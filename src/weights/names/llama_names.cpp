// LLaMA's decoder, from Meta's and transformers' names to iLLaMA's. iLLaMA can start from a part of these
// weights.
#include "weights/names/tables.h"

namespace tessera::train {

std::vector<NameTable> llama_names() {
  const std::string blocks = "blocks.{}.";
  return {{"meta", "llama",
           joined({below("layers.{}.", blocks,
                         joined({thirds("attention.wq.weight", "attention.wk.weight", "attention.wv.weight",
                                        "attn.qkv.weight"),
                                 {{"attention.wo.weight", "attn.proj.weight"},
                                  {"feed_forward.w1.weight", "mlp.fc1.weight"},
                                  {"feed_forward.w3.weight", "mlp.fc3.weight"},
                                  {"feed_forward.w2.weight", "mlp.fc2.weight"},
                                  {"attention_norm.weight", "norm1.weight"},
                                  {"ffn_norm.weight", "norm2.weight"}}}))})},
          {"transformers", "llama",
           joined({below("model.layers.{}.", blocks,
                         joined({thirds("self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                        "self_attn.v_proj.weight", "attn.qkv.weight"),
                                 {{"self_attn.o_proj.weight", "attn.proj.weight"},
                                  {"mlp.gate_proj.weight", "mlp.fc1.weight"},
                                  {"mlp.up_proj.weight", "mlp.fc3.weight"},
                                  {"mlp.down_proj.weight", "mlp.fc2.weight"},
                                  {"input_layernorm.weight", "norm1.weight"},
                                  {"post_attention_layernorm.weight", "norm2.weight"}}})),
                   {{"model.norm.weight", "norm.weight"}}})}};
}

}  // namespace tessera::train
