// Meeting point for processes with collectives outside MPI: a PyTorch store, located over MPI.
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/error.h"
#include "parallel/group.h"

namespace tessera::parallel {
namespace {

c10::intrusive_ptr<c10d::TCPStore> open_store(const std::string& host, uint16_t port, const World& world) {
  c10d::TCPStoreOptions options;
  options.port = port;  // 0: any free port
  options.isServer = world.leader();
  options.numWorkers = static_cast<size_t>(world.size());
  options.waitWorkers = false;  // the other processes do not have the port yet
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const std::exception& error) {
    const std::string why = error.what();
    fail("process ", world.rank(), " of ", world.size(), " does not reach ", host, " port ", port,
         ", where the first process waits: ", why.substr(0, why.find('\n')));
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> meet(World& world) {
  const std::string host = world.broadcast(name_of_machine());
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (world.leader()) store = open_store(host, 0, world);
  const std::string port = world.broadcast(store ? std::to_string(store->getPort()) : "");
  if (!store) store = open_store(host, static_cast<uint16_t>(std::stoi(port)), world);
  return store;
}

}  // namespace tessera::parallel
