// Tables and indices that are made on the host and used on another device: copied once, not in every pass.
//
// A copy from pageable memory stops the host until the device has caught up, and a graph cannot contain it.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <vector>

namespace tessera::ops {

// Returns make(host) for a table of the main memory, on `device`: kept for the next call with an equal table,
// purpose and factor. On the CPU, and for tables with gradients, on another device or of over a million numbers, calls make each time.
// `purpose` is a literal. Up to 64 results are kept; the one that was unused for longest is dropped.
std::vector<torch::Tensor> kept_on(
    torch::Device device, const char* purpose, const torch::Tensor& host, double factor,
    const std::function<std::vector<torch::Tensor>(const torch::Tensor&)>& make);

// Returns the table itself on a device, kept likewise.
torch::Tensor kept_on(torch::Device device, const torch::Tensor& host);

// Starts the copy of a table that differs in every pass, without stopping the host: through pinned memory to a GPU.
torch::Tensor sent_to(torch::Device device, const torch::Tensor& host);

}  // namespace tessera::ops
