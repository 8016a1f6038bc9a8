#include "serve/v2.h"

#include "fuzz/fuzz.h"
#include "io/files/file.h"

// The first two bytes are the length of the JSON, 65535 for a body without binary tensors.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    if (bytes.size() < 2) return;
    const int length = static_cast<int>(bytes[0]) + 256 * static_cast<int>(bytes[1]);
    const std::string_view body = tessera::as_text(bytes.subspan(2));
    const auto read = tessera::serve::parse_v2(body, length == 65535 ? -1 : length);
    for (const tessera::answer::Array& input : read.request.inputs) {
      const auto count =
          static_cast<size_t>(tessera::answer::element_count(input.shape, int64_t{1} << 31, "f"));
      const size_t width = tessera::answer::size_of(input.type);
      if (width == 0 ? input.texts.size() != count : input.data.size() != width * count) std::abort();
    }
    // What was read is written as a reply, and the head of that is JSON.
    tessera::answer::Reply reply;
    reply.outputs = read.request.inputs;
    auto all = read;
    all.outputs.clear();
    const auto written = tessera::serve::write_v2("m", all, reply);
    const auto head = written.json_bytes < 0 ? written.body.size() : static_cast<size_t>(written.json_bytes);
    if (!nlohmann::json::accept(written.body.substr(0, head))) std::abort();
  });
}
