// How published files of Swin spell the tensors that are called as timm calls them here.
#pragma once

#include <string>
#include <vector>

namespace tessera::models {

// The names of Microsoft's first code, which has the head without a module of its own, of mmseg and mmdet, and of
// transformers, as timm's. "" for index tables and masks, which follow from the sizes.
std::string timm_swin_name(const std::string& published);

// In the first published code the cells are merged at the end of a stage, in timm's at the start of the next: layers.0 has a
// downsample in the former alone. Moves all those of such a file.
void upgrade_swin_names(std::vector<std::string>& names);

}  // namespace tessera::models
