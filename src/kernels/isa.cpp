#include "kernels/isa.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#if TESSERA_KERNELS_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/error.h"
#include "core/text.h"

namespace tessera::kernels {
namespace {

constexpr std::array kNames = {"reference",   "portable",    "avx2", "avx512",
                               "avx512_vnni", "avx512_bf16", "amx"};

#if TESSERA_KERNELS_X86
// True if the processor multiplies tiles of bfloat16 and of bytes.
bool has_tiles() {
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22, kInt8 = 1u << 25, kAll = kTiles | kBf16 | kInt8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAll) == kAll;
}
// Requests the 8 kB of tile registers for the whole process. The system refuses if a thread's signal stack is
// too small to hold them.
bool grants_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

Machine detect() {
  Machine found{Isa::portable};
#if TESSERA_KERNELS_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return found;
  found.best = Isa::avx2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return found;
  found.best = Isa::avx512;
  if (!__builtin_cpu_supports("avx512vnni")) return found;
  found.best = Isa::avx512_vnni;
  if (!__builtin_cpu_supports("avx512bf16")) return found;
  found.best = Isa::avx512_bf16;
  if (!has_tiles()) return found;
  found.tiles_refused = !grants_tiles();
  if (!found.tiles_refused) found.best = Isa::amx;
#endif
  return found;
}

Isa checked(Isa isa, const std::string& source) {
  if (isa > machine().best)
    fail_usage(source, ": this machine has no ", name_of(isa), "; its best is ", name_of(machine().best));
  return isa;
}

Isa from_environment() {
  const char* wanted = std::getenv("TESSERA_ISA");
  if (!wanted || !*wanted) return machine().best;
  for (size_t i = 0; i < kNames.size(); ++i)
    if (wanted == std::string(kNames[i])) return checked(static_cast<Isa>(i), text("TESSERA_ISA=", wanted));
  const std::vector<std::string> names(kNames.begin(), kNames.end());
  fail_usage("TESSERA_ISA=", wanted, ": no such instruction set", did_you_mean(wanted, names), "; there are ",
             join(names, ", "));
}

std::atomic<int> forced{-1};

}  // namespace

const Machine& machine() {
  static const Machine found = detect();
  return found;
}

Isa active_isa() {
  const int now = forced.load(std::memory_order_relaxed);
  if (now >= 0) return static_cast<Isa>(now);
  static const Isa chosen = from_environment();
  return chosen;
}

void force_isa(Isa isa) { forced = static_cast<int>(checked(isa, "force_isa")); }

const char* name_of(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

// Relative to a float multiply-add, AMD's dot product has twice the throughput (Zen 4), Intel's half
// (Sapphire Rapids). Tiles have sixteen times the throughput.
bool bf16_pairs_are_faster([[maybe_unused]] Isa isa) {
#if TESSERA_KERNELS_X86
  __builtin_cpu_init();
  return isa >= Isa::amx || (isa >= Isa::avx512_bf16 && __builtin_cpu_is("amd"));
#else
  return false;
#endif
}

}  // namespace tessera::kernels
