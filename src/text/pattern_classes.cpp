#include "text/pattern.h"

#include <map>

namespace tessera::tokens {

using namespace std::string_view_literals;
using Set = Pattern::Set;

void add_letters(Set& set) {
  set.categories |= category_mask("L") | category_mask("M") | bit(Category::Nl);
  set.ranges.insert(set.ranges.end(),  // circled and squared letters
                    {{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}});
}

void add_word(Set& set) {
  add_letters(set);
  set.categories |= bit(Category::Nd) | bit(Category::Pc);
  set.ranges.insert(set.ranges.end(),
                    {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}});  // "²" and "½", but not "①"
}

// The scripts that tokenisers' expressions name (Unicode's Scripts.txt).
const std::vector<Set::Range>* script_ranges(std::string_view name) {
  static const std::map<std::string_view, std::vector<Set::Range>> scripts = {
      {"Han",
       {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
        {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
        {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
        {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
        {0x30000, 0x3134A}, {0x31350, 0x323AF}}},
      {"Hiragana",
       {{0x3041, 0x3096},
        {0x309D, 0x309F},
        {0x1B001, 0x1B11F},
        {0x1B132, 0x1B132},
        {0x1B150, 0x1B152},
        {0x1F200, 0x1F200}}},
      {"Katakana",
       {{0x30A1, 0x30FA},
        {0x30FD, 0x30FF},
        {0x31F0, 0x31FF},
        {0x32D0, 0x32FE},
        {0x3300, 0x3357},
        {0xFF66, 0xFF6F},
        {0xFF71, 0xFF9D},
        {0x1AFF0, 0x1AFF3},
        {0x1AFF5, 0x1AFFB},
        {0x1AFFD, 0x1AFFE},
        {0x1B000, 0x1B000},
        {0x1B120, 0x1B122},
        {0x1B155, 0x1B155},
        {0x1B164, 0x1B167}}},
      {"Hangul",
       {{0x1100, 0x11FF},
        {0x302E, 0x302F},
        {0x3131, 0x318E},
        {0x3200, 0x321E},
        {0x3260, 0x327E},
        {0xA960, 0xA97C},
        {0xAC00, 0xD7A3},
        {0xD7B0, 0xD7C6},
        {0xD7CB, 0xD7FB},
        {0xFFA0, 0xFFBE},
        {0xFFC2, 0xFFC7},
        {0xFFCA, 0xFFCF},
        {0xFFD2, 0xFFD7},
        {0xFFDA, 0xFFDC}}}};
  const auto found = scripts.find(name);
  return found == scripts.end() ? nullptr : &found->second;
}

void add_hex_digits(Set& set) {
  set.ranges.insert(set.ranges.end(), {{U'0', U'9'}, {U'A', U'F'}, {U'a', U'f'}});
}

bool add_posix(std::string_view name, Set& set) {
  if (name == "alpha" || name == "alnum") {
    add_letters(set);
    if (name == "alnum") set.categories |= bit(Category::Nd);
  } else if (name == "word") {
    add_word(set);
  } else if (name == "digit") {
    set.categories |= bit(Category::Nd);
  } else if (name == "xdigit") {
    add_hex_digits(set);
  } else if (name == "lower") {
    set.categories |= bit(Category::Ll);
  } else if (name == "upper") {
    set.categories |= bit(Category::Lu);
  } else if (name == "cntrl") {
    set.categories |= bit(Category::Cc);
  } else if (name == "space") {
    set.spaces = true;
  } else if (name == "blank") {
    set.categories |= bit(Category::Zs);
    set.ranges.push_back({U'\t', U'\t'});
  } else if (name == "punct") {
    set.categories |= category_mask("P");
    for (const char32_t c : U"$+<=>^`|~"sv) set.ranges.push_back({c, c});
  } else if (name == "ascii") {
    set.ranges.push_back({0, 127});
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera::tokens
