// The columns of a table of images by their titles, and the files that its paths refer to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source_kinds.h"

namespace tessera::data {

inline constexpr size_t kNoColumn = SIZE_MAX;

struct TableColumns {
  bool header = true;
  size_t count = 2, path = 0, label = 1, split = kNoColumn;
  std::vector<size_t> captions = {};
  size_t name = kNoColumn;  // another column with a usual title of labels, perhaps the names of classes
  bool labels_title = false;
  std::optional<Split> flagged = {};       // split of the images with 1 or True, as in fastai's `is_valid`
  bool numbered_split = false;             // splits are 0, 1 and 2: train, val and test, as in CelebA
  bool signs = false;                      // classes are marked by 1 and -1
  std::vector<size_t> classes = {};        // columns of 0 and 1
  std::vector<std::string> unmarked = {};  // titles of the others next to them
  std::vector<std::string> remarks = {};   // lines about columns without a usual title or form
};

// Returns the columns of a table with at least one row. Without usual titles, the column of images is found by their suffix,
// and the label in the only other one that holds no counts, no boxes and no splits. Throws if one of them is not found,
// if several rows have boxes of one image, or if a column `split` has other numbers than 0, 1 and 2.
TableColumns find_columns(const std::vector<CsvRow>& rows, const std::string& name);

// Returns the separator of a table: the one that divides the first line that is not empty into usual titles, or into an
// image and something else. If none does: a tab in .tsv, else a comma, else another that the line has. Spreadsheets
// write semicolons if the comma is for decimals.
char separator_of(const std::string& path, std::string_view content);

// True if the first line of a .txt file has columns with a separator: titles, or an image and its label or caption.
bool has_columns(std::string_view content);

// True if the first line of a table has no separator of columns but blanks, as in "a.jpg 3".
bool has_words_alone(std::string_view content);

// True if a separator divides a line into usual titles of an image's file and its label or caption.
bool divides_titles(std::string_view line, char separator);

// Returns a path without the number of its caption, as in Flickr8k's "a.jpg#0".
std::string_view without_number(std::string_view path);

// Returns the member of a .json table's entry that has one of the usual titles of its column, null if there is none.
const nlohmann::json* path_member(const nlohmann::json& entry);
const nlohmann::json* label_member(const nlohmann::json& entry);

// Returns the folder that a table's paths are relative to: the table's own, or a folder in it with a usual name
// ("train" or "train_images" for train.csv, "images") if that has the first image.
std::string image_folder(const std::string& table, const std::string& first);

// Returns the path of an image in `root`, with its suffix if the table leaves it out and there is such a file, and with
// blanks for %20 if only that file exists. If an
// absolute path ("C:/me/images/a.jpg") or one with "../" does not exist, it is another machine's: returns the longest end of it
// that does exist in `root`.
std::string with_suffix(const std::string& root, const std::string& path);

// True for an absolute path of any system.
bool is_absolute_path(std::string_view path);

}  // namespace tessera::data
