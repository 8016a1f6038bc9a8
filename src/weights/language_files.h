// Shared by the readers of published language models (open_language.h): reads configurations, and loads
// weights tensor by tensor.
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

namespace tessera::models {
class Bert;
}

namespace tessera::train {

// Reads a config.json without nulls, which mean "default", and without keys that no reader uses.
Value read_language_config(const std::string& path);

// Return an entry of the config.json. Entries of another type count as absent.
std::string word_in(const Value& tree, const char* key);  // "" if absent
int64_t number_in(const Value& tree, const char* key, int64_t otherwise);
double real_in(const Value& tree, const char* key, double otherwise);

// Error text for weights that do not match the model.
inline constexpr const char* kMisfit = "does not fit its config.json";

// Returns the places of a file's tensors, by the tables of language models. `embedding`: the parameter that
// is tied to the output layer, "" if none is.
std::vector<NamePlace> language_places(const std::vector<std::string>& names, const std::string& family,
                                       const std::string& embedding);
// Returns our name of one tensor of a decoder.
std::string decoder_name(const std::string& theirs, const models::LanguageModel& model);
std::vector<NamePlace> decoder_places(const std::vector<std::string>& names,
                                      const models::LanguageModel& model);

// Copies every tensor of the file to its place. Throws Error if a parameter gets no tensor, unless `there`
// returns true for its name. Adds a line to `notes` if tensors are unused.
void load_language(torch::nn::Module& module, const WeightFile& file, const std::vector<NamePlace>& places,
                   std::vector<std::string>& notes, const std::function<bool(const std::string&)>& there = {},
                   const std::string& misfit = kMisfit);

// Copies the weights of a run of task bert, or of a published model. Heads that the file lacks keep their values. Throws
// Error for other tensors that are missing or have other shapes than those of `key`, the encoder's settings.
void begin_bert(models::Bert& bert, const WeightFile& file, const std::string& key);

// Returns `eos_token_id`, one number or several, from generation_config.json in the folder, else from the
// configuration. Leaves out numbers outside the vocabulary.
std::vector<int64_t> end_tokens_of(const std::string& folder, const Value& config, int64_t vocabulary);

}  // namespace tessera::train
