#include "answer/pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/text.h"
#include "data/transforms/mask_labels.h"
#include "data/transforms/segmentation_crop.h"
#include "io/images/index_png.h"

namespace tessera::answer {
namespace {

// Bounds of a request: more would take minutes.
constexpr size_t kMostScales = 8;
constexpr double kMostFactor = 4;
constexpr int64_t kLeastTile = 32;
constexpr double kMostViews = 1024;       // tiles and views by a detector, at its usual size
constexpr double kMostOverlap = 4;        // pixels that windows and views read, in images of the largest size
constexpr double kLeastSeen = 1024;       // pixels that a small image counts as: each pass has a cost
constexpr double kMostScores = 1U << 31;  // bytes of the scores of all views

void check_scales(const std::string& list) {
  const std::vector<double> scales = list.empty() ? std::vector<double>() : parse_scales(list);
  if (scales.size() > kMostScales)
    throw TooLarge(text("option 'scales' has ", scales.size(), " factors, must have at most ", kMostScales));
  for (const double factor : scales) {
    if (!(factor > 0)) fail_usage("option 'scales' has ", shortest(factor), ", must be above 0");
    if (factor > kMostFactor)
      throw TooLarge(text("option 'scales' has ", shortest(factor), ", must be at most ", kMostFactor));
  }
}

// Returns the windows of `side` pixels, `step` apart, over an image.
double window_count(double height, double width, double side, double step) {
  const auto along = [&](double extent) { return 1 + std::max(0.0, std::ceil((extent - side) / step)); };
  return along(height) * along(width);
}

struct PreparedPictures : Prepared {
  std::vector<Image> images;
  Value options;
};

// Answers image after image; other models may answer in between.
class Pictures : public Answerer {
 public:
  explicit Pictures(AnswerSetup setup) : setup_(std::move(setup)) {
    description_.inputs = picture_inputs();
    description_.alternatives = names_of(description_.inputs);
    description_.details = details_of(*setup_.model);
  }
  const Description& description() const final { return description_; }

  std::unique_ptr<Prepared> prepare(const Request& request) const final {
    const torch::InferenceMode inference;
    check_inputs(request, description_);
    check_options(request.options);
    auto prepared = std::make_unique<PreparedPictures>();
    double seen = 0;
    prepared->images = read_images(
        request, model().info().preprocess.apply_exif, setup_.max_pixels,
        [&](int64_t height, int64_t width) { seen = check_views(request.options, height, width, seen); });
    prepared->options = request.options;
    prepared->rows = std::ssize(prepared->images);
    for (const Image& image : prepared->images) prepared->bytes += image.pixels.size();
    return prepared;
  }

  std::vector<Reply> answer(std::span<Prepared* const> requests, const Control& control) final {
    const torch::InferenceMode inference;
    std::vector<Reply> replies;
    for (const Prepared* one : requests) {
      const auto& pictures = static_cast<const PreparedPictures&>(*one);
      std::vector<Reply> pieces;
      for (const Image& image : pictures.images) {
        if (control.stopped()) throw Error(ErrorKind::interrupted, "the request was cancelled");
        pieces.push_back(look(image, pictures.options));
        if (control.between && &image != &pictures.images.back()) control.between();
      }
      replies.push_back(gathered(std::move(pieces)));
    }
    return replies;
  }

 protected:
  virtual void check_options(const Value& options) const = 0;
  // Returns `before`, the windows and views of the images before, plus those of an image of this size. Throws TooLarge
  // if they are too many.
  virtual double check_views(const Value& options, int64_t height, int64_t width, double before) const = 0;
  virtual Reply look(const Image& image, const Value& options) = 0;
  // Joins the replies for a request's images.
  virtual Reply gathered(std::vector<Reply> pieces) const { return joined(std::move(pieces)); }
  // Returns the beginning of an error about an image, or about it and the images before.
  static std::string who_has(int64_t height, int64_t width, double before) {
    return before > 0 ? "the images of the request have together "
                      : text("an image of ", width, " x ", height, " pixels has ");
  }
  const train::ReadyTask& model() const { return *setup_.model; }
  int64_t max_pixels() const { return setup_.max_pixels; }
  Description description_;

 private:
  AnswerSetup setup_;
};

class Masks final : public Pictures {
 public:
  explicit Masks(const AnswerSetup& setup) : Pictures(setup), segmentation_(model(), "segment") {
    description_.kind = "segment";
    description_.summary = "the class of each pixel";
    description_.options = describe_options<SegmentOptions>();
    description_.outputs = {
        {"mask", Datatype::uint8, {-1, -1, -1}, "[images, height, width]: class indices"}};
    description_.details["classes"] = segmentation_.classes();
  }

 protected:
  void check_options(const Value& options) const override {
    const auto read = read_options<SegmentOptions>(options);
    check_scales(read.scales);
    const tasks::SegmentInference how = segmentation_.inference(read);
    if (read.tile > 0 || read.stride > 0)
      if (how.crop < kLeastTile || how.stride < how.crop / 4)
        throw TooLarge(text("windows of ", how.crop, " pixels, ", how.stride, " apart, must be of at least ",
                            kLeastTile, " and a quarter of that apart"));
  }

  double check_views(const Value& options, int64_t height, int64_t width, double before) const override {
    const tasks::SegmentInference how = segmentation_.inference(read_options<SegmentOptions>(options));
    const auto classes = std::ssize(segmentation_.classes());
    const bool keeps_all =
        classes * height * width > how.most_scores;  // the scores of all views, else one after another
    double pixels = 0, scores = 0;
    for (const double factor : how.scales) {
      const auto [rows, columns] = size_at(how, factor, height, width);
      const double views = how.flip ? 2 : 1, all = rows * columns;
      const auto side = static_cast<double>(how.crop), step = static_cast<double>(how.stride);
      const double seen =
          window_count(rows, columns, side, step) * std::min(side, rows) * std::min(side, columns);
      pixels += views * (how.slide ? seen : all);
      const double bytes = all * static_cast<double>(classes) * sizeof(float);
      scores = keeps_all ? scores + views * bytes : std::max(scores, bytes);
    }
    const double most = kMostOverlap * static_cast<double>(max_pixels());
    pixels = before + std::max(pixels, kLeastSeen);
    if (pixels > most)
      throw TooLarge(text(who_has(height, width, before), std::llround(pixels),
                          " pixels in windows and views, must be at most ", std::llround(most),
                          ": choose fewer scales, or windows that overlap less"));
    const bool in_bands = how.slide && how.scale.empty() && how.scales == std::vector{1.0} && !how.flip;
    if (!in_bands && scores > kMostScores)
      throw TooLarge(text("an image of ", width, " x ", height, " pixels has ", std::llround(scores),
                          " bytes of scores in its views, must have at most ", std::llround(kMostScores),
                          ": give option 'tile'"));
    return pixels;
  }

  Reply look(const Image& image, const Value& options) override {
    const Image mask =
        segmentation_.mask(image, segmentation_.inference(read_options<SegmentOptions>(options)));
    const std::string bytes(mask.pixels.begin(), mask.pixels.end());
    Reply reply;
    reply.outputs = {
        {.name = "mask", .type = Datatype::uint8, .shape = {1, mask.height, mask.width}, .data = bytes}};
    reply.results.push_back({{"width", mask.width},
                             {"height", mask.height},
                             {"mask", to_base64(segmentation_.png(mask))},
                             {"classes", class_counts(mask, segmentation_.classes())}});
    return reply;
  }

  // Masks of different sizes do not form an array.
  Reply gathered(std::vector<Reply> pieces) const override {
    for (const Reply& piece : pieces)
      if (piece.outputs[0].shape != pieces[0].outputs[0].shape)
        fail_usage("images of one request must have one size: their masks are one array");
    return joined(std::move(pieces));
  }

 private:
  // Returns the rows and columns of an image's view.
  static std::pair<double, double> size_at(const tasks::SegmentInference& how, double factor, int64_t height,
                                           int64_t width) {
    if (how.scale.empty()) return {static_cast<double>(height) * factor, static_cast<double>(width) * factor};
    std::vector<int64_t> scale;
    for (const int64_t side : how.scale)
      scale.push_back(std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(side) * factor)));
    const data::Extent size = data::fit_into({static_cast<int>(height), static_cast<int>(width)}, scale);
    return {size.height, size.width};
  }

  Segmentation segmentation_;
};

// Returns one array from a column of numbers of each object.
template <class T, class Get>
Array numbers(const char* name, Datatype type, const std::vector<tasks::FoundObject>& objects,
              std::vector<int64_t> shape, const Get& get) {
  Array out{.name = name, .type = type, .shape = std::move(shape)};
  for (const tasks::FoundObject& one : objects)
    for (const T value : get(one)) out.data.append(reinterpret_cast<const char*>(&value), sizeof value);
  return out;
}

class Objects final : public Pictures {
 public:
  explicit Objects(const AnswerSetup& setup)
      : Pictures(setup), finder_(setup.model->require<tasks::ObjectFinder>("detect")) {
    description_.kind = "detect";
    description_.summary = "the objects in images";
    description_.options = describe_options<ObjectOptions>();
    description_.outputs = {{"box",
                             Datatype::fp64,
                             {-1, 4},
                             "left, top, right, bottom in pixels, objects of all images in order"},
                            {"score", Datatype::fp64, {-1}, "best first within an image"},
                            {"index", Datatype::int64, {-1}, "the number of the class"},
                            {"class", Datatype::bytes, {-1}, "its name"},
                            {"count", Datatype::int64, {-1}, "objects of each image"}};
    description_.details["classes"] = finder_.object_classes();
  }

 protected:
  void check_options(const Value& options) const override {
    check_scales(read_options<ObjectOptions>(options).scales);
  }

  double check_views(const Value& options, int64_t height, int64_t width, double before) const override {
    const auto read = read_options<ObjectOptions>(options);
    double views = 0;
    for (const tasks::TestView& view : views_of(read.scales, read.flip)) views += view.scale * view.scale;
    if (views == 0)
      for (const tasks::TestView& view : own_views_) views += view.scale * view.scale;
    if (read.tile > 0) {
      const auto side = static_cast<double>(read.tile);
      views *= window_count(static_cast<double>(height), static_cast<double>(width), side, side * 3 / 4);
    }
    views = before + std::max(views, 1.0);
    if (views > kMostViews)
      throw TooLarge(text(who_has(height, width, before), std::llround(views),
                          " tiles and views of the usual size, must be at most ", std::llround(kMostViews),
                          ": choose larger tiles or fewer scales"));
    return views;
  }

  Reply look(const Image& image, const Value& options) override {
    const auto read = read_options<ObjectOptions>(options);
    const double least = read.threshold;
    std::vector<tasks::FoundObject> found = ObjectSearch(model(), "detect", read).find(image, least);
    std::erase_if(found, [&](const tasks::FoundObject& one) { return one.score < least; });
    const auto count = std::ssize(found);
    Array names{.name = "class", .type = Datatype::bytes, .shape = {count}};
    for (const tasks::FoundObject& one : found)
      names.texts.push_back(finder_.object_classes()[static_cast<size_t>(one.label)]);
    Reply reply;
    reply.outputs = {numbers<double>("box", Datatype::fp64, found, {count, 4},
                                     [](const auto& o) {
                                       return std::array{o.left, o.top, o.right, o.bottom};
                                     }),
                     numbers<double>("score", Datatype::fp64, found, {count},
                                     [](const auto& o) { return std::array{o.score}; }),
                     numbers<int64_t>("index", Datatype::int64, found, {count},
                                      [](const auto& o) { return std::array{o.label}; }),
                     std::move(names),
                     {.name = "count",
                      .type = Datatype::int64,
                      .shape = {1},
                      .data = std::string(reinterpret_cast<const char*>(&count), sizeof count)}};
    reply.results.push_back({{"objects", json_of(found, finder_.object_classes())}});
    return reply;
  }

 private:
  tasks::ObjectFinder& finder_;
  const std::vector<tasks::TestView> own_views_ = finder_.views();  // the recipe's
};

}  // namespace

Segmentation::Segmentation(const train::ReadyTask& model, const std::string& who)
    : model_(model), segmenter_(model.require<tasks::Segmenter>(who)) {
  for (int64_t c = 0; c < std::ssize(classes()); ++c) palette_.push_back(data::mask_colour(c));
}

tasks::SegmentInference Segmentation::inference(const SegmentOptions& options) const {
  tasks::SegmentInference how = segmenter_.inference();
  if (options.whole && options.tile > 0) fail_usage("--whole and --tile: choose one");
  if (options.whole) how.slide = false;
  if (options.tile > 0) {
    how.slide = true;
    how.crop = options.tile, how.stride = std::max<int64_t>(1, options.tile * 3 / 4), how.fading = true;
    how.scale = {}, how.scales = {1}, how.flip = false;
  }
  if (options.stride > 0) how.stride = options.stride;
  choose_views(how, options.scales, options.flip);
  return how;
}

Image Segmentation::mask(const Image& picture, const tasks::SegmentInference& how) const {
  const tasks::AutocastScope autocast = model_.autocast();
  return segmenter_.segment(picture, how);
}

std::vector<std::byte> Segmentation::png(const Image& mask) const { return encode_index_png(mask, palette_); }

ObjectSearch::ObjectSearch(const train::ReadyTask& model, const std::string& who, const ObjectViews& views)
    : model_(model),
      finder_(model.require<tasks::ObjectFinder>(who)),
      before_(finder_.views()),
      tile_(views.tile) {
  choose_views(finder_, views.scales, views.flip);
}

ObjectSearch::~ObjectSearch() { finder_.set_views(before_); }

std::vector<tasks::FoundObject> ObjectSearch::find(const Image& image, double least) const {
  if (tile_ == 0) return finder_.find(image, least, model_.device(), model_.precision());
  return tasks::find_in_tiles(finder_, image, static_cast<int>(tile_), least, model_.device(),
                              model_.precision());
}

nlohmann::ordered_json class_counts(const Image& mask, const std::vector<std::string>& classes) {
  std::array<int64_t, 256> counts{};
  for (const uint8_t index : mask.pixels) ++counts[index];
  std::vector<std::pair<int64_t, size_t>> found;
  for (size_t index = 0; index < classes.size() && index < counts.size(); ++index)
    if (counts[index] > 0) found.emplace_back(-counts[index], index);
  std::ranges::sort(found);
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [pixels, index] : found)
    out.push_back({{"class", classes[index]},
                   {"index", index},
                   {"pixels", -pixels},
                   {"share", static_cast<double>(-pixels) / static_cast<double>(mask.pixels.size())}});
  return out;
}

nlohmann::ordered_json json_of(const std::vector<tasks::FoundObject>& objects,
                               const std::vector<std::string>& classes) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const tasks::FoundObject& o : objects) {
    nlohmann::ordered_json one = {{"class", classes[static_cast<size_t>(o.label)]},
                                  {"score", o.score},
                                  {"box", {o.left, o.top, o.right, o.bottom}}};
    if (!o.mask.counts.empty())
      one["mask"] = {{"size", {o.mask.height, o.mask.width}}, {"counts", compress_runs(o.mask)}};
    out.push_back(std::move(one));
  }
  return out;
}

std::shared_ptr<Answerer> open_segmenter(const AnswerSetup& setup) {
  if (!ability_of<tasks::Segmenter>(setup.model->task())) return nullptr;
  return std::make_shared<Masks>(setup);
}

std::shared_ptr<Answerer> open_finder(const AnswerSetup& setup) {
  if (!ability_of<tasks::ObjectFinder>(setup.model->task())) return nullptr;
  return std::make_shared<Objects>(setup);
}

}  // namespace tessera::answer
