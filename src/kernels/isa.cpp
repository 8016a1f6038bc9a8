#include "kernels/isa.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "core/text.h"

namespace tessera::kernels {
namespace {

constexpr std::array kNames = {"reference", "portable", "avx2", "avx512", "avx512_vnni", "avx512_bf16"};

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
  found.best = __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512_vnni;
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

// AMD's dot product makes twice the products of a float multiply-add (Zen 4), Intel's half of them (Sapphire
// Rapids).
bool bf16_dot_is_faster() {
#if TESSERA_KERNELS_X86
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

}  // namespace tessera::kernels
