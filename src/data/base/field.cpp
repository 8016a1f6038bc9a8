#include "data/base/field.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <numeric>

#include "core/error.h"
#include "core/text.h"

namespace tessera::data {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kMostSpare = 4;  // buffers kept for reuse

std::byte* allocate(size_t bytes) {
  return static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), kAlignment));
}
void release(std::byte* memory) { ::operator delete(memory, kAlignment); }

}  // namespace

int64_t Field::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Buffer::Buffer(size_t bytes) : memory_(allocate(bytes), release), bytes_(bytes) {}

struct BufferPool::Store {
  struct Spare {
    std::byte* memory;
    size_t bytes;
  };
  std::mutex mutex;
  std::vector<Spare> spare;
  ~Store() {
    for (const Spare& one : spare) release(one.memory);
  }

  // Returns memory of exactly that size, or null.
  std::byte* take(size_t bytes) {
    const std::lock_guard lock(mutex);
    const auto found =
        std::find_if(spare.begin(), spare.end(), [&](auto& one) { return one.bytes == bytes; });
    if (found == spare.end()) return nullptr;
    std::byte* memory = found->memory;
    spare.erase(found);
    return memory;
  }

  void give_back(std::byte* memory, size_t bytes) {
    const std::lock_guard lock(mutex);
    if (spare.size() == kMostSpare) {  // sizes change over a run: drop the oldest
      release(spare.front().memory);
      spare.erase(spare.begin());
    }
    spare.push_back({memory, bytes});
  }
};

BufferPool::BufferPool() : store_(std::make_shared<Store>()) {}

Buffer BufferPool::take(size_t bytes) {
  std::byte* memory = store_->take(bytes);
  if (!memory) memory = allocate(bytes);
  const auto give_back = [bytes, weak = std::weak_ptr(store_)](std::byte* done) {
    if (const auto store = weak.lock())
      store->give_back(done, bytes);
    else
      release(done);
  };
  return {std::shared_ptr<std::byte>(memory, give_back), bytes};
}

const Column* Batch::find(std::string_view name) const {
  const auto found =
      std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.field.name == name; });
  return found == columns.end() ? nullptr : &*found;
}

const Column& Batch::at(std::string_view name) const {
  if (const Column* column = find(name)) return *column;
  std::vector<std::string> names;
  for (const Column& column : columns) names.push_back(column.field.name);
  fail("a batch has no field '", name, "', it has ", join(names, ", "));
}

Column& Batch::add(const Field& field) {
  std::erase_if(columns, [&](const Column& column) { return column.field.name == field.name; });
  columns.push_back({field, Buffer(static_cast<size_t>(size) * field.bytes()), {}});
  return columns.back();
}

}  // namespace tessera::data
