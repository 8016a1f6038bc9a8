// Exchanges of tensors on CPUs: PyTorch's ProcessGroupGloo. The only file that includes Gloo's headers; its code
// is in libtorch_cpu.so.
#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/error.h"
#include "core/text.h"
#include "parallel/meeting_place.h"

namespace tessera::parallel {
namespace {

// The rest of the time is for naming the missing process (watch.h).
std::chrono::milliseconds engine_timeout() {
  const double all = patience();
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * std::max(all / 2, all - 2.5)));
}

using Devices = decltype(c10d::ProcessGroupGloo::Options::devices);

// Opens the interfaces of GLOO_SOCKET_IFNAME or, without it, the one of the machine's name. `local`: only the loopback.
Devices open_devices(bool local) {
  if (local) return {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
  try {
    return c10d::ProcessGroupGloo::Options::create_default()->devices;
  } catch (const std::exception& error) {
    const std::string why = error.what();
    fail_usage("Gloo opens no network on this machine: set GLOO_SOCKET_IFNAME to the name of an interface; ",
               printable(why.substr(0, why.find('\n'))));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            bool local) {
  // All groups of a process share the devices and their threads.
  static const Devices devices = open_devices(local);
  auto options = c10d::ProcessGroupGloo::Options::create(engine_timeout());
  options->devices = devices;
  options->threads = static_cast<int>(2 * devices.size());  // as create_default() sets it
  return c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), rank, size, std::move(options));
}

}  // namespace tessera::parallel
