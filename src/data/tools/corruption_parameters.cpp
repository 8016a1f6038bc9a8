// The parameters in the benchmark's code (imagenet_c/corruptions.py and make_cifar_c.py), severity 1 to 5.
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "data/tools/corruption.h"

namespace tessera::data {

std::span<const std::string> corruption_names() {
  static const std::vector<std::string> names = {"gaussian_noise",
                                                 "shot_noise",
                                                 "impulse_noise",
                                                 "defocus_blur",
                                                 "glass_blur",
                                                 "motion_blur",
                                                 "zoom_blur",
                                                 "snow",
                                                 "frost",
                                                 "fog",
                                                 "brightness",
                                                 "contrast",
                                                 "elastic_transform",
                                                 "pixelate",
                                                 "jpeg_compression",
                                                 "speckle_noise",
                                                 "gaussian_blur",
                                                 "saturate"};
  return names;
}

const CorruptionParameters& imagenet_c_parameters() {
  static const CorruptionParameters table{
      "imagenet",
      {
          {"gaussian_noise", {{{0.08}, {0.12}, {0.18}, {0.26}, {0.38}}}},
          {"shot_noise", {{{60}, {25}, {12}, {5}, {3}}}},
          {"impulse_noise", {{{0.03}, {0.06}, {0.09}, {0.17}, {0.27}}}},
          {"speckle_noise", {{{0.15}, {0.2}, {0.35}, {0.45}, {0.6}}}},
          {"gaussian_blur", {{{1}, {2}, {3}, {4}, {6}}}},
          {"glass_blur", {{{0.7, 1, 2}, {0.9, 2, 1}, {1, 2, 3}, {1.1, 3, 2}, {1.5, 4, 2}}}},
          {"defocus_blur", {{{3, 0.1}, {4, 0.5}, {6, 0.5}, {8, 0.5}, {10, 0.5}}}},
          {"motion_blur", {{{10, 3}, {15, 5}, {15, 8}, {15, 12}, {20, 15}}}},
          {"zoom_blur",
           {{{1, 1.11, 0.01}, {1, 1.16, 0.01}, {1, 1.21, 0.02}, {1, 1.26, 0.02}, {1, 1.31, 0.03}}}},
          {"fog", {{{1.5, 2}, {2, 2}, {2.5, 1.7}, {2.5, 1.5}, {3, 1.4}}}},
          {"frost", {{{1, 0.4}, {0.8, 0.6}, {0.7, 0.7}, {0.65, 0.7}, {0.6, 0.75}}}},
          {"snow",
           {{{0.1, 0.3, 3, 0.5, 10, 4, 0.8},
             {0.2, 0.3, 2, 0.5, 12, 4, 0.7},
             {0.55, 0.3, 4, 0.9, 12, 8, 0.7},
             {0.55, 0.3, 4.5, 0.85, 12, 8, 0.65},
             {0.55, 0.3, 2.5, 0.85, 12, 12, 0.55}}}},
          {"contrast", {{{0.4}, {0.3}, {0.2}, {0.1}, {0.05}}}},
          {"brightness", {{{0.1}, {0.2}, {0.3}, {0.4}, {0.5}}}},
          {"saturate", {{{0.3, 0}, {0.1, 0}, {2, 0}, {5, 0.1}, {20, 0.2}}}},
          {"jpeg_compression", {{{25}, {18}, {15}, {10}, {7}}}},
          {"pixelate", {{{0.6}, {0.5}, {0.4}, {0.3}, {0.25}}}},
          {"elastic_transform",
           {{{488, 170.8, 24.4},
             {488, 19.52, 48.8},
             {12.2, 2.44, 4.88},
             {17.08, 2.44, 4.88},
             {29.28, 2.44, 4.88}}}},
      }};
  return table;
}

const CorruptionParameters& cifar_10_c_parameters() {
  static const CorruptionParameters table{
      "cifar",
      {
          {"gaussian_noise", {{{0.04}, {0.06}, {0.08}, {0.09}, {0.1}}}},
          {"shot_noise", {{{500}, {250}, {100}, {75}, {50}}}},
          {"impulse_noise", {{{0.01}, {0.02}, {0.03}, {0.05}, {0.07}}}},
          {"speckle_noise", {{{0.06}, {0.1}, {0.12}, {0.16}, {0.2}}}},
          {"gaussian_blur", {{{0.4}, {0.6}, {0.7}, {0.8}, {1}}}},
          {"glass_blur", {{{0.05, 1, 1}, {0.25, 1, 1}, {0.4, 1, 1}, {0.25, 1, 2}, {0.4, 1, 2}}}},
          {"defocus_blur", {{{0.3, 0.4}, {0.4, 0.5}, {0.5, 0.6}, {1, 0.2}, {1.5, 0.1}}}},
          {"motion_blur", {{{6, 1}, {6, 1.5}, {6, 2}, {8, 2}, {9, 2.5}}}},
          {"zoom_blur",
           {{{1, 1.06, 0.01}, {1, 1.11, 0.01}, {1, 1.16, 0.01}, {1, 1.21, 0.01}, {1, 1.26, 0.01}}}},
          {"fog", {{{0.2, 3}, {0.5, 3}, {0.75, 2.5}, {1, 2}, {1.5, 1.75}}}},
          {"frost", {{{1, 0.2}, {1, 0.3}, {0.9, 0.4}, {0.85, 0.4}, {0.75, 0.45}}}},
          {"snow",
           {{{0.1, 0.2, 1, 0.6, 8, 3, 0.95},
             {0.1, 0.2, 1, 0.5, 10, 4, 0.9},
             {0.15, 0.3, 1.75, 0.55, 10, 4, 0.9},
             {0.25, 0.3, 2.25, 0.6, 12, 6, 0.85},
             {0.3, 0.3, 1.25, 0.65, 14, 12, 0.8}}}},
          {"contrast", {{{0.75}, {0.5}, {0.4}, {0.3}, {0.15}}}},
          {"brightness", {{{0.05}, {0.1}, {0.15}, {0.2}, {0.3}}}},
          {"saturate", {{{0.3, 0}, {0.1, 0}, {1.5, 0}, {2, 0.1}, {2.5, 0.2}}}},
          {"jpeg_compression", {{{80}, {65}, {58}, {50}, {40}}}},
          {"pixelate", {{{0.95}, {0.9}, {0.85}, {0.75}, {0.65}}}},
          {"elastic_transform",
           {{{0, 0, 2.56}, {1.6, 6.4, 2.24}, {2.56, 1.92, 1.92}, {3.2, 1.28, 1.6}, {3.2, 0.96, 0.96}}}},
      }};
  return table;
}

const CorruptionParameters& corruption_parameters(const std::string& name) {
  for (const CorruptionParameters* table : {&imagenet_c_parameters(), &cifar_10_c_parameters()})
    if (table->name == name) return *table;
  fail_usage("parameters '", name,
             "' are not known, there are imagenet (made for 224 pixels) and cifar (for 32)");
}

const std::vector<double>& CorruptionParameters::of(const std::string& corruption, int severity) const {
  const auto found = by_corruption.find(corruption);
  if (found == by_corruption.end())
    fail_usage("corruption '", printable(corruption), "' is not known",
               did_you_mean(corruption, corruption_names()), " (there are ", join(corruption_names(), ", "),
               ")");
  if (severity < 1 || severity > kSeverities)
    fail_usage("severity ", severity, " of ", corruption, ", must be 1 to ", kSeverities);
  return found->second[static_cast<size_t>(severity - 1)];
}

}  // namespace tessera::data
