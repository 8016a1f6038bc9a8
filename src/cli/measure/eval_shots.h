// `tessera eval --shots 0,1,4`: classes of texts by prompts of a language model with that many examples
// (tasks/language/few_shot.h).
#pragma once

#include <string>
#include <vector>

#include "cli/base/analysis_output.h"
#include "cli/base/common.h"
#include "core/options.h"
#include "data/base/source.h"

namespace tessera::cli {

struct ShotsOptions {
  std::string shots, prompt;
  bool given() const { return !shots.empty() || !prompt.empty(); }

  template <class V>
  void visit(V& v) {
    v("shots", shots,
      "language models: classes of texts (--data text:classes,FILE) by prompts with these numbers of "
      "examples, "
      "0,1,4,16");
    v("prompt", prompt,
      "with --shots: form of an example, with {text}, {pair} for a second text, and {label} (default: the "
      "text, a line "
      "'Label: {label}', an empty line)");
  }
};

// The other options of `eval` that apply.
struct ShotsRequest {
  ShotsOptions shots;
  std::vector<std::string> weights;
  data::SourceConfig data;
  std::string device, precision;
  uint64_t seed = 0;
  bool json = false;
  AnalysisOutput output;
};

// Throws a usage error for an option that is not its default and does not apply to --shots.
void refuse_other_options(const std::vector<OptionField>& given, const std::vector<OptionField>& usual);

// Prints a row for each file and number of examples. Throws usage errors before anything is measured.
void evaluate_shots(const ShotsRequest& request);

}  // namespace tessera::cli
