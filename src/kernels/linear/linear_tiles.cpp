// Linear layers for one instruction set: products of floats and of int16 pairs, and the row operations before
// and after them. Per-ISA.
#include "kernels/linear/gelu.h"
#include "kernels/linear/product_tile.h"
#include "kernels/rows.h"

#if defined(__SSE2__) && !defined(__AVX2__)
#include <emmintrin.h>
#endif

namespace tessera::kernels::TESSERA_ISA {
namespace {

typedef uint8_t vb __attribute__((vector_size(W)));
typedef int16_t vs __attribute__((vector_size(2 * W)));

struct Single {
  using Word = float;
  using Vector = vf;
  using Sum = vf;
  TESSERA_INLINE vf splat(float a) { return TESSERA_ISA::splat(a); }
  TESSERA_INLINE vf multiply_add(vf sum, vf a, vf b) { return sum + a * b; }
};

// Two int16 products per lane; |x|, |w| <= 128, so sums of up to 2^16 words cannot overflow.
struct Int16Pair {
  using Word = int32_t;
  using Vector = vi;
  using Sum = vi;
  TESSERA_INLINE vi splat(int32_t a) { return splat_int(a); }
  TESSERA_INLINE vi multiply_add(vi sum, vi a, vi b) {
#if defined(__AVX512F__)
    return sum + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return sum + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return sum + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return sum + ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
  }
};

// Returns the values for row r of `call`: those of its sample, or of all rows.
template <class Call>
TESSERA_INLINE const float* numbers_of_row(const Call& call, const float* numbers, int64_t r) {
  if (!numbers || call.sample_rows == 0) return numbers;
  return numbers + (call.first + r) / call.sample_rows * call.columns;
}

// Normalises row x of `call` with its weight and bias into `to`. Prefetches the next row while squares are
// summed: a row is read three times, but only once from memory.
template <class Call, class From, class To>
TESSERA_INLINE void norm_row(const Call& call, const float* weight, const float* bias, const From* x,
                             To* to) {
  const int64_t columns = call.columns;
  const float count = (float)columns;
  const From* next = x + call.x_row;
  constexpr int64_t line = 64 / sizeof(From);
  float mean = 0;
  if (call.centred) {
    vf total = {};
    for (int64_t c = 0; c < columns; c += W) total += get(x + c, columns - c);
    mean = sum(total) / count;
  }
  vf squares = {};
  for (int64_t c = 0; c < columns; c += W) {
    const int64_t left = columns - c;
    if (c % line == 0) __builtin_prefetch(next + c);
    vf v = get(x + c, left) - mean;
    if (left < W) v = lanes() < (int32_t)left ? v : vf{};
    squares += v * v;
  }
  const float factor = 1.0f / __builtin_sqrtf(sum(squares) / count + call.eps);
  for (int64_t c = 0; c < columns; c += W) {
    const int64_t left = columns - c;
    vf v = (get(x + c, left) - mean) * factor;
    if (weight) v *= get(weight + c, left);
    if (bias) v += get(bias + c, left);
    put(to + c, v, left);
  }
}
template <class Call, class To>
TESSERA_INLINE void norm_row_of(const Call& call, Element element, int64_t r, To* to) {
  const int64_t at = r * call.x_row;
  const float *weight = numbers_of_row(call, call.weight, r), *bias = numbers_of_row(call, call.bias, r);
  if (element == Element::f32)
    norm_row(call, weight, bias, static_cast<const float*>(call.x) + at, to);
  else
    norm_row(call, weight, bias, static_cast<const bf16*>(call.x) + at, to);
}

template <class From, class To>
TESSERA_INLINE void copy_row(const From* from, int64_t columns, To* to) {
  for (int64_t c = 0; c < columns; c += W) put(to + c, get(from + c, columns - c), columns - c);
}
// Prepares row r, normalised or only converted.
template <class To>
TESSERA_INLINE void ready_row(const ReadyRows& call, int64_t r, To* to) {
  const int64_t at = r * call.x_row;
  if (call.normed)
    norm_row_of(call, call.element, r, to);
  else if (call.element == Element::f32)
    copy_row(static_cast<const float*>(call.x) + at, call.columns, to);
  else
    copy_row(static_cast<const bf16*>(call.x) + at, call.columns, to);
}

void round_to_bf16(float* row, int64_t columns) {
  for (int64_t c = 0; c < columns; c += W)
    put(row + c, widen(narrow(get(row + c, columns - c))), columns - c);
}

// Returns the scale of a row; NaN if a number is not finite.
template <class T>
TESSERA_INLINE float row_scale(const T* row, int64_t columns, float static_scale) {
  const float largest = largest_size(row, columns);
  if (largest != largest) return largest;
  return static_scale > 0 ? static_scale : largest > 0 ? largest / 127.0f : 1.0f;
}

// Quantises into the low bits of a float, where adding 1.5 * 2^23 leaves the rounded integer. Unless `held`
// clamps them, numbers must not exceed 127 by more than a rounding error.
template <bool held>
TESSERA_INLINE vi integer_bits(vf v, float inverse, float zero) {
  vf scaled = v * inverse;
  if (held) scaled = min(max(scaled, splat(-128.0f)), splat(127.0f));
  return (vi)(scaled + (12582912.0f + zero));
}

// A byte is its number plus 128, a short the number itself. `count`: numbers in the last words, or at least
// W.
struct Bytes {
  using Number = uint8_t;
  static constexpr int kZero = 128;
  TESSERA_INLINE vb lowest(vi bits) {
#if defined(__AVX512F__)
    return (vb)_mm512_maskz_cvtepi32_epi8((__mmask16)-1, (__m512i)bits);
#else
    return __builtin_convertvector(bits, vb);
#endif
  }
};
struct Shorts {
  using Number = int16_t;
  static constexpr int kZero = 0;
  TESSERA_INLINE vs lowest(vi bits) {
#if defined(__AVX512F__)
    return (vs)_mm512_maskz_cvtepi32_epi16((__mmask16)-1, (__m512i)bits);
#else
    return __builtin_convertvector(bits, vs);
#endif
  }
};
template <class Form>
TESSERA_INLINE void put_integers(void* row, int64_t c, vi bits, int64_t count) {
  const auto numbers = Form::lowest(bits);
  auto* to = static_cast<typename Form::Number*>(row) + c;
  if (count >= W)
    memcpy(to, &numbers, sizeof numbers);
  else
    memcpy(to, &numbers, (size_t)count * sizeof *to);
}

// `numbers`: the columns plus the zeros that fill whole words. Prefetches the next row meanwhile.
template <class Form, bool held, class T>
TESSERA_INLINE void quantise(const T* row, const T* next, int64_t columns, int64_t numbers, float scale,
                             void* out) {
  constexpr int64_t line = 64 / sizeof(T);
  const float inverse = 1.0f / scale;
  int64_t c = 0;
  for (; c + W <= columns; c += W) {
    if (c % line == 0) __builtin_prefetch(next + c);
    put_integers<Form>(out, c, integer_bits<held>(load(row + c), inverse, Form::kZero), W);
  }
  for (; c < numbers; c += W) {
    const int64_t left = columns - c;
    put_integers<Form>(out, c,
                       left > 0 ? integer_bits<held>(load_part(row + c, left), inverse, Form::kZero)
                                : splat_int(Form::kZero),
                       numbers - c);
  }
}

template <class T>
TESSERA_INLINE void quantise_row(const ReadyRows& call, const T* row, const T* next, int64_t r) {
  const float scale = row_scale(row, call.columns, call.static_scale);
  call.scales[r] = scale;
  void* out = static_cast<int32_t*>(call.out) + r * call.words;
  const int64_t numbers = call.words * numbers_per_word(call.form);
  if (call.static_scale > 0) {
    if (call.form == WordForm::byte_quad)
      quantise<Bytes, true>(row, next, call.columns, numbers, scale, out);
    else
      quantise<Shorts, true>(row, next, call.columns, numbers, scale, out);
  } else if (call.form == WordForm::byte_quad) {
    quantise<Bytes, false>(row, next, call.columns, numbers, scale, out);
  } else {
    quantise<Shorts, false>(row, next, call.columns, numbers, scale, out);
  }
}

void ready_integers(const ReadyRows& call, int64_t r) {
  const auto quantise_from = [&](const auto* x) __attribute__((always_inline)) {
    quantise_row(call, x + r * call.x_row, x + (r + 1) * call.x_row, r);
  };
  if (!call.normed && call.element == Element::bf16) return quantise_from(static_cast<const bf16*>(call.x));
  if (!call.normed) return quantise_from(static_cast<const float*>(call.x));
  norm_row_of(call, call.element, r, call.row);
  quantise_row(call, call.row, call.row, r);
}

void ready(const ReadyRows& call) {
  for (int64_t r = 0; r < call.rows; ++r) {
    if (call.form == WordForm::single) {
      float* out = static_cast<float*>(call.out) + r * call.words;
      ready_row(call, r, out);
      if (call.round && (call.normed || call.element == Element::f32)) round_to_bf16(out, call.columns);
    } else if (call.form == WordForm::bf16_pair) {
      bf16* out = static_cast<bf16*>(call.out) + r * call.words * 2;
      ready_row(call, r, out);
      if (call.columns % 2) out[call.columns] = bf16{0};
    } else {
      ready_integers(call, r);
    }
  }
}

struct Column {
  const float *bias, *scales;
};
template <bool integer>
TESSERA_INLINE vf value(const EpilogueTile& t, const void* sums, const Column& column, int64_t r, int64_t c) {
  const char* from = static_cast<const char*>(sums) + (r * t.sums_row + c) * 4;
  if (!integer) return load_words<vf>(from) + load(column.bias + c);
  const vf whole = __builtin_convertvector(load_words<vi>(from), vf);
  return whole * (load(column.scales + c) * t.row_scales[r]) + load(column.bias + c);
}

template <class T>
TESSERA_INLINE void add_row(vf (&v)[kProductVectors], const T* row, int64_t columns) {
#pragma GCC unroll 4
  for (int n = 0; n < kProductVectors; ++n)
    if (n * W < columns) v[n] += get(row + n * W, columns - n * W);
}
TESSERA_INLINE void multiply_row(vf (&v)[kProductVectors], const float* row, int64_t columns) {
#pragma GCC unroll 4
  for (int n = 0; n < kProductVectors; ++n)
    if (n * W < columns) v[n] *= get(row + n * W, columns - n * W);
}
template <class T>
TESSERA_INLINE void put_row(T* row, const vf (&v)[kProductVectors], int64_t columns) {
#pragma GCC unroll 4
  for (int n = 0; n < kProductVectors; ++n)
    if (n * W < columns) put(row + n * W, v[n], columns - n * W);
}

TESSERA_INLINE void keep(const RowsOut& to, int64_t r, const vf (&v)[kProductVectors], int64_t columns) {
  if (to.element == Element::f32)
    put_row(static_cast<float*>(to.data) + r * to.row, v, columns);
  else
    put_row(static_cast<bf16*>(to.data) + r * to.row, v, columns);
}

enum { kNone, kGelu, kSiluGate, kGeluTanh };  // Activation

// The scale of a row's sample, null if samples have none, and the first row of the next sample.
struct OwnScale {
  const float* numbers;
  int64_t next;
};
TESSERA_INLINE OwnScale own_scale(const EpilogueTile& t, int64_t row) {
  if (!t.sample_scale) return {nullptr, INT64_MAX};
  const int64_t at = t.sample_begin + row, sample = at < t.sample_rows ? 0 : at / t.sample_rows;
  return {t.sample_scale + sample * t.sample_row, (sample + 1) * t.sample_rows - t.sample_begin};
}

// `columns` is a constant for whole panels.
template <int activation, bool coarse, bool integer>
TESSERA_INLINE void epilogue_rows(const EpilogueTile& t, int64_t begin, int64_t end, int64_t columns) {
  const Column main{t.bias, t.scales}, gate{t.gate_bias, t.gate_scales};
  OwnScale own = own_scale(t, begin);
  for (int64_t r = begin; r < end; ++r) {
    if (r == own.next) own.numbers += t.sample_row, own.next += t.sample_rows;
    vf v[kProductVectors], g[kProductVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kProductVectors; ++n) {
      v[n] = value<integer>(t, t.sums, main, r, n * W);
      if (activation == kSiluGate) g[n] = value<integer>(t, t.gate_sums, gate, r, n * W);
    }
    if (t.before.data) keep(t.before, r, v, columns);
    if (activation == kSiluGate && t.gate_before.data) keep(t.gate_before, r, g, columns);
#pragma GCC unroll 4
    for (int n = 0; n < kProductVectors; ++n) {
      if (activation == kGelu) v[n] = coarse ? gelu_coarse(v[n]) : gelu(v[n]);
      if (activation == kGeluTanh) v[n] = coarse ? gelu_tanh_coarse(v[n]) : gelu_tanh(v[n]);
      if (activation == kSiluGate) v[n] *= coarse ? silu_coarse(g[n]) : silu(g[n]);
      if (t.out_scale) v[n] *= load(t.out_scale + n * W);
    }
    if (own.numbers) multiply_row(v, own.numbers, columns);
    if (t.residual) {
      const int64_t at = r * t.residual_row;
      if (t.residual_element == Element::f32)
        add_row(v, static_cast<const float*>(t.residual) + at, columns);
      else
        add_row(v, static_cast<const bf16*>(t.residual) + at, columns);
    }
    keep({t.y, t.y_element, t.y_row}, r, v, columns);
  }
}
template <int activation, bool coarse, bool integer>
void epilogue_columns(const EpilogueTile& t, int64_t begin, int64_t end) {
  if (t.columns == kPanel)
    epilogue_rows<activation, coarse, integer>(t, begin, end, kPanel);
  else
    epilogue_rows<activation, coarse, integer>(t, begin, end, t.columns);
}
// Integer products use the less exact activation.
template <int activation>
void epilogue_as(const EpilogueTile& t, int64_t begin, int64_t end) {
  if (t.integer)
    epilogue_columns<activation, true, true>(t, begin, end);
  else if (t.coarse)
    epilogue_columns<activation, true, false>(t, begin, end);
  else
    epilogue_columns<activation, false, false>(t, begin, end);
}

void epilogue(const EpilogueTile& t, int64_t begin, int64_t end) {
  switch (t.activation) {
    case kGelu:
      return epilogue_as<kGelu>(t, begin, end);
    case kSiluGate:
      return epilogue_as<kSiluGate>(t, begin, end);
    case kGeluTanh:
      return epilogue_as<kGeluTanh>(t, begin, end);
    default:
      return t.integer ? epilogue_columns<kNone, true, true>(t, begin, end)
                       : epilogue_columns<kNone, false, false>(t, begin, end);
  }
}

void norm(const RowsToNorm& call) {
  for (int64_t r = 0; r < call.rows; ++r)
    if (call.y_element == Element::f32)
      norm_row_of(call, call.x_element, r, static_cast<float*>(call.y) + r * call.y_row);
    else
      norm_row_of(call, call.x_element, r, static_cast<bf16*>(call.y) + r * call.y_row);
}

TESSERA_INLINE vf numbers_left(const float* from, int64_t left) { return left > 0 ? get(from, left) : vf{}; }

TESSERA_INLINE vf rounded_numbers(const float* from, int64_t left) { return to_bf16(get(from, left)); }
TESSERA_INLINE vf rounded_numbers(const bf16* from, int64_t left) { return get(from, left); }

template <class T>
void pair_numbers(const T* first, const T* second, float* to, int64_t count) {
  for (int64_t c = 0; c < count; c += W) {
    const vf a = rounded_numbers(first + c, count - c);
    const vf b = second ? rounded_numbers(second + c, count - c) : vf{};
    put(to + c, pair_up(a, b), count - c);
  }
}
void pair_words(const void* first, const void* second, Element element, uint32_t* to, int64_t count) {
  float* out = reinterpret_cast<float*>(to);
  if (element == Element::f32)
    pair_numbers(static_cast<const float*>(first), static_cast<const float*>(second), out, count);
  else
    pair_numbers(static_cast<const bf16*>(first), static_cast<const bf16*>(second), out, count);
}

// W outputs with contiguous inputs: words of rows, transposed.
void pack_block(const PairsToPack& p, int64_t output, int64_t word) {
  float words[W * W];
  for (int64_t r = 0; r < W; ++r) {
    const int64_t left = output + r < p.outputs ? p.in - 2 * word : 0;
    const float* from = p.weight + (output + r) * p.row + 2 * word;
    bf16* to = reinterpret_cast<bf16*>(words + r * W);
    store(to, numbers_left(from, left));
    store(to + W, numbers_left(from + W, left - W));
  }
  for (int64_t w = 0; w < W && word + w < p.words; w += 4) {
    vf transposed[4];
    transpose_four(words + w, W, transposed);
    for (int64_t i = 0; i < 4 && word + w + i < p.words; ++i)
      store(reinterpret_cast<float*>(p.to) + (word + w + i) * kPanel + output, transposed[i]);
  }
}
void pack_pairs(const PairsToPack& p) {
  for (int64_t output = 0; output < kPanel; output += W) {
    if (p.column == 1) {
      for (int64_t word = 0; word < p.words; word += W) pack_block(p, output, word);
      continue;
    }
    for (int64_t k = 0; k < p.words; ++k) {
      const float* from = p.weight + 2 * k * p.column + output;
      const int64_t left = p.outputs - output;
      const vf first = to_bf16(numbers_left(from, left));
      const vf second = 2 * k + 1 < p.in ? to_bf16(numbers_left(from + p.column, left)) : vf{};
      store(reinterpret_cast<float*>(p.to) + k * kPanel + output, pair_up(first, second));
    }
  }
}

template <class T>
void add_numbers(const T* row, float* sums, int64_t count) {
  for (int64_t c = 0; c < count; c += W) add_to(sums + c, get(row + c, count - c), count - c);
}
void add_row_to(const void* row, Element element, float* sums, int64_t count) {
  if (element == Element::f32)
    add_numbers(static_cast<const float*>(row), sums, count);
  else
    add_numbers(static_cast<const bf16*>(row), sums, count);
}

void widen_row(const uint16_t* from, float* to, int64_t count) {
  for (int64_t c = 0; c < count; c += W)
    put(to + c, get(reinterpret_cast<const bf16*>(from) + c, count - c), count - c);
}

}  // namespace

extern const LinearFunctions linear_single, linear_int16;
const LinearFunctions linear_single = {WordForm::single, kPanel,    product<Single>, ready,
                                       epilogue,         norm,      widen_row,       pair_words,
                                       pack_pairs,       add_row_to};
const LinearFunctions linear_int16 = {
    WordForm::int16_pair, kPanel,     product<Int16Pair>, ready, epilogue, norm, widen_row,
    pair_words,           pack_pairs, add_row_to};

}  // namespace tessera::kernels::TESSERA_ISA
