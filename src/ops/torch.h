// The part of LibTorch in use: tensors, modules, gradient modes. This is the precompiled header.
// torch/torch.h contains much more (every layer, optimiser and loader of LibTorch) and adds two seconds per
// file.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>
