// The emulator itself: its primitives against their definitions, and faults that it must find.
#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels::gpu {
namespace {

using gpu_testing::DeviceArray;
using gpu_testing::normal;

std::string fault_of(int threads, const std::function<void(char*)>& body) {
  try {
    emulate(threads, 1024, body);
  } catch (const EmulatedFault& fault) {
    return fault.what();
  }
  return "";
}

TEST(Emulator, ProductOfFragmentsIsTheProduct) {
  DeviceArray a(Element::bf16, normal(16 * 16, 1)), b(Element::bf16, normal(16 * 16, 2));
  std::vector<float> d(16 * 16);
  emulate(32, 1024, [&](char*) {
    uint32_t fa[4], fb[4];
    const int row = lane() & 7, second = lane() >> 3 & 1, third = lane() >> 4;
    load_matrices(fa, a.as<bf16>() + (row + second * 8) * 16 + third * 8);
    load_matrices_transposed(fb, b.as<bf16>() + (row + second * 8) * 16 + third * 8);
    for (int n = 0; n < 2; ++n) {
      float sum[4] = {};
      multiply_add(sum, fa, fb[2 * n], fb[2 * n + 1]);
      for (int i = 0; i < 4; ++i)
        d[((lane() >> 2) + 8 * (i >> 1)) * 16 + 8 * n + 2 * (lane() & 3) + (i & 1)] = sum[i];
    }
  });
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      double want = 0;
      for (int k = 0; k < 16; ++k) want += a.get(i * 16 + k) * b.get(k * 16 + j);
      EXPECT_NEAR(d[i * 16 + j], want, 1e-4) << i << ", " << j;
    }
}

TEST(Emulator, SumsAndShufflesReachEveryLane) {
  std::vector<float> sums(256), before(256);
  emulate(256, 64, [&](char* shared) {
    sums[thread()] = block_sum<8>(static_cast<float>(thread()), (float*)shared);
    before[thread()] = shuffle_up(static_cast<float>(lane()), 3);
  });
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(sums[i], 255 * 128);
    EXPECT_EQ(before[i], i % 32 < 3 ? i % 32 : i % 32 - 3);
  }
}

TEST(Emulator, SharedMemoryStartsAsNaN) {
  bool all = true;
  emulate(32, 128, [&](char* shared) { all = all && std::isnan(((float*)shared)[thread()]); });
  EXPECT_TRUE(all);
}

TEST(Emulator, WhatHangsAGpuIsAFault) {
  const auto skips = [](char*) {
    if (thread() != 5) barrier();
  };
  EXPECT_NE(fault_of(64, skips), "");
  const auto half_a_warp = [](char*) {
    if (lane() < 16) shuffle_xor(1, 1);
  };
  EXPECT_NE(fault_of(32, half_a_warp), "");
  const auto mixed = [](char*) {
    uint32_t a[4] = {};
    float d[4] = {};
    if (lane() < 16)
      shuffle_xor(1, 1);
    else
      multiply_add(d, a, 0, 0);
  };
  EXPECT_NE(fault_of(32, mixed).find("while others are at"), std::string::npos);
  EXPECT_NE(fault_of(40, [](char*) {}), "");
  // And the emulator is usable after it.
  EXPECT_EQ(fault_of(64, [](char*) { barrier(); }), "");
}

TEST(Emulator, MisalignedCopiesAndMatricesAreFaults) {
  alignas(16) static const char from[64] = {};
  EXPECT_NE(fault_of(32, [](char* shared) { copy16_async(shared + 8, from, true); }), "");
  EXPECT_NE(fault_of(32, [](char* shared) { copy16_async(shared, from + 4, true); }), "");
  uint32_t r[4];
  EXPECT_NE(fault_of(32, [&](char* shared) { load_matrices(r, (const bf16*)(shared + 2)); }), "");
}

TEST(Emulator, CopiesArriveLateOrAtOnce) {
  alignas(16) static const float from[4] = {1, 2, 3, 4};
  for (const auto order : {EmulatedOrder::late, EmulatedOrder::early}) {
    set_emulated_order(order);
    bool before = false, after = false;
    emulate(32, 32, [&](char* shared) {
      if (thread() == 0) copy16_async(shared, from, true), copy16_async(shared + 16, from, false);
      commit_copies();
      commit_copies();
      wait_copies<2>();
      if (thread() == 0) before = ((float*)shared)[3] == 4;
      wait_copies<1>();
      if (thread() == 0) after = ((float*)shared)[3] == 4 && ((float*)shared)[7] == 0;
    });
    EXPECT_EQ(before, order == EmulatedOrder::early);
    EXPECT_TRUE(after);
  }
}

TEST(Emulator, RoundingToBfloat16IsToEven) {
  EXPECT_EQ(to_bf16(1 + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1 + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_EQ(to_bf16(-INFINITY).bits, 0xff80);
  EXPECT_EQ(pack(1, 2), 0x40003f80u);
  EXPECT_EQ(low(pack(1, 2)), 1);
  EXPECT_EQ(high(pack(1, 2)), 2);
}

}  // namespace
}  // namespace tessera::kernels::gpu
