#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "models/pairs/two_tower.h"
#include "weights/name_tables.h"
#include "weights/names/tables.h"
#include "weights/stored_tensors.h"
#include "weights/two_tower_published.h"

namespace tessera::train {
namespace {

bool is_pair(const std::string& task) { return task == "clip" || task == "coca"; }

// Returns the table family for a task's weights; image-text tasks have their own.
std::string table_family(const NamedModel& model, const NamedTensors& ours) {
  if (model.task == "coca") return "coca";
  if (model.task != "clip") return model.model.family;
  if (model.model.family == "resnet") return "clip_resnet";
  const bool siglip = std::any_of(ours.begin(), ours.end(),
                                  [](const auto& tensor) { return tensor.first == "attn_pool.latent"; });
  return siglip ? "siglip" : "clip";
}

std::vector<std::string> programs_with(const std::string& family) {
  std::vector<std::string> programs;
  for (const NameTable& table : name_tables())
    if (table.family() == family &&
        std::any_of(table.rows().begin(), table.rows().end(), [](const NameRow& row) { return !row.older; }))
      programs.push_back(table.program());
  return programs;
}

std::vector<std::string> programs_of(const NamedModel& model, const NamedTensors& ours) {
  if (model.task == "detr") return {"detr", "transformers"};
  if (model.task == "segment" && model.model.family == "swin") return {"mmseg", "transformers"};
  if (model.task == "segment") return {"mmseg"};
  if (model.task == "detect") return {model.code};
  return programs_with(table_family(model, ours));
}

// Throws a usage error unless the backbone follows the program's code, since the same weights would give
// different results.
void check_backbone(const models::ModelSpec& model, const std::string& program) {
  const Value *form = model.settings.find("form"), *first = model.settings.find("stride_first");
  if (model.family == "swin" && program != "detectron2") {
    const bool original = program == "transformers" || program == "microsoft";
    const std::string is = form && form->is_string() ? form->as_string() : "timm",
                      must = original ? "original" : "mmseg";
    if (is != must)
      fail_usage("model.form is '", is, "', whose weights compute something else in ", program, ", must be '",
                 must, "'");
  }
  if (program == "torchvision" && first && first->is_bool() && first->as_bool())
    fail_usage("model.stride_first is true, torchvision's ResNet halves the grid in its 3x3 convolutions");
}

NameRows rows_of_table(const std::string& program, const std::string& family) {
  const NameTable* table = find_name_table(program, family);
  return table ? table->rows() : NameRows{};
}

NameRows rows_of_family(const std::string& program, const models::ModelSpec& model) {
  const Value* stem = model.settings.find("stem");
  const bool deep = stem && stem->is_string() && stem->as_string().starts_with("deep");
  return rows_of_table(program, deep && find_name_table(program, kDeepResnet) ? kDeepResnet : model.family);
}

// Returns the rows of the backbone inside a detector or segmenter.
NameRows backbone_rows(const std::string& program, const models::ModelSpec& model) {
  const std::string& family = model.family;
  if (program == "torchvision") return {};  // its table contains them
  const bool detectron2 = program == "detectron2";
  const std::string prefix = !detectron2          ? "backbone."
                             : family == "resnet" ? "backbone.bottom_up."
                                                  : "backbone.net.";
  const std::string own = detectron2 || program == "transformers" ? program : "openmmlab";
  const bool named = family == "resnet" || family == "swin";
  return joined(
      {below(prefix, "", named ? rows_of_family(own, model) : NameRows{}), {{prefix + "**", "**"}}});
}

// Removes the prefix of the image tower, which task weights lack.
NameRows without_tower(NameRows rows) {
  NameRows last;
  constexpr std::string_view kTower = models::kImageTower;
  for (NameRow& row : rows)
    if (row.ours.starts_with(kTower)) row.ours.erase(0, kTower.size());
  std::erase_if(rows, [&](const NameRow& row) {
    if (row.ours == "**") last.push_back(row);
    return row.ours == "**";
  });
  return joined({rows, last});
}

NameTable table_of(const std::string& program, const NamedModel& model, const NamedTensors& ours) {
  const std::string& family = model.model.family;
  NameRows rows;
  if (model.task == "detr")
    rows = rows_of_table(program, "detr");
  else if (model.task == "detect")
    rows = joined({rows_of_table(program, "detect"), backbone_rows(program, model.model)});
  else if (model.task == "segment")
    rows = joined({rows_of_table(program, "segment"),
                   {{"decode_head.**", "decode_head.**"},
                    {"auxiliary_head.**", "auxiliary_head.**"},
                    {"neck.**", "neck.**"}},
                   backbone_rows(program, model.model)});
  else if (is_pair(model.task))
    rows = without_tower(rows_of_table(program, table_family(model, ours)));
  else
    rows = rows_of_family(program, model.model);
  return {program, family, rows};
}

// Throws Error if one of our names is lost when the names are read back as a file of the program.
void check_names(const NamedTensors& theirs, const NamedTensors& ours, const std::string& program,
                 const NamedModel& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : theirs) names.push_back(name);
  const NameTable* const towers = is_pair(model.task) ? models::tower_table(names) : nullptr;
  std::map<std::string, bool> read;
  for (const NamePlace& place : towers ? towers->ours(names) : places_of(names, model.model.family)) {
    const bool tower = towers && place.ours.starts_with(models::kImageTower);
    read[tower ? place.ours.substr(std::string_view(models::kImageTower).size()) : place.ours] = true;
  }
  for (const auto& [name, tensor] : ours)
    check(read.contains(name), "'", name, "' of ", model.model.name, " has no name in ", program);
  // transformers has none of our names.
  for (const std::string& name : names)
    if (program == "transformers" && model.task == "classify")
      check(!read.contains(name), "'", name, "' of ", model.model.name, " has no name in ", program);
}

}  // namespace

const std::vector<std::string>& named_programs() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> programs;
    for (const NameTable& table : name_tables())
      if (table.family() != "llama" &&
          std::find(programs.begin(), programs.end(), table.program()) == programs.end())
        programs.push_back(table.program());
    return programs;
  }();
  return all;
}

NamedTensors as_program(const NamedTensors& ours, const std::string& program, const NamedModel& model) {
  const std::vector<std::string> possible = programs_of(model, ours);
  if (std::find(possible.begin(), possible.end(), program) == possible.end())
    fail_usage("weights of task ", model.task, " of this recipe have no form of ", program,
               possible.empty() ? "" : ", must be " + join(possible, " or "));
  check_backbone(model.model, program);
  NamedTensors theirs = by_names_of(table_of(program, model, ours), ours);
  check_names(theirs, ours, program, model);
  return theirs;
}

}  // namespace tessera::train
