#include "nn/conv_stem.h"

#include "core/error.h"

namespace tessera::nn {

ConvStemImpl::ConvStemImpl(int64_t width, int64_t channels) {
  const auto proj = register_module("proj", std::make_shared<torch::nn::Module>());
  int64_t in = channels, place = 0;
  for (const int64_t share : {8, 4, 2, 1}) {
    const Conv2dOptions options{.in = in, .out = width / share, .kernel = 3, .stride = 2, .padding = 1};
    convolutions_.push_back(proj->register_module(std::to_string(place), Conv2d(options)));
    norms_.push_back(proj->register_module(std::to_string(place + 1), BatchNorm2d(options.out)));
    in = options.out, place += 3;
  }
  last_ = proj->register_module(std::to_string(place),
                                Conv2d(Conv2dOptions{.in = width, .out = width, .bias = true}));
}

torch::Tensor ConvStemImpl::forward(const torch::Tensor& images) {
  check(images.size(2) % kPatch == 0 && images.size(3) % kPatch == 0, "images of ", images.size(2), " x ",
        images.size(3), " pixels must be whole patches of ", kPatch);
  torch::Tensor x = images.permute({0, 2, 3, 1});
  for (size_t i = 0; i < norms_.size(); ++i) x = convolve(convolutions_[i], norms_[i], x);
  return last_->forward(x);
}

int64_t ConvStemImpl::macs(int64_t height, int64_t width) const {
  int64_t total = height / kPatch * (width / kPatch) * last_->macs(), cells = height * width;
  for (const Conv2d& convolution : convolutions_) cells /= 4, total += cells * convolution->macs();
  return total;
}

}  // namespace tessera::nn
