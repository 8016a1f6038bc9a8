#include "cli/base/common.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source.h"
#include "io/files/path.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// One text for all spellings of a path, of files that do not exist yet too.
std::string place_of(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(behind_links(path), error);
  if (error) return fs::path(path).lexically_normal().string();
  const fs::path place = fs::weakly_canonical(whole, error);
  return (error ? whole.lexically_normal() : place).string();
}

// Returns the origin of an output for error messages.
std::string origin_of(const OutputPlace& output) {
  return output.input.empty() ? output.option : "'" + output.input + "'";
}

[[noreturn]] void refuse_shared(const OutputPlace& first, const OutputPlace& second) {
  const bool images = !first.input.empty() && !second.input.empty();
  fail_usage(origin_of(first), " and ", origin_of(second), " would both be written to '", second.path, "': ",
             images ? "give images whose names differ before the ending, or one call for each"
                    : "choose another " + second.option);
}

// Throws a usage error if a part of the path is a file.
void check_folder(const std::string& option, const fs::path& folder) {
  std::error_code error;
  for (fs::path part = folder; !part.empty() && part != part.parent_path(); part = part.parent_path()) {
    const fs::file_status status = fs::status(part, error);
    if (fs::is_directory(status)) return;
    if (fs::exists(status))
      fail_usage(option, " '", folder.string(), "' cannot be a folder: '", part.string(),
                 "' is a file, choose another name");
  }
}

}  // namespace

void check_output_places(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs) {
  std::unordered_map<std::string, const std::string*> read;
  for (const std::string& input : inputs) read.try_emplace(place_of(input), &input);
  std::unordered_map<std::string, const OutputPlace*> written;
  for (const OutputPlace& output : outputs) {
    const std::string place = place_of(output.path);
    if (const auto lost = read.find(place); lost != read.end())
      fail_usage("the output '", output.path, "' of ", origin_of(output), " would replace the input '",
                 *lost->second, "': choose another ", output.option);
    const auto [other, first] = written.try_emplace(place, &output);
    if (first) continue;
    const bool again = !output.input.empty() && !other->second->input.empty() &&
                       place_of(output.input) == place_of(other->second->input);
    if (!again) refuse_shared(*other->second, output);
  }
}

bool names_output_file(const std::string& option, const std::string& out, int64_t images,
                       const std::vector<std::string>& endings) {
  std::error_code error;
  if (out.empty() || fs::is_directory(out, error)) return false;
  const auto ends_in = [name = lower(out)](const std::string& ending) { return name.ends_with(ending); };
  if (std::any_of(endings.begin(), endings.end(), ends_in)) {
    if (images > 1)
      fail_usage(option, " ", out, " is one file, there are ", images, " images: give a folder");
    check_folder(option, fs::path(out).parent_path());
    return true;
  }
  if (data::has_picture_extension(out))
    fail_usage(option, " '", out, "' must end in ", join(endings, ", "), ", or be a folder");
  check_folder(option, out);
  return false;
}

}  // namespace tessera::cli
