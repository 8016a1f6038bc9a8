// Decoders: turn tokens back into text.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::tokens {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Turns tokens into parts of the text, to be joined. The parts of the last step may be bytes.
  virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
};

// Makes a decoder from an object of tokenizer.json ("type": "ByteLevel", "Replace", "ByteFallback", "Fuse",
// "Strip", "Metaspace", "WordPiece", "BPEDecoder", "Sequence"), or of our type "SentencePiece": "unknown"
// (the token's text), "unknown_surface", "strip_prefix", "strip_all" (leading blanks). Null for a JSON null.
std::unique_ptr<Decoder> make_decoder(const nlohmann::json& settings, const std::string& where);

}  // namespace tessera::tokens
