#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"
#include "kernels/mlstm/mlstm.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

// TESSERA_ISA is read once per process, so each value is tried in its own.
int exit_code_with(const char* value) {
  ::setenv("TESSERA_ISA", value, 1);
  try {
    std::fputs(name_of(active_isa()), stderr);
    return 0;
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    return error.kind == ErrorKind::usage ? 2 : 1;
  }
}

TEST(IsaDeathTest, TheEnvironmentForcesOneByName) {
  EXPECT_EXIT(std::exit(exit_code_with("portable")), ::testing::ExitedWithCode(0), "^portable$");
  EXPECT_EXIT(std::exit(exit_code_with("reference")), ::testing::ExitedWithCode(0), "^reference$");
  EXPECT_EXIT(std::exit(exit_code_with("")), ::testing::ExitedWithCode(0), name_of(machine().best));
}

TEST(IsaDeathTest, AnUnknownNameIsAUsageErrorWithTheNearest) {
  EXPECT_EXIT(std::exit(exit_code_with("avx51")), ::testing::ExitedWithCode(2),
              "TESSERA_ISA=avx51: no such instruction set, did you mean 'avx512'.*reference, portable, "
              "avx2, avx512, avx512_vnni, avx512_bf16, amx");
}

TEST(Isa, WhatTheMachineLacksIsRefused) {
  if (machine().best == Isa::amx) GTEST_SKIP() << "this machine has every instruction set";
  EXPECT_THROW(force_isa(Isa::amx), Error);
}

TEST(Isa, AForcedOneTakesNothingOfItsExtensions) {
  const Isa before = active_isa();
  for (const Isa isa :
       {Isa::amx, Isa::avx512_bf16, Isa::avx512_vnni, Isa::avx512, Isa::avx2, Isa::portable}) {
    if (isa > machine().best) continue;
    force_isa(isa);
    for (const auto arithmetic : {Arithmetic::f32, Arithmetic::bf16, Arithmetic::int8})
      EXPECT_LE(choose_linear(arithmetic).isa, isa);
    EXPECT_EQ(attention_fixed_point() != nullptr, isa >= Isa::avx512_vnni) << name_of(isa);
    EXPECT_EQ(attention_byte_scores() != nullptr, isa >= Isa::avx512_bf16) << name_of(isa);
    EXPECT_EQ(attention_bf16_pairs() != nullptr, isa >= Isa::avx512_bf16) << name_of(isa);
    EXPECT_EQ(mlstm_bf16_pairs() != nullptr, isa >= Isa::avx512_bf16) << name_of(isa);
  }
  force_isa(before);
}

TEST(Isa, ForcingOneChoosesItsImplementation) {
  const Isa before = active_isa();
  for (const auto& entry : mlstm_table()) {
    if (entry.isa > machine().best) continue;
    force_isa(entry.isa);
    EXPECT_EQ(&choose(mlstm_table()), entry.functions) << name_of(entry.isa);
  }
  force_isa(before);
}

TEST(Isa, TablesGoFromTheBestToTheReference) {
  Isa last = Isa::amx;
  for (const auto& entry : mlstm_table()) {
    EXPECT_LE(entry.isa, last);
    last = entry.isa;
  }
  EXPECT_EQ(last, Isa::reference);
}

}  // namespace
}  // namespace tessera::kernels
