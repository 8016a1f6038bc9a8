// `tessera tokens TEXT`: the tokens of a text. `tessera tokens train FILES`: trains a tokeniser.
#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "text/bpe_trainer.h"
#include "text/tokeniser.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLongestText = uint64_t{16} << 20;  // limit in bytes, for which 2 GB of memory are enough

struct ShowOptions {
  std::string text, tokenizer, file, decode;
  bool no_special = false, json = false;

  template <class V>
  void visit(V& v) {
    v("text", text, {.argument = "TEXT"}, "a text");
    v("tokenizer", tokenizer, {.required = true},
      "tokenizer.json, vocab.json or merges.txt, tokenizer.model, CLIP's list of merges, a folder with one, "
      "or weights or a run with one");
    v("file", file, "read the text from this file");
    v("decode", decode, "decode these numbers, \"320 1125\"");
    v("no_special", no_special, "without the tokens of begin and end");
    v("json", json, "one JSON object");
  }
};

// Parses the numbers in "320 1125" or "320,1125".
std::vector<int32_t> read_ids(std::string list) {
  std::replace(list.begin(), list.end(), ',', ' ');
  std::vector<int32_t> ids;
  for (const std::string& word : split(list, ' ')) {
    if (word.empty()) continue;
    const auto id = parse_int(word);
    if (!id || *id < 0 || *id > INT32_MAX)
      fail_usage("--decode: '", printable(word), "' is not the number of a token");
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

// Prints piece by piece, so that a long text does not need a tree of all its tokens.
void print_json(const Tokeniser& tokeniser, const Encoding& encoding) {
  const auto list = [&](const char* before, const auto& item) {
    constexpr size_t kPiece = 4096;
    std::cout << before;
    for (size_t first = 0; first < encoding.ids.size(); first += kPiece) {
      Json piece = Json::array();
      for (size_t i = first; i < std::min(first + kPiece, encoding.ids.size()); ++i) piece.push_back(item(i));
      const std::string printed = json_text(piece);
      std::cout << (first > 0 ? "," : "") << std::string_view(printed).substr(1, printed.size() - 2);
    }
  };
  list("{\"ids\":[", [&](size_t i) { return Json(encoding.ids[i]); });
  list("],\"tokens\":[", [&](size_t i) { return Json(tokeniser.token(encoding.ids[i])); });
  list("],\"offsets\":[", [&](size_t i) {
    return Json({encoding.offsets[i].start, encoding.offsets[i].end});
  });
  std::cout << "],\"size\":" << tokeniser.size() << "}\n";
}

void show(const ShowOptions& options) {
  const Tokeniser tokeniser = Tokeniser::load(options.tokenizer);
  if (!options.decode.empty()) {
    const std::string text = tokeniser.decode(read_ids(options.decode), /*skip_special=*/false) + "\n";
    if (isatty(STDOUT_FILENO))
      std::cout << text;
    else  // the very text
      std::ostream(unfiltered(std::cout)) << text << std::flush;
    return;
  }
  if (options.text.empty() == options.file.empty()) fail_usage("give either TEXT or --file");
  const std::string text = options.file.empty() ? options.text : read_text(options.file, kLongestText);
  const Encoding encoding = encode_as_stored(tokeniser, text, !options.no_special);
  if (options.json) return print_json(tokeniser, encoding);
  for (size_t i = 0; i < encoding.ids.size(); ++i)
    std::cout << std::setw(8) << encoding.ids[i] << std::setw(8) << encoding.offsets[i].start << std::setw(8)
              << encoding.offsets[i].end << "  " << one_line(tokeniser.token(encoding.ids[i])) << "\n";
  std::cout << counted(std::ssize(encoding.ids), "token") << " (" << tokeniser.kind() << " of "
            << tokeniser.size() << ")\n";
}

struct TokenTrainingOptions {
  std::vector<std::string> files, special = {"<|endoftext|>"};
  std::string output;
  int64_t size = 8192, least = 2;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("files", files, {.argument = "FILES", .required = true}, "texts, UTF-8");
    v("output", output, {.names = "-o", .required = true, .writes = Writes::file},
      "the tokenizer.json to write");
    v("size", size, between(257, 1 << 20), "size of the vocabulary");
    v("least", least, between(1, 1 << 20), "least occurrences of a merged pair");
    v("special", special, "tokens that are never split");
    visit_json(v, json);
  }
};

void train_tokeniser(const TokenTrainingOptions& options) {
  BpeTrainer trainer({.vocabulary = options.size, .least = options.least, .special = options.special});
  for (const std::string& file : options.files) {
    const std::string text = read_text(file, uint64_t{1} << 30);
    if (!is_utf8(text)) fail(file, " is not UTF-8 text");
    trainer.add(text);
  }
  const Interruptible until_a_signal;
  const std::string definition = trainer.learn([](int64_t) { return !interrupted(); });
  const Tokeniser tokeniser = Tokeniser::from_definition(definition, options.output);
  write_text_atomic(options.output, definition);
  std::ostream& out = people(options.json);
  out << options.output << ": " << tokeniser.size() << " tokens";
  if (tokeniser.size() < options.size)
    out << " (" << options.size << " were requested: no further pair occurs " << options.least << " times)";
  out << "\n";
  print_outcome(options.json, {{"output", options.output},
                               {"tokens", tokeniser.size()},
                               {"requested", options.size},
                               {"files", options.files.size()}});
}

}  // namespace

void add_tokens_show(Arguments& command, Action& action) {
  action = with_options<ShowOptions>(command, show);
}

void add_tokens_train(Arguments& command, Action& action) {
  action = with_options<TokenTrainingOptions>(command, train_tokeniser);
}

}  // namespace tessera::cli
