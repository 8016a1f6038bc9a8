// Named values of a sample, and a batch of them on memory that a tensor can adopt.
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

// What a transform writes for each sample.
struct Field {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t>
      shape;            // of one sample; of a ragged field the first extent is the most that one may have
  bool ragged = false;  // samples differ in their first extent

  int64_t numel() const;
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype); }
  bool operator==(const Field&) const = default;
};

// Memory on a boundary of 64 bytes, shared by all who hold it. Its content is undefined at first.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  Buffer(std::shared_ptr<std::byte> memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}

  std::byte* data() const { return memory_.get(); }
  size_t size() const { return bytes_; }
  // Keeps the memory alive for as long as the pointer lives.
  const std::shared_ptr<std::byte>& shared() const { return memory_; }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t bytes_ = 0;
};

// Buffers that come back here when nobody holds them any longer, and are used again: large memory is dear to
// ask the system for. The pool may die before its buffers.
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
  Buffer memory;  // [batch, shape…]; of ragged fields [all rows, shape after the first extent…]
  std::vector<int64_t> offsets;  // of ragged fields: sample i has the rows offsets[i] … offsets[i + 1] - 1

  template <class T>
  std::span<T> values() const {
    return {reinterpret_cast<T*>(memory.data()), memory.size() / sizeof(T)};
  }
};

struct Batch {
  int64_t size = 0;
  int64_t first = 0, whole = 0;  // place of its first sample in the batch of all ranks, and that batch's size
  std::vector<int64_t> indices;  // [size], into the source
  std::vector<Column> columns;
  int64_t epoch = 0, step_in_epoch = 0;

  // Null where there is no such field.
  const Column* find(std::string_view name) const;
  // Fails naming the fields that there are.
  const Column& at(std::string_view name) const;
  template <class T>
  std::span<T> values(std::string_view name) const {
    return at(name).values<T>();
  }
  // A further column with undefined values, or the one of that name with memory of its own.
  Column& add(const Field& field);
};

// Where one sample's values of a field go: `data` of an ordinary field; of a ragged one rows are put behind
// those of the samples before.
struct Slot {
  std::byte* data = nullptr;
  std::vector<std::byte>* rows = nullptr;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace tessera::data
