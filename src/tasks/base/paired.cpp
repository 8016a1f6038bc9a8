#include "tasks/base/paired.h"

#include "core/error.h"
#include "core/text.h"
#include "tasks/base/zero_shot.h"

namespace tessera::tasks {

void CutTexts::add(const std::string& text, int64_t lost) {
  if (count++ > 0) return;
  first = text;
  first_lost = lost;
}

std::string CutTexts::line() const {
  const std::string begins = text("'", printable(first, 60), "'"), by = counted(first_lost, "token");
  if (count == 1) return text("the text ", begins, " is ", by, " longer than the model reads");
  return text(count, " texts are longer than the model reads, the first by ", by, ": ", begins);
}

void PairedEmbedding::set_templates(const std::vector<std::string>& given) {
  templates_ = given.size() == 1 && given[0] == "imagenet" ? imagenet_templates() : given;
  for (const std::string& pattern : templates_) fill_template(pattern, "");
}

}  // namespace tessera::tasks
