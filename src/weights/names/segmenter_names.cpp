// Heads of dense prediction, by mmseg's names.
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

// BEiT's and MAE's files hold the neck inside the backbone. PyTorch counts the batches that a norm has seen.
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
