// How tokens become text again.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::tokens {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Tokens to parts of the text, which are then joined; the parts of the last step may be bytes.
  virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
};

// From an object of tokenizer.json ("type": "ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace",
// "WordPiece", "BPEDecoder", "Sequence"), or of ours, "SentencePiece": "unknown" (the token's text),
// "unknown_surface", "strip_prefix" and "strip_all" (blanks in front). Null for a JSON null.
std::unique_ptr<Decoder> make_decoder(const nlohmann::json& settings, const std::string& where);

}  // namespace tessera::tokens
