// The cost of mLSTM cells by the form that they are computed in.
#pragma once

#include <cstdint>

namespace tessera::models {

enum class MlstmForm { recurrent, chunkwise, parallel };

class MlstmCells {
 public:
  static constexpr const char* kAbility = "has mLSTM cells";
  virtual ~MlstmCells() = default;
  // Multiply-adds of all cells of an image, without the layers around them. recurrent: each token is written into the state
  // [d, d] of its head and reads it; parallel: the scores of each token and those before it, and their values; chunkwise:
  // that inside chunks, and the state between them.
  virtual int64_t cell_macs(MlstmForm form, int64_t height, int64_t width) const = 0;
};

}  // namespace tessera::models
