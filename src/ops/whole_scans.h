// How a trace sees scans along a sequence: as single operations of LibTorch's dispatcher.
#pragma once

namespace tessera::ops {

// While it lives, selective scans and bi-WKV of this thread are `tessera::selective_scan` and `tessera::bi_wkv`. They run on the
// kernels, whatever InferenceSettings::fused is, and a trace records each as one node.
class WholeScans {
 public:
  explicit WholeScans(bool on = true);
  ~WholeScans();
  WholeScans(const WholeScans&) = delete;
  WholeScans& operator=(const WholeScans&) = delete;

 private:
  bool before_;
};
bool whole_scans();

}  // namespace tessera::ops
