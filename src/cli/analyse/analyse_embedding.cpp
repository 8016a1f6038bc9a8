// `tessera analyse embedding`: images as points of a plane, by the input of the class head, and the nearest
// neighbours of some.
#include <algorithm>
#include <iostream>

#include "analysis/embedding.h"
#include "cli/base/analysis_input.h"
#include "cli/base/analysis_output.h"
#include "cli/base/command.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "report/matrix_chart.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyseEmbeddingOptions {
  AnalysisInput input = {1000, 32};
  AnalysisOutput output;
  std::string method = "tsne";
  double perplexity = 30;
  int64_t steps = 1000, seed = 0, queries = 6, neighbours = 5;

  template <class V>
  void visit(V& v) {
    v("input", input, "");
    v("method", method, {.choices = {"tsne", "pca"}}, "projection");
    v("perplexity", perplexity, between(1.001, 1000), "t-SNE: effective number of neighbours of a point");
    v("steps", steps, between(1, 100000), "steps of t-SNE");
    v("seed", seed, "seed of t-SNE");
    v("queries", queries, between(0, 64), "images to show with their nearest neighbours");
    v("neighbours", neighbours, between(1, 32), "nearest neighbours of each");
    v("output", output, "");
  }
};

torch::Tensor embed(const AnalyseEmbeddingOptions& options, const AnalysedModel& model,
                    const AnalysedImages& images) {
  const torch::NoGradGuard no_grad;
  ProgressLine::Options bar;
  bar.label = "embedding", bar.total = images.count();
  ProgressLine progress(std::cerr, bar);
  std::vector<torch::Tensor> rows;
  for (int64_t first = 0; first < images.count(); first += options.input.batch) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    rows.push_back(model.backbone()
                       .embed(images.images.slice(0, first, first + options.input.batch))
                       .to(torch::kCPU, torch::kFloat32));
    progress.update(std::min(images.count(), first + options.input.batch), {});
  }
  progress.finish();
  return torch::cat(rows);
}

// Some images, each followed by those with the highest cosine similarity.
AnalysisSection neighbours_of(const AnalyseEmbeddingOptions& options, const AnalysedModel& model,
                              const AnalysedImages& images, const torch::Tensor& features,
                              const std::vector<std::string>& names) {
  AnalysisSection section{.heading = "Nearest neighbours",
                          .note = "An image in front, then those most like it by cosine similarity."};
  const torch::Tensor unit = features / features.norm(2, {1}, true).clamp_min(1e-12);
  const int64_t count = std::min(options.queries, images.count());
  const auto caption = [&](int64_t i) {
    const int64_t label = images.labels[static_cast<size_t>(i)];
    return label >= 0 && label < std::ssize(names) ? names[static_cast<size_t>(label)]
           : label >= 0                            ? text("class ", label)
                                                   : std::string();
  };
  for (int64_t q = 0; q < count; ++q) {
    const int64_t query = q * images.count() / count;
    torch::Tensor likeness = unit.mv(unit[query]);
    likeness[query] = 2;  // itself first
    const auto [values, places] = likeness.topk(std::min(options.neighbours + 1, images.count()));
    for (int64_t k = 0; k < places.size(0); ++k) {
      const int64_t i = places[k].item<int64_t>();
      section.pictures.push_back({picture_of(images.images[i], model.info().preprocess), caption(i),
                                  k == 0 ? "asked for" : fixed(values[k].item<double>(), 3)});
    }
  }
  return section;
}

// Adds a table and a chart of the images' coordinates [images, 1 or 2].
void add_places(AnalysisSection& section, const AnalysedImages& images, const torch::Tensor& places,
                const std::vector<std::string>& groups) {
  section.table = {.name = "places", .columns = {{"image"}, {"class"}, {"x", true}, {"y", true}}};
  std::vector<report::Dot> dots;
  for (int64_t i = 0; i < images.count(); ++i) {
    const double x = places[i][0].item<double>(), y = places.size(1) > 1 ? places[i][1].item<double>() : 0;
    const int64_t label = images.labels[static_cast<size_t>(i)];
    dots.push_back({x, y, static_cast<size_t>(std::max<int64_t>(0, label))});
    section.table.rows.push_back({images.names[static_cast<size_t>(i)],
                                  label >= 0 ? std::to_string(label) : "", fixed(x, 4), fixed(y, 4)});
  }
  section.drawings = {
      {report::scatter_chart(dots, groups, {.title = section.heading, .width = 720, .height = 560}),
       report::scatter_chart(dots, groups, {.title = section.heading, .width = 320, .height = 320})}};
}

void analyse(const AnalyseEmbeddingOptions& options) {
  const AnalysedModel model(options.input);
  AnalysisWriter writer(options.output);
  const AnalysedImages images = read_images(options.input, model);
  const std::vector<std::string> names = model.class_names();
  const Interruptible stretch;
  const torch::Tensor features = embed(options, model, images);
  const auto pca = analysis::principal_components(features, 2);
  double divergence = 0;
  const torch::Tensor places = options.method == "pca"
                                   ? pca.scores
                                   : analysis::tsne_places(features, options.perplexity, options.steps,
                                                           static_cast<uint64_t>(options.seed), &divergence);
  AnalysisFindings out;
  out.title = "Embedding by " + model.info().model.name;
  out.subtitle = text(model.file(), "; ", counted(images.count(), "image"), " of ", images.source);
  AnalysisSection section{.heading = options.method == "pca" ? "Principal components" : "t-SNE"};
  section.note = options.method == "pca"
                     ? text("The first two hold ",
                            fixed(100 * (pca.variance_share[0] +
                                         (pca.variance_share.size() > 1 ? pca.variance_share[1] : 0)),
                                  1),
                            " % of the variance.")
                     : text("Perplexity ", options.perplexity, ", divergence ", fixed(divergence, 4),
                            "; distances between far groups mean little.");
  add_places(section, images, places, names);
  out.json = {{"weights", model.file()},
              {"data", images.source},
              {"images", images.count()},
              {"method", options.method},
              {"variance_share", pca.variance_share}};
  if (options.method == "tsne") out.json["divergence"] = divergence;
  out.sections.push_back(std::move(section));
  if (options.queries > 0) out.sections.push_back(neighbours_of(options, model, images, features, names));
  writer.write(out);
}

}  // namespace

void add_analyse_embedding(Arguments& command, Action& action) {
  action = with_options<AnalyseEmbeddingOptions>(command, analyse);
}

}  // namespace tessera::cli
