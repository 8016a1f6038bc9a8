// Inception-v3 (Szegedy et al. 2016, "Rethinking the Inception architecture for computer vision") in the form that
// measures generated images (Heusel et al. 2017), with the tensors' names of pt_inception-2015-12-05: no auxiliary
// head, 1008 outputs, average pools that do not count padding, a maximum in the last block's pool.
#pragma once

#include "ops/torch.h"

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"

namespace tessera::models {

// How images are prepared. tf: the first evaluation's and ADM's (TensorFlow 1's bilinear resizing: source = i in / out,
// no antialiasing), as torch-fidelity has it. pytorch: pytorch-fid's (bilinear with half pixels, no antialiasing).
// clean: clean-fid's (Parmar et al. 2022, "On aliased resizing": Pillow's bicubic with antialiasing on floats).
enum class FidProtocol { tf, pytorch, clean };

// Images of one size, bytes [batch, 3, height, width], resized to 299 x 299 in `type`, values 0 to 255.
torch::Tensor fid_resized(const torch::Tensor& images, FidProtocol protocol, torch::ScalarType type);
// The same in the range that the network takes, about [-1, 1].
torch::Tensor fid_pixels(const torch::Tensor& images, FidProtocol protocol, torch::ScalarType type);

struct InceptionFeatures {
  torch::Tensor early64, early192, middle768;  // means over places, [batch, 64], [batch, 192], [batch, 768]
  torch::Tensor pooled;                        // [batch, 2048]: what FID compares
  torch::Tensor spatial;          // [batch, 7, 17, 17]: what sFID compares, flattened channel last
  torch::Tensor logits;           // [batch, 1008]
  torch::Tensor unbiased_logits;  // without the last layer's bias: the Inception Score's

  torch::Tensor flat_spatial() const { return spatial.permute({0, 2, 3, 1}).flatten(1); }  // [batch, 2023]
};

// Inference alone: batch norms use their running statistics and are folded into the convolutions.
class InceptionFid : public torch::nn::Module {
 public:
  InceptionFid();
  // `pixels` [batch, 3, 299, 299] of fid_pixels; other sizes that leave a place behind the last block will do.
  InceptionFeatures forward(const torch::Tensor& pixels);

 private:
  class ConvNorm;
  class Mixed;
  void add(const char* name, int64_t in, int64_t out, int64_t kernel, int64_t stride, bool pad);

  std::vector<std::shared_ptr<ConvNorm>> stem_;
  std::vector<std::shared_ptr<Mixed>> mixed_;
  torch::Tensor fc_weight_, fc_bias_;
};

// Puts tensors under the published names into the network. `find` gives a tensor, or an undefined one where the file
// has none of that name; `where` begins errors. What else the file holds (num_batches_tracked) does not matter.
void load_inception(InceptionFid& network, const std::function<torch::Tensor(const std::string& name)>& find,
                    const std::string& where);

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::FidProtocol> {
  static constexpr std::array names = {"tf", "pytorch", "clean"};
};
