#include "tasks/base/bert_weights.h"

#include "core/error.h"
#include "io/weights/weight_file.h"
#include "weights/language_files.h"

namespace tessera::tasks {

void begin_bert(models::Bert& bert, const std::string& path, const WeightsOpener& opener,
                const std::string& key) {
  const WeightFile file(opener.file_of(path));
  std::vector<std::string> names, notes;
  for (const TensorView& tensor : file.tensors()) names.push_back(tensor.name);
  const auto head = [](const std::string& name) {
    return name.starts_with("cls.") || name.starts_with("classifier.") || name.starts_with("bert.pooler.");
  };
  train::load_language(bert, file, train::language_places(names, "bert", ""), notes, head,
                       text("does not fit ", key));
}

}  // namespace tessera::tasks
