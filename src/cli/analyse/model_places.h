// The taps of a model, its named internal values, and the features at them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"
#include "models/base/encoder.h"

namespace tessera::cli {

struct Place {
  std::string name;            // "blocks.3", "blocks.3.queries", "embed"
  std::vector<int64_t> shape;  // shape of its values for one image
  bool features = false;       // channels describe an image; else weights, states, rotations
};

struct PlaceFeatures {
  torch::Tensor map;   // [batch, channels, rows, columns]; undefined without a grid
  torch::Tensor mean;  // [batch, channels], mean over the map, or over all tokens and windows
};

class ModelPlaces {
 public:
  // Finds the taps by a pass over one empty image of the weights' size.
  explicit ModelPlaces(const AnalysedModel& model);
  const std::vector<Place>& all() const { return all_; }         // in the order of the network
  const std::string& last_block() const { return last_block_; }  // "" if no block has this tap
  // Returns the taps named in "blocks.3,embed", in that order. Throws a usage error with the nearest name for
  // an unknown one, or for one without features.
  std::vector<std::string> chosen(const std::string& names) const;
  // Makes one pass over a batch, with gradients if they are enabled.
  std::vector<PlaceFeatures> look(const torch::Tensor& images, const std::vector<std::string>& names) const;
  // Returns a block's values on its grid, [batch, channels, rows, columns]; undefined without a grid.
  torch::Tensor map_of(const torch::Tensor& values) const;
  // Returns a table of all taps, for --list-taps.
  AnalysisFindings findings() const;

 private:
  PlaceFeatures features_of(const std::string& name, const torch::Tensor& values, int64_t batch) const;

  const AnalysedModel& model_;
  std::vector<Place> all_;
  std::string last_block_;
  std::optional<models::TokenPlaces> tokens_;  // for models with a single sequence of tokens
};

// --tap and --list-taps.
struct PlaceOptions {
  std::string taps;
  bool list = false;

  template <class V>
  void visit(V& v) {
    v("tap", taps, "places inside the model instead of its blocks: blocks.3,blocks.3.queries,embed");
    v("list_taps", list, "print the places of the model and read no image");
  }
};
}  // namespace tessera::cli
