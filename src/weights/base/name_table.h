// Tables of tensor names: another program's and ours, read both ways.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weights/base/name_pattern.h"

namespace tessera::train {

// Rows [first, last) of `of` equal parts of a tensor's first axis.
struct RowRange {
  int64_t first = 0, last = 1, of = 1;
  bool whole() const { return first == 0 && last == of; }
};

// How a tensor of theirs becomes one of ours: those rows of theirs are those rows of ours.
struct Join {
  RowRange theirs = {}, ours = {};
  int64_t axes = 0;         // leading axes of extent 1 that only ours has
  bool transposed = false;  // a matrix
};
// Part `place` of `of` tensors of theirs, which are one of ours.
inline Join part(int64_t place, int64_t of) { return {.ours = {place, place + 1, of}}; }
// Rows [first, last) of `of` of one of theirs are one of ours.
inline Join rows_of(int64_t first, int64_t last, int64_t of) { return {.theirs = {first, last, of}}; }
inline constexpr Join kTransposed = {.transposed = true};

struct NameRow {
  std::string theirs, ours;  // patterns; ours empty: computed by the model, or of no use to it
  Join join = {};
  std::string given = {};  // a pattern: the row is for files with such a name of theirs
  bool older = false;      // read, never written
};
using NameRows = std::vector<NameRow>;

// One tensor of theirs as (a part of) one of ours.
struct NamePlace {
  std::string theirs, ours;  // ours empty: dropped
  Join join = {};
  bool known = false;  // by a row; other names are the same in both
  bool older = false;  // by a row for reading alone, which yields to another
  bool each = false;   // the file repeats the tensor
};

class NameTable {
 public:
  // `family`: of models, or a task for the names of its weights. `given`: as of a row, for all of them.
  NameTable(std::string program, std::string family, NameRows rows, const std::string& given = "");

  const std::string& program() const { return program_; }
  const std::string& family() const { return family_; }
  const NameRows& rows() const { return rows_; }
  // True if a file with these names may be of the program.
  bool reads(const std::vector<std::string>& theirs) const;

  // Returns the places of each name, several if it is split. The first row that matches counts.
  std::vector<std::vector<NamePlace>> each(const std::vector<std::string>& theirs) const;
  // The same in one list.
  std::vector<NamePlace> ours(const std::vector<std::string>& theirs) const;
  // The way back, for all tensors of a model.
  std::vector<NamePlace> theirs(const std::vector<std::string>& ours) const;

  // Returns names of theirs from the rows, for tests: with numbers 0 to 2, or as of lists with one entry.
  std::vector<std::string> sample(bool several) const;

 private:
  struct Patterns {
    NamePattern theirs, ours;
  };
  bool applies(size_t row, const std::vector<std::string>& theirs) const;

  std::string program_, family_;
  NameRows rows_;
  std::vector<Patterns> patterns_;
  std::string given_;
};

// A tensor of ours and its parts.
struct TensorSource {
  std::string ours;
  std::vector<NamePlace> parts;     // one below the other
  std::vector<std::string> copies;  // of theirs, which must be equal to the first part
};
// Returns the sources of our tensors, in the order of the places. Throws Error if two tensors are one of ours, or if one of
// several that make ours is missing.
std::vector<TensorSource> sources_of(const std::vector<NamePlace>& places);

// Rows below a prefix on either side.
NameRows below(const std::string& theirs, const std::string& ours, NameRows rows);
// The same rows for reading alone.
NameRows older(NameRows rows);
NameRows joined(std::initializer_list<NameRows> several);
// Three rows: q, k and v of theirs are one tensor of ours.
NameRows thirds(const std::string& q, const std::string& k, const std::string& v, const std::string& ours);

}  // namespace tessera::train
