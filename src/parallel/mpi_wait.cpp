#include "parallel/mpi_wait.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"

namespace tessera::parallel {
namespace {

constexpr auto kNap = std::chrono::microseconds(20);
constexpr double kPatience = 600;     // seconds
constexpr double kLongestLook = 1.0;  // seconds; between two checks this process may itself have been stopped
constexpr int64_t kSpread = 8;        // a collective may have ended in only some processes
constexpr int kTag = 1;               // of messages about a waiting process's collective

double asked_patience() {
  const char* asked = std::getenv("TESSERA_WAIT_SECONDS");
  if (!asked) return kPatience;
  const auto seconds = parse_int(asked);
  if (!seconds || *seconds < 1)
    fail_usage("TESSERA_WAIT_SECONDS is '", asked, "', must be a number of seconds");
  return static_cast<double>(*seconds);
}

}  // namespace

MpiWait::MpiWait() : patience_(asked_patience()) {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

std::string MpiWait::complete(const std::function<void(MPI_Request*)>& start, const std::string& what) {
  if (!lost_.empty()) return lost_;
  ++number_;
  MPI_Request request;
  start(&request);
  double waited = 0, looked = steady_seconds();
  bool told = false;
  for (int done = 0, tries = 0;; ++tries) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) return "";
    if (tries <= 20) continue;
    std::this_thread::sleep_for(kNap);
    const double now = steady_seconds();
    waited += std::min(now - looked, kLongestLook);
    looked = now;
    if (!told && waited > patience_ / 2) {
      tell();
      told = true;
    }
    if (waited > patience_) break;
  }
  const std::vector<std::string> absent = missing();
  const std::string seconds = fixed(waited, 0) + " s";
  lost_ = absent.empty()
              ? text("the ", what, " did not end in ", seconds, ", though all processes came to it")
              : text("the ", what, " has waited ", seconds, " for process ", join(absent, ", "),
                     ", which is stopped or stuck");
  lost_ += " (TESSERA_WAIT_SECONDS)";
  return lost_;
}

void MpiWait::tell() {
  told_.push_back(number_);  // must not move until MPI has sent it
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    MPI_Request request;
    MPI_Isend(&told_.back(), 1, MPI_INT64_T, rank, kTag, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
  }
}

std::vector<std::string> MpiWait::missing() {
  std::set<int> waiting = {rank_};
  while (true) {
    int found = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &found, &status);
    if (!found) break;
    int64_t number = 0;
    MPI_Recv(&number, 1, MPI_INT64_T, status.MPI_SOURCE, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (std::abs(number - number_) <= kSpread) waiting.insert(status.MPI_SOURCE);
  }
  std::vector<std::string> absent;
  for (int rank = 0; rank < size_; ++rank)
    if (!waiting.contains(rank)) absent.push_back(std::to_string(rank));
  return absent;
}

}  // namespace tessera::parallel
