#include "open/load.h"

#include "core/error.h"
#include "core/text.h"
#include "models/backbones/baselines.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"

namespace tessera::train {
namespace {

torch::Tensor selected(const StoredTensor& stored, const torch::Tensor& target, const std::string& path) {
  const auto count = std::ssize(stored.source.parts);
  std::vector<int64_t> shape = target.sizes().vec();
  check(shape.empty() || shape[0] % count == 0, "'", path, "': '", stored.name(), "' of ", target.sizes(),
        " is not made of ", count, " parts");
  if (!shape.empty()) shape[0] /= count;
  std::vector<torch::Tensor> cut;
  for (const TensorView* part : stored.views) {
    try {
      cut.push_back(models::select_weights(to_tensor(*part), shape));
    } catch (const Error& error) {
      fail("'", path, "': tensor '", part->name, "' for '", stored.name(), "': ", error.what());
    }
  }
  return count == 1 ? cut[0] : torch::cat(cut);
}

}  // namespace

LoadReport select_pretrained(models::Backbone& model, const models::ModelSpec& spec, const WeightFile& file) {
  const std::string& path = file.path();
  const std::vector<std::string> names = names_of(file.tensors());
  const StoredTensors same(file.tensors(), places_of(names, spec.family), path),
      llama(file.tensors(), names_of_family("llama").ours(names), path);
  LoadReport report;
  const torch::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    const StoredTensor* found = name.starts_with("head") ? nullptr : same.find(name);
    if (!found && !name.starts_with("head")) found = llama.find(name);
    if (!found) {
      report.fresh.push_back(name);
      continue;
    }
    torch::Tensor target = item.value();
    target.copy_(selected(*found, target, path));
    ++report.loaded;
  }
  if (report.loaded == 0)
    fail("'", path, "' holds no tensor to select from: none has the name of a parameter of ", spec.name,
         " or of LLaMA");
  report.lines.push_back(text("selected first weights for ", report.loaded, " tensors from ", path));
  report.lines.push_back(text("first values of their own: ", report.fresh.size(), " tensors, such as ",
                              report.fresh.empty() ? "none" : report.fresh.front()));
  return report;
}

}  // namespace tessera::train
