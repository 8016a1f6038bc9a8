#include "data/loading/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "core/random.h"
#include "core/text.h"

namespace tessera::data {
namespace {

constexpr int kReplacementTries = 16;
constexpr size_t kMostBadLines = 10'000;

// The samples of one epoch in order. `draws` is the augmentation key of each: the sample's own index, or for
// repeated draws of one sample (balanced, repeats) a different number each time.
struct Epoch {
  std::vector<int64_t> samples;
  std::vector<uint64_t> draws;
};

// Returns as many draws as the set has samples, cycling through all nonempty classes.
std::vector<int64_t> balanced_order(const std::vector<std::vector<int64_t>>& by_class, int64_t count,
                                    RandomStream& random) {
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(order.size()) < count)
    for (const int64_t label : random.permutation(static_cast<int64_t>(by_class.size()))) {
      if (static_cast<int64_t>(order.size()) == count) break;
      const auto& members = by_class[static_cast<size_t>(label)];
      order.push_back(members[random.below(members.size())]);
    }
  return order;
}

// Of a batch of `whole` samples, rank r has share_begin(r) to share_begin(r + 1).
int64_t share_begin(const LoaderConfig& config, int64_t whole, int64_t rank) {
  if (!config.pairs) return whole * rank / config.world_size;
  return std::min(whole, 2 * ((whole + 1) / 2 * rank / config.world_size));
}

// Returns the positions of a batch in reading order: the first view of every sample, then the second, and so
// on.
std::vector<size_t> interleave_views(int64_t whole, int64_t repeats) {
  std::vector<size_t> places;
  for (int64_t view = 0; view < repeats; ++view)
    for (int64_t place = view; place < whole; place += repeats) places.push_back(static_cast<size_t>(place));
  return places;
}

int64_t batches_of(const Source& source, const LoaderConfig& config) {
  return (source.size() + (config.drop_last ? 0 : config.batch_size - 1)) / config.batch_size;
}

struct BadSample {
  int64_t index;
  std::string line;
};

// A worker's result: a batch with the bad samples found on the way, or the error that ended it.
struct Finished {
  Batch batch;
  std::vector<BadSample> bad;
  std::exception_ptr error;
};

}  // namespace

struct Loader::State {
  const Source& source;
  const std::shared_ptr<const Transform> transform;
  const LoaderConfig config;
  const LoaderPosition start;
  int64_t batches = 0;                         // per epoch
  std::vector<std::vector<int64_t>> by_class;  // if balanced: the nonempty classes

  std::mutex mutex;
  std::condition_variable work, done;  // the queue has a free slot; a batch is finished
  bool stopping = false;
  int64_t claimed = 0, handed_out = 0;  // batches since `start`
  std::map<int64_t, Finished> finished;
  std::map<int64_t, std::shared_ptr<const Epoch>> epochs;  // the last few
  std::set<int64_t> bad_samples;
  BadImages bad;
  double waited = 0;
  std::exception_ptr broken;  // thrown by every later next()
  BufferPool buffers;
  std::vector<std::thread> threads;

  State(const Source& the_source, std::shared_ptr<const Transform> the_transform,
        const LoaderConfig& the_config, LoaderPosition the_start)
      : source(the_source), transform(std::move(the_transform)), config(the_config), start(the_start) {}

  LoaderPosition position_of(int64_t number) const {
    const int64_t from_start = start.batch + number;
    return {start.epoch + from_start / batches, from_start % batches};
  }

  bool ends_before(int64_t number) const {
    return !config.shuffle && position_of(number).epoch > start.epoch;
  }

  std::shared_ptr<const Epoch> make_epoch(int64_t number) const {
    auto epoch = std::make_shared<Epoch>();
    const int64_t n = source.size();
    RandomStream random(config.seed, "shuffle", static_cast<uint64_t>(number));
    if (config.balanced) {
      epoch->samples = balanced_order(by_class, n, random);
      std::vector<uint64_t> times(static_cast<size_t>(n));
      for (const int64_t sample : epoch->samples)
        epoch->draws.push_back(static_cast<uint64_t>(sample) +
                               static_cast<uint64_t>(n) * times[static_cast<size_t>(sample)]++);
      return epoch;
    }
    const std::vector<int64_t> order = config.shuffle ? random.permutation(n) : std::vector<int64_t>();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t place = i / config.repeats;
      const int64_t sample = config.shuffle ? order[static_cast<size_t>(place)] : place;
      epoch->samples.push_back(sample);
      epoch->draws.push_back(static_cast<uint64_t>(sample + n * (i % config.repeats)));
    }
    return epoch;
  }

  std::shared_ptr<const Epoch> epoch_of(int64_t number) {
    const std::lock_guard lock(mutex);
    auto& epoch = epochs[number];
    if (!epoch) epoch = make_epoch(number);
    while (epochs.size() > 2 && epochs.begin()->first < number - 1) epochs.erase(epochs.begin());
    return epochs[number];
  }

  // Decodes one sample into its slots. If its image is bad, adds the error line and returns false.
  bool try_sample(int64_t index, RandomStream random, std::span<const Slot> out,
                  std::vector<BadSample>& found) const {
    std::vector<size_t> before;  // rows of ragged fields that belong to other samples
    for (const Slot& slot : out) before.push_back(slot.rows ? slot.rows->size() : 0);
    try {
      transform->apply(read_annotated(source, index), random, out);
      return true;
    } catch (const Error& error) {
      for (size_t i = 0; i < out.size(); ++i)
        if (out[i].rows) out[i].rows->resize(before[i]);
      if (config.on_bad_image == OnBadImage::fail || error.kind != ErrorKind::failed) throw;
      found.push_back({index, error.what()});
      return false;
    }
  }

  // Loads the sample at this position of the epoch. A bad one is replaced by the first good one of a random
  // stream that depends only on (seed, epoch, draw). Returns the index of the loaded sample.
  int64_t load(int64_t epoch, int64_t index, uint64_t draw, std::span<const Slot> out,
               std::vector<BadSample>& found) const {
    const RandomStream augment(config.seed, "augment", static_cast<uint64_t>(epoch), draw);
    if (try_sample(index, augment, out, found)) return index;
    RandomStream others(config.seed, "replace", static_cast<uint64_t>(epoch), draw);
    for (int attempt = 0; attempt < kReplacementTries; ++attempt) {
      const auto other = static_cast<int64_t>(others.below(static_cast<uint64_t>(source.size())));
      if (try_sample(other, augment, out, found)) return other;
    }
    fail("no good image found in place of a bad one after ", kReplacementTries,
         " tries; the last: ", found.back().line);
  }

  // Adds a column for each field; ragged ones start without rows.
  void allocate(Batch& batch) {
    for (const Field& field : transform->fields())
      batch.columns.push_back(
          {field,
           field.ragged ? Buffer() : buffers.take(static_cast<size_t>(batch.size) * field.bytes()),
           {}});
  }

  bool must_stop() {
    const std::lock_guard lock(mutex);
    return stopping;
  }

  Finished make_batch(int64_t number) {
    const LoaderPosition place = position_of(number);
    const auto epoch = epoch_of(place.epoch);
    const int64_t first = place.batch * config.batch_size;
    const int64_t whole = std::min(config.batch_size, source.size() - first);
    const int64_t begin = first + share_begin(config, whole, config.rank);
    const int64_t end = first + share_begin(config, whole, config.rank + 1);

    Finished result;
    Batch& batch = result.batch;
    batch.size = end - begin;
    batch.first = begin - first;
    batch.whole = whole;
    batch.epoch = place.epoch;
    batch.step_in_epoch = place.batch;
    allocate(batch);
    std::vector<std::vector<std::byte>> rows(batch.columns.size());  // of ragged fields
    const std::vector<size_t> interleaved = interleave_views(whole, config.repeats);
    for (int64_t i = begin; i < end; ++i) {
      if (must_stop()) return result;  // the result will be discarded
      const size_t p = static_cast<size_t>(first) + interleaved[static_cast<size_t>(i - first)];
      const std::vector<Slot> slots = slots_of(batch, i - begin, rows);
      batch.indices.push_back(load(place.epoch, epoch->samples[p], epoch->draws[p], slots, result.bad));
    }
    finish_ragged(batch, rows);
    return result;
  }

  // Returns the destinations for sample number `place` of the batch.
  static std::vector<Slot> slots_of(Batch& batch, int64_t place, std::vector<std::vector<std::byte>>& rows) {
    std::vector<Slot> slots;
    for (size_t c = 0; c < batch.columns.size(); ++c) {
      Column& column = batch.columns[c];
      if (column.field.ragged) {
        column.offsets.push_back(rows_in(column.field, rows[c]));
        slots.push_back({nullptr, &rows[c]});
      } else {
        slots.push_back({column.memory.data() + static_cast<size_t>(place) * column.field.bytes(), nullptr});
      }
    }
    return slots;
  }

  static int64_t rows_in(const Field& field, const std::vector<std::byte>& rows) {
    const size_t row = field.bytes() / static_cast<size_t>(std::max<int64_t>(1, field.shape.at(0)));
    return static_cast<int64_t>(rows.size() / std::max<size_t>(1, row));
  }

  void finish_ragged(Batch& batch, const std::vector<std::vector<std::byte>>& rows) {
    for (size_t c = 0; c < batch.columns.size(); ++c) {
      Column& column = batch.columns[c];
      if (!column.field.ragged) continue;
      column.offsets.push_back(rows_in(column.field, rows[c]));
      column.memory = Buffer(rows[c].size());
      std::copy(rows[c].begin(), rows[c].end(), column.memory.data());
    }
  }

  void run_worker() {
    const int64_t ahead = std::max(config.queue, config.threads);
    while (true) {
      int64_t number = 0;
      {
        std::unique_lock lock(mutex);
        work.wait(lock, [&] { return stopping || claimed - handed_out < ahead; });
        if (stopping || ends_before(claimed)) return;
        number = claimed++;
      }
      Finished result;
      try {
        result = make_batch(number);
      } catch (...) {
        result.error = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      finished.emplace(number, std::move(result));
      done.notify_all();
    }
  }

  // Counts the bad samples of returned batches in order, so that the count does not depend on threads.
  void count_bad(const std::vector<BadSample>& found) {
    for (const auto& [index, line] : found) {
      if (!bad_samples.insert(index).second) continue;
      ++bad.count;
      if (bad.lines.size() < kMostBadLines) bad.lines.push_back(line);
      if (bad.count > config.max_bad)
        fail(counted(bad.count, "image"), bad.count == 1 ? " is" : " are", " bad, more than the ",
             config.max_bad, " allowed by max_bad; the last: ", line);
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work.notify_all();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
};

void check_loader(const Source& source, const LoaderConfig& config) {
  if (config.batch_size < 1) fail_usage("batch size is ", config.batch_size, ", must be at least 1");
  if (config.threads < 1 || config.threads > 1024)
    fail_usage("loader threads are ", config.threads, ", must be 1 to 1024");
  if (config.queue < 1 || config.queue > 1024)
    fail_usage("loader queue is ", config.queue, ", must be 1 to 1024");
  if (config.world_size < 1 || config.rank < 0 || config.rank >= config.world_size)
    fail_usage("rank ", config.rank, " of ", config.world_size, " ranks does not exist");
  if (config.batch_size < config.world_size * (config.pairs ? 2 : 1))
    fail_usage("batch size is ", config.batch_size, ", must be at least ", config.pairs ? "twice " : "",
               "the number of ranks, ", config.world_size);
  if (config.repeats < 1 || config.repeats > 1024)
    fail_usage("repeats are ", config.repeats, ", must be 1 to 1024");
  if (config.repeats > 1 && config.balanced)
    fail_usage(
        "repeated augmentation and balanced sampling both decide how often a sample is drawn: give one");
  if (batches_of(source, config) == 0)
    fail(source.describe(), ": ", counted(source.size(), "image"), source.size() == 1 ? " makes" : " make",
         " no batch of ", config.batch_size, "; take a smaller batch");
  if (config.balanced && require_labels(source, "balanced sampling").multi_label())
    fail_usage("balanced sampling needs one label an image; ", source.describe());
}

Loader::Loader(const Source& source, std::shared_ptr<const Transform> transform, const LoaderConfig& config,
               LoaderPosition start)
    : state_(std::make_unique<State>(source, std::move(transform), config, start)) {
  State& s = *state_;
  check_loader(source, config);
  const int64_t n = source.size();
  s.batches = batches_of(source, config);
  if (start.epoch < 0 || start.batch < 0 || start.batch > s.batches)
    fail("loader position epoch ", start.epoch, " batch ", start.batch, " is beyond the ", s.batches,
         " batches of an epoch");
  if (config.balanced) {
    const ClassLabels& labels = *source.class_labels();
    s.by_class.resize(labels.class_names().size());
    for (int64_t i = 0; i < n; ++i) s.by_class[static_cast<size_t>(labels.label(i))].push_back(i);
    std::erase_if(s.by_class, [](const auto& members) { return members.empty(); });
  }
  try {
    for (int64_t i = 0; i < config.threads; ++i) s.threads.emplace_back([&s] { s.run_worker(); });
  } catch (const std::exception& error) {  // threads must end before the state is destroyed
    const size_t started = s.threads.size();
    s.stop();
    fail("decoding thread ", started + 1, " of ", config.threads, " cannot be started (", error.what(),
         "): there must be fewer (train.loader_threads, --loader-threads), or more memory");
  }
}

Loader::~Loader() {
  if (state_) state_->stop();
}

int64_t Loader::batches_per_epoch() const { return state_->batches; }

std::optional<Batch> Loader::next() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  if (s.broken) std::rethrow_exception(s.broken);
  if (s.ends_before(s.handed_out)) return std::nullopt;
  const auto since = std::chrono::steady_clock::now();
  s.done.wait(lock, [&] { return s.finished.contains(s.handed_out); });
  s.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  Finished result = std::move(s.finished.extract(s.handed_out).mapped());
  try {
    s.count_bad(result.bad);
    if (result.error) std::rethrow_exception(result.error);
  } catch (...) {
    s.broken = std::current_exception();
    s.stopping = true;
    s.work.notify_all();
    throw;
  }
  ++s.handed_out;
  s.work.notify_all();
  return std::move(result.batch);
}

LoaderPosition Loader::position() const {
  const std::lock_guard lock(state_->mutex);
  return state_->position_of(state_->handed_out);
}

BadImages Loader::bad_images() const {
  const std::lock_guard lock(state_->mutex);
  return state_->bad;
}

double Loader::seconds_waited() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waited;
}

}  // namespace tessera::data
