#include "plan/constants.h"

namespace tessera::plan {

const std::array<Constant, static_cast<size_t>(Coefficient::count)>& constant_table() {
  static const std::array<Constant, static_cast<size_t>(Coefficient::count)> table = {{
      {"products_ampere", 0.92091, 0.75, "of peak", "rate of large matrix products on A100"},
      {"products_hopper", 0.77293, 0.70, "of peak", "rate of large matrix products on H100 and H200"},
      {"attention_ampere", 0.33587, 0.40, "of peak",
       "rate of flash attention on A100, over pairs that a mask leaves"},
      {"attention_hopper", 0.19225, 0.35, "of peak", "rate of flash attention on H100 and H200"},
      {"narrow", 0.50303, 0.5, "256 columns", "width of a product at which its rate is halved"},
      {"few_rows", 0.96252, 0.3, "512 rows", "tokens of a product at which its rate is halved"},
      {"passes", 101.11, 20, "passes",
       "times that a layer's activations go through memory, forward and backward"},
      {"scores", 16.674, 15, "passes", "the same for stored attention scores"},
      {"hidden_data", 0.13045, 0.8, "share",
       "part of an exchange at the rate of links that does not slow products which hide it"},
      {"link", 1, 0.6, "share of the data sheet", "rate of collectives inside a machine"},
      {"network", 1, 0.6, "share of the data sheet", "rate of collectives between machines"},
      {"launch", 8.766e-05, 1e-4, "s", "time of a layer and microbatch without work"},
      {"narrow_heads", 0.10253, 0.3, "64 channels",
       "width of a head at which the rate of attention is halved"},
      {"straggle", 0.0039056, 0.01, "a doubling", "share of a step that each doubling of the machines adds"},
      {"cpu", 0.8, 0.8, "of peak", "rate of products on a processor: a guess, not fitted"},
  }};
  return table;
}

Constants fitted_constants() {
  Constants constants;
  for (size_t i = 0; i < constants.values.size(); ++i) constants.values[i] = constant_table()[i].value;
  return constants;
}

Constants prior_constants() {
  Constants constants;
  for (size_t i = 0; i < constants.values.size(); ++i) constants.values[i] = constant_table()[i].prior;
  return constants;
}

}  // namespace tessera::plan
