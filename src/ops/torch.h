// LibTorch as the project uses it: tensors, modules, gradient modes. This is the precompiled header;
// torch/torch.h holds much more (every layer, optimiser and loader of LibTorch) and costs each file two more
// seconds.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>
