// Waits for the end of a collective, with a timeout.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace tessera::parallel {

// Used by the one thread that calls MPI, for all collectives, in the order shared by all processes.
class MpiWait {
 public:
  MpiWait();  // between MPI's start and end; usage error if TESSERA_WAIT_SECONDS is not a number of seconds

  // Starts a collective and sleeps until it ends. Returns "" on success. After TESSERA_WAIT_SECONDS (600),
  // returns an error message with the processes that did not join. From then on it starts no collective and
  // always returns that message. `what`: "exchange of 3 MB".
  std::string complete(const std::function<void(MPI_Request*)>& start, const std::string& what);

 private:
  // After half the timeout, sends this collective's number to the others; processes that send none are
  // missing.
  void tell();
  std::vector<std::string> missing();

  int rank_ = 0, size_ = 1;
  double patience_;           // seconds
  int64_t number_ = 0;        // number of the current collective
  std::deque<int64_t> told_;  // numbers being sent to others
  std::string lost_;          // the error message that complete() returns from now on
};

}  // namespace tessera::parallel
