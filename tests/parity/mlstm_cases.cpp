// models/mlstm_*: the cell alone, and the cell with its gates and norm.
#include "core/error.h"
#include "nn/mlstm.h"
#include "ops/mlstm.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {

CaseResult check_mlstm_parallel(const Golden& golden) {
  const auto& config = golden.config();
  const ops::MlstmOptions options{.eps = config.value("eps", 1e-6),
                                  .rowwise = config.value("stabilize_rowwise", true)};
  const bool reverse = config.value("reverse", false);
  return compare_function(golden, [&](const Leaves& leaves) {
    const auto turned = [&](const torch::Tensor& x) { return reverse ? x.flip(2) : x; };
    const auto input = [&](const char* name) { return turned(leaves.at(std::string("input.") + name)); };
    const torch::Tensor h = ops::mlstm_parallel(
        input("q"), input("k"), input("v"), input("igate").squeeze(-1), input("fgate").squeeze(-1), options);
    return NamedOutputs{{"h", turned(h)}};
  });
}

CaseResult check_mlstm_cell(const Golden& golden) {
  const auto& config = golden.config();
  return compare_function(golden, [&](const Leaves& leaves) {
    nn::MlstmCell cell(config["dim"].get<int64_t>(), config["num_heads"].get<int64_t>(),
                       golden.has("param.outnorm.bias"));
    for (const auto& [name, owner] :
         {std::pair<std::string, torch::Tensor*>{"igate.weight", &cell->igate->weight},
          {"igate.bias", &cell->igate->bias},
          {"fgate.weight", &cell->fgate->weight},
          {"fgate.bias", &cell->fgate->bias},
          {"outnorm.weight", &cell->outnorm->weight},
          {"outnorm.bias", &cell->outnorm->bias}})
      if (golden.has("param." + name)) *owner = leaves.at("param." + name);
    return NamedOutputs{{"h", cell(leaves.at("input.q"), leaves.at("input.k"), leaves.at("input.v"))}};
  });
}

}  // namespace tessera::parity
