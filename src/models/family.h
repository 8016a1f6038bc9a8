// What family files share: how a typed config becomes a Family, and settings that several families have.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/config.h"
#include "models/model.h"
#include "nn/norm.h"

namespace tessera::models {

// Each family file defines one of these; registry.cpp lists them.
Family vit_family();
Family vil_family();
Family vil1_family();
Family darl_family();
Family illama_family();
Family visionllama_family();
Family visionllama_pyramid_family();
Family twins_family();
Family swin_family();

struct Extent {
  int64_t height = 0, width = 0;
};

// Reads a setting that is a side ("224") or [height, width]; both must be positive.
Extent extent_of(const Value& setting, const char* name);

// Checks that several families make of their settings; usage errors that name the key.
void check_grid(const Value& image_size, int64_t patch_size);  // both sides whole patches
void check_width(int64_t dim, int64_t depth, int64_t heads);   // positive, dim a multiple of heads
void check_choice(const char* key, const std::string& value, const std::vector<std::string>& choices);
void check_share(const char* key, double value, double most);  // in [0, most]
void check_rate(const char* key, double value);                // in [0, 1)

// Stochastic depth, the last settings of almost every family.
struct DropPathSettings {
  double drop_path = 0;
  bool drop_path_decay = false;

  template <class V>
  void visit_drop_path(V& v) {
    v("drop_path", drop_path, "rate of stochastic depth");
    v("drop_path_decay", drop_path_decay,
      "from 0 at the first block to drop_path at the last, else the same for all");
  }
  std::vector<double> drop_path_rates(int64_t depth) const;  // of each block
};

// A LayerNorm ("layer") or RMSNorm ("rms") with eps 1e-6, as a setting chooses.
struct Norm {
  nn::LayerNorm layer{nullptr};
  nn::RmsNorm rms{nullptr};
  torch::Tensor operator()(const torch::Tensor& x) { return layer ? layer(x) : rms(x); }
  nn::Normed before_linear(const torch::Tensor& x) const {
    return layer ? layer->before_linear(x) : rms->before_linear(x);
  }
  explicit operator bool() const { return layer || rms; }
};
Norm register_norm(torch::nn::Module& owner, const char* name, const std::string& kind, int64_t width,
                   double eps = 1e-6);

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
