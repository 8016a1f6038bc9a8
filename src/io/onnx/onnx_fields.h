// Numbers of the fields of ONNX's messages (onnx.proto3), shared by reader and writer.
#pragma once

#include <cstdint>

namespace tessera::fields {

using Field = uint32_t;

namespace model {
constexpr Field ir_version = 1, producer = 2, producer_version = 3, description = 6, graph = 7, opset = 8,
                metadata = 14, functions = 25;
}
namespace opset {
constexpr Field domain = 1, version = 2;
}
namespace entry {
constexpr Field key = 1, value = 2;
}
namespace graph {
constexpr Field node = 1, name = 2, initializer = 5, input = 11, output = 12, sparse_initializer = 15;
}
namespace node {
constexpr Field input = 1, output = 2, name = 3, operation = 4, attribute = 5, domain = 7;
}
namespace attribute {
constexpr Field name = 1, f = 2, i = 3, s = 4, t = 5, g = 6, floats = 7, ints = 8, type = 20;
constexpr int32_t kFloat = 1, kInt = 2, kString = 3, kTensor = 4, kGraph = 5, kFloats = 6, kInts = 7;
}  // namespace attribute
namespace tensor {
constexpr Field dims = 1, type = 2, float_data = 4, int32_data = 5, int64_data = 7, name = 8, raw = 9,
                double_data = 10, external_data = 13, location = 14;
constexpr int32_t external = 1;
}  // namespace tensor
namespace value {
constexpr Field name = 1, type = 2;                       // ValueInfoProto
constexpr Field tensor_type = 1, element = 1, shape = 2;  // TypeProto and its tensor
constexpr Field dimension = 1, size = 1, parameter = 2;   // TensorShapeProto and its dimension
}  // namespace value

}  // namespace tessera::fields
