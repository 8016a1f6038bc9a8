#include "serve/models.h"

#include <cmath>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;

Json option_schema(const answer::OptionDescription& option) {
  Json schema = {{"type", option.type}};
  if (option.type == "array") schema["items"] = {{"type", option.items}};
  if (!option.choices.empty()) schema["enum"] = option.choices;
  if (std::isfinite(option.low)) schema["minimum"] = option.low;
  if (std::isfinite(option.high)) schema["maximum"] = option.high;
  if (!option.standard.is_null()) schema["default"] = option.standard;
  if (!option.meaning.empty()) schema["description"] = option.meaning;
  return schema;
}

Json json_content(const Json& schema) { return {{"application/json", {{"schema", schema}}}}; }

Json reference(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

Json responses(const std::string& good, const std::string& meaning) {
  Json all;
  all[good] = {{"description", meaning}, {"content", json_content({{"type", "object"}})}};
  for (const auto& [status, what] : {std::pair{"400", "the request is wrong"},
                                     {"413", "too large"},
                                     {"415", "a type that is not read"},
                                     {"422", "an image that cannot be decoded"},
                                     {"429", "the queue is full: Retry-After has seconds"},
                                     {"503", "the server is loading, ending, or too busy"}})
    all[status] = {{"description", what}, {"content", json_content(reference("Error"))}};
  return all;
}

// The body of a request in plain form.
Json plain_body(const answer::Description& description) {
  Json properties = Json::object(), form = Json::object(), content;
  const bool reads_images = !description.inputs.empty(), needs_images = !description.alternatives.empty();
  if (reads_images) {
    properties["image"] = {{"type", "string"}, {"description", "an encoded image in base64"}};
    form["image"] = {{"type", "string"}, {"format", "binary"}};
  }
  for (const auto& option : description.options)
    form[option.key] = properties[option.key] = option_schema(option);
  Json schema = {{"type", "object"}, {"properties", properties}};
  if (needs_images) schema["required"] = {"image"};
  content = json_content(schema);
  if (reads_images) {
    content["image/*"] = {{"schema", {{"type", "string"}, {"format", "binary"}}}};
    content["multipart/form-data"] = {{"schema", {{"type", "object"}, {"properties", form}}}};
    if (needs_images) content["multipart/form-data"]["schema"]["required"] = {"image"};
  }
  return {{"required", needs_images}, {"content", content}};
}

Json operation(const std::string& id, const std::string& summary, const std::string& tag, Json answers) {
  return {{"operationId", id}, {"summary", summary}, {"tags", {tag}}, {"responses", std::move(answers)}};
}

Json plain_get(const std::string& id, const std::string& summary,
               const std::string& type = "application/json") {
  Json content;
  content[type] = {{"schema", {{"type", type == "application/json" ? "object" : "string"}}}};
  return {
      {"get", operation(id, summary, "server", {{"200", {{"description", summary}, {"content", content}}}})}};
}

void add_model(Json& paths, const std::string& name, const answer::Description& description) {
  const auto post = [&](const std::string& verb, const std::string& good, const std::string& summary,
                        Json body) {
    Json one = operation(verb + " " + name, summary, name, responses(good, summary));
    one["requestBody"] = std::move(body);
    return Json{{"post", one}};
  };
  paths["/models/" + name + "/predict"] =
      post("predict", "200", description.summary, plain_body(description));
  paths["/models/" + name + "/jobs"] =
      post("start", "202", description.summary + ", as a job", plain_body(description));
  paths["/v2/models/" + name + "/infer"] =
      post("infer", "200", description.summary + ", by the Open Inference Protocol",
           {{"required", true}, {"content", json_content(reference("InferRequest"))}});
  paths["/v2/models/" + name] = plain_get("metadata " + name, "inputs, outputs and preprocessing");
}

Json job_path(const char* verb, const std::string& summary) {
  Json one = operation(std::string(verb) + " job", summary, "jobs", responses("200", summary));
  one["parameters"] = {
      {{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}};
  return one;
}

Json schemas() {
  const Json text = {{"type", "string"}}, any = Json::object();
  const Json tensor = {{"type", "object"},
                       {"required", {"name", "shape", "datatype"}},
                       {"properties",
                        {{"name", text},
                         {"datatype", text},
                         {"shape", {{"type", "array"}, {"items", {{"type", "integer"}}}}},
                         {"parameters", {{"type", "object"}}},
                         {"data", {{"type", "array"}, {"items", any}}}}}};
  return {{"Error", {{"type", "object"}, {"required", {"error"}}, {"properties", {{"error", text}}}}},
          {"Tensor", tensor},
          {"InferRequest",
           {{"type", "object"},
            {"properties",
             {{"id", text},
              {"parameters", {{"type", "object"}}},
              {"inputs", {{"type", "array"}, {"items", reference("Tensor")}}}}}}}};
}

}  // namespace

Json openapi_document(const ModelTable& models, const std::string& version) {
  Json paths;
  paths["/health/live"] = plain_get("live", "the server runs");
  paths["/health/ready"] = plain_get("ready", "the server answers requests");
  paths["/metrics"] = plain_get("metrics", "counters and histograms for Prometheus", "text/plain");
  paths["/models"] = plain_get("models", "the models with their options");
  for (const auto& [name, served] : models) add_model(paths, name, served.answerer->description());
  paths["/jobs/{id}"] = {{"get", job_path("read", "state and results of a job")},
                         {"delete", job_path("cancel", "stops a job within one step")}};
  paths["/jobs/{id}/events"] = {{"get", job_path("follow", "progress of a job as server-sent events")}};
  return {{"openapi", "3.0.3"},
          {"info", {{"title", "tessera serve"}, {"version", version}}},
          {"paths", paths},
          {"components", {{"schemas", schemas()}}}};
}

Json description_json(const std::string& name, const answer::Description& description) {
  Json out = {{"name", name},
              {"answer", description.kind},
              {"summary", description.summary},
              {"slow", description.slow}};
  for (const auto& [key, arrays] :
       {std::pair{"inputs", &description.inputs}, {"outputs", &description.outputs}}) {
    out[key] = Json::array();
    for (const auto& array : *arrays)
      out[key].push_back({{"name", array.name},
                          {"datatype", answer::name_of(array.type)},
                          {"shape", array.shape},
                          {"meaning", array.meaning}});
  }
  out["options"] = Json::object();
  for (const auto& option : description.options) out["options"][option.key] = option_schema(option);
  out["details"] = description.details;
  return out;
}

}  // namespace tessera::serve
