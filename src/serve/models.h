// The models of a server: opened weights by name. They can be reloaded while requests are computed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "answer/answerer.h"
#include "serve/computer.h"

namespace tessera::serve {

struct ModelPath {
  std::string name, weights;
};
// Reads "NAME=PATH", or PATH with the name of its folder or file. Throws a usage error for two models of one name,
// and for names with other characters than letters, digits, '.', '_' and '-'.
std::vector<ModelPath> model_paths(const std::vector<std::string>& words);

struct ServedAnswer {
  std::shared_ptr<answer::Answerer> answerer;
  size_t queue = 0;
};
using ModelTable = std::map<std::string, ServedAnswer>;

struct BatchOptions {
  int64_t batch = 0;    // images per batch; 0 = measured
  double wait_ms = -1;  // negative: only while further requests are decoded
  int64_t requests = 64;
  size_t bytes = size_t{256} << 20;
};

// Opens weights: answer::open_answerers().
using OpenAnswerers = std::function<std::vector<answer::NamedAnswerer>(const answer::OpenRequest& request,
                                                                       std::vector<std::string>& notes)>;

class Models {
 public:
  Models(std::vector<ModelPath> paths, answer::OpenRequest how, BatchOptions batches, Computer& computer,
         OpenAnswerers open_answerers);

  // Opens all weights. Returns lines for people. On an error the previous models stay in use.
  std::vector<std::string> open();
  std::shared_ptr<const ModelTable> table() const;
  // Throws a 404 with the nearest name.
  ServedAnswer find(const std::string& name) const;

 private:
  QueueLimits limits_of(answer::Answerer& answerer) const;

  std::vector<ModelPath> paths_;
  answer::OpenRequest how_;
  BatchOptions batches_;
  Computer& computer_;
  OpenAnswerers open_answerers_;
  std::map<std::string, QueueLimits> limits_;  // by path, measured once
  mutable std::mutex mutex_;
  std::shared_ptr<const ModelTable> table_ = std::make_shared<ModelTable>();
};

// Returns the batch size, at most `most`, beyond which larger batches are hardly faster.
int64_t best_batch(answer::Answerer& answerer, int64_t most);

// Returns the description of a server's routes as OpenAPI 3.0, made from the descriptions of its answers.
nlohmann::ordered_json openapi_document(const ModelTable& models, const std::string& version);

// Inputs, outputs and options of an answer, for GET /models/NAME.
nlohmann::ordered_json description_json(const std::string& name, const answer::Description& description);

}  // namespace tessera::serve
