#include "data/tools/instruct.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/base/objects.h"
#include "data/base/questions.h"
#include "data/sources/conversations.h"

namespace tessera::data {
namespace {

constexpr size_t kMostObjects = 8;  // described individually
constexpr const char* kAsksForDetail[] = {
    "Describe the image in detail.", "What is in this image, and where?",
    "Give a detailed description of the image.", "Describe everything that you see in this image."};

struct Thing {
  std::string name;                    // its class
  double x = 0.5, y = 0.5, share = 0;  // centre and area, relative to the image
};

// All annotations of a sample, and the set's classes.
struct Facts {
  std::vector<Thing> things;         // objects, largest first
  std::vector<std::string> classes;  // the image as a whole
  std::vector<std::string> captions;
  std::vector<std::string> known;  // all classes of the set
};

std::string with_article(const std::string& name) {
  const bool vowel = !name.empty() && std::string_view("aeiouAEIOU").find(name[0]) != std::string_view::npos;
  return (vowel ? "an " : "a ") + name;
}

std::string plural(const std::string& name) {
  static const std::map<std::string, std::string> irregular = {
      {"person", "people"},     {"man", "men"},     {"woman", "women"},   {"child", "children"},
      {"mouse", "mice"},        {"sheep", "sheep"}, {"knife", "knives"},  {"fish", "fish"},
      {"scissors", "scissors"}, {"skis", "skis"},   {"nucleus", "nuclei"}};
  if (const auto found = irregular.find(name); found != irregular.end()) return found->second;
  for (const char* ending : {"s", "x", "ch", "sh"})
    if (name.ends_with(ending)) return name + "es";
  const bool consonant_y = name.size() > 1 && name.back() == 'y' &&
                           std::string_view("aeiou").find(name[name.size() - 2]) == std::string_view::npos;
  return consonant_y ? name.substr(0, name.size() - 1) + "ies" : name + "s";
}

std::string number_word(int64_t count) {
  static constexpr const char* words[] = {"no",  "one",   "two",   "three", "four", "five",
                                          "six", "seven", "eight", "nine",  "ten"};
  return count < std::ssize(words) ? words[count] : std::to_string(count);
}

std::string counted_things(int64_t count, const std::string& name) {
  return count == 1 ? with_article(name) : number_word(count) + " " + plural(name);
}

// Returns "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& parts) {
  if (parts.size() < 2) return parts.empty() ? "" : parts[0];
  return join({parts.begin(), parts.end() - 1}, ", ") + " and " + parts.back();
}

std::string place_of(const Thing& thing) {
  const auto third = [](double at, const char* low, const char* high) {
    return at < 1.0 / 3 ? low : at > 2.0 / 3 ? high : "";
  };
  const std::string row = third(thing.y, "top", "bottom"), column = third(thing.x, "left", "right");
  if (row.empty() && column.empty()) return "in the middle";
  return row.empty() ? "on the " + column : "at the " + row + (column.empty() ? "" : " ") + column;
}

std::string percent_of(double share) {
  const auto percent = static_cast<int64_t>(std::lround(100 * share));
  return percent < 1 ? "less than 1 %" : text(percent, " %");
}

std::string sentence(std::string words) {
  if (!words.empty() && words[0] >= 'a' && words[0] <= 'z')
    words[0] = static_cast<char>(words[0] - 'a' + 'A');
  const bool ends = !words.empty() && std::string_view(".!?").find(words.back()) != std::string_view::npos;
  return ends ? words : words + ".";
}

// Counts the objects of each class; classes are in the order of their largest object.
std::vector<std::pair<std::string, int64_t>> counts_of(const std::vector<Thing>& things) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const Thing& thing : things) {
    const auto found = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& known) { return known.first == thing.name; });
    if (found == counts.end())
      counts.emplace_back(thing.name, 1);
    else
      ++found->second;
  }
  return counts;
}

Facts facts_of(const Source& source, int64_t index, const RawSample& sample) {
  Facts facts;
  for (const std::string& caption : sample.annotation.captions)
    if (!trim(caption).empty()) facts.captions.emplace_back(trim(caption));
  if (const ClassLabels* labels = source.class_labels()) {
    facts.known = labels->class_names();
    for (const int64_t label : labels->labels(index))
      facts.classes.push_back(facts.known[static_cast<size_t>(label)]);
  }
  const ObjectLabels* objects = object_labels(source);
  if (!objects) return facts;
  facts.known = objects->object_classes();
  const SeenObjects seen = objects->seen(index, {});
  Extent extent = seen.extent;
  if (extent.width < 1 || extent.height < 1) {
    const Image image = decode_sample(sample);
    extent.width = image.width, extent.height = image.height;
  }
  const auto width = static_cast<double>(extent.width), height = static_cast<double>(extent.height);
  for (const ObjectAnnotation& object : seen.objects) {
    if (object.crowd) continue;
    const Instance& box = object.box;
    facts.things.push_back({facts.known[static_cast<size_t>(box.label)], (box.left + box.right) / 2 / width,
                            (box.top + box.bottom) / 2 / height,
                            (box.right - box.left) * (box.bottom - box.top) / (width * height)});
  }
  std::stable_sort(facts.things.begin(), facts.things.end(),
                   [](const Thing& a, const Thing& b) { return a.share > b.share; });
  return facts;
}

template <class Items>
const auto& drawn(const Items& items, RandomStream& random) {
  return items[random.below(std::size(items))];
}

// Draws a class of the set that the image lacks; "" if the image has all.
std::string absent_class(const Facts& facts, RandomStream& random) {
  std::vector<std::string> absent;
  for (const std::string& name : facts.known) {
    const bool there = std::find(facts.classes.begin(), facts.classes.end(), name) != facts.classes.end() ||
                       std::any_of(facts.things.begin(), facts.things.end(),
                                   [&](const Thing& thing) { return thing.name == name; });
    if (!there) absent.push_back(name);
  }
  return absent.empty() ? "" : drawn(absent, random);
}

std::string inventory(const Facts& facts) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts_of(facts.things)) parts.push_back(counted_things(count, name));
  return listed(parts);
}

void ask_about_objects(const Facts& facts, RandomStream& random, std::vector<std::string>& turns) {
  const auto say = [&](const std::string& question, const std::string& answer) {
    turns.push_back(question), turns.push_back(answer);
  };
  const auto counts = counts_of(facts.things);
  say("What objects are in the image?", sentence("the image shows " + inventory(facts)));
  const auto& [name, count] = drawn(counts, random);
  say("How many " + plural(name) + " are there?",
      count == 1 ? "There is one " + name + "."
                 : "There are " + number_word(count) + " " + plural(name) + ".");
  const Thing& largest =
      *std::find_if(facts.things.begin(), facts.things.end(),
                    [&, &wanted = name](const Thing& thing) { return thing.name == wanted; });
  const std::string which = count == 1 ? "the " + name : "the largest " + name;
  say("Where is " + which + "?", sentence(which + " is " + place_of(largest)));
  std::vector<std::string> single;
  for (const auto& one : counts)
    if (one.second == 1) single.push_back(one.first);
  if (single.size() >= 2) {
    const auto order = random.permutation(std::ssize(single));
    const auto thing = [&](size_t i) {
      const std::string& wanted = single[static_cast<size_t>(order[i])];
      return *std::find_if(facts.things.begin(), facts.things.end(),
                           [&](const Thing& one) { return one.name == wanted; });
    };
    const Thing a = thing(0), b = thing(1);
    if (a.x != b.x)
      say("Which is further to the left, the " + a.name + " or the " + b.name + "?",
          "The " + (a.x < b.x ? a.name : b.name) + ".");
  }
}

std::vector<std::string> conversation(const Facts& facts, RandomStream& random) {
  std::vector<std::string> turns;
  if (!facts.things.empty()) {
    ask_about_objects(facts, random, turns);
  } else if (!facts.classes.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : facts.classes) names.push_back(with_article(name));
    turns = {"What does the image show?", sentence(listed(names))};
  } else if (!facts.captions.empty()) {
    turns = {"What does the image show?", sentence(drawn(facts.captions, random))};
  }
  const std::string absent = turns.empty() ? "" : absent_class(facts, random);
  std::vector<std::string> there = facts.classes;
  for (const Thing& thing : facts.things) there.push_back(thing.name);
  if (!there.empty() && (absent.empty() || random.chance(0.5))) {
    turns.push_back("Is there " + with_article(there[0]) + " in the image?");
    turns.push_back("Yes.");
  } else if (!absent.empty()) {
    turns.push_back("Is there " + with_article(absent) + " in the image?");
    turns.push_back("No, there is no " + absent + " in the image.");
  }
  return turns;
}

std::vector<std::string> detail(const Facts& facts, RandomStream& random) {
  std::string answer;
  const auto add = [&](const std::string& words) { answer += (answer.empty() ? "" : " ") + sentence(words); };
  for (const std::string& caption : facts.captions) add(caption);
  if (!facts.classes.empty() && facts.captions.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : facts.classes) names.push_back(with_article(name));
    add("the image shows " + listed(names));
  }
  if (!facts.things.empty()) {
    if (facts.things.size() > 1) add("there are " + inventory(facts));
    for (size_t i = 0; i < std::min(kMostObjects, facts.things.size()); ++i) {
      const Thing& thing = facts.things[i];
      const bool first = i == 0 && facts.things.size() > 1;
      add((first ? "the largest is " : "") + with_article(thing.name) + (first ? " " : " is ") +
          place_of(thing) + (first ? ", which takes up " : " and takes up ") + percent_of(thing.share) +
          " of the image");
    }
    if (facts.things.size() > kMostObjects)
      add(number_word(std::ssize(facts.things) - static_cast<int64_t>(kMostObjects)) + " more are smaller");
  }
  if (answer.empty()) return {};
  return {drawn(kAsksForDetail, random), answer};
}

// Compares the numbers of two kinds of things.
std::vector<std::string> comparison(const std::vector<std::pair<std::string, int64_t>>& counts,
                                    RandomStream& random) {
  const auto order = random.permutation(std::ssize(counts));
  const auto &a = counts[static_cast<size_t>(order[0])], &b = counts[static_cast<size_t>(order[1])];
  const std::string numbers =
      sentence("there " + std::string(a.second == 1 ? "is " : "are ") + counted_things(a.second, a.first) +
               " and " + counted_things(b.second, b.first));
  return {"Are there more " + plural(a.first) + " than " + plural(b.first) + "? Explain.",
          numbers + " So " +
              (a.second > b.second   ? "yes."
               : a.second < b.second ? "no."
                                     : "no, they are as many.")};
}

std::vector<std::string> reasoning(const Facts& facts, RandomStream& random) {
  std::vector<std::vector<std::string>> able;
  const auto counts = counts_of(facts.things);
  if (facts.things.size() >= 2) {
    const Thing& largest = facts.things[0];
    able.push_back({"Which object is probably nearest to the camera, and why?",
                    "Probably the " + largest.name + " " + place_of(largest) + ": it takes up " +
                        percent_of(largest.share) +
                        " of the image, more than any other, and what is near looks large."});
  }
  if (counts.size() >= 2) able.push_back(comparison(counts, random));
  if (facts.things.size() == 1) {
    const Thing& only = facts.things[0];
    constexpr double kLarge = 0.2;
    able.push_back({"Is the " + only.name + " what this image is about? Explain.",
                    only.share >= kLarge ? "Yes, most likely: it takes up " + percent_of(only.share) +
                                               " of the image, and nothing else is marked in it."
                                         : "Perhaps not: it takes up only " + percent_of(only.share) +
                                               " of the image, though nothing else is marked in it."});
  }
  const std::string other = facts.classes.size() == 1 ? absent_class(facts, random) : "";
  if (!other.empty())
    able.push_back({"Could this be " + with_article(other) + "? Explain.",
                    "No: it is " + with_article(facts.classes[0]) +
                        ", and an image of this set shows one of " + text(facts.known.size()) +
                        " classes only."});
  return able.empty() ? std::vector<std::string>() : drawn(able, random);
}

}  // namespace

std::vector<Instruction> instructions_of(const Source& source, int64_t index, uint64_t seed) {
  const RawSample sample = source.read(index);
  const Facts facts = facts_of(source, index, sample);
  std::vector<Instruction> made;
  const auto add = [&](ResponseKind kind, std::vector<std::string> turns) {
    if (turns.empty()) return;
    turns[0] = "<image>\n" + turns[0];
    made.push_back({conversation_image(sample.name), kind, std::move(turns)});
  };
  const auto write = [&](ResponseKind kind, const auto& make) {
    RandomStream random(seed, "instruct", static_cast<uint64_t>(index), static_cast<uint64_t>(kind));
    add(kind, make(facts, random));
  };
  write(ResponseKind::conversation, conversation);
  write(ResponseKind::detail, detail);
  write(ResponseKind::reasoning, reasoning);
  if (const ImageQuestions* asks = image_questions(source))
    for (int64_t i = 0; i < asks->questions_per_image(); ++i)
      add(ResponseKind::question, asks->ask(index, i).turns);
  return made;
}

std::string instruction_line(const Instruction& instruction, int64_t number) {
  nlohmann::ordered_json turns = nlohmann::ordered_json::array();
  for (size_t i = 0; i < instruction.turns.size(); ++i)
    turns.push_back({{"from", i % 2 == 0 ? "human" : "gpt"}, {"value", instruction.turns[i]}});
  const nlohmann::ordered_json line = {{"id", text(number)},
                                       {"image", instruction.image},
                                       {"conversations", turns},
                                       {"answer_type", name_of(instruction.kind)}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void require_something_to_say(const Source& source) {
  if (dynamic_cast<const Conversations*>(&source))
    fail_usage("data instruct makes conversations, ", source.describe(), " are some already");
  if (source.class_labels() || object_labels(source)) return;
  if (source.size() > 0 && !source.read(0).annotation.captions.empty()) return;
  fail_usage("data instruct needs classes, boxes or captions, which ", source.describe(), " does not have");
}

}  // namespace tessera::data
