// The implementations, and the choice of one for this machine.
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
extern const LinearFunctions linear_single;
extern void (*const linear_dot)(const ProductTile&);
}  // namespace avx512_bf16
namespace amx {
extern const LinearTiles linear_tiles;
}
namespace avx512_vnni {
extern void (*const linear_dot)(const ProductTile&);
}
#endif
namespace portable {
extern const LinearFunctions linear_single, linear_int16;
}

namespace {

#if TESSERA_KERNELS_X86
LinearFunctions with_dot(const LinearFunctions& rest, WordForm form, void (*product)(const ProductTile&)) {
  LinearFunctions functions = rest;
  functions.form = form;
  functions.product = product;
  return functions;
}
LinearFunctions with_tiles(WordForm form) {
  const LinearTiles& tiles = amx::linear_tiles;
  LinearFunctions functions =
      with_dot(avx512_bf16::linear_single, form, form == WordForm::bf16_pair ? tiles.pairs : tiles.bytes);
  functions.rows = tiles.rows;
  return functions;
}

// Best first. AVX512_BF16 also rounds to bfloat16 in one instruction, for any products.
void add_avx512(std::vector<LinearImplementation>& all, Arithmetic arithmetic) {
  static const LinearFunctions pairs =
      with_dot(avx512_bf16::linear_single, WordForm::bf16_pair, avx512_bf16::linear_dot);
  static const LinearFunctions bytes =
      with_dot(avx512::linear_single, WordForm::byte_quad, avx512_vnni::linear_dot);
  static const LinearFunctions bytes_rounded =
      with_dot(avx512_bf16::linear_single, WordForm::byte_quad, avx512_vnni::linear_dot);
  static const LinearFunctions pair_tiles = with_tiles(WordForm::bf16_pair),
                               byte_tiles = with_tiles(WordForm::byte_quad);
  if (arithmetic == Arithmetic::int8) {
    all.push_back({"amx", arithmetic, Isa::amx, &byte_tiles});
    all.push_back({"avx512_vnni+bf16", arithmetic, Isa::avx512_bf16, &bytes_rounded});
    all.push_back({"avx512_vnni", arithmetic, Isa::avx512_vnni, &bytes});
    all.push_back({"avx512", arithmetic, Isa::avx512, &avx512::linear_int16});
    return;
  }
  if (arithmetic == Arithmetic::bf16) {
    all.push_back({"amx", arithmetic, Isa::amx, &pair_tiles});
    all.push_back({"avx512_bf16", arithmetic, Isa::avx512_bf16, &pairs});
  }
  all.push_back({"avx512+bf16", arithmetic, Isa::avx512_bf16, &avx512_bf16::linear_single});
  all.push_back({"avx512", arithmetic, Isa::avx512, &avx512::linear_single});
}
#endif

std::vector<LinearImplementation> list(Arithmetic arithmetic) {
  std::vector<LinearImplementation> all;
  const bool integer = arithmetic == Arithmetic::int8;
#if TESSERA_KERNELS_X86
  add_avx512(all, arithmetic);
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
    if (entry.isa <= isa && (!by_pairs || bf16_pairs_are_faster(entry.isa))) return entry;
  }
  return all.back();
}

}  // namespace tessera::kernels
