// The definition of the selective scan: one channel after another, in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/selective_scan/selective_scan.h"

namespace tessera::kernels::reference {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One channel of a sample.
struct Channel {
  const SelectiveScan& call;
  int64_t sample, channel, group;
  int64_t token(int64_t place) const { return call.reverse ? call.tokens - 1 - place : place; }
  double at(const FloatRows& rows, int64_t place) const {
    return rows.data[sample * rows.batch + token(place) * rows.token + channel];
  }
  void put(const FloatRowsOut& rows, int64_t place, double value) const {
    rows.data[sample * rows.batch + token(place) * rows.token + channel] = static_cast<float>(value);
  }
  double state_row(const FloatRows& rows, int64_t place, int64_t n) const {
    return rows.data[sample * rows.batch + token(place) * rows.token + group * call.states + n];
  }
  double a(int64_t n) const { return call.a[channel * call.states + n]; }
  double sum(int64_t place) const {
    return at(call.delta, place) + (call.delta_bias ? call.delta_bias[channel] : 0);
  }
  double dt(int64_t place) const { return call.softplus ? softplus(sum(place)) : sum(place); }
  double d() const { return call.d ? call.d[channel] : 0; }
  int64_t index() const { return (sample * call.channels + channel) * call.states; }
  // Returns the states before the first token and after each, (tokens + 1, states).
  std::vector<double> states() const {
    std::vector<double> h(static_cast<size_t>((call.tokens + 1) * call.states), 0.0);
    for (int64_t n = 0; n < call.states; ++n) {
      if (call.first_state) h[static_cast<size_t>(n)] = call.first_state[index() + n];
      for (int64_t t = 0; t < call.tokens; ++t)
        h[static_cast<size_t>((t + 1) * call.states + n)] =
            std::exp(dt(t) * a(n)) * h[static_cast<size_t>(t * call.states + n)] +
            dt(t) * state_row(call.b, t, n) * at(call.u, t);
    }
    return h;
  }
  double before_gate(const std::vector<double>& h, int64_t t) const {
    double y = d() * at(call.u, t);
    for (int64_t n = 0; n < call.states; ++n)
      y += state_row(call.c, t, n) * h[static_cast<size_t>((t + 1) * call.states + n)];
    return y;
  }
};

void forward(const SelectiveScanForward& call, const ScanPiece& p) {
  for (int64_t i = 0; i < p.count; ++i) {
    const Channel ch{call, p.sample, p.channel + i, p.group};
    const std::vector<double> h = ch.states();
    for (int64_t t = 0; t < call.tokens; ++t) {
      const double z = call.z.data ? ch.at(call.z, t) : 0, gate = call.z.data ? z * sigmoid(z) : 1;
      ch.put(call.y, t, ch.before_gate(h, t) * gate);
    }
    for (int64_t n = 0; call.last_state && n < call.states; ++n)
      call.last_state[ch.index() + n] =
          static_cast<float>(h[static_cast<size_t>(call.tokens * call.states + n)]);
  }
}

// Sums over the channels of a piece, (tokens, states).
struct StateSums {
  std::vector<double> b, c;
};

void backward_channel(const SelectiveScanBackward& call, const ScanPiece& p, int64_t i, StateSums& sums) {
  const Channel ch{call, p.sample, p.channel + i, p.group};
  const int64_t states = call.states;
  const std::vector<double> h = ch.states();
  std::vector<double> gh(static_cast<size_t>(states), 0.0), ga(static_cast<size_t>(states), 0.0);
  double gd = 0, gbias = 0;
  for (int64_t t = call.tokens; t-- > 0;) {
    const double u = ch.at(call.u, t), dt = ch.dt(t), out = ch.at(call.gy, t);
    const double z = call.z.data ? ch.at(call.z, t) : 0, s = sigmoid(z);
    const double gy = call.z.data ? out * z * s : out;
    double gu = gy * ch.d(), gdt = 0;
    for (int64_t n = 0; n < states; ++n) {
      const auto at = static_cast<size_t>(n), place = static_cast<size_t>(ch.token(t) * states + n);
      const double before = h[static_cast<size_t>(t * states + n)], decay = std::exp(dt * ch.a(n));
      const double b = ch.state_row(call.b, t, n), g = gh[at] + gy * ch.state_row(call.c, t, n);
      sums.c[place] += gy * h[static_cast<size_t>((t + 1) * states + n)];
      sums.b[place] += g * dt * u;
      gu += g * dt * b;
      gdt += g * (b * u + ch.a(n) * decay * before);
      ga[at] += g * dt * decay * before;
      gh[at] = g * decay;
    }
    const double gdelta = call.softplus ? gdt * sigmoid(ch.sum(t)) : gdt;
    gd += gy * u, gbias += gdelta;
    ch.put(call.gu, t, gu);
    ch.put(call.gdelta, t, gdelta);
    if (call.z.data) ch.put(call.gz, t, out * ch.before_gate(h, t) * s * (1 + z * (1 - s)));
  }
  for (int64_t n = 0; n < states; ++n) p.ga[i * states + n] = static_cast<float>(ga[static_cast<size_t>(n)]);
  if (p.gd) p.gd[i] = static_cast<float>(gd);
  if (p.gdelta_bias) p.gdelta_bias[i] = static_cast<float>(gbias);
}

void backward(const SelectiveScanBackward& call, const ScanPiece& p) {
  const auto size = static_cast<size_t>(call.tokens * call.states);
  StateSums sums{std::vector<double>(size, 0.0), std::vector<double>(size, 0.0)};
  for (int64_t i = 0; i < p.count; ++i) backward_channel(call, p, i, sums);
  for (size_t i = 0; i < size; ++i) {
    p.gb[i] = static_cast<float>(sums.b[i]);
    p.gc[i] = static_cast<float>(sums.c[i]);
  }
}

}  // namespace

extern const SelectiveScanFunctions selective_scan_functions;
const SelectiveScanFunctions selective_scan_functions = {1, forward, backward};

}  // namespace tessera::kernels::reference
