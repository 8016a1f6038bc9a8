// A folder of latents. Its shards stay mapped; samples are copied from them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"
#include "data/sources/latents.h"
#include "io/files/json.h"
#include "io/weights/safetensors.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kMostSide = 65536;

// Reads fields of latents.json. Throws an error with the key if one is missing or out of range.
class Index {
 public:
  Index(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    check(json.is_object(), path_, " is ", json.type_name(), ", must be an object");
  }
  std::string words(const char* key) const {
    const Json& value = at(key);
    check(value.is_string(), path_, ": ", key, " must be a text");
    return value.get<std::string>();
  }
  int64_t number(const char* key, int64_t least, int64_t most) const {
    const Json& value = at(key);
    check(value.is_number_integer() && value.get<int64_t>() >= least && value.get<int64_t>() <= most, path_,
          ": ", key, " must be ", least, " to ", most);
    return value.get<int64_t>();
  }
  double positive(const char* key) const {
    const Json& value = at(key);
    check(value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0, path_, ": ",
          key, " must be a positive number");
    return value.get<double>();
  }
  std::vector<std::string> names(const char* key) const {
    const Json& value = at(key);
    check(value.is_array() &&
              std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); }),
          path_, ": ", key, " must be a list of texts");
    return value.get<std::vector<std::string>>();
  }

 private:
  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    check(found != json_.end(), path_, " has no '", key, "'");
    return *found;
  }
  const Json& json_;
  std::string path_;
};

struct Shard {
  std::shared_ptr<const SafetensorsFile> file = nullptr;
  std::span<const std::byte> moments = {}, labels = {};
  int64_t first = 0, samples = 0;
};

Shard open_shard(const std::string& path, const LatentInfo& info, bool labelled) {
  Shard shard{.file = std::make_shared<const SafetensorsFile>(path)};
  const TensorView* moments = shard.file->find("moments");
  check(moments && moments->dtype == DType::f32 && moments->shape.size() == 6, "'", path,
        "' holds no 'moments', F32 [samples, views, 2, channels, rows, columns]");
  const std::vector<int64_t> expected{moments->shape[0], info.views, 2,
                                      info.channels,     info.rows,  info.columns};
  check(moments->shape == expected, "'", path, "': 'moments' has another shape than ", kLatentsFile, " says");
  shard.samples = moments->shape[0];
  shard.moments = moments->bytes;
  if (!labelled) return shard;
  const TensorView* labels = shard.file->find("labels");
  check(labels && labels->dtype == DType::i64 && labels->shape == std::vector<int64_t>{shard.samples}, "'",
        path, "' holds no 'labels', I64 [", shard.samples, "]");
  shard.labels = labels->bytes;
  return shard;
}

class LatentFolder final : public LatentSource, public ClassLabels {
 public:
  LatentFolder(std::string path, const std::string& split) : path_(std::move(path)) {
    const std::string name = path_ + "/" + kLatentsFile;
    content_ = read_text(name);
    const Json json = parse_json(content_, name, {.max_bytes = uint64_t{64} << 20, .max_keys = 1'000'000});
    const Index index(json, name);
    info_.codec = index.words("codec");
    info_.checksum = index.words("checksum");
    info_.scale = index.positive("scale");
    info_.factor = index.number("factor", 1, 4096);
    info_.channels = index.number("channels", 1, 4096);
    info_.rows = index.number("rows", 1, kMostSide);
    info_.columns = index.number("columns", 1, kMostSide);
    info_.views = index.number("views", 1, 2);
    classes_ = index.names("class_names");
    for (const std::string& file : index.names(split.c_str())) {
      check(file.find('/') == std::string::npos, name, ": '", printable(file),
            "' must be a file of the folder itself");
      Shard shard = open_shard(path_ + "/" + file, info_, !classes_.empty());
      shard.first = size_;
      size_ += shard.samples;
      shards_.push_back(std::move(shard));
    }
    for (int64_t i = 0; i < size_ && !classes_.empty(); ++i)
      check(label(i) >= 0 && label(i) < std::ssize(classes_), path_, ": latent ", i, " of ", split,
            " has label ", label(i), ", must be 0 to ", std::ssize(classes_) - 1);
  }

  const LatentInfo& latents() const override { return info_; }
  int64_t size() const override { return size_; }
  RawSample read(int64_t index) const override {
    const auto [shard, place] = find(index);
    const size_t bytes = static_cast<size_t>(info_.views * 2 * info_.numel()) * sizeof(float);
    const auto from = shard->moments.subspan(static_cast<size_t>(place) * bytes, bytes);
    return {text(shard->file->path(), ": latent ", place), std::vector<std::byte>(from.begin(), from.end())};
  }
  const ClassLabels* class_labels() const override { return classes_.empty() ? nullptr : this; }
  int64_t label(int64_t index) const override {
    const auto [shard, place] = find(index);
    int64_t label = 0;
    std::memcpy(&label, shard->labels.data() + static_cast<size_t>(place) * sizeof label, sizeof label);
    return label;
  }
  const std::vector<std::string>& class_names() const override { return classes_; }
  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add(content_);
    for (const Shard& shard : shards_) print.add(shard.samples);
    return print.value();
  }
  std::string describe() const override {
    return text("latents ", path_, ", ", counted(size_, "latent"), " of ", info_.channels, "x", info_.rows,
                "x", info_.columns, ", ",
                classes_.empty() ? "no labels" : counted(std::ssize(classes_), "class", "classes"));
  }

 private:
  std::pair<const Shard*, int64_t> find(int64_t index) const {
    const auto after = std::upper_bound(shards_.begin(), shards_.end(), index,
                                        [](int64_t i, const Shard& shard) { return i < shard.first; });
    const Shard& shard = *std::prev(after);
    return {&shard, index - shard.first};
  }

  std::string path_, content_;
  LatentInfo info_;
  std::vector<std::string> classes_;
  std::vector<Shard> shards_;
  int64_t size_ = 0;
};

class LatentTransform final : public Transform {
 public:
  LatentTransform(const LatentInfo& info, bool training)
      : info_(info),
        training_(training),
        fields_{{"latent", DType::f32, {info.channels, info.rows, info.columns}}} {}
  const std::vector<Field>& fields() const override { return fields_; }

  void apply(const RawSample& sample, RandomStream& random, std::span<const Slot> out) const override {
    const auto* bytes = std::get_if<std::vector<std::byte>>(&sample.picture);
    const auto numbers = static_cast<size_t>(info_.numel());
    check(bytes && bytes->size() == static_cast<size_t>(info_.views) * 2 * numbers * sizeof(float),
          sample.name, ": is no latent of ", info_.channels, "x", info_.rows, "x", info_.columns);
    const size_t view = training_ && info_.views == 2 && random.chance(0.5) ? 1 : 0;
    std::vector<float> moments(2 * numbers);
    std::memcpy(moments.data(), bytes->data() + view * 2 * numbers * sizeof(float),
                2 * numbers * sizeof(float));
    auto* latent = out[0].as<float>();
    for (size_t i = 0; i < numbers; ++i)
      latent[i] = static_cast<float>(
          (static_cast<double>(moments[i]) + static_cast<double>(moments[numbers + i]) * random.normal()) *
          info_.scale);
  }

 private:
  LatentInfo info_;
  bool training_;
  std::vector<Field> fields_;
};

}  // namespace

std::shared_ptr<const Transform> make_latent_transform(const LatentInfo& info, bool training) {
  return std::make_shared<LatentTransform>(info, training);
}

void require_same_codec(const LatentInfo& a, const std::string& name_a, const LatentInfo& b,
                        const std::string& name_b) {
  if (a.checksum != b.checksum)
    fail("latents of two VAEs cannot be mixed: ", name_a, " has those of ", a.codec, " ", a.checksum, ", ",
         name_b, " those of ", b.codec, " ", b.checksum);
  if (a.scale != b.scale)
    fail("latents of two scales cannot be mixed: ", name_a, " has ", shortest(a.scale), ", ", name_b, " ",
         shortest(b.scale));
}

std::string latents_json(const LatentInfo& info, const std::vector<std::string>& class_names,
                         const LatentShards& train, const LatentShards& validation) {
  nlohmann::ordered_json json = {{"codec", info.codec},
                                 {"checksum", info.checksum},
                                 {"scale", info.scale},
                                 {"factor", info.factor},
                                 {"channels", info.channels},
                                 {"rows", info.rows},
                                 {"columns", info.columns},
                                 {"views", info.views},
                                 {"class_names", class_names},
                                 {"train", train.files},
                                 {"train_samples", train.samples},
                                 {"validation", validation.files},
                                 {"validation_samples", validation.samples}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool is_latents_path(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path + "/" + kLatentsFile, error);
}

std::unique_ptr<Source> open_latents(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  return std::make_unique<LatentFolder>(path, split == Split::train ? "train" : "validation");
}

}  // namespace tessera::data
