#include "cli/base/real_labels.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

RealLabels::RealLabels(const std::string& file) : file_(file) {
  const Json table =
      parse_json<Json>(read_text(file, uint64_t{64} << 20), file, {.max_bytes = uint64_t{64} << 20});
  check(table.is_array(), file, ": must be a list of lists of classes, one for each image");
  for (const Json& classes : table) {
    check(classes.is_array(), file, ": must be a list of lists of classes, one for each image");
    labels_.emplace_back();
    for (const Json& one : classes)
      if (one.is_number_integer()) labels_.back().push_back(one.get<int64_t>());
  }
}

RealLabels::Count RealLabels::count(int64_t images, const std::function<std::string(int64_t)>& name,
                                    const std::function<int64_t(int64_t)>& best) const {
  Count out;
  for (int64_t i = 0; i < images; ++i) {
    const std::string path = name(i), stem = std::filesystem::path(path).stem().string();
    const auto number = parse_int(stem.substr(stem.find_last_not_of("0123456789") + 1));
    if (!number || *number < 1 || *number > std::ssize(labels_))
      fail_usage(path, ": --real ", file_, " has ", labels_.size(),
                 " images, and this name ends in no number of one");
    const auto& classes = labels_[static_cast<size_t>(*number - 1)];
    if (classes.empty()) continue;
    ++out.counted;
    out.right += std::count(classes.begin(), classes.end(), best(i)) > 0;
  }
  return out;
}

}  // namespace tessera::cli
