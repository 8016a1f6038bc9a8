// Named values of a sample, and a batch of them in memory that a tensor can adopt.
//
//   image   f32 [3, 224, 224]      label   i64 []            mask  u8 [224, 224]
//   boxes   f32 [100, 5], ragged   tokens  i32 [77]          targets f32 [classes]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace tessera::data {

// An output of a transform for each sample.
struct Field {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // per sample; ragged: the first extent is the maximum
  bool ragged = false;         // samples differ in their first extent

  int64_t numel() const;
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype); }
  bool operator==(const Field&) const = default;
};

// 64-byte aligned memory with shared ownership. Its content is initially undefined.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  Buffer(std::shared_ptr<std::byte> memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}

  std::byte* data() const { return memory_.get(); }
  size_t size() const { return bytes_; }
  // Keeps the memory alive as long as the pointer lives.
  const std::shared_ptr<std::byte>& shared() const { return memory_; }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t bytes_ = 0;
};

// Reuses buffers after their last owner releases them, because large system allocations are expensive. The
// pool may be destroyed before its buffers.
class BufferPool {
 public:
  BufferPool();
  Buffer take(size_t bytes);

 private:
  struct Store;
  std::shared_ptr<Store> store_;
};

// The values of one field for all samples of a batch.
struct Column {
  Field field;
  Buffer memory;                 // [batch, shape…]; ragged: [all rows, shape after the first extent…]
  std::vector<int64_t> offsets;  // ragged: sample i has the rows offsets[i] … offsets[i + 1] - 1

  template <class T>
  std::span<T> values() const {
    return {reinterpret_cast<T*>(memory.data()), memory.size() / sizeof(T)};
  }
};

struct Batch {
  int64_t size = 0;
  int64_t first = 0, whole = 0;  // index of its first sample in the batch of all ranks; size of that batch
  std::vector<int64_t> indices;  // [size], into the source
  std::vector<Column> columns;
  int64_t epoch = 0, step_in_epoch = 0;

  // Returns null if no field has this name.
  const Column* find(std::string_view name) const;
  // Throws an error that lists the existing fields if none has this name.
  const Column& at(std::string_view name) const;
  template <class T>
  std::span<T> values(std::string_view name) const {
    return at(name).values<T>();
  }
  // Adds a column with undefined values, or replaces the one of that name by one with new memory.
  Column& add(const Field& field);
};

// The destination of one sample's values: `data` for an ordinary field; for a ragged field they are appended
// to `rows`.
struct Slot {
  std::byte* data = nullptr;
  std::vector<std::byte>* rows = nullptr;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace tessera::data
