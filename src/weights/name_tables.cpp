#include "weights/name_tables.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "weights/names/tables.h"

namespace tessera::train {

const std::vector<NameTable>& name_tables() {
  static const std::vector<NameTable> all = [] {
    std::vector<NameTable> tables;
    for (const auto& file :
         {vit_names, swin_names, resnet_names, convnext_names, baseline_names, vision_lstm_names,
          vision_llama_names, scan_names, igpt_names, diffusers_names, detector_names, detr_names,
          segmenter_names, tower_names, language_names, llama_names})
      for (NameTable& table : file()) tables.push_back(std::move(table));
    return tables;
  }();
  return all;
}

const NameTable* find_name_table(const std::string& program, const std::string& family) {
  const auto& all = name_tables();
  const auto found = std::find_if(all.begin(), all.end(), [&](const NameTable& table) {
    return table.program() == program && table.family() == family;
  });
  return found == all.end() ? nullptr : &*found;
}

const NameTable& names_of_family(const std::string& family) {
  static const std::map<std::string, NameTable> merged = [] {
    std::map<std::string, NameRows> rows;
    for (const NameTable& table : name_tables())
      rows[table.family()] = joined({rows[table.family()], table.rows()});
    std::map<std::string, NameTable> tables;
    for (const auto& [name, all] : rows) tables.emplace(name, NameTable("", name, all));
    return tables;
  }();
  static const NameTable none("", "", {});
  const auto found = merged.find(family);
  return found == merged.end() ? none : found->second;
}

std::string our_name(const std::string& theirs, const std::string& family) {
  return our_names({theirs}, family).front();
}

std::vector<std::string> our_names(const std::vector<std::string>& theirs, const std::string& family) {
  std::vector<std::string> ours;
  for (const std::vector<NamePlace>& places : names_of_family(family).each(theirs))
    ours.push_back(places.front().ours);
  return ours;
}

std::vector<NamePlace> places_of(const std::vector<std::string>& theirs, const std::string& family) {
  const std::vector<std::string> bare = unwrap_names(theirs).names;
  std::vector<std::string> whole;
  for (const std::string& name : theirs) whole.push_back(without_wrappers(name));
  std::vector<std::vector<NamePlace>> places = names_of_family(family).each(bare);
  const auto read = [&](const NameTable& table, const std::vector<std::string>& names) {
    std::vector<std::vector<NamePlace>> found = table.each(names);
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i].front().known) places[i] = std::move(found[i]);
  };
  read(names_of_family("segment"), bare);
  for (const NameTable& table : name_tables())
    if ((table.family() == "detect" || table.family() == "detr") && !table.rows().empty() &&
        table.reads(whole))
      read(table, whole);
  std::vector<NamePlace> all;
  for (size_t i = 0; i < theirs.size(); ++i)
    for (NamePlace& place : places[i]) {
      place.theirs = theirs[i];
      all.push_back(std::move(place));
    }
  return all;
}

}  // namespace tessera::train
