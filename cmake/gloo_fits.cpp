// Runs at configuration: one exchange of a process with itself shows that Gloo's headers have the layout of the
// Gloo in LibTorch.
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

int main() {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, 0, 1, options);
  std::vector<at::Tensor> tensors = {at::full({5}, 3.0)};
  gloo->allreduce(tensors, {})->wait();
  return tensors[0].sum().item<double>() == 15 ? 0 : 1;
}
