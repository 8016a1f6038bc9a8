// What family files share: how a typed config becomes a Family, and settings that several families have.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/config.h"
#include "models/model.h"

namespace tessera::models {

// Each family file defines one of these; registry.cpp lists them.
Family vit_family();
Family vil_family();

struct Extent {
  int64_t height = 0, width = 0;
};

// Reads a setting that is a side ("224") or [height, width]; both must be positive.
Extent extent_of(const Value& setting, const char* name);

// A settings table from pairs, for the lists of sizes: table({{"dim", 192}, {"heads", 3}}).
inline Value table(Value::Table entries) { return Value(std::move(entries)); }

// The family of a model class that is built from one config: Config has visit() and check(); Model(const
// Config&).
template <class Model, class Config>
Family make_family(
    std::string name, std::string summary, std::vector<Size> sizes,
    std::function<std::string(const std::string&)> rename = [](const std::string& n) { return n; }) {
  Family family;
  family.name = std::move(name);
  family.summary = std::move(summary);
  family.build = [](const Value& settings, uint64_t seed) -> std::shared_ptr<Backbone> {
    const Config config = read_config<Config>(settings, "model");
    config.check();
    auto model = std::make_shared<Model>(config);
    model->initialise(seed);
    return model;
  };
  family.resolve = [](const Value& settings) {
    const Config config = read_config<Config>(settings, "model");
    config.check();
    return write_config(config);
  };
  family.sizes = std::move(sizes);
  family.rename = std::move(rename);
  return family;
}

}  // namespace tessera::models
