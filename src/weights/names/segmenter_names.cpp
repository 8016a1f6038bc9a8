// Dense prediction heads. Our names are mmseg's.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows heads_transformers() {
  NameRows rows;
  for (const std::string head : {"decode_head.", "auxiliary_head."})
    rows = joined({rows, below(head, head,
                               {{"**.num_batches_tracked", ""},
                                {"**.batch_norm.*", "**.bn.*"},
                                {"classifier.*", "conv_seg.*"}})});
  return rows;
}

// Files of BEiT and MAE have the neck inside the backbone. PyTorch's batch norms count batches.
NameRows heads_beit() {
  return {{"fpn1.**.num_batches_tracked", ""},
          {"fpn2.**.num_batches_tracked", ""},
          {"fpn1.**", "neck.upsample_4x.**"},
          {"fpn2.**", "neck.upsample_2x.**"}};
}

NameRows heads_mmseg() {
  return {{"decode_head.**.num_batches_tracked", ""},
          {"auxiliary_head.**.num_batches_tracked", ""},
          {"neck.**.num_batches_tracked", ""}};
}

}  // namespace

std::vector<NameTable> segmenter_names() {
  return {{"mmseg", "segment", heads_mmseg()},
          {"transformers", "segment", heads_transformers()},
          {"beit", "segment", heads_beit()}};
}

}  // namespace tessera::train
