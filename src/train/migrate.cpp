#include "train/migrate.h"

#include <algorithm>
#include <array>
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

// A resolved recipe of before, with every key, says of each model that its mask is not softened.
bool is_idle(const Value& soft_mask) {
  const Value* share = soft_mask.find("share");
  return soft_mask.is_table() && soft_mask.as_table().size() == 4 && share && share->is_number() &&
         share->as_double() == 0;
}

// A key under its old and its new name leaves open which one holds.
[[noreturn]] void refuse_both(const std::string& from, const std::string& to) {
  fail_usage(from, " is now ", to, ": give one of them");
}

void upgrade_soft_mask(Value& table) {
  const Value* soft_mask = table.find("soft_mask");
  if (!soft_mask) return;
  if (is_idle(*soft_mask)) return erase(table, "soft_mask");
  // Its mode was "soft" where it was not said.
  if (soft_mask->find("share") && !soft_mask->find("mode")) table.set("soft_mask.mode", "soft");
  // A resolved recipe also says the share that the model starts with, which the schedule replaced.
  if (const Value* own = table.find("model.soft_mask"); own && own->is_number() && own->as_double() == 0)
    erase(table, "model.soft_mask");
}

}  // namespace

Value migrate_recipe(Value table) {
  if (!table.is_table()) return table;
  upgrade_soft_mask(table);
  for (const Moved& moved : kMoved) {
    const Value* old = table.find(moved.from);
    if (!old) continue;
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
  if (const Value* rest = table.find("soft_mask"); rest && rest->is_table() && rest->as_table().empty())
    erase(table, "soft_mask");
  if (const Value* train = table.find("train"); train && train->is_table() && train->as_table().empty())
    erase(table, "train");
  return table;
}

Value migrate_state(Value state) {
  if (const Value* classes = state.find("classes"); classes && !state.find("task_metadata"))
    state.set("task_metadata.class_names", Value(*classes));
  return state;
}

}  // namespace tessera::train
