// Explicit table of tasks: self-registering statics would be dropped from a static archive.
#include "tasks/base/registry.h"

#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "models/base/tokeniser.h"
#include "tasks/classify/classify.h"
#include "tasks/dense/detect.h"
#include "tasks/dense/detr.h"
#include "tasks/dense/glip.h"
#include "tasks/dense/segment.h"
#include "tasks/generate/diffuse.h"
#include "tasks/language/answering.h"
#include "tasks/language/bert.h"
#include "tasks/language/flamingo.h"
#include "tasks/language/language.h"
#include "tasks/pairs/clip.h"
#include "tasks/pairs/coca.h"
#include "tasks/pairs/simvlm.h"
#include "tasks/pretrain/beit.h"
#include "tasks/pretrain/darl.h"
#include "tasks/pretrain/dino.h"
#include "tasks/pretrain/dvae.h"
#include "tasks/pretrain/igpt.h"
#include "tasks/pretrain/mae.h"
#include "tasks/pretrain/maskfeat.h"
#include "tasks/pretrain/moco_v3.h"
#include "tasks/pretrain/mvp.h"
#include "tasks/pretrain/patch_tokens.h"
#include "tasks/pretrain/simmim.h"
#include "tasks/pretrain/vae.h"

namespace tessera::tasks {

namespace {

std::vector<TaskKind>& table() {
  static std::vector<TaskKind> kinds = {
      classify_kind(), mae_kind(),     darl_kind(),     dvae_kind(),    vae_kind(),
      diffuse_kind(),  segment_kind(), detect_kind(),   detr_kind(),    clip_kind(),
      coca_kind(),     simvlm_kind(),  instruct_kind(), frozen_kind(),  flamingo_kind(),
      language_kind(), simmim_kind(),  maskfeat_kind(), beit_kind(),    bert_kind(),
      glip_kind(),     mvp_kind(),     dino_kind(),     moco_v3_kind(), igpt_kind(),
  };
  return kinds;
}

}  // namespace

const std::vector<TaskKind>& task_kinds() { return table(); }

void add_task_kind(const TaskKind& kind) {
  std::erase_if(table(), [&](const TaskKind& other) { return std::string_view(other.name) == kind.name; });
  table().push_back(kind);
}

const TaskKind& find_task(const std::string& name) {
  std::vector<std::string> known;
  for (const TaskKind& kind : task_kinds()) {
    if (kind.name == name) return kind;
    known.emplace_back(kind.name);
  }
  fail_usage("there is no task '", printable(name), "', it must be ", join(known, ", "),
             did_you_mean(name, known));
}

data::SourceConfig data_for(const TaskKind& kind, data::SourceConfig config) {
  config.reads_classes = kind.reads_classes, config.reads_masks = kind.reads_masks;
  config.captions = kind.captions;
  return config;
}

const TaskKind& default_task() { return find_task("classify"); }

Value resolve_task(const Value& section) {
  if (!section.is_table()) fail_usage("task is ", section.type_name(), ", must be a table");
  std::string name = default_task().name;
  if (const Value* given = section.find("name")) {
    if (!given->is_string()) fail_usage("task.name is ", given->type_name(), ", must be a string");
    name = given->as_string();
  }
  Value complete;
  complete.set("name", name);
  merge(complete, find_task(name).resolve(task_settings(section)));
  return complete;
}

std::string task_name(const Value& section) {
  const Value* name = section.find("name");
  return name ? name->as_string() : default_task().name;
}

Value task_settings(Value section) {
  std::erase_if(section.as_table(), [](const auto& entry) { return entry.first == "name"; });
  return section;
}

std::shared_ptr<models::Backbone> TaskSetup::build_backbone(const models::ModelSpec& spec) const {
  auto backbone = make_backbone ? make_backbone(spec)
                  : meta        ? models::meta_backbone(spec)
                                : models::build_backbone(spec, seed, init);
  auto* reader = dynamic_cast<models::ReadsTokens*>(backbone.get());
  if (reader && reader->input_codes() > 0 && !meta && opener) {
    const auto tokens = std::make_shared<PatchTokens>(*this, reader->input_tokeniser(), "model.tokeniser",
                                                      "model.codes", reader->input_codes());
    reader->set_tokens([tokens](const torch::Tensor& images, int64_t rows,
                                int64_t columns) { return (*tokens)(images, rows, columns); },
                       tokens->checksum());
  }
  return backbone;
}

}  // namespace tessera::tasks
