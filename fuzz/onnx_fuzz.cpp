#include "fuzz/fuzz.h"
#include "io/onnx/onnx_model.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const tessera::OnnxModel model = tessera::parse_onnx(bytes, "fuzzed.onnx");
    for (const tessera::OnnxTensor& weight : model.graph.weights)
      if (!weight.owner) tessera::must_lie_in(weight.bytes, bytes);
  });
}
