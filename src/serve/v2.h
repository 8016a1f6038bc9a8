// Requests and replies of the Open Inference Protocol (V2): JSON, with tensors inside it or as binary data
// after it. Free of LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "answer/request.h"

namespace tessera::serve {

struct V2Request {
  std::string id;
  answer::Request request;
  std::vector<std::string> outputs = {};  // requested; empty = all
  std::vector<bool> binary = {};          // for each of them
  bool all_binary = false;                // for the others
};

// Parses a body. `json_bytes` is the length of its JSON, from header Inference-Header-Content-Length; negative without
// binary tensors. Throws a usage error that names the input: invalid JSON, an unknown datatype, a shape that
// does not match the number of elements, too few or too many bytes. Options are `parameters` of the request.
V2Request parse_v2(std::string_view body, int64_t json_bytes);

struct V2Reply {
  std::string body;
  int64_t json_bytes = -1;  // negative without binary tensors
};
// Throws a usage error with the nearest name for a requested output that the reply lacks, and TooLarge for too many
// elements that are not binary.
V2Reply write_v2(const std::string& model, const V2Request& request, const answer::Reply& reply);

// GET /v2/models/NAME.
nlohmann::ordered_json v2_metadata(const std::string& model, const answer::Description& description);

}  // namespace tessera::serve
