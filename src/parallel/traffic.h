// Records of the exchanges with other processes, and the loss of one of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace tessera::parallel {

// Another process of the run died or stopped. A program that ends with it exits with 75, so that a launcher may
// start the run again.
struct Lost : Error {
  explicit Lost(const std::string& message) : Error(ErrorKind::failed, message) {}
};
inline constexpr int kLostExitCode = 75;

// Kinds of exchanges: the all-reduce of gradients, sums, broadcasts of the leader's bytes, gathers of rows or
// bytes, the numbers of rows before such a gather, sums divided by rows, rows for every
// process, and rows for the next one.
inline constexpr const char *kGradients = "gradients", *kSum = "sum", *kBroadcast = "broadcast",
                            *kGather = "gather", *kCounts = "counts", *kScatter = "scatter",
                            *kExchange = "exchange", *kRing = "ring";

// The calls and bytes of one kind of exchanges on one axis so far in this process.
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
  int64_t number = 0;  // of the exchanges of this process on this axis, from 1
};

}  // namespace tessera::parallel
