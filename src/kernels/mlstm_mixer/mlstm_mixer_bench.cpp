// mlstm_mixer_bench [channels side batch]: microseconds a token, forward and backward, fp32 and bf16, for the
// widths and image sizes of Vision-LSTM.
#include <cstdlib>

#include "core/threads.h"
#include "kernels/bench.h"
#include "kernels/mlstm_mixer/mlstm_mixer.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::Guarded;
using testing::normal;

struct Problem {
  Problem(int64_t channels, int64_t side, int64_t batch, Element element)
      : shape{batch, side, side, channels, 4},
        tokens(side * side),
        u(element, batch * tokens * 2 * channels),
        y(element, batch * tokens * channels),
        dy(element, batch * tokens * channels),
        du(element, batch * tokens * 2 * channels) {
    const int64_t C = channels, gate = 3 * C * shape.heads;
    int64_t total = 0;
    const int64_t sizes[] = {9 * C, C, 4 * C, C, 4 * C, C, 4 * C, C, gate, 4, gate, 4, C, C, C};
    for (const int64_t size : sizes) total += size;
    parameters = normal(total, 1, 0, 0.05), gradients = parameters;
    int64_t at = 0, i = 0;
    for (const int64_t size : sizes) {
      // Forget gates as at the start of training: with weaker ones the cell would cut its chunks short.
      if (&weights.conv_weight + i == &weights.forget_bias)
        for (int64_t head = 0; head < size; ++head) parameters[at + head] = 3 + static_cast<float>(head);
      (&weights.conv_weight)[i] = parameters.data() + at;
      (&sums.conv_weight)[i++] = gradients.data() + at;
      at += size;
    }
    for (Guarded* tensor : {&u, &dy}) {
      const auto values = normal(tensor->count(), 2, 0, 0.5);
      for (int64_t j = 0; j < tensor->count(); ++j) tensor->set(j, values[static_cast<size_t>(j)]);
    }
    h.resize(static_cast<size_t>(y.count()));
    rows.resize(static_cast<size_t>(2 * batch * shape.heads * tokens));
  }
  template <class Rows>
  Rows rows_of(Guarded& tensor, int64_t width) {
    return {tensor.data(), tensor.element(), tokens * width, width};
  }
  MlstmMixerSaved saved() { return {h.data(), rows.data(), rows.data() + rows.size() / 2}; }
  void forward(bool keep) {
    const int64_t C = shape.channels;
    mlstm_mixer_forward({shape, rows_of<StoredRows>(u, 2 * C), weights, rows_of<StoredRowsOut>(y, C),
                         keep ? saved() : MlstmMixerSaved{}});
  }
  void backward() {
    const int64_t C = shape.channels;
    mlstm_mixer_backward({shape, rows_of<StoredRows>(u, 2 * C), rows_of<StoredRows>(dy, C), weights, saved(),
                          rows_of<StoredRowsOut>(du, 2 * C), sums});
  }
  MlstmMixerShape shape;
  int64_t tokens;
  Guarded u, y, dy, du;
  std::vector<float> parameters, gradients, h, rows;
  MlstmMixerParameters weights{};
  MlstmMixerGradients sums{};
};

void report(int64_t channels, int64_t side, int64_t batch) {
  for (const Element element : {Element::f32, Element::bf16}) {
    Problem p(channels, side, batch, element);
    p.forward(true);
    const auto times =
        bench::measure({{"forward", [&p] { p.forward(false); }}, {"backward", [&p] { p.backward(); }}}, 0.7);
    const double tokens = static_cast<double>(batch * side * side);
    std::printf(
        "C%-5ld T%-6ld B%-3ld %-5s forward %7.3f us a token (fastest %7.3f), backward %7.3f (%7.3f)\n",
        static_cast<long>(channels), static_cast<long>(side * side), static_cast<long>(batch),
        element == Element::f32 ? "fp32" : "bf16", times[0].median / tokens * 1e6,
        times[0].fastest / tokens * 1e6, times[1].median / tokens * 1e6, times[1].fastest / tokens * 1e6);
  }
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) {
  using tessera::kernels::report;
  std::printf("%d threads, %s\n", tessera::num_threads(), name_of(tessera::kernels::active_isa()));
  if (argc == 4) {
    report(std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]));
    return 0;
  }
  for (const int64_t channels : {384, 768})
    for (const int64_t side : {14, 28, 56, 112}) report(channels, side, side == 14 ? 8 : 1);
}
