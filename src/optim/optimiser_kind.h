// The interface between an optimiser's file and the table in optimiser.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "optim/optimiser.h"

namespace tessera::train {

struct OptimiserKind {
  const char* name;
  std::vector<KeyDescription> keys;
  std::function<Value(const Value& settings, const std::string& where)> resolve;
  std::function<std::unique_ptr<Optimiser>(const Value& settings, std::vector<ParameterGroup>)> make;
  bool reads_whole;  // reads_whole_tensors()
};

// Makes a kind from its config (derived from OptimiserSettings, with a check()) and its class. A class that reads whole
// tensors has a constant kReadsWhole.
template <class Config, class Implementation>
OptimiserKind optimiser_kind(const char* name, const Config& defaults = {}) {
  Config named = defaults;
  named.name = name;
  return {name, describe_config(named, "optimiser"),
          [named](const Value& settings, const std::string& where) {
            const Config config = read_config<Config>(settings, where, named);
            config.check(where);
            return write_config(config);
          },
          [named](const Value& settings, std::vector<ParameterGroup> groups) {
            return std::make_unique<Implementation>(read_config<Config>(settings, "optimiser", named),
                                                    std::move(groups));
          },
          requires {Implementation::kReadsWhole;
}
};  // namespace tessera::train
}

// Throws a usage error unless low <= value < below.
void check_setting(const std::string& where, const char* key, double value, double low, double below);
void check_betas(const std::string& where, const std::vector<double>& betas);

// Returns the numbers of a kernel's step with two moments and their bias corrections.
kernels::gpu::OptimiserStep moments_step(kernels::gpu::OptimiserRule rule, double beta1, double beta2,
                                         double eps);

OptimiserKind adamw();  // optimiser_adam.cpp
OptimiserKind adam();   // optimiser_adam.cpp
OptimiserKind lamb();   // optimiser_lamb.cpp
OptimiserKind lars();   // optimiser_sgd.cpp
OptimiserKind muon();   // optimiser_muon.cpp
OptimiserKind sgd();    // optimiser_sgd.cpp

}  // namespace tessera::train
