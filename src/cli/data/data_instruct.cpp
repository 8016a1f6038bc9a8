// `tessera data instruct DATA -o FILE`: conversations about images, made from their labels and boxes.
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/measure_options.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/tools/instruct.h"
#include "io/files/file.h"

namespace tessera::cli {
namespace {

struct DataInstructOptions {
  data::SourceConfig source;
  std::string output, split = "train";
  std::vector<std::string> kinds = {"conversation", "detail", "reasoning"};
  int64_t seed = 0, threads = 0;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("data", source.path, {.argument = "DATA", .required = true},
      "images with boxes, classes or captions: COCO, a folder, shapes:…");
    v("output", output, {.names = "-o", .required = true, .writes = Writes::file},
      "file to write: .jsonl or .json");
    visit_validation(v, source);
    v("split", split, {.choices = {"train", "validation"}}, "split of the set");
    v("kinds", kinds, "kinds of response; also question: those of the set");
    v("seed", seed, "seed of the questions");
    v("threads", threads, between(0, 1024), "threads, 0 = OMP_NUM_THREADS or all cores");
    visit_json(v, json);
  }
};

// The requested kinds of conversations about a set's images.
struct Instructions {
  std::vector<bool> kinds = std::vector<bool>(names_of<data::ResponseKind>().size());  // the requested ones
  std::vector<std::string> lines = {}, broken = {};
  std::vector<int64_t> counts = std::vector<int64_t>(kinds.size());  // by kind
  int64_t without = 0;                                               // images without a conversation

  // Adds those of `count` images from index `first` on.
  void add(const data::Source& source, int64_t first, int64_t count, uint64_t seed) {
    std::vector<std::vector<data::Instruction>> made(static_cast<size_t>(count));
    std::vector<std::string> errors(made.size());
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) try {
          made[i] = data::instructions_of(source, first + static_cast<int64_t>(i), seed);
        } catch (const Error& error) {
          errors[i] = error.what();
        }
    });
    for (size_t i = 0; i < made.size(); ++i) {
      if (!errors[i].empty()) broken.push_back(errors[i]);
      without += errors[i].empty() && made[i].empty();
      for (const data::Instruction& one : made[i]) {
        if (!kinds[static_cast<size_t>(one.kind)]) continue;
        ++counts[static_cast<size_t>(one.kind)];
        lines.push_back(data::instruction_line(one, std::ssize(lines)));
      }
    }
  }
};

void print_counts(const DataInstructOptions& options, const Instructions& found, int64_t images) {
  std::vector<std::string> parts;
  nlohmann::ordered_json kinds;
  for (size_t kind = 0; kind < found.counts.size(); ++kind)
    if (found.kinds[kind]) {
      const std::string name(name_of(static_cast<data::ResponseKind>(kind)));
      parts.push_back(text(found.counts[kind], " ", name));
      kinds[name] = found.counts[kind];
    }
  people(options.json) << one_line(options.output) << ": " << counted(std::ssize(found.lines), "conversation")
                       << " about " << counted(images, "image") << " (" << join(parts, ", ") << ")\n";
  print_outcome(options.json, {{"output", options.output},
                               {"conversations", found.lines.size()},
                               {"images", images},
                               {"kinds", kinds}});
}

void instruct(const DataInstructOptions& options) {
  set_num_threads(static_cast<int>(options.threads));
  if (!options.output.ends_with(".jsonl") && !options.output.ends_with(".json"))
    fail_usage("'", options.output, "': the name must end in .jsonl or .json");
  require_folder_of(options.output);
  Instructions found;
  for (const std::string& kind : options.kinds)
    found.kinds[static_cast<size_t>(parse_enum<data::ResponseKind>(kind, "--kinds"))] = true;
  const auto source = data::open_source(
      options.source, options.split == "train" ? data::Split::train : data::Split::validation);
  data::require_something_to_say(*source);
  const Interruptible stretch;
  ProgressLine progress(std::cerr, {.label = "instruct", .total = source->size()});
  constexpr int64_t kPiece = 1024;  // images between two checks for interrupts
  for (int64_t first = 0; first < source->size(); first += kPiece) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const int64_t count = std::min(kPiece, source->size() - first);
    found.add(*source, first, count, static_cast<uint64_t>(options.seed));
    progress.update(first + count, {});
  }
  progress.finish();
  const std::vector<std::string>&lines = found.lines, &broken = found.broken;
  if (!broken.empty()) fail(broken[0], broken.size() > 1 ? text(" (and ", broken.size() - 1, " more)") : "");
  if (lines.empty()) fail(source->describe(), ": no image has anything to describe");
  const bool array = options.output.ends_with(".json");
  write_text_atomic(options.output, array ? "[" + join(lines, ",\n") + "]\n" : join(lines, "\n") + "\n");
  print_counts(options, found, source->size() - found.without);
}

}  // namespace

void add_data_instruct(Arguments& command, Action& action) {
  action = with_options<DataInstructOptions>(command, instruct);
}

}  // namespace tessera::cli
