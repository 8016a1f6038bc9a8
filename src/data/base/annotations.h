// How `data check`, `info`, `preview` and `pack` treat the annotations of a source's samples. The classes
// here handle classes and captions; a source with another kind of annotation overrides Source::annotations()
// with a class derived from Annotations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// How the annotations of a set are written to shards.
class Packing {
 public:
  // A member of a shard next to its sample's image, with the ending of its name: ".cls".
  struct Member {
    std::string ending;
    std::vector<std::byte> content;
  };
  virtual ~Packing() = default;
  // Returns the subfolder for the shards: "" or "images".
  virtual std::string folder() const { return ""; }
  // True if samples are shuffled, for readers that read shards sequentially. Sets of dense prediction keep
  // their order, so that training from shards equals training from files.
  virtual bool shuffled() const { return false; }
  // True if images may be shrunk without changing the annotation.
  virtual bool resizable() const { return false; }
  // True if both splits must have the same classes.
  virtual bool one_class_list() const { return true; }
  virtual std::vector<Member> members(const RawSample& sample, int64_t index) const = 0;
  // Called after the last sample of a split, with `paths` of the packed images by their index in the source.
  // Adds the files that it writes to `files`.
  virtual void finish_split(const std::string& /*folder*/, const std::string& /*split*/,
                            const std::map<int64_t, std::string>& /*paths*/,
                            std::vector<std::string>& /*files*/) {}
  // Called after the last split.
  virtual void finish(const std::string& /*folder*/, std::vector<std::string>& /*files*/) const {}
};

class Annotations {
 public:
  struct Classes {
    std::vector<std::string> names = {};
    std::vector<int64_t> counts = {};  // for each class; empty if counting would need every sample
    const char* counted = "images";    // "objects"
  };
  // For `data info`: lines of text, each indented by two spaces, and the same as a JSON object.
  struct Facts {
    std::string text = {};
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
  };

  // The source must outlive this object.
  explicit Annotations(const Source& source) : source_(source) {}
  virtual ~Annotations() = default;

  // --- the set
  // Returns the images one by one: the source itself, unless its samples have several each.
  virtual const Source& images() const { return source_; }
  // True if training and validation read the same samples of a path that has no splits.
  virtual bool one_split() const { return false; }
  // True if samples may share an image.
  virtual bool repeats_images() const { return false; }
  virtual Classes classes() const;
  // Throws an error that names the first difference between the annotations of two splits.
  virtual void require_same(const Source& train, const Source& validation) const;
  // Returns one line for each kind of annotation that training ignores.
  virtual std::vector<std::string> left_out() const { return {}; }
  // Describes the set; reads at most `sample` of its samples.
  virtual Facts facts(int64_t sample) const;
  // Throws a usage error if the set cannot be packed.
  virtual std::unique_ptr<Packing> packing() const;

  // --- a sample
  // Returns one line per problem. `sample` is read(index), or empty if images() is another source.
  virtual std::vector<std::string> problems_of(int64_t index, const RawSample& sample) const;
  // Returns a line that describes the sample in a preview, such as its class.
  virtual std::string caption_of(int64_t index, const RawSample& sample) const;
  // Draws the annotation over the image.
  virtual Image drawn(int64_t index, const RawSample& sample, Image image) const;

 protected:
  // Parts of facts() that differ between annotations: JSON about classes, and the part after the pixels.
  virtual nlohmann::ordered_json class_facts() const { return nlohmann::ordered_json::object(); }
  virtual Facts annotation_facts(int64_t sample) const;

  const Source& source_;
};

// Returns a text as the bytes of a member.
std::vector<std::byte> bytes_of(const std::string& content);

}  // namespace tessera::data
