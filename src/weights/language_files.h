// What the readers of published language models share (open_language.h): their configurations, and weights that come tensor
// by tensor.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/value.h"
#include "io/weights/weight_file.h"
#include "models/language/language_model.h"
#include "weights/base/name_table.h"

namespace tessera::train {

// A config.json without what is null in it, which says "as usual", and without what no reader asks for.
Value read_language_config(const std::string& path);

// Entries of it; those of another type are as absent.
std::string word_in(const Value& tree, const char* key);  // "" where it is absent
int64_t number_in(const Value& tree, const char* key, int64_t otherwise);
double real_in(const Value& tree, const char* key, double otherwise);

// What is said of weights that are not those of the model.
inline constexpr const char* kMisfit = "does not fit its config.json";

// The places of a file's tensors by a table of language models. `embedding`: the parameter that the output layer is too,
// "" if it has its own.
std::vector<NamePlace> language_places(const std::vector<std::string>& names, const std::string& family,
                                       const std::string& embedding);
// The same of one name of a decoder.
std::string decoder_name(const std::string& theirs, const models::LanguageModel& model);
std::vector<NamePlace> decoder_places(const std::vector<std::string>& names,
                                      const models::LanguageModel& model);

// Copies every tensor of the file to its place. All of the module's must be reached, except those that are `there`
// already. `notes` takes a line about tensors that have no place.
void load_language(torch::nn::Module& module, const WeightFile& file, const std::vector<NamePlace>& places,
                   std::vector<std::string>& notes, const std::function<bool(const std::string&)>& there = {},
                   const std::string& misfit = kMisfit);

// `eos_token_id`, a number or several, of generation_config.json in the folder, else of the configuration. Numbers that
// no token has can end nothing and are left out.
std::vector<int64_t> end_tokens_of(const std::string& folder, const Value& config, int64_t vocabulary);

}  // namespace tessera::train
