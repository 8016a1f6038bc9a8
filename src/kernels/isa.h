// The instruction set that the kernels use: the machine's best, unless TESSERA_ISA names another.
//
// A kernel's file x.cpp is compiled once per instruction set, each time in its own namespace (see
// CMakeLists.txt). Such a file includes only C headers, simd.h and headers of its operator that do the same.
// The linker would merge inline functions of the C++ library and carry, for example, AVX-512 to a machine
// without it.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

// Ascending: each includes the ones before it.
//   reference  the plain definition; slow, for comparison
//   portable   the compiler's baseline (SSE2 on x86-64), 16-byte vectors
//   avx2       AVX2 + FMA + F16C, 32-byte vectors (Haswell, Zen)
//   avx512     AVX-512 F, BW, VL, DQ, 64-byte vectors (Skylake-X)
//   avx512_vnni  and AVX512_VNNI: products of int8 quadruples (Cascade Lake)
//   avx512_bf16  and AVX512_BF16: products of bfloat16 pairs, rounding to bfloat16 (Cooper Lake, Zen 4)
//   amx        and AMX_BF16, AMX_INT8: products of tiles of either (Sapphire Rapids)
enum class Isa : int32_t { reference, portable, avx2, avx512, avx512_vnni, avx512_bf16, amx };

// The features of the machine, regardless of force_isa and TESSERA_ISA.
struct Machine {
  Isa best;
  bool tiles_refused = false;  // the processor has AMX, but the system denies it to this process
};
const Machine& machine();

// Returns the instruction set in use: the last one forced by force_isa, else TESSERA_ISA, else
// machine().best. Throws a usage error if TESSERA_ISA is not a name above, or if the machine lacks that
// instruction set.
Isa active_isa();

// Overrides TESSERA_ISA for the whole process. Throws a usage error if the machine lacks `isa`.
void force_isa(Isa isa);

const char* name_of(Isa isa);

// True if products of bfloat16 pairs, as `isa` computes them, are faster than products of floats on this
// machine. Not a measurement but a table: a resumed training and all its processes must choose the same form.
bool bf16_pairs_are_faster(Isa isa);

}  // namespace tessera::kernels
