// Private to this folder: the store where the processes of a run meet.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>
#include <vector>

#include "parallel/launcher.h"

namespace tessera::parallel {

// Returns the seconds that a process waits for others: TESSERA_WAIT_SECONDS (600). Throws a usage error if that
// is not a number of seconds.
double patience();

class MeetingPlace {
 public:
  // Serves or joins the store. Throws Error with host, port and the seconds waited if no process serves it, a usage
  // error if the port is in use, and Lost if another process has the same rank.
  explicit MeetingPlace(Start start);

  c10d::Store& store() { return *store_; }
  // Returns another connection to the store.
  c10::intrusive_ptr<c10d::Store> connect() const;
  // Returns a part of the store with its own keys.
  c10::intrusive_ptr<c10d::Store> part(const std::string& name) const;

  // Publishes `mine` under `name` and returns the values of all processes by rank. Throws Lost with the ranks of the
  // absent processes. The first exchange removes the file of the port, so that a later program of the same mpirun does
  // not read it.
  std::vector<std::string> exchange(const std::string& name, const std::string& mine);

  // Waits until all processes have called it, for at most some seconds.
  void leave();

 private:
  c10::intrusive_ptr<c10d::Store> open(bool serve) const;
  void find_port();
  std::string why_incomplete(const std::vector<std::string>& keys, const std::string& cause) const;

  Start start_;
  c10::intrusive_ptr<c10d::Store> whole_, store_;  // without and with the prefix of this attempt
};

// --- gloo.cpp

// Returns Gloo's engine for the processes of `store`. `local`: all are on this machine.
c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            bool local);

// --- nccl.cpp

// Returns NCCL's engine for the processes of `store`, with GPU `gpu`. Throws Error in a build without NCCL.
c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            int gpu);

}  // namespace tessera::parallel
