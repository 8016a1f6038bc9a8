#include "tasks/base/text_limit.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera::tasks {

std::string LongText::line(const std::string& sample) const {
  CutTexts cut;
  cut.add(text, lost);
  return sample + ": " + cut.line();
}

std::vector<LongText> long_captions(const data::RawSample& sample, const TextInput& input, int64_t length) {
  std::vector<LongText> all;
  for (const std::string& caption : sample.annotation.captions) {
    int64_t lost = 0;
    input.fit(caption, length, sample.name, &lost);
    if (lost > 0) all.push_back({caption, lost});
  }
  return all;
}

std::string long_texts_note(const TextLimit& limit, const data::Source& source, int64_t most) {
  const int64_t looked = std::min(most, source.size());
  CutTexts cut;
  for (int64_t i = 0; i < looked; ++i) try {
      const data::RawSample sample = source.read(i * source.size() / looked);
      for (const LongText& one : limit.long_texts(sample)) cut.add(one.text, one.lost);
    } catch (const Error& error) {
      if (error.kind == ErrorKind::usage) throw;
    }
  if (cut.count == 0) return "";
  return text("texts: ", looked < source.size() ? text("of ", looked, " samples looked at, ") : "",
              cut.line(), "; what is over is not read (`tessera data check --weights RUN` names all)");
}

}  // namespace tessera::tasks
