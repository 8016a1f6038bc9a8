#include "answer/retrieve.h"

#include <algorithm>
#include <filesystem>

#include "answer/features.h"
#include "core/text.h"
#include "core/threads.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/weights/safetensors.h"
#include "open/weights.h"

namespace tessera::answer {
namespace {

namespace fs = std::filesystem;

struct SearchOptions {
  std::string words;
  int64_t top = 9;
  template <class V>
  void visit(V& v) {
    v("text", words, "description of the images to find, instead of an image");
    v("top", top, between(1, 100'000), "images to print");
  }
};

struct PreparedSearch : Prepared {
  torch::Tensor images;  // undefined: the text is the query
  SearchOptions options;
};

class Searches final : public Answerer {
 public:
  Searches(AnswerSetup setup, data::ImageFiles images, const std::string& index,
           const std::function<bool()>& stopped, std::vector<std::string>& notes)
      : setup_(std::move(setup)),
        transform_(data::make_eval_transform(setup_.model->info().preprocess)),
        images_(std::move(images)),
        gallery_(*setup_.model, images_, index, [&](const data::Source& source, const auto& see) {
          const train::ImageWalk walk{.batch = setup_.batch,
                                      .workers = std::max(1, available_cores()),
                                      .broken = [&](const std::string& why) { notes.push_back(why); },
                                      .progress =
                                          [&](int64_t) {
                                            if (stopped && stopped())
                                              throw Error(ErrorKind::interrupted,
                                                          "the gallery was not opened");
                                          }};
          return train::for_each_batch(source, *transform_, walk, see);
        }) {
    description_.kind = "retrieve";
    description_.summary = "the gallery's images that fit a text or an image, best first";
    description_.inputs = prepared_inputs(transform_->fields().at(0).shape);
    description_.options = describe_options<SearchOptions>();
    description_.outputs = {{"file", Datatype::bytes, {-1, -1}, "[queries, best first]"},
                            {"cosine", Datatype::fp64, {-1, -1}, "their similarity"}};
    description_.details = details_of(*setup_.model);
    description_.details["gallery"] = images_.size();
  }
  const Description& description() const override { return description_; }

  std::unique_ptr<Prepared> prepare(const Request& request) const override {
    const torch::InferenceMode inference;
    check_inputs(request, description_);
    auto prepared = std::make_unique<PreparedSearch>();
    prepared->options = read_options<SearchOptions>(request.options);
    if (request.inputs.size() + (prepared->options.words.empty() ? 0 : 1) != 1)
      fail_usage("the query is one of ", join(names_of(description_.inputs), ", "), " and option 'text'");
    if (!request.inputs.empty()) {
      prepared->images = read_prepared(request, *transform_, setup_.max_pixels);
      prepared->rows = prepared->images.size(0);
      prepared->bytes = prepared->images.nbytes();
    }
    prepared->key = json_text(request.options);
    return prepared;
  }

  std::vector<Reply> answer(std::span<Prepared* const> requests, const Control&) override {
    const torch::InferenceMode inference;
    std::vector<Reply> replies;
    for (const Prepared* one : requests) replies.push_back(search(static_cast<const PreparedSearch&>(*one)));
    return replies;
  }

 private:
  Reply search(const PreparedSearch& asked) const {
    const train::ReadyTask& model = *setup_.model;
    const torch::Tensor queries = asked.images.defined() ? picture_vectors(model, asked.images)
                                                         : text_vector(model, asked.options.words);
    require_finite(model, queries);
    Reply reply;
    Array files{.name = "file", .type = Datatype::bytes}, cosines{.name = "cosine", .type = Datatype::fp64};
    for (int64_t i = 0; i < queries.size(0); ++i) {
      const std::vector<Hit> hits = gallery_.best(queries.slice(0, i, i + 1), asked.options.top);
      nlohmann::ordered_json lines = nlohmann::ordered_json::array();
      for (const Hit& hit : hits) {
        files.texts.push_back(gallery_.path(hit));
        cosines.data.append(reinterpret_cast<const char*>(&hit.cosine), sizeof hit.cosine);
        lines.push_back({{"file", gallery_.path(hit)}, {"cosine", hit.cosine}});
      }
      files.shape = cosines.shape = {queries.size(0), std::ssize(hits)};
      reply.results.push_back({{"images", std::move(lines)}});
    }
    reply.outputs = {std::move(files), std::move(cosines)};
    return reply;
  }

  AnswerSetup setup_;
  std::shared_ptr<const data::Transform> transform_;
  data::ImageFiles images_;
  Gallery gallery_;
  Description description_;
};

}  // namespace

VectorIndex::VectorIndex(const std::string& path, const std::string& weights)
    : path_(path), weights_(weights) {
  if (path.empty() || !file_exists(path)) return;
  const SafetensorsFile file(path);
  const auto found = file.metadata().find("tessera.index");
  if (found == file.metadata().end())
    fail_usage("--index ", path, " exists and is not an index: name another file");
  const auto made_by = file.metadata().find("tessera.weights");
  if (made_by == file.metadata().end() || made_by->second != weights) return;  // from other weights: rebuild
  const std::vector<std::string> keys = split(found->second, '\n');
  for (const auto& [name, tensor] : train::read_tensors(file))
    if (name == "vectors" && tensor.dim() == 2 && tensor.size(0) == std::ssize(keys))
      for (size_t i = 0; i < keys.size(); ++i) kept_[keys[i]] = tensor[static_cast<int64_t>(i)];
}

std::string VectorIndex::key(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  const auto changed = fs::last_write_time(path, error);
  return text(fs::absolute(path).lexically_normal().string(), "|", bytes, "|",
              changed.time_since_epoch().count());
}

torch::Tensor VectorIndex::find(const std::string& path) const {
  const auto found = kept_.find(key(path));
  return found == kept_.end() ? torch::Tensor() : found->second;
}

void VectorIndex::add(const std::string& path, const torch::Tensor& vector) {
  if (path.find('\n') == std::string::npos) kept_[key(path)] = vector.clone(), changed_ = true;
}

void VectorIndex::write() const {
  if (path_.empty() || !changed_) return;
  std::vector<std::string> keys;
  std::vector<torch::Tensor> rows;
  for (const auto& [key, row] : kept_) keys.push_back(key), rows.push_back(row);
  train::save_tensors(path_, {{"vectors", torch::stack(rows)}},
                      {{"tessera.index", join(keys, "\n")}, {"tessera.weights", weights_}});
}

Gallery::Gallery(const train::ReadyTask& model, const data::ImageFiles& images, const std::string& index_file,
                 const WalkImages& walk)
    : towers_(model.require<tasks::PairedEmbedding>("retrieve")), images_(images) {
  VectorIndex index(index_file, checksum_of_weights(model.file()));
  std::vector<std::string> fresh;
  std::vector<size_t> places;
  std::vector<torch::Tensor> rows;  // undefined for images that cannot be read
  for (const std::string& path : images.paths()) {
    rows.push_back(index.find(path));
    if (!rows.back().defined()) fresh.push_back(path), places.push_back(rows.size() - 1);
  }
  if (!fresh.empty())
    broken_ = walk(data::ImageFiles(fresh), [&](const train::WalkedBatch& batch) {
      const torch::Tensor made = picture_vectors(model, batch.images);
      require_finite(model, made);
      for (int64_t i = 0; i < batch.size(); ++i) {
        if (!batch.readable(i)) continue;
        const auto place = static_cast<size_t>(batch.first + i);
        rows[places[place]] = made[i].clone();
        index.add(fresh[place], rows[places[place]]);
      }
    });
  index.write();
  std::vector<torch::Tensor> known;
  for (size_t place = 0; place < rows.size(); ++place)
    if (rows[place].defined()) places_.push_back(place), known.push_back(rows[place]);
  if (!known.empty()) rows_ = torch::stack(known);
}

std::vector<Hit> Gallery::best(const torch::Tensor& query, int64_t top) const {
  std::vector<Hit> hits;
  if (!rows_.defined()) return hits;
  const torch::Tensor cosines = towers_.similarities(query, rows_).to(torch::kFloat64).contiguous();
  for (size_t i = 0; i < places_.size(); ++i)
    hits.push_back({places_[i], cosines.const_data_ptr<double>()[i]});
  const auto before = [](const Hit& a, const Hit& b) {
    return a.cosine != b.cosine ? a.cosine > b.cosine : a.place < b.place;
  };
  const auto best = static_cast<std::ptrdiff_t>(std::min(hits.size(), static_cast<size_t>(top)));
  std::partial_sort(hits.begin(), hits.begin() + best, hits.end(), before);
  hits.resize(static_cast<size_t>(best));
  return hits;
}

torch::Tensor text_vector(const train::ReadyTask& model, const std::string& text, tasks::CutTexts* cut) {
  auto& towers = model.require<tasks::PairedEmbedding>("retrieve");
  const tasks::AutocastScope autocast = model.autocast();
  return towers.embed_texts({text}, cut).to(torch::kCPU, torch::kFloat32);
}

torch::Tensor picture_vectors(const train::ReadyTask& model, const torch::Tensor& images) {
  return image_vectors(model, model.require<tasks::PairedEmbedding>("retrieve"), images);
}

std::shared_ptr<Answerer> open_gallery(const AnswerSetup& setup, const OpenRequest& request,
                                       std::vector<std::string>& notes) {
  if (request.gallery.empty() || !ability_of<tasks::PairedEmbedding>(setup.model->task())) return nullptr;
  data::ImageFiles images(request.gallery);
  if (images.size() == 0) fail_usage("--gallery ", join(request.gallery, " "), " holds no image");
  for (const std::string& note : images.notes()) notes.push_back(note);
  return std::make_shared<Searches>(setup, std::move(images), request.index, request.stopped, notes);
}

}  // namespace tessera::answer
