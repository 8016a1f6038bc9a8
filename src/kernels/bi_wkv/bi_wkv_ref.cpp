// The definition of bidirectional WKV attention: all pairs of tokens, in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/bi_wkv/bi_wkv.h"

namespace tessera::kernels::reference {
namespace {

// One channel of a sample.
struct Channel {
  const BiWkv& call;
  int64_t sample, channel;
  double at(const FloatRows& rows, int64_t t) const {
    return rows.data[sample * rows.batch + t * rows.token + channel];
  }
  void put(const FloatRowsOut& rows, int64_t t, double value) const {
    rows.data[sample * rows.batch + t * rows.token + channel] = static_cast<float>(value);
  }
  // Tokens between t and i.
  static double between(int64_t t, int64_t i) { return static_cast<double>(std::abs(t - i) - 1); }
  // Returns the weights of all tokens in y_t; their sum is 1.
  std::vector<double> weights(int64_t t) const {
    std::vector<double> weight(static_cast<size_t>(call.tokens));
    for (int64_t i = 0; i < call.tokens; ++i)
      weight[static_cast<size_t>(i)] =
          at(call.k, i) + (i == t ? double{call.u[channel]} : -between(t, i) * call.w[channel]);
    const double largest = *std::max_element(weight.begin(), weight.end());
    double sum = 0;
    for (double& value : weight) sum += value = std::exp(value - largest);
    for (double& value : weight) value /= sum;
    return weight;
  }
  double y(const std::vector<double>& weight) const {
    double sum = 0;
    for (int64_t i = 0; i < call.tokens; ++i) sum += weight[static_cast<size_t>(i)] * at(call.v, i);
    return sum;
  }
};

void forward(const BiWkvForward& call, const BiWkvPiece& p) {
  for (int64_t c = 0; c < p.count; ++c) {
    const Channel ch{call, p.sample, p.channel + c};
    for (int64_t t = 0; t < call.tokens; ++t) ch.put(call.y, t, ch.y(ch.weights(t)));
  }
}

void backward(const BiWkvBackward& call, const BiWkvPiece& p) {
  for (int64_t c = 0; c < p.count; ++c) {
    const Channel ch{call, p.sample, p.channel + c};
    std::vector<double> gk(static_cast<size_t>(call.tokens), 0.0), gv(gk.size(), 0.0);
    double gw = 0, gu = 0;
    for (int64_t t = 0; t < call.tokens; ++t) {
      const std::vector<double> weight = ch.weights(t);
      const double y = ch.y(weight), gy = ch.at(call.gy, t);
      for (int64_t i = 0; i < call.tokens; ++i) {
        const double by_value = weight[static_cast<size_t>(i)] * gy,
                     by_key = by_value * (ch.at(call.v, i) - y);
        gv[static_cast<size_t>(i)] += by_value;
        gk[static_cast<size_t>(i)] += by_key;
        if (i == t)
          gu += by_key;
        else
          gw -= Channel::between(t, i) * by_key;
      }
    }
    for (int64_t t = 0; t < call.tokens; ++t) {
      ch.put(call.gk, t, gk[static_cast<size_t>(t)]);
      ch.put(call.gv, t, gv[static_cast<size_t>(t)]);
    }
    p.gw[c] = static_cast<float>(gw);
    p.gu[c] = static_cast<float>(gu);
  }
}

}  // namespace

extern const BiWkvFunctions bi_wkv_functions;
const BiWkvFunctions bi_wkv_functions = {1, forward, backward};

}  // namespace tessera::kernels::reference
