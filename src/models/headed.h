// Backbones with one class head, "head", on the vector that embed() gives; their first weights follow a rule
// by name.
#pragma once

#include "models/model.h"
#include "nn/init.h"
#include "nn/linear.h"

namespace tessera::models {

class HeadedBackbone : public Backbone {
 public:
  torch::Tensor forward(const torch::Tensor& images, const Context& context) override;
  void reset_head(int64_t classes) override;
  void initialise(uint64_t seed) override;

 protected:
  // First values of one parameter, as the published code draws them; what is not touched stays as
  // constructed.
  virtual void first_values(const std::string& name, const torch::Tensor& parameter,
                            const nn::Filler& fill) const = 0;
  // Registers "head" reading embed_width() numbers; none for 0 classes.
  virtual void make_head(int64_t classes);

  nn::Linear head_{nullptr};
  uint64_t seed_ = 0;
};

}  // namespace tessera::models
