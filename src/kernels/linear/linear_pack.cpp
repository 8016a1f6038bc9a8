// Copies weights into panels of columns.
#include <bit>
#include <cmath>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/linear/linear_data.h"
#include "kernels/reference.h"

namespace tessera::kernels {
namespace {

float number_at(const MatrixView& from, int64_t o, int64_t k) {
  return static_cast<float>(read_element(from.data, from.element, o * from.row + k * from.column));
}

// Rounds to nearest, ties to even; a NaN stays one.
uint32_t bf16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return value != value ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
float rounded(float value) { return std::bit_cast<float>(bf16_bits(value) << 16); }

// Returns the scale of output o: `given` unless 0. NaN if a weight is not finite, so the output is NaN too.
float scale_of(const MatrixView& from, int64_t o, int64_t in, float given) {
  float largest = 0;
  for (int64_t k = 0; k < in; ++k) {
    const float w = number_at(from, o, k);
    if (!std::isfinite(w)) return std::nanf("");
    largest = std::max(largest, std::abs(w));
  }
  return given != 0 ? given : largest > 0 ? largest / 127.0f : 1.0f;
}
int quantised(float w, float scale) {
  return std::isfinite(scale) ? static_cast<int>(std::lrintf(std::min(127.0f, std::max(-128.0f, w / scale))))
                              : 0;
}

struct Packer {
  const PackedLinearData& data;
  const MatrixView& from;
  const float* given_scales;  // or null
  PackedMatrix& to;

  // Writes numbers [first, first + count) of the outputs of panel p in the arithmetic's precision,
  // [count][panel] floats, padded with zeros to the panel and the last word.
  void numbers(int64_t p, int64_t first, int64_t count, float* out) const {
    const int64_t begin = p * data.panel, outputs = std::min(data.panel, data.out - begin);
    const int64_t stored = std::min(count, data.in - first);
    if (outputs < data.panel || stored < count) std::fill_n(out, count * data.panel, 0.0f);
    if (from.element == Element::f32) {
      const float* w = static_cast<const float*>(from.data) + begin * from.row + first * from.column;
      if (from.row == 1)
        for (int64_t k = 0; k < stored; ++k) std::copy_n(w + k * from.column, outputs, out + k * data.panel);
      else
        for (int64_t n = 0; n < outputs; ++n)
          for (int64_t k = 0; k < stored; ++k) out[k * data.panel + n] = w[n * from.row + k * from.column];
    } else {
      for (int64_t n = 0; n < outputs; ++n)
        for (int64_t k = 0; k < stored; ++k) out[k * data.panel + n] = number_at(from, begin + n, first + k);
    }
    if (data.implementation.arithmetic == Arithmetic::bf16)
      for (int64_t i = 0; i < count * data.panel; ++i) out[i] = rounded(out[i]);
    if (data.implementation.arithmetic == Arithmetic::int8)
      for (int64_t k = 0; k < stored; ++k)
        for (int64_t n = 0; n < outputs; ++n) {
          float& w = out[k * data.panel + n];
          w = static_cast<float>(quantised(w, to.scales[begin + n]));
        }
  }

  // `apart`: distance in elements between numbers packed into one word.
  static uint32_t word(WordForm form, const float* row, int64_t apart) {
    uint32_t bits = 0;
    switch (form) {
      case WordForm::bf16_pair:
        return bf16_bits(row[0]) | bf16_bits(row[apart]) << 16;
      case WordForm::byte_quad:
        for (int i = 3; i >= 0; --i)
          bits = bits << 8 | static_cast<uint8_t>(static_cast<int>(row[i * apart]));
        return bits;
      default:
        for (int i = 1; i >= 0; --i)
          bits = bits << 16 | static_cast<uint16_t>(static_cast<int>(row[i * apart]));
        return bits;
    }
  }

  // Sets the scale and start of output o.
  void describe(int64_t o) const {
    to.scales[o] = scale_of(from, o, data.in, given_scales ? given_scales[o] : 0);
    int64_t sum = 0;
    for (int64_t k = 0; k < data.in; ++k) sum += quantised(number_at(from, o, k), to.scales[o]);
    const LinearFunctions* functions = data.implementation.functions;
    to.start[o] = functions && functions->form == WordForm::byte_quad ? static_cast<int32_t>(-128 * sum) : 0;
  }

  void panel(int64_t p) const {
    constexpr int64_t kBlock = 64;  // numbers of each output at a time: the transposed block fits into the
                                    // cache
    const WordForm form = data.implementation.functions->form;
    const int64_t step = numbers_per_word(form);
    uint32_t* out = static_cast<uint32_t*>(to.panels.get()) + p * data.words * data.panel;
    if (form == WordForm::bf16_pair && from.element == Element::f32 && (from.row == 1 || from.column == 1)) {
      const int64_t begin = p * data.panel;
      data.implementation.functions->pack_pairs({static_cast<const float*>(from.data) + begin * from.row,
                                                 from.row, from.column, data.in,
                                                 std::min(data.panel, data.out - begin), data.words, out});
      return;
    }
    std::vector<float> block(static_cast<size_t>(form == WordForm::single ? 0 : kBlock * data.panel));
    for (int64_t first = 0; first < data.words * step; first += kBlock) {
      const int64_t count = std::min(kBlock, data.words * step - first);
      if (form == WordForm::single) {
        numbers(p, first, count, reinterpret_cast<float*>(out + first * data.panel));
        continue;
      }
      numbers(p, first, count, block.data());
      for (int64_t k = 0; k < count / step; ++k)
        for (int64_t n = 0; n < data.panel; ++n)
          out[(first / step + k) * data.panel + n] =
              word(form, block.data() + k * step * data.panel + n, data.panel);
    }
  }
};

void pack(PackedLinearData& data, const MatrixView& from, const float* bias, const float* given_scales,
          PackedMatrix& to) {
  const auto padded = static_cast<size_t>(data.panels * data.panel);
  to.bias.assign(padded, 0);
  if (bias) std::copy_n(bias, data.out, to.bias.begin());
  const Packer packer{data, from, given_scales, to};
  if (data.implementation.arithmetic == Arithmetic::int8) {
    to.scales.assign(padded, 1);
    to.start.assign(padded, 0);
    parallel_for(data.out, 16, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) packer.describe(o);
    });
  }
  if (!data.implementation.functions) {
    to.plain.resize(static_cast<size_t>(data.in * data.out));
    for (int64_t o = 0; o < data.out; ++o) packer.numbers(o, 0, data.in, to.plain.data() + o * data.in);
    return;
  }
  const size_t bytes = padded * static_cast<size_t>(data.words) * 4;
  to.panels.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (!to.panels) throw std::bad_alloc();
  parallel_for(data.panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) packer.panel(p);
  });
}

void check_layer(const LinearLayer& layer) {
  constexpr int64_t kMost = 1 << 20;
  check(layer.in >= 1 && layer.out >= 1 && layer.in <= kMost && layer.out <= kMost, "linear: a layer of ",
        layer.in, " x ", layer.out, "; both must be between 1 and ", kMost);
  check(layer.weight.data != nullptr, "linear: no weight");
  check((layer.activation == Activation::silu_gate) == (layer.gate.data != nullptr),
        "linear: silu_gate needs a gate matrix; other activations must not have one");
  check(std::isfinite(layer.static_scale) && layer.static_scale >= 0, "linear: the scale of x is ",
        layer.static_scale, ", must be 0 (each row's own) or positive");
  for (int64_t o = 0; layer.weight_scales && o < layer.out; ++o)
    check(std::isfinite(layer.weight_scales[o]) && layer.weight_scales[o] > 0 && !layer.gate.data,
          "linear: the scale of output ", o, " is ", layer.weight_scales[o],
          ", must be positive, and there must be no gate");
}

}  // namespace

PackedLinear::PackedLinear(const LinearLayer& layer, Arithmetic arithmetic)
    : PackedLinear(layer, choose_linear(arithmetic)) {}

PackedLinear::PackedLinear(const LinearLayer& layer, const LinearImplementation& implementation)
    : data_(std::make_unique<PackedLinearData>()) {
  check_layer(layer);
  constexpr int64_t kMostInt8 = int64_t{1} << 17;  // 2^17 products of two bytes stay below 2^31
  check(implementation.arithmetic != Arithmetic::int8 || layer.in < kMostInt8, "linear: ", layer.in,
        " inputs in int8, must be fewer than ", kMostInt8);
  PackedLinearData& data = *data_;
  data.implementation = implementation;
  data.in = layer.in, data.out = layer.out;
  data.activation = layer.activation;
  data.static_scale = layer.static_scale;
  if (const LinearFunctions* functions = implementation.functions) {
    const int64_t numbers = numbers_per_word(functions->form);
    data.words = (layer.in + numbers - 1) / numbers;
    data.panel = functions->panel;
  } else {
    data.panel = 1;
  }
  data.panels = (layer.out + data.panel - 1) / data.panel;
  pack(data, layer.weight, layer.bias, layer.weight_scales, data.weight);
  if (layer.gate.data) pack(data, layer.gate, layer.gate_bias, nullptr, data.gate);
  if (layer.scale) {
    data.out_scale.assign(static_cast<size_t>(data.panels * data.panel), 1);
    std::copy_n(layer.scale, layer.out, data.out_scale.begin());
  }
}

PackedLinear::~PackedLinear() = default;
PackedLinear::PackedLinear(PackedLinear&&) noexcept = default;
PackedLinear& PackedLinear::operator=(PackedLinear&&) noexcept = default;
int64_t PackedLinear::in() const { return data_->in; }
int64_t PackedLinear::out() const { return data_->out; }
const LinearImplementation& PackedLinear::implementation() const { return data_->implementation; }

}  // namespace tessera::kernels
