// Which implementations there are, and which one a machine takes.
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

// Known, not measured: where training goes on, and in every process of it, the same form must be taken. AMD's
// dot product makes twice the products of a float multiply-add (Zen 4), Intel's half of them (Sapphire
// Rapids).
bool dot_is_faster() {
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
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
