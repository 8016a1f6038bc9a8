// Splits English as the Penn Treebank does, with the rules of Stanford's PTBTokenizer that captions need. At
// each position the rule with the longest match applies, the first one on a tie.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/captioning.h"
#include "text/pattern.h"
#include "text/unicode.h"

namespace tessera::eval {
namespace {

using tokens::Pattern;

// The maximum length of a token, which keeps the cost of a hostile caption proportional to its length.
constexpr size_t kLongestToken = 256;

// How the characters are handled that a rule matched.
enum class Action {
  keep,
  drop,          // punctuation that the evaluation omits
  divide,        // two words: "cannot"
  apostrophe,    // the ending of a word; its apostrophe becomes a plain one
  escape,        // replaces blanks and brackets within a token
  currency,      // "£" as "#", "€" as "$"
  fraction,      // "½" as "1/2"
  ampersand,     // "&amp;" as "&"
  drop_if_short  // a run of hyphens, dropped as a dash if short
};

// An expression, the context required after it, and for `divide` the length of the first word.
struct Form {
  std::string expression, context;
  Action action = Action::keep;
  size_t first = 0;
};

std::vector<Form> word_forms() {
  const std::string letter = R"(\p{L}\p{M}\x{AD})", sign = R"(['\x{91}\x{92}\x{2018}\x{2019}\x{201B}])";
  const std::string plain_sign = R"(['\x{92}\x{2019}])", some = "[" + letter + R"(\p{Nd}])";
  const std::string word = "[" + letter + "]" + some + "*(?:[.!?][" + letter + "]" + some + "*)*";
  const std::string ending = plain_sign + "(?:[msdMSD]|(?i:re|ve|ll))", negation = "(?i:n)" + sign + "(?i:t)";
  const std::string thing =
      "(?:[dDoOlL]" + sign + R"(\p{L})?)" + some + R"(+(?:[-_\x{58A}\x{2010}\x{2011}])" + some + "+)*";
  const std::string initials = R"([A-Za-z](?:\.[A-Za-z])*)";
  return {
      {"(?i:cannot)", "", Action::divide, 3},
      {"(?i:gonna|gotta|lemme|gimme|wanna)", "", Action::divide, 3},
      {plain_sign + "(?i:tis|twas)", "", Action::divide, 2},
      {word, ending},
      {R"([A-Za-z\x{AD}]*(?![nN])[A-Za-z]\x{AD}*)", negation},
      {word, ""},
      {plain_sign + "(?i:n)" + plain_sign + "?|" + plain_sign + "(?i:em|till?|cause)|" + plain_sign +
           "[2-9]0(?i:s)",
       ""},
      {"(?i:dunkin|ol|somethin)" + plain_sign + "|[lLdDjJ]" + plain_sign, ""},
      {R"((?![IY])[A-Z])" + sign + R"(\p{L}{2,})", ""},  // names such as K'Nex, but not I'll or Y'all
      // Between a vowel and another vowel or a capital: Hawai'i, ma'am.
      {R"(\p{L}+(?=[AEIOUYaeiouy])\p{L})" + sign + R"((?=[A-Zaeiou])\p{L}+)", ""},
      {"(?i:c'mon|d'ye|e'er|ev'ry|li'l|nat'l|nor'easter|s'mores)", ""},
      {"(?i:y)" + sign, R"(\p{L})"},
      {ending, "[^A-Za-z]", Action::apostrophe},
      {negation, "[^A-Za-z]", Action::apostrophe},
      {R"([A-Za-z0-9]+(?:-[A-Za-z]+){0,2}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}){1,2})", ""},
      {thing, ""},
      {R"([A-Za-z0-9][A-Za-z0-9.,\x{AD}]*(?:-(?:)" + initials + R"(\.|[A-Za-z0-9\x{AD}]+))+)",
       "[^a-zA-Z0-9.+]"},
      {R"([A-Z]+(?:(?:[+&]|(?i:&amp;))[A-Z]+)+)", "", Action::ampersand},
      {"'", R"([A-Za-z][^ \t\n\r\x{A0}])", Action::drop},
      {ending + "|" + negation, "", Action::apostrophe},
      {R"((?i:c)\+\+|(?i:[cf])#)", ""},
  };
}

// Words that keep their full stop, in upper or lower case.
constexpr std::array<std::string_view, 140> kAbbreviations = {
    "adj",  "adm",    "adv",     "al",    "ala",   "apr",  "ariz", "assn",  "assoc", "asst", "atty", "attys",
    "aug",  "ave",    "bancorp", "bhd",   "bldg",  "blvd", "brig", "bros",  "calif", "capt", "cf",   "cie",
    "cmdr", "co",     "col",     "colo",  "comdr", "conn", "corp", "cos",   "cpl",   "dak",  "dec",  "del",
    "dept", "det",    "dr",      "drs",   "elec",  "ens",  "esq",  "est",   "etc",   "ext",  "feb",  "fla",
    "fri",  "ft",     "ga",      "gen",   "gov",   "govs", "hon",  "inc",   "ind",   "insp", "intl", "invt",
    "jan",  "jos",    "jr",      "jul",   "jun",   "kan",  "kans", "ky",    "lieut", "lt",   "ltd",  "maj",
    "mar",  "messrs", "mfg",     "mich",  "minn",  "mlle", "mme",  "mo",    "mon",   "mont", "mr",   "mrs",
    "ms",   "msgr",   "mt",      "mtg",   "natl",  "nev",  "nov",  "oct",   "okla",  "penn", "pfc",  "ph",
    "plc",  "pres",   "prof",    "profs", "pte",   "pty",  "ptys", "pvt",   "rd",    "rep",  "reps", "rev",
    "rt",   "sen",    "sens",    "sep",   "sept",  "seq",  "sfc",  "sgt",   "spc",   "sq",   "sr",   "st",
    "ste",  "supt",   "supts",   "sys",   "tel",   "tenn", "thu",  "thurs", "tue",   "tues", "univ", "va",
    "vs",   "vt",     "wash",    "wed",   "wis",   "wisc", "wm",   "wyo"};
// Abbreviations only if capitalised; in lower case they are ordinary words.
constexpr std::string_view kStates = "Ark|Ill|Mass|Miss|Neb|Ore|Pa|Tex";

std::vector<Form> abbreviation_forms() {
  std::string any;
  for (const std::string_view word : kAbbreviations) any.append(any.empty() ? "" : "|").append(word);
  return {
      {R"((?:(?i:(?:ed|ph)\.d|)" + any + ")|" + std::string(kStates) + R"()\.)", ""},
      {R"([A-Za-z](?:\.[A-Za-z])*\.|(?i:(?:canada|eu|japan|korean|non|sino)-u\.s)\.)", ""},
      {R"((?i:arts?|bldg|ca|figs?|nos?|op|pp|prop|sect?s)\.)", R"([ \x{A0}\n]?\p{Nd})"},
      {R"([\p{L}\p{M}\x{AD}][\p{L}\p{M}\x{AD}\p{Nd}]*(?:[-_.!?][\p{L}\p{M}\x{AD}\p{Nd}]+)*\.)",
       R"([,;:\x{3001}])"},
  };
}

std::vector<Form> number_and_address_forms() {
  const std::string day = R"(\p{Nd}{1,2}[-/]\p{Nd}{1,2}[-/]\p{Nd}{2,4})";
  const std::string url_end = R"([^ \t\n\f\r"<>|.!?(){},-])";
  const std::string file_type =
      "(?i:bmp|class|cpp|docx?|exe|gif|html?|java|jpe?g|mov|mp3|pdf|php|png|pptx?|txt|wav|xml|zip)";
  const std::string area =
      R"(\([0-9]{2,3}\)[ \x{A0}]?|(?:\+\+?)?(?:[0-9]{2,4}[- \x{A0}])?[0-9]{2,4}[- \x{A0}])";
  const std::string raised = R"([\x{2070}\x{B9}\x{B2}\x{B3}\x{2074}-\x{2079}]+)";
  const std::string path = R"((?:/[^ \t\n\f\r"<>|()]+)" + url_end + ")?";
  return {
      {"(?i:https?)://[^ \\t\\n\\f\\r\"<>|()]+" + url_end, ""},
      {R"((?i:www)\.(?:[^ \t\n\f\r"<>|.!?(){},]+\.)+[a-zA-Z]{2,4})" + path, ""},
      {R"((?:[^ \t\n\f\r"`'<>|.!?(){},\-_$]+\.)+(?i:com|net|org|edu))" + path, ""},
      {R"([a-zA-Z0-9][^ \t\n\f\r"<>|()\x{A0}]*@(?:[^ \t\n\f\r"<>|().\x{A0}]+\.)*[^ \t\n\f\r"<>|().\x{A0}]+)",
       ""},
      {R"(@[a-zA-Z_][a-zA-Z_0-9]*|#[\p{L}_][\p{L}\p{M}\p{Nd}_]*)", ""},
      {R"([\p{L}\p{M}\p{Nd}]+(?:[.-][\p{L}\p{M}\p{Nd}]+)*\.)" + file_type, R"([ \t\n.?!,])"},
      {day, ""},
      {R"([-+]?(?:\p{Nd}*(?:[.:,\x{AD}]\p{Nd}+)+|\p{Nd}+))", ""},
      {R"([\x{207A}\x{207B}\x{208A}\x{208B}]?(?:)" + raised + R"(|[\x{2080}-\x{2089}]+))", ""},
      {R"((?:\p{Nd}{1,4}[- \x{A0}])?\p{Nd}{1,4}\\?/\p{Nd}{1,4})", "", Action::escape},
      {R"([\x{BC}-\x{BE}\x{2153}-\x{215E}])", "", Action::fraction},
      {R"([A-Z]*\$|[\x{A2}-\x{A5}\x{20A0}-\x{20AC}\x{60B}\x{E3F}\x{FFE0}\x{FFE1}\x{FFE5}\x{FFE6}])", "",
       Action::currency},
      {"(?:" + area + R"()[0-9]{3,4}[- \x{A0}]?[0-9]{3,5})", "", Action::escape},
      {R"(['\x{92}\x{2019}][0-9][0-9])", R"([ \t\n])"},
  };
}

std::vector<Form> sign_forms() {
  const std::string name = "[A-Za-z][A-Za-z0-9:.-]*";
  const std::string attribute = name + R"( *= *['"][^\r\n'"]*['"]|)" + name;
  const std::string tag = "/?" + name + "(?: +(?:" + attribute + "))* */?";
  return {
      {R"(<(?:[!?][A-Za-z-][^>\r\n]*|)" + tag + ") *>", "", Action::escape},
      {R"(&(?i:mdash|ndash|md);|[\x{96}\x{97}\x{2013}-\x{2015}])", "", Action::drop},
      {"(?i:&amp;)", "", Action::ampersand},
      {"&#[0-9]+;", ""},
      {"(?i:&lt;)|(?i:&gt;)", "", Action::ampersand},
      {R"((?i:&quot;|&apos;|&nbsp;)|["'`\x{2018}-\x{201D}\x{201F}\x{91}-\x{94}\x{2039}\x{203A}\x{AB}\x{BB}])",
       "", Action::drop},
      {R"([<>]?[:=;][-'*o]?[()\[\]\\{|@DOPdp])", "[^A-Za-z0-9]", Action::escape},      // eyes, nose, mouth
      {R"([-'<=>^x~]_[-'<=>^x~]|\([-'<=>^x~][._]?[-'<=>^x~]\))", "", Action::escape},  // upright: ^_^
      {R"([()\[\]{}])", "", Action::escape},
      {"-+", "", Action::drop_if_short},
      {R"(\.{3,5}|(?:\.[ \x{A0}]){2,4}\.|[\x{85}\x{2026}.,;:\x{3001}])", "", Action::drop},
      {R"([?!]+|@+|#+|_+|\*+|<<|>>|[<>=/\x{A1}\x{BF}\x{37E}\x{589}\x{61F}\x{6D4}\x{3002}\x{201E}])", ""},
      {R"([+%&~\^|\\\x{A6}-\x{A9}\x{AC}\x{AE}-\x{B1}\x{B4}-\x{B8}\x{D7}\x{F7}\x{387}\x{60C}\x{61B}\x{964}\x{965}])",
       ""},
      {R"([\x{2016}\x{2017}\x{2020}-\x{2023}\x{2030}-\x{2038}\x{203B}\x{203E}-\x{2042}\x{2044}\x{2100}-\x{214F}])",
       ""},
      {R"([\x{2190}-\x{2BFF}\x{3012}\x{30FB}\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF20}\x{FF3B}-\x{FF40}\x{FF5B}-\x{FF65}])",
       ""},
  };
}

struct Rule {
  Pattern pattern;
  std::optional<Pattern> context;
  Action action;
  size_t first;
};

const std::vector<Rule>& rules() {
  static const auto all = [] {
    std::vector<Rule> out;
    for (const auto& forms : {word_forms(), number_and_address_forms(), abbreviation_forms(), sign_forms()})
      for (const Form& form : forms) {
        const bool alone = form.context.empty();
        const std::string whole =
            alone ? form.expression : "(?:" + form.expression + ")(?=" + form.context + ")";
        out.push_back({Pattern(whole, "a caption's rule"), std::nullopt, form.action, form.first});
        if (!alone) out.back().context = Pattern(form.context, "a caption's rule");
      }
    return out;
  }();
  return all;
}

// Returns the caption with a line end appended. Characters unknown to Java's tokeniser, such as pictograms,
// end words but are not tokens: they become U+FFFF, which no rule matches.
std::u32string prepared(std::string_view caption) {
  constexpr char32_t kUnknown = 0xFFFF;
  std::u32string out;
  for (const char32_t c : tokens::to_code_points_lossy(caption)) {
    const bool unknown = c > 0xFFFF || c == 0xFFFD || c == 0xFEFF || (c >= 0xFE00 && c <= 0xFE0F) ||
                         (c < 0x20 && !tokens::is_space(c));
    const bool blank = tokens::is_space(c) || c == 0x200B;
    out += unknown ? kUnknown : blank && c != 0x85 && c != 0xA0 ? U' ' : c;
  }
  return out + U'\n';
}

class Cutter {
 public:
  explicit Cutter(std::string_view caption) : text_(prepared(caption)) {}

  // Returns the words in lower case, joined by blanks.
  std::string cut() {
    while (at_ < text_.size()) {
      if (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == 0xA0)
        ++at_;
      else if (!take_plain_word())
        take();
    }
    return std::move(out_);
  }

 private:
  void put(std::u32string word) {
    static constexpr std::array<std::u32string_view, 10> kDropped = {U"''", U"'", U"`", U".", U"?",
                                                                     U"!",  U",", U":", U"-", U";"};
    std::erase(word, char32_t{0xAD});
    if (word.empty() || std::find(kDropped.begin(), kDropped.end(), word) != kDropped.end()) return;
    if (!out_.empty()) out_ += ' ';
    out_ += tokens::to_utf8(tokens::lower(word));
  }

  // Fast path for the common case, a word of ASCII letters before a blank; only the `divide` rules would
  // treat it differently.
  bool take_plain_word() {
    size_t end = at_;
    while (end < at_ + kLongestToken && end < text_.size() && text_[end] < 0x80 && is_letter(text_[end]))
      ++end;
    if (end == at_ || (text_[end] != ' ' && text_[end] != '\n')) return false;
    const std::u32string word = text_.substr(at_, end - at_);
    if (word.size() == 5 || word.size() == 6) {
      static constexpr std::array<std::u32string_view, 6> kDivided = {U"cannot", U"gonna", U"gotta",
                                                                      U"lemme",  U"gimme", U"wanna"};
      if (std::find(kDivided.begin(), kDivided.end(), tokens::lower(word)) != kDivided.end()) return false;
    }
    put(word);
    at_ = end;
    return true;
  }

  static bool is_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  void take() {
    const std::u32string_view window = std::u32string_view(text_).substr(at_, kLongestToken);
    const Rule* best = nullptr;
    size_t length = 0, farthest = 0;
    for (const Rule& rule : rules()) {
      const auto end = rule.pattern.match_at(window, 0);
      if (!end || *end == 0) continue;
      const size_t reach = rule.context ? rule.context->match_at(window, *end).value_or(*end) : *end;
      if (reach > farthest) best = &rule, length = *end, farthest = reach;
    }
    if (best)
      act(*best, std::u32string(window.substr(0, length)));
    else
      length = 1;
    at_ += length;
  }

  void act(const Rule& rule, std::u32string word) {
    switch (rule.action) {
      case Action::keep:
        return put(std::move(word));
      case Action::drop:
        return;
      case Action::divide:
        put(word.substr(0, rule.first));
        return put(word.substr(rule.first));
      case Action::apostrophe:
        std::replace_if(
            word.begin(), word.end(), [](char32_t c) { return c > 0x7F; }, U'\'');
        return put(std::move(word));
      case Action::escape:
        return put(escaped(word));
      case Action::currency:
        for (char32_t& c : word) c = c == 0xA3 ? U'#' : c == 0xA4 || c == 0x20A0 || c == 0x20AC ? U'$' : c;
        return put(word == U"\u00A2" ? U"cents" : std::move(word));
      case Action::fraction: {
        std::u32string parts;
        tokens::decompose(word[0], true, parts);
        std::replace(parts.begin(), parts.end(), char32_t{0x2044}, U'/');
        return put(std::move(parts));
      }
      case Action::ampersand:
        return put(with_plain_signs(word));
      case Action::drop_if_short:
        if (word.size() > 4) put(std::move(word));
        return;
    }
  }

  static std::u32string escaped(std::u32string_view word) {
    std::u32string out;
    for (const char32_t c : word) {
      constexpr std::u32string_view signs = U"()[]{}";
      constexpr std::array<const char32_t*, 6> names = {U"-lrb-", U"-rrb-", U"-lsb-",
                                                        U"-rsb-", U"-lcb-", U"-rcb-"};
      const size_t at = signs.find(c);
      if (at != std::u32string_view::npos)
        out += names[at];
      else
        out += c == ' ' ? U'\u00A0' : c;
    }
    return out;
  }

  static std::u32string with_plain_signs(const std::u32string& word) {
    std::u32string out;
    for (size_t i = 0; i < word.size(); ++i) {
      out += word[i];
      if (word[i] != '&') continue;
      const std::u32string name = tokens::lower(std::u32string_view(word).substr(i + 1, 3));
      if (name == U"amp") i += 4;
      if (name == U"lt;" || name == U"gt;") out.back() = name == U"lt;" ? U'<' : U'>', i += 3;
    }
    return out;
  }

  std::u32string text_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string caption_tokens(std::string_view caption) { return Cutter(caption).cut(); }

}  // namespace tessera::eval
