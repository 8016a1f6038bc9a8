// Tables that translate tensor names between another program and Tessera, in both directions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weights/base/name_pattern.h"

namespace tessera::train {

// Parts [first, last) of the first axis, which is divided into `of` equal parts.
struct RowRange {
  int64_t first = 0, last = 1, of = 1;
  bool whole() const { return first == 0 && last == of; }
};

// Maps rows `theirs` of the other program's tensor to rows `ours` of ours.
struct Join {
  RowRange theirs = {}, ours = {};
  int64_t axes = 0;         // leading axes of extent 1 that only our tensor has
  bool transposed = false;  // a matrix
};
// Their tensor is part `place` of our tensor, which consists of `of` of theirs.
inline Join part(int64_t place, int64_t of) { return {.ours = {place, place + 1, of}}; }
// Our tensor is parts [first, last) of `of` of their tensor.
inline Join rows_of(int64_t first, int64_t last, int64_t of) { return {.theirs = {first, last, of}}; }
inline constexpr Join kTransposed = {.transposed = true};

struct NameRow {
  std::string theirs, ours;  // patterns; ours empty: computed by the model or unused
  Join join = {};
  std::string given = {};  // pattern: the row applies only to files with a matching name
  bool older = false;      // only for reading
};
using NameRows = std::vector<NameRow>;

// Their tensor as our tensor, or as a part of it.
struct NamePlace {
  std::string theirs, ours;  // ours empty: dropped
  Join join = {};
  bool known = false;  // a row matched; otherwise both names are equal
  bool older = false;  // the row is only for reading and gives way to others
  bool each = false;   // the file repeats the tensor
};

class NameTable {
 public:
  // `family`: model family, or the task that the names belong to. `given`: NameRow::given of all rows.
  NameTable(std::string program, std::string family, NameRows rows, const std::string& given = "");

  const std::string& program() const { return program_; }
  const std::string& family() const { return family_; }
  const NameRows& rows() const { return rows_; }
  // True if the program may have written a file with these names.
  bool reads(const std::vector<std::string>& theirs) const;

  // Returns the places of each of their names, several if the tensor is split. The first matching row counts.
  std::vector<std::vector<NamePlace>> each(const std::vector<std::string>& theirs) const;
  // As each(), in one list.
  std::vector<NamePlace> ours(const std::vector<std::string>& theirs) const;
  // Returns the inverse for all tensors of a model.
  std::vector<NamePlace> theirs(const std::vector<std::string>& ours) const;

  // Returns names made from the rows for tests: numbers 0 to 2 if `several`, else lists with one entry.
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

// One of our tensors, and the parts that it consists of.
struct TensorSource {
  std::string ours;
  std::vector<NamePlace> parts;     // in the order of their rows
  std::vector<std::string> copies;  // their names; must equal the first part
};
// Returns the sources of our tensors, in the order of the places. Throws Error if two tensors map to the same
// place, or if a part is missing.
std::vector<TensorSource> sources_of(const std::vector<NamePlace>& places);

// Returns the rows with a prefix on each side.
NameRows below(const std::string& theirs, const std::string& ours, NameRows rows);
// Returns the rows marked as only for reading.
NameRows older(NameRows rows);
NameRows joined(std::initializer_list<NameRows> several);
// Returns three rows that join their q, k and v into one tensor.
NameRows thirds(const std::string& q, const std::string& k, const std::string& v, const std::string& ours);

}  // namespace tessera::train
