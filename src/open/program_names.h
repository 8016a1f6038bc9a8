// Weights of dense prediction by the names of other programs: the way back of what load.h reads.
#pragma once

#include <string>
#include <vector>

#include "open/weights.h"
#include "weights/fused_names.h"

namespace tessera::train {

// Whose names: "torchvision", "detectron2", "mmdet", "detr" (its authors), "mmseg", "transformers".
const std::vector<std::string>& named_programs();

// The tensors of weights of ours, which `info` describes, by the names of a program, q, k and v apart where it has them so. A detector and
// its backbone must follow that program's code (task.code, model.form), since its numbers mean something else to another. Throws Error where the program has no
// such model, or no name for a tensor; every name is one that is read back as the tensor's.
NamedTensors as_program(const NamedTensors& ours, const std::string& program, const WeightsInfo& info);

}  // namespace tessera::train
