#include "cli/data/data_texts.h"

#include "core/error.h"
#include "core/progress.h"
#include "data/base/annotations.h"
#include "open/ready_task.h"

namespace tessera::cli {

TextReader::TextReader(const std::string& weights)
    : opened_(train::open_task(weights)), limit_(train::require<tasks::TextLimit>(opened_, "--weights")) {}

void TextReader::add_long_texts(const data::SourceConfig& config, data::CheckReport& report) const {
  data::OpenSplits splits = data::open_splits(config);
  const Interruptible stretch;
  for (const auto* source : {splits.train.get(), splits.validation.get()}) {
    if (source == nullptr) continue;
    const auto annotations = source->annotations();
    if (&annotations->images() != source) continue;  // documents
    for (int64_t i = 0; i < source->size(); ++i) try {
        if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
        const data::RawSample sample = source->read(i);
        for (const tasks::LongText& one : limit_.long_texts(sample))
          report.captions.add(one.line(sample.name));
      } catch (const Error& error) {
        if (error.kind != ErrorKind::failed) throw;  // the check has named it
      }
    if (config.val_path.empty() && annotations->one_split()) break;
  }
}

}  // namespace tessera::cli
