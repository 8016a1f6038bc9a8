// The cost of mLSTM cells in each of their forms.
#pragma once

#include <cstdint>

namespace tessera::models {

enum class MlstmForm { recurrent, chunkwise, parallel };

class MlstmCells {
 public:
  static constexpr const char* kAbility = "has mLSTM cells";
  virtual ~MlstmCells() = default;
  // Returns the multiply-adds of all cells of an image, without the layers around them. recurrent: each token
  // is written into the state [d, d] of its head and reads it. parallel: the scores of each token with itself
  // and those before it, and their values. chunkwise: the parallel form inside chunks, and the state between
  // them.
  virtual int64_t cell_macs(MlstmForm form, int64_t height, int64_t width) const = 0;
};

}  // namespace tessera::models
