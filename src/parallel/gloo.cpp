// Exchanges of tensors on CPUs: PyTorch's ProcessGroupGloo. The only file that includes Gloo's headers; its code
// is in libtorch_cpu.so.
#include <algorithm>
#include <chrono>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "parallel/meeting_place.h"

namespace tessera::parallel {
namespace {

// The rest of the time is for naming the missing process (watch.h).
std::chrono::milliseconds engine_timeout() {
  const double all = patience();
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * std::max(all / 2, all - 2.5)));
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            bool local) {
  // One device for all groups of a process: its thread serves all connections.
  static const auto device = local ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                   : c10d::ProcessGroupGloo::createDefaultDevice();
  auto options = c10d::ProcessGroupGloo::Options::create(engine_timeout());
  options->devices.push_back(device);
  return c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), rank, size, std::move(options));
}

}  // namespace tessera::parallel
