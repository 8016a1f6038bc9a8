// `tessera models`: every backbone by name, with parameters and multiply-adds.
#include <fnmatch.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "core/error.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/base/codec.h"
#include "models/heads/class_head.h"
#include "open/ready_task.h"

namespace tessera::cli {
namespace {

struct Row {
  std::string name, family;
  std::vector<std::string> aliases;
  int64_t parameters = 0, macs = 0, size = 0;
  int64_t exact_macs = 0;       // the paper's number if it counts differently from the computation, else 0
  int64_t masked_out_macs = 0;  // the part of `macs` that a mask makes unnecessary
};

// Only shapes are needed, so the model is built without memory for its weights.
Row describe(const models::Family& family, const models::Size& published) {
  const models::ModelSpec spec = models::resolve_model(published.name);
  const Value* image_size = spec.settings.find("image_size");
  const int64_t size = image_size && image_size->is_int() ? image_size->as_int() : 224;
  const auto model = models::meta_classifier(spec);
  Row row{published.name,          family.name, published.aliases, models::count_parameters(*model->backbone),
          model->macs(size, size), size};
  if (const int64_t exact = model->exact_macs(size, size); exact != row.macs) row.exact_macs = exact;
  if (const auto* masked = ability_of<models::MaskedAttention>(*model->backbone))
    row.masked_out_macs = masked->masked_out_macs(size, size);
  return row;
}

// A codec has no class head; its multiply-adds are those of encoding and decoding one image.
Row describe_codec(const models::Family& family, const models::Size& published) {
  const models::ModelSpec spec = models::resolve_model(published.name);
  const int64_t size = spec.settings.find("image_size")->as_int();
  const auto model = models::meta_backbone(spec);
  return {published.name,          family.name, published.aliases, models::count_parameters(*model),
          model->macs(size, size), size};
}

// True if a name of the model contains the text, or matches it as a pattern with * or ?.
bool holds(const models::Family& family, const models::Size& size, const std::string& wanted) {
  const bool pattern = wanted.find_first_of("*?[") != std::string::npos;
  const auto in = [&](const std::string& name) {
    return pattern ? fnmatch(wanted.c_str(), name.c_str(), 0) == 0 : name.find(wanted) != std::string::npos;
  };
  return in(size.name) || in(family.name) || std::any_of(size.aliases.begin(), size.aliases.end(), in);
}

void print_table(const std::vector<Row>& rows) {
  size_t longest_name = 5, longest_family = 6;
  for (const Row& row : rows) {
    longest_name = std::max(longest_name, row.name.size());
    longest_family = std::max(longest_family, row.family.size());
  }
  const auto column = static_cast<int>(longest_name + 2), beside = static_cast<int>(longest_family);
  std::cout << std::left << std::setw(column) << "model" << std::setw(beside) << "family" << std::right
            << std::setw(14) << "parameters" << std::setw(10) << "GMACs" << std::setw(7) << "size"
            << "\n";
  for (const Row& row : rows)
    std::cout << std::left << std::setw(column) << row.name << std::setw(beside) << row.family << std::right
              << std::setw(14) << row.parameters << std::setw(10)
              << fixed(static_cast<double>(row.macs) * 1e-9, 2) << std::setw(7) << row.size << "\n";
}

// Lists the names of each model in published weights and other programs.
void print_names(const std::vector<Row>& rows) {
  for (const Row& row : rows)
    std::cout << row.name << (row.aliases.empty() ? "" : ": ") << join(row.aliases, ", ") << "\n";
}

void print_json(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    nlohmann::ordered_json line;
    line["name"] = row.name;
    line["family"] = row.family;
    line["aliases"] = row.aliases;
    line["parameters"] = row.parameters;
    line["gmacs"] = static_cast<double>(row.macs) * 1e-9;
    if (row.exact_macs > 0) line["gmacs_exact"] = static_cast<double>(row.exact_macs) * 1e-9;
    if (row.masked_out_macs > 0)
      line["gmacs_masked"] = static_cast<double>(row.macs - row.masked_out_macs) * 1e-9;
    line["size"] = row.size;
    std::cout << line.dump() << "\n";
  }
}

struct ModelsOptions {
  std::string filter;
  bool json = false, names = false;

  template <class V>
  void visit(V& v) {
    v("name", filter, {.argument = "NAME"},
      "only models with this text in name, alias or family, or matching 'vit_*'");
    v("pretrained_names", names, "names of published weights of each model");
    v("json", json, "one JSON object for each line");
  }
};

void list_models(const ModelsOptions& options) {
  std::vector<Row> rows;
  for (const models::Family& family : models::families())
    for (const models::Size& size : family.sizes)
      if (holds(family, size, options.filter)) rows.push_back(describe(family, size));
  for (const models::Family& family : models::codec_families())
    for (const models::Size& size : family.sizes)
      if (holds(family, size, options.filter)) rows.push_back(describe_codec(family, size));
  if (rows.empty()) fail_usage("no model's name holds '", options.filter, "': `tessera models` lists all");
  options.json ? print_json(rows) : options.names ? print_names(rows) : print_table(rows);
}

}  // namespace

void add_models(Arguments& command, Action& action) {
  action = with_options<ModelsOptions>(command, list_models);
}

}  // namespace tessera::cli
