#include "weights/migrate.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera::train {
namespace {

struct Moved {
  const char *from, *to;
};
constexpr std::array kMoved = {
    Moved{"train.loss", "task.loss"},
    Moved{"train.target_threshold", "task.target_threshold"},
    Moved{"train.label_smoothing", "task.label_smoothing"},
    Moved{"train.class_weights", "task.class_weights"},
    Moved{"mixup", "task.mixup"},
    Moved{"distil", "task.distil"},
    Moved{"soft_mask.share", "model.soft_mask"},
    Moved{"soft_mask.mode", "model.soft_mask_mode"},
    Moved{"soft_mask.shape", "model.soft_mask_shape"},
    Moved{"soft_mask.cutoff_epoch", "model.soft_mask_cutoff"},
};

void erase(Value& table, const std::string& path) {
  const size_t dot = path.find('.');
  const std::string first = path.substr(0, dot);
  if (dot == std::string::npos) {
    std::erase_if(table.as_table(), [&](const auto& entry) { return entry.first == first; });
  } else if (Value* inner = table.find(first); inner && inner->is_table()) {
    erase(*inner, path.substr(dot + 1));
  }
}

// These mark a layer that had the section [soft_mask], or its share, until all layers are merged.
constexpr const char* kHadSection = "soft_mask.had_section";
constexpr const char* kHadShare = "soft_mask.had_share";
constexpr std::array kSoftMaskKeys = {"model.soft_mask", "model.soft_mask_mode", "model.soft_mask_shape",
                                      "model.soft_mask_cutoff"};

bool is_zero(const Value* value) { return value && value->is_number() && value->as_double() == 0; }

// Throws if both the old and the new name are given, since either could be meant.
[[noreturn]] void refuse_both(const std::string& from, const std::string& to) {
  fail_usage(from, " is now ", to, ": give one of them");
}

void upgrade_soft_mask(Value& table) {
  const auto is_given = [&](const Moved& moved) {
    return std::string_view(moved.from).starts_with("soft_mask.") && table.find(moved.from);
  };
  if (std::none_of(kMoved.begin(), kMoved.end(), is_given)) return;
  const Value *share = table.find("soft_mask.share"), *own = table.find("model.soft_mask");
  // The section's schedule replaced the model's constant share, unless the schedule was off.
  if (share && own && is_zero(share) && !is_zero(own)) return erase(table, "soft_mask");
  if (is_zero(own)) erase(table, "model.soft_mask");
  if (share) table.set(kHadShare, true);
  table.set(kHadSection, true);
}

// Applies the section's defaults, after all layers are merged.
void settle_soft_mask(Value& table) {
  if (table.find(kHadSection)) {
    const Value *share = table.find("model.soft_mask"), *mask = table.find("model.mask");
    // A share of 0 turned the mask off, even for models without such a mask. Runs with mask = "none" ignored
    // the section.
    if (!share || is_zero(share) || (mask && *mask == Value("none"))) {
      for (const char* key : kSoftMaskKeys) erase(table, key);
      if (const Value* model = table.find("model"); model && model->is_table() && model->as_table().empty())
        erase(table, "model");
    } else if (table.find(kHadShare) && !table.find("model.soft_mask_mode")) {
      table.set("model.soft_mask_mode", "soft");
    }
  }
  for (const char* mark : {kHadSection, kHadShare}) erase(table, mark);
  if (const Value* rest = table.find("soft_mask"); rest && rest->is_table() && rest->as_table().empty())
    erase(table, "soft_mask");
}

// Throws a usage error if the section that a key moves into exists and is not a table.
void check_section(const Value& table, const std::string& to) {
  const std::string section = to.substr(0, to.find('.'));
  if (const Value* present = table.find(section); present && !present->is_table())
    fail_usage(section, " is ", present->type_name(), ", must be a table");
}

// Throws for the first image-caption task, which had a different text tower.
void refuse_contrast(const Value& table) {
  if (const Value* name = table.find("task.name"); name && *name == Value("contrast"))
    fail_usage(
        "task.name = \"contrast\" is now \"clip\": its text_length is context_length, two more for start and "
        "end; weights of it are not read, train again");
}

}  // namespace

Value migrate_layer(Value table) {
  if (!table.is_table()) return table;
  refuse_contrast(table);
  upgrade_soft_mask(table);
  for (const Moved& moved : kMoved) {
    const Value* old = table.find(moved.from);
    if (!old) continue;
    check_section(table, moved.to);
    const Value value = *old;
    if (const Value* present = table.find(moved.to)) {
      if (!value.is_table() || !present->is_table()) refuse_both(moved.from, moved.to);
      for (const auto& [key, ignored] : value.as_table())
        if (present->find(key)) refuse_both(text(moved.from, ".", key), text(moved.to, ".", key));
      Value both = value;
      merge(both, *present);
      table.set(moved.to, both);
    } else {
      table.set(moved.to, value);
    }
    erase(table, moved.from);
  }
  if (const Value* crop = table.find("augment.crop"); crop && *crop == Value("centre"))
    table.set("augment.crop", "center");
  if (const Value* train = table.find("train"); train && train->is_table() && train->as_table().empty())
    erase(table, "train");
  return table;
}

void merge_layers(Value& base, const Value& over) {
  const bool own_share = base.find("model.soft_mask") && !base.find(kHadShare);
  merge(base, over);
  if (own_share) erase(base, kHadShare);
}

Value migrate_recipe(Value table) {
  table = migrate_layer(std::move(table));
  if (table.is_table()) settle_soft_mask(table);
  return table;
}

Value migrate_state(Value state) {
  if (const Value* classes = state.find("classes"); classes && !state.find("task_metadata"))
    state.set("task_metadata.class_names", Value(*classes));
  return state;
}

}  // namespace tessera::train
