// The name tables, one file for each program or family. name_tables.h lists them.
#pragma once

#include <string>
#include <vector>

#include "weights/base/name_table.h"

namespace tessera::train {

// Family of ResNets with a stem of three convolutions, for programs that name it differently.
inline constexpr const char* kDeepResnet = "resnet, deep stem";

std::vector<NameTable> vit_names();
std::vector<NameTable> swin_names();
std::vector<NameTable> resnet_names();
std::vector<NameTable> convnext_names();
std::vector<NameTable> baseline_names();
std::vector<NameTable> igpt_names();
std::vector<NameTable> vision_lstm_names();
std::vector<NameTable> vision_llama_names();
std::vector<NameTable> scan_names();
std::vector<NameTable> diffusers_names();
std::vector<NameTable> detector_names();
std::vector<NameTable> detr_names();
std::vector<NameTable> segmenter_names();
std::vector<NameTable> tower_names();
std::vector<NameTable> language_names();
std::vector<NameTable> llama_names();

// Returns the rows for transformers' names, and for OpenCLIP's (only for reading).
NameRows image_tower_rows(const std::string& theirs, const std::string& ours);
// Returns those of SigLIP's pooling by a learned query.
NameRows image_pool_rows(const std::string& theirs, const std::string& ours);

}  // namespace tessera::train
