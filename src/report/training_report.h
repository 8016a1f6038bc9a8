// What a finished training run leaves for people: curves, mistakes, pictures, recipe, in one page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/image.h"
#include "report/charts.h"
#include "report/heat_map.h"
#include "report/html.h"

namespace tessera::report {

struct Chart {
  ChartOptions options{};
  std::vector<Curve> curves{};
};

struct ExamplePrediction {
  Image picture;
  std::string label{}, predicted{};  // `label`: all of them where a picture has several
  double probability = 0;            // of the predicted class, 0 … 1
  bool right = false;                // the predicted class is among the labels
};

struct TrainingReport {
  std::string title;     // the run's name
  std::string subtitle;  // one line: model, data, result
  std::vector<Fact> facts;
  std::vector<Chart> charts;
  Confusion confusion;  // without classes: left out
  std::vector<ExamplePrediction> examples;
  std::string recipe;                                            // TOML, as resolved
  std::vector<std::pair<std::string, std::string>> environment;  // "threads" -> "2"
  std::vector<std::string> warnings;  // bad images, fallbacks: what a reader must know
};

// The whole page as text; sections without content are left out.
std::string render(const TrainingReport& report);

}  // namespace tessera::report
