#include "core/error.h"
#include "fuzz/fuzz.h"
#include "io/weights/torch_archive.h"

namespace {

std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 255);
  return out;
}

// Returns a zip archive with these two entries, so that the fuzzer can mutate the pickle and keep a valid
// directory.
std::string archive_around(std::string_view pickle) {
  std::string out, directory;
  for (const auto& [name, content] : {std::pair<std::string, std::string_view>{"m/data.pkl", pickle},
                                      {"m/data/0", "abcdefghijklmnopqrstuvwx"}}) {
    const std::string size = little_endian(content.size(), 4), length = little_endian(name.size(), 2);
    directory += "PK\1\2" + std::string(16, '\0') + size + size + length + std::string(12, '\0') +
                 little_endian(out.size(), 4) + name;
    out += "PK\3\4" + std::string(14, '\0') + size + size + length + std::string(2, '\0') + name;
    out += content;
  }
  const std::string end = "PK\5\6" + std::string(6, '\0') + little_endian(2, 2) +
                          little_endian(directory.size(), 4) + little_endian(out.size(), 4) +
                          std::string(2, '\0');
  return out + directory + end;
}

void look_at(const tessera::TorchContent& content) {
  for (const auto& group : content.groups)
    for (const auto& tensor : group.tensors) {
      uint64_t size = tessera::size_of(tensor.dtype);
      for (const int64_t extent : tensor.shape) size *= static_cast<uint64_t>(extent);
      if (size != tensor.bytes.size()) std::abort();
      tessera::must_lie_in(tensor.bytes, tensor.bytes);
    }
}

}  // namespace

// A whole archive if it starts like one; else an archive with this pickle, and the bare pickle.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    if (tessera::as_text(bytes).starts_with("PK")) {
      look_at(tessera::parse_torch_archive(bytes, "f"));
    } else {
      const std::string archive = archive_around(tessera::as_text(bytes));
      try {
        look_at(tessera::parse_torch_archive(tessera::as_bytes(archive), "f"));
      } catch (const tessera::Error&) {
      }
      look_at(tessera::parse_torch_archive(bytes, "f"));
    }
  });
}
