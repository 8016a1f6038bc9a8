// `tessera chat --weights FOLDER`: a conversation with a language model, which may be about images.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "answer/chat.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "io/files/file.h"
#include "open/device.h"

namespace tessera::cli {
namespace {

constexpr uint64_t kLongestQuestion = uint64_t{4} << 20;  // bytes

struct ChatOptions : answer::ChatOptions {
  answer::ChatSource model;
  std::optional<std::string> prompt;
  std::vector<std::string> images;
  int64_t threads = 0;
  bool json = false;

  template <class V>
  void visit(V& v) {
    train::LanguageSource& source = model.source;
    v("weights", source.weights, {.names = "-w", .required = true},
      "run of task language, instruct, frozen or flamingo; folder with config.json, weights and tokeniser of "
      "a published language model; or OpenFlamingo's checkpoint.pt");
    v("language", source.language, "OpenFlamingo: folder of its language model");
    v("tower", source.tower, "OpenFlamingo: weights of its image tower, CLIP's");
    v("key", source.key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("adapter", model.adapter, "folder with an adapter of the library PEFT (LoRA)");
    v("merge", model.merge, "merge the adapter into the weights instead of adding it at each token");
    v("image", images, "images of the conversation");
    v("prompt", prompt, "one question (default: a conversation, line by line)");
    v("tokenizer", source.tokenizer, "tokeniser (default: the folder's)");
    answer::ChatOptions::visit(v);
    v("precision", model.precision, "fp32, bf16 or int8");
    v("threads", threads, between(0, 1024), "compute threads, 0 = OMP_NUM_THREADS or all cores");
    v("json", json, "one JSON object for each answer");
  }
};

// Makes an answer safe for a terminal: control characters except line ends and tabs are printed as numbers.
std::string harmless(std::string_view said) {
  std::string out;
  size_t begin = 0;
  for (size_t i = 0; i <= said.size(); ++i) {
    if (i < said.size() && said[i] != '\n' && said[i] != '\t') continue;
    out += printable(said.substr(begin, i - begin), said.size());
    if (i < said.size()) out += said[i];
    begin = i + 1;
  }
  return out;
}

void print_json(const std::string& question, const answer::WrittenText& answer) {
  nlohmann::ordered_json line = {{"prompt", question}};
  line.update(answer::json_of(answer));
  std::cout << json_text(line) << std::endl;
}

void chat(const ChatOptions& options) {
  options.check();
  if (options.prompt && trim(*options.prompt).empty()) fail_usage("--prompt is empty, must be a question");
  train::use_threads(options.threads);
  return_freed_memory(256 << 10);  // a weight goes back to the system once it is packed
  const train::OpenedLanguage opened = answer::open_chat_model(options.model, options.chat);
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  keep_freed_memory();
  const answer::ChatScope scope(options.model.precision);
  const data::ImageFiles files(options.images);
  answer::Conversation conversation(options, opened,
                                    answer::chat_images(opened, options.model.precision, files.size(),
                                                        [&](int64_t index) { return files.read(index); }));
  const auto show = [](std::string_view piece) { std::cout << harmless(piece) << std::flush; };
  struct ForgetsInterrupts {  // a signal ends the answer, not the conversation
    ~ForgetsInterrupts() { forget_interrupts(); }
  };
  const auto ask = [&](const std::string& question) {
    const ForgetsInterrupts afterwards;
    const Interruptible until_a_signal;
    const answer::WrittenText answer = conversation.answer(
        question, {.stopped = interrupted, .show = options.json ? answer::ChatWatch().show : show});
    if (options.json)
      print_json(question, answer);
    else
      std::cout << std::endl;
    return std::string_view(answer.end) != "interrupted";
  };
  if (options.prompt) {
    if (!ask(*options.prompt)) throw Error(ErrorKind::interrupted, "interrupted");
    return;
  }
  std::string line;
  int64_t failed = 0;
  while (true) {
    if (!options.json) std::cout << "> " << std::flush;
    try {
      if (!read_line(std::cin, line, "the question", kLongestQuestion)) break;
      if (!trim(line).empty()) ask(line);
    } catch (const Error& error) {  // the next question may be valid
      std::cerr << "tessera: " << one_line(error.what()) << "\n";
      ++failed;
    }
  }
  if (!options.json) std::cout << "\n";
  if (failed > 0 && !isatty(STDIN_FILENO)) fail(counted(failed, "question"), " had no answer");
}

}  // namespace

void add_chat(Arguments& command, Action& action) { action = with_options<ChatOptions>(command, chat); }

}  // namespace tessera::cli
