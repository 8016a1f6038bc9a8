// Weights copied into panels of columns.
#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/linear/linear_data.h"
#include "kernels/reference.h"

namespace tessera::kernels {
namespace {

float number_at(const MatrixView& from, int64_t o, int64_t k) {
  return static_cast<float>(read_element(from.data, from.element, o * from.row + k * from.column));
}

uint16_t bf16_bits(float value) {
  uint16_t bits = 0;
  write_element(&bits, Element::bf16, 0, value);
  return bits;
}
float rounded(float value) { return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits(value)) << 16); }

// The scale of output o; not a number if a weight is not finite, so that the output is not one either.
float scale_of(const MatrixView& from, int64_t o, int64_t in) {
  float largest = 0;
  for (int64_t k = 0; k < in; ++k) {
    const float w = number_at(from, o, k);
    if (!std::isfinite(w)) return std::nanf("");
    largest = std::max(largest, std::abs(w));
  }
  return largest > 0 ? largest / 127.0f : 1.0f;
}
int quantised(float w, float scale) {
  return std::isfinite(scale) ? static_cast<int>(std::lrintf(std::min(127.0f, std::max(-127.0f, w / scale))))
                              : 0;
}

struct Packer {
  const PackedLinearData& data;
  const MatrixView& from;
  PackedMatrix& to;

  float plain(int64_t o, int64_t k) const {
    const float w = number_at(from, o, k);
    switch (data.implementation.arithmetic) {
      case Arithmetic::bf16:
        return rounded(w);
      case Arithmetic::int8:
        return static_cast<float>(quantised(w, to.scales[o]));
      default:
        return w;
    }
  }

  void word(WordForm form, int64_t o, int64_t first, void* out) const {
    const int64_t count = numbers_per_word(form);
    unsigned char* bytes = static_cast<unsigned char*>(out);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t k = first * count + i;
      const float w = o < data.out && k < data.in ? plain(o, k) : 0;
      const auto whole = form == WordForm::single || form == WordForm::bf16_pair ? 0 : static_cast<int>(w);
      const auto byte = static_cast<int8_t>(whole);
      const auto wide = static_cast<int16_t>(whole);
      const uint16_t half = form == WordForm::bf16_pair ? bf16_bits(w) : uint16_t{0};
      if (form == WordForm::single) std::memcpy(bytes, &w, 4);
      if (form == WordForm::bf16_pair) std::memcpy(bytes + 2 * i, &half, 2);
      if (form == WordForm::byte_quad) std::memcpy(bytes + i, &byte, 1);
      if (form == WordForm::int16_pair) std::memcpy(bytes + 2 * i, &wide, 2);
    }
  }

  // What belongs to output o besides its numbers.
  void describe(int64_t o) const {
    to.scales[o] = scale_of(from, o, data.in);
    int64_t sum = 0;
    for (int64_t k = 0; k < data.in; ++k) sum += quantised(number_at(from, o, k), to.scales[o]);
    const LinearFunctions* functions = data.implementation.functions;
    to.offsets[o] = functions && functions->form == WordForm::byte_quad ? static_cast<int32_t>(128 * sum) : 0;
  }

  void panel(int64_t p) const {
    const WordForm form = data.implementation.functions->form;
    char* out = static_cast<char*>(to.panels.get()) + p * data.words * data.panel * 4;
    for (int64_t k = 0; k < data.words; ++k)
      for (int64_t n = 0; n < data.panel; ++n)
        word(form, p * data.panel + n, k, out + (k * data.panel + n) * 4);
  }
};

void pack(PackedLinearData& data, const MatrixView& from, const float* bias, PackedMatrix& to) {
  const auto padded = static_cast<size_t>(data.panels * data.panel);
  to.bias.assign(padded, 0);
  if (bias) std::copy_n(bias, data.out, to.bias.begin());
  const Packer packer{data, from, to};
  if (data.implementation.arithmetic == Arithmetic::int8) {
    to.scales.assign(padded, 1);
    to.offsets.assign(padded, 0);
    parallel_for(data.out, 16, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) packer.describe(o);
    });
  }
  if (!data.implementation.functions) {
    to.plain.resize(static_cast<size_t>(data.in * data.out));
    for (int64_t o = 0; o < data.out; ++o)
      for (int64_t k = 0; k < data.in; ++k) to.plain[o * data.in + k] = packer.plain(o, k);
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
        "linear: a gate matrix goes with silu_gate, and with nothing else");
  check(std::isfinite(layer.static_scale) && layer.static_scale >= 0, "linear: the scale of x is ",
        layer.static_scale, ", must be 0 (each row's own) or positive");
}

}  // namespace

PackedLinear::PackedLinear(const LinearLayer& layer, Arithmetic arithmetic)
    : PackedLinear(layer, choose_linear(arithmetic)) {}

PackedLinear::PackedLinear(const LinearLayer& layer, const LinearImplementation& implementation)
    : data_(std::make_unique<PackedLinearData>()) {
  check_layer(layer);
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
  pack(data, layer.weight, layer.bias, data.weight);
  if (layer.gate.data) pack(data, layer.gate, layer.gate_bias, data.gate);
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
size_t PackedLinear::bytes() const {
  const auto matrices = static_cast<size_t>(data_->gate.bias.empty() ? 1 : 2);
  const auto numbers = static_cast<size_t>(data_->panels * data_->panel);
  return matrices * numbers * 4 *
         static_cast<size_t>(data_->implementation.functions ? data_->words : data_->in);
}

}  // namespace tessera::kernels
