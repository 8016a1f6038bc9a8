// Answers requests with opened weights. Commands and the server are front ends of the same answerers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "answer/request.h"

namespace tessera::answer {

// A decoded and checked request. Requests with equal keys may be answered together.
struct Prepared {
  virtual ~Prepared() = default;
  std::string key;
  int64_t rows = 1;  // images of a batch
  size_t bytes = 0;  // memory that it holds
};

class Answerer {
 public:
  virtual ~Answerer() = default;
  virtual const Description& description() const = 0;
  // Decodes and checks a request. Thread-safe, without OpenMP. Throws a usage error for a wrong request, TooLarge,
  // or another Error for an image that cannot be decoded.
  virtual std::unique_ptr<Prepared> prepare(const Request& request) const = 0;
  // Answers requests with equal keys, in order. Called by one thread. `control` belongs to the first. Throws
  // ErrorKind::interrupted once the control is stopped.
  virtual std::vector<Reply> answer(std::span<Prepared* const> requests, const Control& control) = 0;
  // Computes a batch of `rows` images without content, to time it. False if requests are answered one by one.
  virtual bool rehearse(int64_t /*rows*/) { return false; }
};

struct OpenRequest {
  std::string weights;
  bool raw = false;
  std::string device = "auto", precision = "fp32";
  int64_t batch = 16;                     // images at a time, within one request
  int64_t max_pixels = 50'000'000;        // of a decoded image
  std::vector<std::string> gallery = {};  // images or folders that `retrieve` searches
  std::string index = {};                 // file that caches their vectors
  // True once the weights are no longer needed. Opening a gallery then throws ErrorKind::interrupted.
  std::function<bool()> stopped = {};
};

// One kind of answer; `suffix` completes the model's name: "" for the first kind, ".features".
struct NamedAnswerer {
  std::string suffix;
  std::shared_ptr<Answerer> answerer;
};

// Opens weights, in every form that open_task and open_generator read, and returns their answers. The
// abilities of the task select them, so a new task with such an ability needs no line here. Adds lines for
// people to `notes`. Throws a usage error if the weights support no answer.
std::vector<NamedAnswerer> open_answerers(const OpenRequest& request, std::vector<std::string>& notes);

}  // namespace tessera::answer
