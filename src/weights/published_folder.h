// The folder of published weights: the files next to them, their configurations, and the names of unused
// files.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "core/value.h"

namespace tessera::train {

class PublishedFolder {
 public:
  // Unless `weights_file` has a name that programs give to published weights (model.safetensors, …), the
  // folder counts as empty. `any_name`: files next to other names are found too, but lines() does not list
  // the rest of their folder.
  explicit PublishedFolder(const std::string& weights_file, bool any_name = false);

  // Returns the path of the first of these files that exists; "" without one. It counts as read.
  std::string find(std::initializer_list<const char*> names);
  // Returns the object in the first of these files; an empty table without one. Nulls are left out: they mean
  // "default". Throws Error with the file if it is not JSON.
  Value read(std::initializer_list<const char*> names);
  // Counts a file as read if another reader opens it, such as the tokeniser's.
  void count_as_read(const std::string& path);
  // Records keys of a file that were not used.
  void note_unread(const std::string& file, std::vector<std::string> keys);

  // Returns lines for people, "config.json: no use for a, b" and "not read: c.json, d.bin"; none if all were
  // used. Hidden files, documents and images are not listed.
  std::vector<std::string> lines() const;

 private:
  std::string folder_;   // "" if there is none
  bool listed_ = false;  // its other files belong to the weights
  std::set<std::string> read_;
  std::vector<std::string> notes_;
};

// Reads a JSON file of another program as a settings tree without nulls. Drops the top-level `without` keys.
Value read_published_json(const std::string& path, std::initializer_list<const char*> without = {});

// Returns the file of weights in a folder by its usual name, of several variants that of the highest precision; "" without one.
std::string published_file_in(const std::string& folder);
// Returns "; give one of its files: a.pth, b.pt" for weights of other names in a folder, or names its folders with weights or
// its adapter of PEFT; "" without them.
std::string other_weights_in(const std::string& folder);

// True if published weights usually have this name.
bool is_published_name(const std::string& file);

}  // namespace tessera::train
