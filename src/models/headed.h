// Backbones with one class head, "head", on the vector that embed() gives; their first weights follow a rule
// by name.
#pragma once

#include "models/model.h"
#include "nn/batch_norm.h"
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
  // Registers "head" reading embed_width() numbers, behind "head_norm" where there is one; none for 0
  // classes.
  virtual void make_head(int64_t classes);

  bool head_batch_norm_ = false;  // to be set before make_head
  nn::BatchNorm head_norm_{nullptr};
  nn::Linear head_{nullptr};
  uint64_t seed_ = 0;
};

}  // namespace tessera::models
