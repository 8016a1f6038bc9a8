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
  // Serves or joins the store. Throws Error with host, port and the seconds waited if nobody serves it, and a
  // usage error if the port is in use.
  explicit MeetingPlace(Start start);

  c10d::Store& store() { return *store_; }
  // Returns a connection of its own.
  c10::intrusive_ptr<c10d::Store> connect() const;
  // Returns a part of the store with its own keys.
  c10::intrusive_ptr<c10d::Store> part(const std::string& name) const;

  // Publishes `mine` under `name` and returns the values of all processes by rank. Throws Error with the ranks
  // that did not come.
  std::vector<std::string> exchange(const std::string& name, const std::string& mine);

  // Waits until all processes have come to the end, for some seconds.
  void leave();

 private:
  c10::intrusive_ptr<c10d::Store> open(bool serve) const;
  void find_port();

  Start start_;
  c10::intrusive_ptr<c10d::Store> whole_, store_;  // without and with the prefix of this attempt
};

// --- gloo.cpp

// Returns Gloo's engine for the processes of `store`. `local`: all are on this machine.
c10::intrusive_ptr<c10d::Backend> make_gloo(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            bool local);

// --- nccl.cpp, or absent.cpp in a build without NCCL

c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                            int gpu);

}  // namespace tessera::parallel
