#include "core/text.h"
#include "fuzz/fuzz.h"
#include "io/files/file.h"
#include "text/tokeniser.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tessera::fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    const tessera::Tokeniser tokeniser = tessera::Tokeniser::from_bytes(bytes, "f");
    // A parsed tokeniser works, also on its own bytes, and survives serialisation.
    for (const std::string_view text :
         {std::string_view("a photo of\ta  Cat's 12é漢😀</s>"), tessera::as_text(bytes).substr(0, 256)}) {
      if (!tessera::is_utf8(text)) continue;
      const auto ids = tokeniser.encode(text);
      if (!tessera::is_utf8(tokeniser.decode(ids))) std::abort();
      tessera::StreamDecoder stream(tokeniser);
      for (const int32_t id : ids)
        if (!tessera::is_utf8(stream.push(id))) std::abort();
    }
    if (tessera::Tokeniser::from_definition(tokeniser.definition(), "g").size() != tokeniser.size())
      std::abort();
  });
}
