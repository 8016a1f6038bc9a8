#include "optim/offload.h"

#include "ops/torch.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace tessera::train {
namespace {

// Returns memory that a GPU copies to and from while the CPU goes on, if the tensor is on one.
torch::Tensor memory_here(const torch::Tensor& like) {
  return torch::empty_like(like, like.options().device(torch::kCPU).pinned_memory(like.is_cuda()));
}

}  // namespace

Offload::Offload(const NamedTensors& there) : there_(there), gradients_(there.size()) {
  for (const auto& [name, parameter] : there) {
    here_.emplace_back(name, memory_here(parameter.detach()));
    known_.push_back({nullptr, 0});
  }
}

Offload::Change Offload::change_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr(), static_cast<uint32_t>(tensor._version())};
}

void Offload::fetch() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < there_.size(); ++i) {
    const torch::Tensor& parameter = there_[i].second;
    torch::Tensor copy = here_[i].second;
    if (const Change now = change_of(parameter);
        now.memory != known_[i].memory || now.version != known_[i].version || !now.memory) {
      copy.copy_(parameter.detach(), /*non_blocking=*/true);
      known_[i] = now;
    }
    const torch::Tensor& gradient = parameter.grad();
    if (gradient.defined() && !gradients_[i].defined()) gradients_[i] = memory_here(parameter.detach());
    copy.mutable_grad() = gradient.defined() ? gradients_[i] : torch::Tensor();
    if (gradient.defined()) gradients_[i].copy_(gradient, /*non_blocking=*/true);
  }
  wait();
}

void Offload::send() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < there_.size(); ++i) {
    if (!here_[i].second.grad().defined()) continue;
    there_[i].second.detach().copy_(here_[i].second, /*non_blocking=*/true);
    known_[i] = change_of(there_[i].second);
  }
  wait();
}

void Offload::zero_grad() {
  for (const auto& one : there_) one.second.mutable_grad().reset();
}

// Waits for copies that run on the GPU.
void Offload::wait() const {
  if (there_.empty() || there_[0].second.is_cpu()) return;
  const c10::Device device = there_[0].second.device();
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

}  // namespace tessera::train
