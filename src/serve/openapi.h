// The description of a server's routes as OpenAPI 3.0, made of the descriptions of its answers.
#pragma once

#include <nlohmann/json.hpp>

#include "serve/models.h"

namespace tessera::serve {

nlohmann::ordered_json openapi_document(const ModelTable& models, const std::string& version);

// Inputs, outputs and options of an answer, for GET /models/NAME.
nlohmann::ordered_json description_json(const std::string& name, const answer::Description& description);

}  // namespace tessera::serve
