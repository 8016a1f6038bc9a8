// Records of the exchanges with other processes, and the loss of one of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace tessera::parallel {

// Another process of the run died, stopped or did not come. A program that ends because of it exits with 75, so
// that a launcher may start the run again.
struct Lost : Error {
  explicit Lost(const std::string& message) : Error(ErrorKind::failed, message) {}
};
inline constexpr int kLostExitCode = 75;

// Kinds of exchanges: the all-reduce of gradients; other sums; broadcasts from rank 0; gathers of rows; gathers of
// a few numbers, such as the counts before a gather of rows; sums with rows divided among the processes; rows
// for each process; rows for the next process.
inline constexpr const char *kGradients = "gradients", *kSum = "sum", *kBroadcast = "broadcast",
                            *kGather = "gather", *kCounts = "counts", *kScatter = "scatter",
                            *kExchange = "exchange", *kRing = "ring";

// The completed calls and the bytes of one kind of exchange on one axis in this process.
//
// Bytes: for gradients, sums and broadcasts those of this process's tensor; for gathers and counts those
// received from others; for scatter, exchange and ring those sent to others.
struct Traffic {
  std::string axis, kind;
  int64_t calls = 0, bytes = 0;
  double seconds = 0;  // total seconds of the calls, as in Collective
};

// Returns the traffic of all axes together by kind, in alphabetical order; `axis` is empty.
std::vector<Traffic> by_kind(const std::vector<Traffic>& traffic);

// A completed exchange.
struct Collective {
  std::string axis;
  const char* kind = "";
  int64_t bytes = 0;  // as in Traffic
  // `began`: submission time, from steady_seconds(). `seconds`: on the CPU the time until completion,
  // including overlapped computation; on a GPU the GPU time.
  double began = 0, seconds = 0;
  // From 1, among this process's exchanges on this axis and kind of device; gradients count separately.
  int64_t number = 0;
};

}  // namespace tessera::parallel
