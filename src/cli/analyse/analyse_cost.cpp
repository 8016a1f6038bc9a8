// `tessera analyse cost`: parameters and multiply-adds of models over resolutions, the savings by a mask and
// the growth of the cost, all without weights; and measured bytes of activations.
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>

#include "analysis/activations.h"
#include "analysis/counted_products.h"
#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "cli/base/measure_options.h"
#include "core/error.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"
#include "open/ready_task.h"
#include "recipe/recipe_files.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyseCostOptions {
  AnalysisOutput output;
  std::vector<std::string> models, settings;
  std::string sizes = "224";
  bool activations = false, count = false;

  template <class V>
  void visit(V& v) {
    v("models", models, {.argument = "MODELS", .required = true},
      "model names (`tessera models` lists them)");
    v("size", sizes, "input sides in pixels: 160,224,384");
    v("set", settings, "settings of the models: --set model.depth=6");
    v("count", count,
      "count operations of a model with random weights: with weights, between tokens, by block");
    v("activations", activations,
      "measure the bytes of activations by block, of a model with random weights");
    v("output", output, "");
  }
};

struct Cost {
  int64_t size = 0, macs = 0, exact = 0, masked = 0;
  std::optional<analysis::ActivationBytes> activations = {};
  std::vector<analysis::PlaceProducts> counted = {};
  std::vector<int64_t> cells = {};  // of mLSTM cells, by kForms
  bool possible = true;
};

struct Costed {
  std::string name;
  int64_t parameters = 0;
  std::map<std::string, int64_t> modules;  // parameters by the first words of their names
  std::vector<Cost> costs;
};

// The second number is counted as in Backbone::exact_macs.
constexpr std::array kForms = {std::pair("recurrent", models::MlstmForm::recurrent),
                               std::pair("chunkwise", models::MlstmForm::chunkwise),
                               std::pair("parallel", models::MlstmForm::parallel)};

// "blocks" of "blocks.3.attn.qkv.weight", "head" of "head.weight".
std::string module_of(const std::string& name) { return name.substr(0, name.find('.')); }

analysis::ActivationBytes activations_of(const models::ModelSpec& spec, int64_t size) {
  const auto model = models::build_classifier(spec, 0);
  model->backbone->eval();
  const Value* channels = spec.settings.find("in_channels");
  return analysis::activation_bytes(*model, channels ? channels->as_int() : 3, size);
}

std::vector<analysis::PlaceProducts> counted_of(const models::ModelSpec& spec, int64_t size) {
  const auto model = models::build_classifier(spec, 0);
  model->backbone->to(torch::kFloat64);
  const Value* channels = spec.settings.find("in_channels");
  return analysis::count_products(*model, channels ? channels->as_int() : 3, size);
}

Costed cost_of(const std::string& name, const Value& settings, const std::vector<int64_t>& sizes,
               const AnalyseCostOptions& options) {
  Costed out{.name = name, .modules = {}, .costs = {}};
  for (const int64_t size : sizes) {
    Value own = settings;
    own.set("image_size", size);
    Cost cost{.size = size};
    try {
      const models::ModelSpec spec = models::resolve_model(name, own);
      const auto model = models::meta_classifier(spec);
      cost.macs = model->macs(size, size), cost.exact = model->exact_macs(size, size);
      if (const auto* masked = ability_of<models::MaskedAttention>(*model->backbone))
        cost.masked = cost.macs - masked->masked_out_macs(size, size);
      if (const auto* cells = ability_of<models::MlstmCells>(*model->backbone))
        for (const auto& [word, form] : kForms) cost.cells.push_back(cells->cell_macs(form, size, size));
      if (options.activations) cost.activations = activations_of(spec, size);
      if (options.count) cost.counted = counted_of(spec, size);
      if (out.parameters == 0) {
        out.parameters = models::count_parameters(*model->backbone);
        for (const auto& item : model->backbone->named_parameters())
          out.modules[module_of(item.key())] += item.value().numel();
      }
    } catch (const Error& error) {
      if (sizes.size() == 1) throw;
      std::cerr << "tessera: " << name << " at " << size << ": " << error.what() << "\n";
      cost.possible = false;
    }
    out.costs.push_back(cost);
  }
  return out;
}

std::string giga(int64_t macs) { return macs > 0 ? fixed(static_cast<double>(macs) * 1e-9, 3) : ""; }

// Returns the exponent by which the cost grows from the previous size: 2 if it is constant per pixel, 4 if it
// is constant per pair of pixels.
std::string growth(const std::vector<Cost>& costs, size_t i) {
  if (i == 0 || !costs[i].possible || !costs[i - 1].possible) return "";
  return fixed(std::log(static_cast<double>(costs[i].macs) / static_cast<double>(costs[i - 1].macs)) /
                   std::log(static_cast<double>(costs[i].size) / static_cast<double>(costs[i - 1].size)),
               2);
}

report::Drawing over_sides(const std::vector<report::Curve>& curves, const std::string& title,
                           const std::string& y_label) {
  return line_drawing(curves,
                      {.title = title, .x_label = "side in pixels", .y_label = y_label, .log_y = true});
}

std::string mega(int64_t bytes) { return fixed(static_cast<double>(bytes) * 1e-6, 2); }

// Activations of each model and size, and by block at the last size.
void add_activations(const std::vector<Costed>& models, AnalysisFindings& out) {
  AnalysisSection whole{
      .heading = "Activations",
      .note =
          "Megabytes (10^6 bytes) that one image more takes in float32, measured: what is kept for the "
          "gradients, and the most at a "
          "time without gradients.",
      .table = {.name = "activations",
                .columns = {{"model"}, {"size", true}, {"training", true}, {"inference", true}}}};
  AnalysisSection blocks{
      .heading = "Activations by block",
      .note = "At the last size: megabytes kept for the gradients between one block's end and the next.",
      .table = {.name = "blocks", .columns = {{"model"}, {"place"}, {"training", true}}}};
  std::vector<report::Curve> curves;
  for (const Costed& model : models) {
    report::Curve curve{.name = model.name};
    const analysis::ActivationBytes* last = nullptr;
    for (const Cost& cost : model.costs) {
      if (!cost.activations) continue;
      last = &*cost.activations;
      whole.table.rows.push_back({model.name, text(cost.size), mega(last->training), mega(last->inference)});
      curve.points.push_back({static_cast<double>(cost.size), static_cast<double>(last->training) * 1e-6});
    }
    if (last)
      for (const analysis::KeptBytes& place : last->places)
        blocks.table.rows.push_back({model.name, place.place, mega(place.bytes)});
    curves.push_back(std::move(curve));
  }
  whole.drawings = {over_sides(curves, "Activations for training over resolution", "MB an image")};
  out.sections.push_back(std::move(whole));
  out.sections.push_back(std::move(blocks));
}

AnalysisSection operations_section() {
  return {.heading = "Operations that run",
          .note =
              "GMACs of the composed form, counted while it runs: products of activations with "
              "weights, convolutions, and "
              "products of activations with each other, which is attention's quadratic part or "
              "the cell of an mLSTM, in "
              "whole squares; attention matrices: megabytes (10^6 bytes) of all of them in "
              "float32. Fused kernels leave "
              "out what a mask hides and keep no matrix.",
          .table = {.name = "counted",
                    .columns = {{"model"},
                                {"size", true},
                                {"weights", true},
                                {"convolutions", true},
                                {"between tokens", true},
                                {"all", true},
                                {"formula", true},
                                {"attention matrices", true}}}};
}

AnalysisSection operations_by_block() {
  return {.heading = "Multiply-adds by block",
          .note = "At the last size, in GMACs: between one block's end and the next.",
          .table = {.name = "counted_blocks",
                    .columns = {{"model"},
                                {"place"},
                                {"weights", true},
                                {"convolutions", true},
                                {"between tokens", true},
                                {"all", true}}}};
}

// Adds the counted products, by operands and, at the last size, by block.
void add_counted(const std::vector<Costed>& models, AnalysisFindings& out) {
  AnalysisSection whole = operations_section(), blocks = operations_by_block();
  for (const Costed& model : models) {
    const Cost* last = nullptr;
    for (const Cost& cost : model.costs) {
      if (cost.counted.empty()) continue;
      last = &cost;
      const analysis::CountedProducts all = analysis::sum_of(cost.counted);
      whole.table.rows.push_back({model.name, text(cost.size), giga(all.weights), giga(all.convolutions),
                                  giga(all.between), giga(all.sum()), giga(cost.exact),
                                  all.scores > 0 ? mega(4 * all.scores) : ""});
    }
    if (!last) continue;
    for (const auto& [place, own] : last->counted)
      blocks.table.rows.push_back(
          {model.name, place, giga(own.weights), giga(own.convolutions), giga(own.between), giga(own.sum())});
  }
  out.sections.push_back(std::move(whole));
  out.sections.push_back(std::move(blocks));
}

// Adds each form of the mLSTM; nothing if no model has one.
void add_forms(const std::vector<Costed>& models, AnalysisFindings& out) {
  AnalysisSection section{
      .heading = "mLSTM cells by form",
      .note =
          "GMACs of all cells alone: recurrent, chunkwise in chunks of 49 tokens as the paper counts them, "
          "parallel; "
          "share: of the whole model's, with the cells in that form.",
      .table = {.name = "forms",
                .columns = {{"model"}, {"size", true}, {"form"}, {"GMACs", true}, {"share", true}}}};
  std::vector<report::Curve> curves;
  for (const Costed& model : models) {
    std::vector<report::Curve> own;
    for (size_t form = 0; form < kForms.size(); ++form)
      own.push_back({.name = model.name + ", " + kForms[form].first});
    for (const Cost& cost : model.costs)
      for (size_t form = 0; form < cost.cells.size(); ++form) {
        const auto cell = static_cast<double>(cost.cells[form]),
                   whole = static_cast<double>(cost.exact - cost.cells[1]) + cell;
        section.table.rows.push_back({model.name, text(cost.size), kForms[form].first, giga(cost.cells[form]),
                                      fixed(cell / whole, 4)});
        own[form].points.push_back({static_cast<double>(cost.size), cell * 1e-9});
      }
    for (report::Curve& curve : own)
      if (!curve.points.empty()) curves.push_back(std::move(curve));
  }
  if (curves.empty()) return;
  section.drawings = {over_sides(curves, "mLSTM cells over resolution", "GMACs")};
  out.sections.push_back(std::move(section));
}

// Each model at each size, and its parameters by module.
struct CostTables {
  AnalysisSection sizes{
      .heading = "Multiply-adds",
      .note =
          "exact: every product that is carried out, where the paper leaves some away; masked: without those "
          "that a "
          "mask makes needless; growth: the exponent of the side since the size in front.",
      .table = {.name = "cost",
                .columns = {{"model"},
                            {"parameters", true},
                            {"size", true},
                            {"GMACs", true},
                            {"exact", true},
                            {"masked", true},
                            {"growth", true}}}};
  AnalysisSection modules{
      .heading = "Parameters by module",
      .table = {.name = "modules",
                .columns = {{"model"}, {"module"}, {"parameters", true}, {"share", true}}}};
  std::vector<report::Curve> curves;

  void add(const Costed& costed) {
    report::Curve curve{.name = costed.name};
    for (size_t i = 0; i < costed.costs.size(); ++i) {
      const Cost& cost = costed.costs[i];
      sizes.table.rows.push_back({costed.name, text(costed.parameters), text(cost.size), giga(cost.macs),
                                  cost.exact != cost.macs ? giga(cost.exact) : "", giga(cost.masked),
                                  growth(costed.costs, i)});
      if (cost.possible)
        curve.points.push_back({static_cast<double>(cost.size), static_cast<double>(cost.macs) * 1e-9});
    }
    for (const auto& [module, count] : costed.modules)
      modules.table.rows.push_back(
          {costed.name, module, text(count),
           fixed(static_cast<double>(count) / static_cast<double>(costed.parameters), 4)});
    curves.push_back(std::move(curve));
  }
};

Json cost_json(const Cost& cost) {
  Json line = {{"size", cost.size}, {"macs", cost.macs}, {"exact_macs", cost.exact}};
  if (cost.masked > 0) line["masked_macs"] = cost.masked;
  if (cost.activations) {
    line["training_bytes"] = cost.activations->training;
    line["inference_bytes"] = cost.activations->inference;
  }
  if (!cost.counted.empty()) {
    const analysis::CountedProducts sums = analysis::sum_of(cost.counted);
    line["counted"] = {{"weights", sums.weights},
                       {"convolutions", sums.convolutions},
                       {"between_tokens", sums.between},
                       {"sum", sums.sum()},
                       {"attention_matrix_numbers", sums.scores}};
  }
  for (size_t form = 0; form < cost.cells.size(); ++form)
    line["mlstm_macs"][kForms[form].first] = cost.cells[form];
  return line;
}

Json model_json(const Costed& costed) {
  auto lines = Json::array();
  for (const Cost& cost : costed.costs)
    if (cost.possible) lines.push_back(cost_json(cost));
  Json model = {{"model", costed.name}, {"parameters", costed.parameters}, {"sizes", lines}};
  for (const auto& [module, count] : costed.modules) model["modules"][module] = count;
  return model;
}

void analyse(const AnalyseCostOptions& options) {
  const std::vector<int64_t> sizes = parse_sides("--size", options.sizes);
  const Value settings = parse_model_settings(options.settings);
  AnalysisWriter writer(options.output);
  CostTables tables;
  auto json = Json::array();
  std::vector<Costed> models;
  for (const std::string& name : options.models) {
    models.push_back(cost_of(name, settings, sizes, options));
    tables.add(models.back());
    json.push_back(model_json(models.back()));
  }
  AnalysisFindings out;
  out.title = "Cost";
  out.subtitle = text(counted(std::ssize(options.models), "model"),
                      ", multiply-adds of one image as the family's paper counts them");
  tables.sizes.drawings = {over_sides(tables.curves, "Multiply-adds over resolution", "GMACs")};
  out.sections = {std::move(tables.sizes), std::move(tables.modules)};
  add_forms(models, out);
  if (options.count) add_counted(models, out);
  if (options.activations) add_activations(models, out);
  out.json = {{"models", json}};
  writer.write(out);
}

}  // namespace

void add_analyse_cost(Arguments& command, Action& action) {
  action = with_options<AnalyseCostOptions>(command, analyse);
}

}  // namespace tessera::cli
