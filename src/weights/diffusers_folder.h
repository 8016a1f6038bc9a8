// Folders that diffusers writes: a pipeline (model_index.json and a folder for each part), or one part
// (config.json and weights).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/value.h"
#include "diffusion/noise_process.h"

namespace tessera::train {

// Returns the path of the weights in a part's folder, "" if there are none. Accepts all formats that
// diffusers loads: safetensors or pickle, one file or an index, full precision or the fp16 variant.
std::string diffusers_weights(const std::string& folder);

// Returns the folder of a part: PATH/PART in a pipeline, or PATH itself if it is that part's folder with
// weights; else "".
std::string diffusers_part(const std::string& path, const std::string& part);

// Reads a JSON object from such a folder, with limits on its size.
nlohmann::json read_diffusers_config(const std::string& path);

// Returns the pipeline at `path`, or the one that contains it as a part. A pipeline has an index or a
// scheduler. "" if there is none.
std::string pipeline_of(const std::string& path);

// Reads settings of task diffuse from a pipeline's scheduler: steps, noise schedule and prediction type.
// Empty if there is no scheduler. Throws Error for other processes (flow matching) and for stored betas.
Value scheduler_settings(const std::string& pipeline);
// Returns scheduler/scheduler_config.json for a denoising diffusion process.
nlohmann::ordered_json scheduler_config(const diffusion::ProcessConfig& process);

// Returns the class names in a pipeline's model_index.json (id2label), each up to its first comma. Empty
// unless all classes have a name.
std::vector<std::string> pipeline_class_names(const std::string& pipeline, int64_t classes);

}  // namespace tessera::train
