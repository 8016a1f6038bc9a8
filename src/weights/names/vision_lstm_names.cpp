// Vision-LSTM. Published files count the two directions of a pair as two blocks. Training code has its blocks
// under "xlstm".
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows in_direction(const std::string& theirs, const std::string& ours) {
  return below(theirs, ours,
               {{"xlstm.conv1d**", "layer.conv**"}, {"xlstm.**", "layer.**"}, {"xlstm_norm.**", "norm.**"}});
}

NameRows second_version() {
  const NameRows body = joined({in_direction("blocks.{*2}.", "blocks.{}.rowwise_from_top_left."),
                                in_direction("blocks.{*2+1}.", "blocks.{}.rowwise_from_bot_right."),
                                {{"post_blocks_norm.*", "norm.*"}}});
  return joined(
      {below("xlstm.", "", body), older(body), {{"head.0.*", "legacy_norm.*"}, {"head.1.*", "head.*"}}});
}

NameRows first_version() {
  const NameRows body = {{"blocks.{}.xlstm.**", "blocks.{}.layer.**"},
                         {"blocks.{}.xlstm_norm.**", "blocks.{}.norm.**"},
                         {"post_blocks_norm.*", "legacy_norm.*"}};
  return joined({below("xlstm.", "", body), older(body), {{"head.0.*", "norm.*"}, {"head.1.*", "head.*"}}});
}

}  // namespace

std::vector<NameTable> vision_lstm_names() {
  return {{"vision-lstm", "vil", second_version()}, {"vision-lstm", "vil1", first_version()}};
}

}  // namespace tessera::train
