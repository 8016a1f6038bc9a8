// The plane of `tessera analyse landscape`: its identity, the points that an interrupted run has computed,
// and its drawing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"

namespace tessera::cli {

// XXH3-64 of the tensors' values, in order.
std::string checksum_of_tensors(const std::vector<torch::Tensor>& tensors);
// Returns the inputs of a model's losses over images: checksums of weights, buffers and preprocessed images,
// with words for messages.
nlohmann::ordered_json losses_key(const AnalysedModel& model, const AnalysedImages& images,
                                  const std::string& precision);

// A file with the losses so far and the request that they belong to. Without a path nothing is stored.
class PlaneState {
 public:
  // Reads an existing file. Throws a usage error if it belongs to another request, and an error if it has
  // more than `most` losses.
  PlaneState(std::string path, nlohmann::ordered_json request, size_t most);
  void save(const std::vector<double>& so_far) const;
  const std::vector<double>& losses() const { return losses_; }

 private:
  std::string path_;
  nlohmann::ordered_json request_;
  std::vector<double> losses_;
};

// A checkpoint on the plane.
struct PlaneMark {
  std::string letter, weights;
  double first = 0, second = 0, loss = 0;
};
struct LossPlane {
  std::vector<double> first, second;  // places along the directions
  std::vector<double> losses;         // [first, second]
  std::vector<PlaneMark> marks;       // of a plane through checkpoints
};
std::vector<AnalysisSection> plane_sections(const LossPlane& plane);

}  // namespace tessera::cli
