// A decoder as generate() (generation.h) asks it for tokens: what it has read is kept, each token is read once.
#pragma once

#include "models/base/generation.h"
#include "models/language/language_model.h"

namespace tessera::models {

struct LanguagePrompt {
  torch::Tensor mask = {};      // bool [rows, tokens]: false for padding on the left; undefined = none
  torch::Tensor embedded = {};  // [rows, tokens, dim] instead of the prompt's ids (images among them)
  // What happens in front of each block, as TextInput has it.
  std::function<torch::Tensor(int64_t block, const torch::Tensor& x)> before_block = {};
  bool cached = true;  // false: everything is read anew for each token
};

// How many tokens of padding stand in front of each row of a mask, as GenerationOptions::padding has them.
torch::Tensor padding_of(const torch::Tensor& mask);

// `model` must outlive the result; each row of the prompt is searched with so many beams.
NextTokenModel next_token_model(LanguageModel& model, LanguagePrompt prompt, int64_t beams);

}  // namespace tessera::models
