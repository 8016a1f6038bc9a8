// Which implementations there are, and which one a machine takes.
#include <time.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/linear/linear_data.h"

namespace tessera::kernels {

#if TESSERA_KERNELS_X86
namespace avx512 {
extern const LinearFunctions linear_single, linear_int16;
}
namespace avx2 {
extern const LinearFunctions linear_single, linear_int16;
}
namespace avx512_bf16 {
extern const LinearFunctions linear_single, linear_int16;
extern void (*const linear_dot)(const ProductTile&);
}  // namespace avx512_bf16
namespace avx512_vnni {
extern void (*const linear_dot)(const ProductTile&);
}
#endif
namespace portable {
extern const LinearFunctions linear_single, linear_int16;
}

namespace {

#if TESSERA_KERNELS_X86
// The extension rounds to bfloat16 in one instruction, whatever the products are.
const LinearFunctions& single512() {
  return machine().bf16 ? avx512_bf16::linear_single : avx512::linear_single;
}
const LinearFunctions& int16_512() {
  return machine().bf16 ? avx512_bf16::linear_int16 : avx512::linear_int16;
}

LinearFunctions with_dot(WordForm form, void (*product)(const ProductTile&)) {
  LinearFunctions functions = single512();
  functions.form = form;
  functions.product = product;
  return functions;
}

const LinearFunctions& bf16_dot() {
  static const LinearFunctions functions = with_dot(WordForm::bf16_pair, avx512_bf16::linear_dot);
  return functions;
}
const LinearFunctions& byte_dot() {
  static const LinearFunctions functions = with_dot(WordForm::byte_quad, avx512_vnni::linear_dot);
  return functions;
}

// The shortest of several times of one product that stays in the first-level cache.
double fastest(const LinearFunctions& functions, int64_t numbers) {
  std::vector<float> words(static_cast<size_t>(numbers * (kMostTileRows + functions.panel)));
  std::vector<float> sums(static_cast<size_t>(kMostTileRows * functions.panel));
  const int64_t k = numbers / numbers_per_word(functions.form);
  const ProductTile tile{words.data(),  k,      1,           words.data() + kMostTileRows * k,
                         kMostTileRows, k,      sums.data(), functions.panel,
                         false,         nullptr};
  double best = 1;
  for (int i = 0; i < 30; ++i) {
    timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int j = 0; j < 4; ++j) functions.product(tile);
    clock_gettime(CLOCK_MONOTONIC, &end);
    best = std::min(best, static_cast<double>(end.tv_sec - start.tv_sec) +
                              1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec));
  }
  return best;
}

// Measured once, in some 50 microseconds: processors differ by a factor of four.
bool dot_is_faster() {
  static const bool faster = fastest(bf16_dot(), 128) < 0.9 * fastest(single512(), 128);
  return faster;
}
#else
bool dot_is_faster() { return false; }
#endif

std::vector<LinearImplementation> list(Arithmetic arithmetic) {
  std::vector<LinearImplementation> all;
  const bool integer = arithmetic == Arithmetic::int8;
#if TESSERA_KERNELS_X86
  if (arithmetic == Arithmetic::bf16 && machine().bf16)
    all.push_back({"avx512_bf16", arithmetic, Isa::avx512, &bf16_dot()});
  if (integer && machine().vnni) all.push_back({"avx512_vnni", arithmetic, Isa::avx512, &byte_dot()});
  all.push_back({"avx512", arithmetic, Isa::avx512, integer ? &int16_512() : &single512()});
  all.push_back({"avx2", arithmetic, Isa::avx2, integer ? &avx2::linear_int16 : &avx2::linear_single});
#endif
  all.push_back(
      {"portable", arithmetic, Isa::portable, integer ? &portable::linear_int16 : &portable::linear_single});
  all.push_back({"reference", arithmetic, Isa::reference, nullptr});
  std::erase_if(all, [](const LinearImplementation& entry) { return entry.isa > machine().best; });
  return all;
}

}  // namespace

std::span<const LinearImplementation> linear_implementations(Arithmetic arithmetic) {
  static const std::array lists = {list(Arithmetic::f32), list(Arithmetic::bf16), list(Arithmetic::int8)};
  return lists[static_cast<size_t>(arithmetic)];
}

const LinearImplementation& choose_linear(Arithmetic arithmetic) {
  const Isa isa = active_isa();
  const auto all = linear_implementations(arithmetic);
  for (const LinearImplementation& entry : all) {
    const bool by_pairs = entry.functions && entry.functions->form == WordForm::bf16_pair;
    if (entry.isa <= isa && (!by_pairs || dot_is_faster())) return entry;
  }
  return all.back();
}

}  // namespace tessera::kernels
