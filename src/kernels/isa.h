// Which instruction set the kernels use: the best one the machine has, unless TESSERA_ISA names another.
//
// A kernel's file x.cpp is compiled once per instruction set, each time in a namespace of its own (see
// CMakeLists.txt), so a file built that way includes C headers, simd.h and its operator's own headers that do
// the same: an inline function of the C++ library would be shared by the linker and carry, say, AVX-512 to a
// machine without it.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

// Ascending: each includes the ones before it.
//   reference  the plain definition; slow, there to compare with
//   portable   the compiler's baseline (SSE2 on x86-64), 16-byte vectors
//   avx2       AVX2 + FMA + F16C, 32-byte vectors (Haswell, Zen)
//   avx512     AVX-512 F, BW, VL, DQ, 64-byte vectors (Skylake-X)
//   avx512_vnni  and AVX512_VNNI: products of int8 quadruples (Cascade Lake)
//   avx512_bf16  and AVX512_BF16: products of bfloat16 pairs, rounding to bfloat16 (Cooper Lake, Zen 4)
//   amx        and AMX_BF16, AMX_INT8: products of tiles of either (Sapphire Rapids)
enum class Isa : int32_t { reference, portable, avx2, avx512, avx512_vnni, avx512_bf16, amx };

// The abilities of the machine, whatever is forced.
struct Machine {
  Isa best;
  bool tiles_refused = false;  // the processor has AMX, the system does not grant it to this process
};
const Machine& machine();

// The instruction set in use: what force_isa last said, else TESSERA_ISA, else machine().best.
// Throws a usage error if TESSERA_ISA is not a name above, or names what the machine lacks.
Isa active_isa();

// Overrules TESSERA_ISA for the whole process. Throws a usage error for what the machine lacks.
void force_isa(Isa isa);

const char* name_of(Isa isa);

// Whether products of bfloat16 pairs, as `isa` has them, are faster than those of floats on this machine.
// Known, not measured: where training goes on, and in every process of it, the same form must be taken.
bool bf16_pairs_are_faster(Isa isa);

}  // namespace tessera::kernels
