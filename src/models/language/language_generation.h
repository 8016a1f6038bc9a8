// A decoder for generate() (generation.h): it caches the tokens so far, and reads each token once.
#pragma once

#include "models/base/generation.h"
#include "models/language/language_model.h"

namespace tessera::models {

struct LanguagePrompt {
  torch::Tensor mask = {};      // bool [rows, tokens]: false for padding on the left; undefined = none
  torch::Tensor embedded = {};  // [rows, tokens, dim] instead of the prompt's ids (images among them)
  // Called before each block, as in TextInput.
  std::function<torch::Tensor(int64_t block, const torch::Tensor& x)> before_block = {};
  bool cached = true;  // false: all tokens are read again for each new token
};

// Returns the number of padding tokens before each row of a mask, as in GenerationOptions::padding.
torch::Tensor padding_of(const torch::Tensor& mask);

// `model` must outlive the result; each row of the prompt is searched with `beams` beams.
NextTokenModel next_token_model(LanguageModel& model, LanguagePrompt prompt, int64_t beams);

}  // namespace tessera::models
