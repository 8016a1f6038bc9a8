// Compiles a loop for several instruction sets; the loader picks the machine's own at start-up.
//
// In ISO C++ mode, without contraction to fused multiply-adds, element-wise loops give the same bits on all
// of them.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define TESSERA_FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TESSERA_FOR_EACH_ISA
#endif
