#include "tasks/dense/object_inputs.h"

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"

namespace tessera::tasks {

constexpr int64_t kClassesOfCoco = 80;

std::vector<std::string> object_names_in(const Value& metadata) {
  std::vector<std::string> names;
  if (const Value* list = metadata.find("class_names"); list && list->is_array())
    for (const Value& name : list->as_array())
      if (name.is_string()) names.push_back(name.as_string());
  return names;
}

ObjectClasses::ObjectClasses(const TaskSetup& setup, std::string_view who) {
  if (setup.train) {
    const data::ObjectLabels& labels = data::require_objects(*setup.train, who);
    names = labels.object_classes();
    for (int64_t k = 0; k < std::ssize(names); ++k) numbers.push_back(labels.class_number(k));
  } else {
    names = object_names_in(setup.metadata);
    if (const Value* list = setup.metadata.find("class_numbers"); list && list->is_array())
      for (const Value& number : list->as_array())
        if (number.is_int()) numbers.push_back(number.as_int());
    if (names.empty() && setup.validation)
      names = data::require_objects(*setup.validation, who).object_classes();
  }
  if (names.empty() && setup.file.empty()) {  // the run is only described
    data::NumberedClasses coco = data::published_object_classes(kClassesOfCoco);
    names = std::move(coco.names), numbers = std::move(coco.numbers);
  }
  if (names.empty()) fail_usage(who, " has no classes: neither data nor ", setup.file, " name any");
  if (numbers.size() != names.size()) {
    numbers.clear();
    for (int64_t k = 0; k < std::ssize(names); ++k) numbers.push_back(k + 1);
  }
  if (!setup.validation) return;
  const std::string difference = data::first_difference(
      names, setup.train ? setup.train->describe() : "the model",
      data::require_objects(*setup.validation, who).object_classes(), setup.validation->describe());
  if (!difference.empty()) fail_usage(difference);
}

Value ObjectClasses::metadata() const {
  Value out;
  out.set("class_names", Value::Array(names.begin(), names.end()));
  out.set("class_numbers", Value::Array(numbers.begin(), numbers.end()));
  return out;
}

const FieldTensor& ragged_field(const Inputs& inputs, std::string_view name) {
  for (const FieldTensor& field : inputs.main().fields)
    if (field.name == name) return field;
  fail("the batch has no field '", name, "'");
}

std::vector<models::Extent> shown_extents(const torch::Tensor& field) {
  const torch::Tensor host = field.to(torch::kCPU).contiguous();
  std::vector<models::Extent> all;
  for (int64_t i = 0; i < host.size(0); ++i) {
    const int64_t* sides = host.const_data_ptr<int64_t>() + 4 * i;
    all.push_back({sides[0], sides[1]});
  }
  return all;
}

}  // namespace tessera::tasks
