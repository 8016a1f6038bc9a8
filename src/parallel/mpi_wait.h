// Waiting for the end of a collective, but not for ever.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace tessera::parallel {

// Used by the one thread that calls MPI, for all collectives, in the order that all processes share.
class MpiWait {
 public:
  MpiWait();  // between MPI's start and end; usage error if TESSERA_WAIT_SECONDS is no number of seconds

  // Starts a collective and waits for its end, asleep in between. "" when it is done; else what to tell
  // people: that it did not end in TESSERA_WAIT_SECONDS (600), and which processes did not come to it. After
  // that no collective is started any more, and each is answered so. `what`: "exchange of 3 MB".
  std::string complete(const std::function<void(MPI_Request*)>& start, const std::string& what);

 private:
  // Halfway through its patience a process tells the others in which collective it waits; whoever has not is
  // missing.
  void tell();
  std::vector<std::string> missing();

  int rank_ = 0, size_ = 1;
  double patience_;           // seconds
  int64_t number_ = 0;        // of the collective in progress
  std::deque<int64_t> told_;  // numbers on their way to others
  std::string lost_;          // what complete() says from now on
};

}  // namespace tessera::parallel
