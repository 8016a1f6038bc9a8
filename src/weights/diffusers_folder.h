// Folders that diffusers writes: a pipeline (model_index.json, a folder for each of its parts) or the folder of one part
// (config.json and weights).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/value.h"
#include "diffusion/noise_process.h"

namespace tessera::train {

// The weights in a part's folder, in any form that diffusers loads: safetensors or PyTorch's pickle, one file or an index
// of several, of full precision or the variant fp16. "" where there are none.
std::string diffusers_weights(const std::string& folder);

// The folder of a part: PATH/PART of a pipeline, or PATH where it is that folder itself and holds weights; "" otherwise.
std::string diffusers_part(const std::string& path, const std::string& part);

// A JSON file of such a folder: an object, bounded before it is read.
nlohmann::json read_diffusers_config(const std::string& path);

// The pipeline that a path is or, as the folder of a part, lies in: it has an index or a scheduler. "" where there is none.
std::string pipeline_of(const std::string& path);

// Settings of task diffuse that a pipeline's scheduler tells: the steps, their noise and what the network predicts. Empty
// where there is no scheduler. Fails for schedulers of other processes (flow matching) and for stored betas.
Value scheduler_settings(const std::string& pipeline);
// The other way: scheduler/scheduler_config.json of a process of denoising diffusion.
nlohmann::ordered_json scheduler_config(const diffusion::ProcessConfig& process);

// The classes' names of a pipeline's model_index.json (id2label), each up to its first comma; empty where it does not name
// all of them.
std::vector<std::string> pipeline_class_names(const std::string& pipeline, int64_t classes);

}  // namespace tessera::train
