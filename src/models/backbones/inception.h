// Inception-v3 (Szegedy et al. 2016, "Rethinking the Inception architecture for computer vision") as used to
// measure generated images (Heusel et al. 2017), with the tensor names of pt_inception-2015-12-05. It has no
// auxiliary head, 1008 outputs, average pools that do not count padding, and max pooling in the last block.
#pragma once

#include "ops/torch.h"

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"

namespace tessera::models {

// Image preprocessing. tf: that of the first evaluation and of ADM, as in torch-fidelity (TensorFlow 1's
// bilinear resizing: source = i in / out, no antialiasing). pytorch: pytorch-fid's (bilinear with half
// pixels, no antialiasing). clean: clean-fid's (Parmar et al. 2022, "On aliased resizing": Pillow's bicubic
// with antialiasing on floats).
enum class FidProtocol { tf, pytorch, clean };

// Resizes images of one size, bytes [batch, 3, height, width], to 299 x 299 in `type`, values 0 to 255.
torch::Tensor fid_resized(const torch::Tensor& images, FidProtocol protocol, torch::ScalarType type);
// Like fid_resized(), but in the network's input range, about [-1, 1].
torch::Tensor fid_pixels(const torch::Tensor& images, FidProtocol protocol, torch::ScalarType type);

struct InceptionFeatures {
  torch::Tensor early64, early192, middle768;  // means over cells, [batch, 64], [batch, 192], [batch, 768]
  torch::Tensor pooled;                        // [batch, 2048]: the features of FID
  torch::Tensor spatial;          // [batch, 7, 17, 17]: the features of sFID, flattened channel last
  torch::Tensor logits;           // [batch, 1008]
  torch::Tensor unbiased_logits;  // without the last layer's bias: for the Inception Score

  torch::Tensor flat_spatial() const { return spatial.permute({0, 2, 3, 1}).flatten(1); }  // [batch, 2023]
};

// For inference only: batch norms use their running statistics and are folded into the convolutions.
class InceptionFid : public torch::nn::Module {
 public:
  InceptionFid();
  // `pixels` [batch, 3, 299, 299] of fid_pixels. Other sizes work if the last block's grid is not empty.
  InceptionFeatures forward(const torch::Tensor& pixels);

 private:
  class ConvNorm;
  class Mixed;
  void add(const char* name, int64_t in, int64_t out, int64_t kernel, int64_t stride, bool pad);

  std::vector<std::shared_ptr<ConvNorm>> stem_;
  std::vector<std::shared_ptr<Mixed>> mixed_;
  torch::Tensor fc_weight_, fc_bias_;
};

// Loads tensors by their published names into the network. `find` returns a tensor, or an undefined one if
// the file does not have it; `where` begins errors. Other tensors of the file (num_batches_tracked) are
// ignored.
void load_inception(InceptionFid& network, const std::function<torch::Tensor(const std::string& name)>& find,
                    const std::string& where);

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::FidProtocol> {
  static constexpr std::array names = {"tf", "pytorch", "clean"};
};
