#include "kernels/mlstm_mixer/parts.h"

#include <cmath>

#include "kernels/mlstm_mixer/parts_testing.h"

namespace tessera::kernels {
namespace {

using namespace testing;

struct GatesProblem {
  explicit GatesProblem(const HeadwiseCase& config)
      : c(config),
        G((c.gates + 7) / 8 * 8),
        rows(c.batch * c.tokens),
        a(rows, c.channels, 1, 3),
        x(rows, c.channels, 2, 1),
        pre(rows, c.channels, 3, 2),
        weight(G, 2 * c.channels, 9),
        bias(1, G, 10),
        gate(rows, G, 14),
        dgate(rows, G, 18),
        da(rows, c.channels, 19),
        dx(rows, c.channels, 20, 3),
        dweight(G, 2 * c.channels, 27),
        dbias(1, G, 28) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t g = c.gates; g < G; ++g) dgate.set(r, g, 0);
  }
  template <class Real>
  GatesForwardOf<Real> forward() {
    const int64_t T = c.tokens;
    return {T,
            c.channels,
            c.gates,
            stored_in<Real>(a, T),
            stored_in<Real>(x, T),
            data<Real>(weight),
            data<Real>(bias),
            rows_out<Real>(gate, T),
            weight_half<Real>()};
  }
  template <class Real>
  GatesBackwardOf<Real> backward() {
    const int64_t T = c.tokens;
    return {T,
            c.channels,
            c.gates,
            stored_in<Real>(a, T),
            stored_in<Real>(x, T),
            rows_in<Real>(pre, T),
            data<Real>(weight),
            rows_in<Real>(dgate, T),
            rows_out<Real>(da, T),
            rows_out<Real>(dx, T),
            data<Real>(dweight),
            data<Real>(dbias),
            weight_half<Real>()};
  }
  template <class Real>
  const uint16_t* weight_half() {
    return std::is_same_v<Real, double> || rounded.empty() ? nullptr : rounded.data();
  }
  void store_halves() { a.store_halves(), x.store_halves(); }
  // Rounds the numbers that a kernel rounds in advance.
  void multiply_pairs() {
    weight.round(), dgate.round();
    const std::vector<double> values = weight.want();
    rounded.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      write_element(rounded.data(), Element::bf16, static_cast<int64_t>(i), values[i]);
  }
  HeadwiseCase c;
  int64_t G, rows;
  std::vector<uint16_t> rounded;  // weight
  Tensor a, x, pre, weight, bias, gate, dgate, da, dx, dweight, dbias;
};

void expect_the_gates_definition(bool half, bool pairs) {
  for (const HeadwiseCase& c : kHeadwise) {
    GatesProblem p(c);
    if (half) p.store_halves();
    if (pairs) p.multiply_pairs();
    const std::string what =
        text(half ? "bf16 B" : "B", c.batch, " T", c.tokens, " C", c.channels, " G", c.gates);
    compare(
        what, p.rows, {{"gate", &p.gate, 2 * std::sqrt(2.0 * static_cast<double>(c.channels)) + 8}},
        [&](int64_t b, int64_t e) { gates_forward_ref(p.forward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.gates_forward(p.forward<float>(), b, e); });
    const double sum = 4 * std::sqrt(static_cast<double>(p.rows)) + 8,
                 gates = 12 + static_cast<double>(c.gates);
    compare(
        what, p.rows,
        {{"da", &p.da, gates + 10 + (half ? kRoundingsOfCoarse : 0)},
         {"dx", &p.dx, gates},
         {"dweight", &p.dweight, sum},
         {"dbias", &p.dbias, sum}},
        [&](int64_t b, int64_t e) { gates_backward_ref(p.backward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) { f.gates_backward(p.backward<float>(), b, e); });
  }
}

TEST(Gates, EveryImplementationMatchesTheDefinition) {
  expect_the_gates_definition(false, false);
  for (const bool pairs : {false, true}) expect_the_gates_definition(true, pairs);
}

struct NormCase {
  int64_t batch, tokens, channels, heads;
};
const NormCase kNorms[] = {{2, 5, 8, 2},   {1, 64, 192, 4}, {1, 3, 20, 1}, {2, 9, 60, 3},
                           {1, 7, 768, 4}, {1, 4, 12, 3},   {2, 5, 12, 4}};

struct NormProblem {
  explicit NormProblem(const NormCase& config)
      : c(config),
        rows(c.batch * c.tokens),
        h(rows, c.channels, 1, 0, 0.5),
        a(rows, c.channels, 2, 2),
        z(rows, c.channels, 3, 5),
        dy(rows, c.channels, 4, 1),
        scale(1, c.channels, 5),
        bias(1, c.channels, 6),
        skip(1, c.channels, 7),
        y(rows, c.channels, 8, 3),
        dh(rows, c.channels, 9),
        da(rows, c.channels, 10),
        dz(rows, c.channels, 11, 4),
        dscale(1, c.channels, 12),
        dbias(1, c.channels, 13),
        dskip(1, c.channels, 14) {}
  template <class Real>
  HeadNormForwardOf<Real> forward() {
    return {c.tokens,
            c.channels,
            c.heads,
            Real(1e-5),
            rows_in<Real>(h, c.tokens),
            stored_in<Real>(a, c.tokens),
            stored_in<Real>(z, c.tokens),
            {data<Real>(scale), data<Real>(bias), data<Real>(skip)},
            stored_out<Real>(y, c.tokens)};
  }
  template <class Real>
  HeadNormBackwardOf<Real> backward() {
    return {c.tokens,
            c.channels,
            c.heads,
            Real(1e-5),
            rows_in<Real>(h, c.tokens),
            stored_in<Real>(a, c.tokens),
            stored_in<Real>(z, c.tokens),
            stored_in<Real>(dy, c.tokens),
            {data<Real>(scale), data<Real>(bias), data<Real>(skip)},
            rows_out<Real>(dh, c.tokens),
            rows_out<Real>(da, c.tokens),
            stored_out<Real>(dz, c.tokens),
            data<Real>(dscale),
            data<Real>(dbias),
            data<Real>(dskip)};
  }
  NormCase c;
  int64_t rows;
  Tensor h, a, z, dy, scale, bias, skip, y, dh, da, dz, dscale, dbias, dskip;
};

void expect_the_norm_definition(bool half) {
  for (const NormCase& c : kNorms) {
    NormProblem p(c);
    if (half)
      for (Tensor* t : {&p.a, &p.z, &p.y, &p.dy, &p.dz}) t->store_halves();
    const std::string what =
        text(half ? "bf16 B" : "B", c.batch, " T", c.tokens, " C", c.channels, " H", c.heads);
    compare(
        what, p.rows, {{"y", &p.y, half ? kRoundingsOfHalf : 12}},
        [&](int64_t b, int64_t e) { head_norm_forward_ref(p.forward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) {
          f.head_norm_forward(p.forward<float>(), b, e);
        });
    const double sum = 4 * std::sqrt(static_cast<double>(p.rows)) + 12,
                 coarse = half ? kRoundingsOfCoarse : 0;
    compare(
        what, p.rows,
        {{"dh", &p.dh, 30 + coarse},
         {"da", &p.da, 12 + coarse},
         {"dz", &p.dz, half ? kRoundingsOfHalf : 20},
         {"dscale", &p.dscale, sum + coarse},
         {"dbias", &p.dbias, sum + coarse},
         {"dskip", &p.dskip, sum + coarse}},
        [&](int64_t b, int64_t e) { head_norm_backward_ref(p.backward<double>(), b, e); },
        [&](const MixerFunctions& f, int64_t b, int64_t e) {
          f.head_norm_backward(p.backward<float>(), b, e);
        });
  }
}

TEST(HeadNorm, EveryImplementationMatchesTheDefinition) {
  for (const bool half : {false, true}) expect_the_norm_definition(half);
}

TEST(Gates, TheDefinitionHasTheGradientsOfItsForward) {
  GatesProblem p({2, 3, 8, 4});
  Tensor of_a(p.rows, 8, 50, 0), of_x(p.rows, 8, 51, 3);
  const auto activate = [&] {
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t c = 0; c < 8; ++c) {
        const double pre = p.pre.exact()[r * p.pre.stride() + c];
        p.a.exact()[r * p.a.stride() + c] = pre / (1 + std::exp(-pre));
      }
  };
  const auto loss = [&] {
    activate();
    gates_forward_ref(p.forward<double>(), 0, p.rows);
    return dot(p.gate, p.dgate) + dot(p.a, of_a) + dot(p.x, of_x);
  };
  activate();
  zero({&p.dweight, &p.dbias});
  for (auto [to, from] : {std::pair{&p.da, &of_a}, {&p.dx, &of_x}})
    std::copy_n(from->exact(), p.rows * from->stride(), to->exact());
  gates_backward_ref(p.backward<double>(), 0, p.rows);
  expect_gradients("gates", loss,
                   {{&p.pre, &p.da}, {&p.x, &p.dx}, {&p.weight, &p.dweight}, {&p.bias, &p.dbias}},
                   {"pre", "x", "weight", "bias"});
}

TEST(HeadNorm, TheDefinitionHasTheGradientsOfItsForward) {
  NormProblem p({1, 3, 12, 3});
  const auto loss = [&] {
    head_norm_forward_ref(p.forward<double>(), 0, p.rows);
    return dot(p.y, p.dy);
  };
  zero({&p.dscale, &p.dbias, &p.dskip});
  head_norm_backward_ref(p.backward<double>(), 0, p.rows);
  expect_gradients("head norm", loss,
                   {{&p.h, &p.dh},
                    {&p.a, &p.da},
                    {&p.z, &p.dz},
                    {&p.scale, &p.dscale},
                    {&p.bias, &p.dbias},
                    {&p.skip, &p.dskip}},
                   {"h", "a", "z", "scale", "bias", "skip"});
}

}  // namespace
}  // namespace tessera::kernels
