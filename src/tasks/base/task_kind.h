// The usual row of the table of tasks: a task with one config struct and one constructor.
//
//   TaskKind clip_kind() {
//     return task_kind<Clip, ClipConfig>("clip", "images and captions in one space", {.command = "zeroshot"});
//   }
#pragma once

#include <memory>
#include <utility>

#include "core/config.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

// Reads [task]; if the config has a `check()`, calls it.
template <class Config>
Config read_task(const Value& settings) {
  auto config = read_config<Config>(settings, "task");
  if constexpr (requires { config.check(); }) config.check();
  return config;
}

// Models of tasks without a class head.
inline void without_classes(Value& model, const Value& /*settings*/, const data::Source* /*train*/) {
  model.set("classes", 0);
}

// Fills in the functions that `row` lacks; T is constructed from a TaskSetup.
template <class T, class Config>
TaskKind task_kind(const char* name, const char* summary, TaskKind row = {}) {
  row.name = name, row.summary = summary;
  row.resolve = [](const Value& settings) { return write_config(read_task<Config>(settings)); };
  row.keys = [] { return describe_config(Config(), "task"); };
  if (!row.fit_model) row.fit_model = without_classes;
  if constexpr (!std::is_void_v<T>)
    row.make = [](const TaskSetup& setup) -> std::unique_ptr<Task> { return std::make_unique<T>(setup); };
  return row;
}

}  // namespace tessera::tasks
