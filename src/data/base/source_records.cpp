#include "data/base/source_records.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_labels.h"

namespace tessera::data {
namespace {

class RecordSource final : public LabelledSource {
 public:
  explicit RecordSource(RecordSet set) : set_(std::move(set)) {}

  int64_t size() const override { return static_cast<int64_t>(set_.records.size()); }
  RawSample read(int64_t index) const override {
    const Record& record = set_.records[static_cast<size_t>(index)];
    return {text(set_.files[record.file].path, ": record ", record.number), set_.picture(record)};
  }
  int64_t label(int64_t index) const override { return set_.records[static_cast<size_t>(index)].label; }
  const std::vector<std::string>& class_names() const override { return set_.classes; }

  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add(set_.classes);
    for (const RecordFile& file : set_.files)
      print.add({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
    for (const Record& record : set_.records) {
      print.add(static_cast<int64_t>(record.file));
      print.add(record.number);
      print.add(record.label);
    }
    return print.value();
  }

  std::string describe() const override {
    return text(set_.kind, " ", set_.shown, ", ", counted(size(), "image"), ", ",
                counted(static_cast<int64_t>(set_.classes.size()), "class", "classes"));
  }
  std::vector<std::string> problems() const override { return set_.problems.lines(); }
  std::vector<std::string> warnings() const override { return set_.warnings; }

  // Counts labels from 0, and drops those of no class.
  void drop_out_of_range() {
    const auto classes = static_cast<int64_t>(set_.classes.size());
    for (Record& record : set_.records) record.label -= set_.first;
    std::erase_if(set_.records, [&](const Record& record) {
      const bool wrong = record.label < 0 || record.label >= classes;
      if (wrong)
        set_.problems.add(set_.files[record.file].path, ": record ", record.number, " has label ",
                          record.label + set_.first, ", must be ", set_.first, " to ",
                          classes - 1 + set_.first);
      return wrong;
    });
  }

  void keep_share(const SourceConfig& config, Split split) {
    std::vector<std::string> names;
    std::vector<int64_t> labels;
    for (const Record& record : set_.records) {
      names.push_back(text(record.file, " ", record.number));
      labels.push_back(record.label);
    }
    std::vector<Record> kept;
    for (const int64_t i : select_split(config, split, names, labels))
      kept.push_back(set_.records[static_cast<size_t>(i)]);
    set_.records = std::move(kept);
  }

  void find_empty() { find_empty_classes(set_.shown, set_.classes, class_counts(*this), set_.problems); }

 private:
  RecordSet set_;
};

}  // namespace

std::unique_ptr<Source> make_record_source(RecordSet set, const SourceConfig& config, Split split,
                                           bool by_share) {
  if (!config.class_names.empty()) {
    const ClassNames names = read_label_names(config.class_names);
    set.classes = names.names(), set.first = std::max(set.first, names.first());
  }
  const bool declared = !set.classes.empty();
  const bool beside = !by_share && config.val_path.empty();  // the training files are in the same folder
  if (!declared && split == Split::validation && (beside || has_training_path(config)))
    set.classes = training_classes(config);
  if (set.classes.empty()) {
    std::vector<int64_t> labels;
    for (const Record& record : set.records) labels.push_back(record.label);
    set.classes = classes_of_numbers(std::move(labels));
  }
  const bool chosen = !declared && are_chosen_numbers(set.classes);
  for (Record& record : set.records)
    if (const int64_t label = chosen ? class_of_number(record.label, set.classes, chosen) : -1; label >= 0)
      record.label = label;
    else if (chosen)
      record.label = kMostClasses + record.label;  // out of range, reported below
  if (chosen && split == Split::train) set.warnings.push_back(chosen_numbers_line(set.shown, set.classes));
  auto source = std::make_unique<RecordSource>(std::move(set));
  source->drop_out_of_range();
  if (by_share) source->keep_share(config, split);
  if (declared && split == Split::train) source->find_empty();
  return source;
}

}  // namespace tessera::data
