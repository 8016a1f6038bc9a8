#include "models/base/patch_mask.h"

#include "core/error.h"

namespace tessera::models {

torch::Tensor MasksPatches::masked_map(const torch::Tensor& images, const PatchMask& mask, bool normed,
                                       const Context& context) {
  struct Scope {
    const PatchMask*& used;
    ~Scope() { used = nullptr; }
  } scope{mask_};
  scope.used = &mask;
  return last_map(images, normed, context);
}

torch::Tensor MasksPatches::with_mask_tokens(const torch::Tensor& patches) const {
  if (!mask_) return patches;
  check(mask_->masked.sizes() == patches.sizes().slice(0, 3), "a mask of ", mask_->masked.sizes(),
        " for patches of ", patches.sizes());
  return torch::where(mask_->masked.unsqueeze(-1), mask_->token.to(patches.scalar_type()), patches);
}

torch::Tensor last_map_of(TokenEncoder& encoder, const torch::Tensor& images, bool normed,
                          const Context& context) {
  const Encoded encoded = encoder.encode(encoder.tokenise(images, context), context);
  return encoded.map_of(normed ? encoded.tokens : encoded.last);
}

}  // namespace tessera::models
