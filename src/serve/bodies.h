// Bodies of requests about one image or one drawing: raw, forms, JSON with base64. Free of LibTorch.
#pragma once

#include <string>
#include <string_view>

#include "answer/request.h"
#include "serve/http.h"
#include "serve/request_target.h"

namespace tessera::serve {

// Inflates a body with Content-Encoding gzip. Throws a 413 for more than `most` bytes, a 415 for another encoding.
std::string inflated_body(const HttpRequest& request, uint64_t most);

// Reads the body of POST /models/NAME/predict or jobs: an image as it is; a form with part `image`, and options
// as other parts; a JSON object with `image` in base64 and options. Options may also be in the query. Throws a 415
// for another type.
answer::Request parse_plain(const HttpRequest& request, const std::string& body, const RequestTarget& target);

}  // namespace tessera::serve
