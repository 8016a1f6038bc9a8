// Rows of parameters that one of several processes draws and loads, so that a model is built within its share of memory.
//
//   nn::OwnRows rows(process, processes);
//   {
//     const nn::OwnRowsScope scope(&rows);
//     … build the model and load its weights …
//   }
//   if (!rows.all_in(state)) …      // something else keeps drawn tensors: build it again without the scope
//
// Inside the scope large parameters consist of pages that take memory once they are written. The rows are those that
// parallel::Layout gives the process, and fewer than `processes` rows more. Other rows are zero.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/named_tensors.h"

namespace tessera::nn {

struct RowRange {
  int64_t begin = 0, end = 0;
};

class OwnRows {
 public:
  OwnRows(int process, int processes) : process_(process), processes_(processes) {}
  // Returns the same rows, for a model of its own.
  OwnRows another() const { return {process_, processes_}; }

  // Returns the rows to fill in, and remembers that the tensor has these alone; none for a tensor that is filled in
  // whole: one with less than two dimensions or fewer rows than processes, or after keep_whole().
  std::optional<RowRange> cut(const torch::Tensor& parameter);
  // For a parameter that no block reads, and that may get more rows.
  void keep_whole(const torch::Tensor& parameter) { whole_.push_back(parameter); }
  // Copies the rows of a tensor of the parameter's shape.
  void copy(const torch::Tensor& parameter, const torch::Tensor& value);
  // Remembers some numbers of a tensor that was read, or those of another model.
  void see(const torch::Tensor& value);
  void see(const OwnRows& other) { seen_.insert(seen_.end(), other.seen_.begin(), other.seen_.end()); }

  // True if `state` has each tensor that was cut, with the shape that it had.
  bool all_in(const NamedTensors& state) const;
  // Returns these numbers, which are equal in processes that read equal files.
  const std::vector<double>& seen() const { return seen_; }

 private:
  struct Cut {
    torch::Tensor tensor;
    std::vector<int64_t> shape;
  };
  int process_, processes_;
  std::vector<Cut> cut_;
  std::vector<torch::Tensor> whole_;
  std::vector<double> seen_;
};

// While it lives, parameters of this thread are drawn and loaded by `rows`, which may be null.
class OwnRowsScope {
 public:
  explicit OwnRowsScope(OwnRows* rows);
  ~OwnRowsScope();
  OwnRowsScope(const OwnRowsScope&) = delete;
  OwnRowsScope& operator=(const OwnRowsScope&) = delete;
  // Returns those of this thread; null outside of a scope.
  static OwnRows* rows();

 private:
  OwnRows* before_;
};

// Copies a tensor into a parameter or buffer of its shape: this process's rows inside a scope. `read`: it is from a file,
// and whole.
void copy_rows(const torch::Tensor& target, const torch::Tensor& value, bool read);
// Calls OwnRows::keep_whole() inside a scope.
void keep_whole(const torch::Tensor& parameter);
// Rounds a parameter to another type in place: this process's rows inside a scope.
void change_type(torch::Tensor parameter, torch::ScalarType type);
// Returns zeros. A page of them takes memory once it is written.
torch::Tensor lazy_zeros(torch::IntArrayRef shape, torch::ScalarType type);

}  // namespace tessera::nn
