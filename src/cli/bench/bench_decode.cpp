// `tessera bench decode`: speed of a language model on a prompt and its continuation, and the limit of
// reading its weights once for each token on this machine in the same run.
#include <algorithm>
#include <array>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/bench/bench_limit.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/threads.h"
#include "models/language/language_model.h"
#include "open/device.h"
#include "open/open_language.h"
#include "ops/inference.h"

namespace tessera::cli {

enum class BenchSizes { smollm_135m, tinyllama_1b };  // of random weights

}  // namespace tessera::cli

template <>
struct tessera::EnumNames<tessera::cli::BenchSizes> {
  static constexpr std::array names = {"smollm-135m", "tinyllama-1.1b"};
};

namespace tessera::cli {
namespace {

struct BenchDecodeOptions {
  std::string weights, precision = "bf16", device = "cpu";
  BenchSizes sizes = BenchSizes::smollm_135m;
  int64_t prompt = 512, tokens = 128, batch = 1, rounds = 3, threads = 0;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w"},
      "folder of a language model (default: random weights with the sizes of --model)");
    v("model", sizes, choice<BenchSizes>(), "sizes of random weights: 134 million or 1.1 billion");
    v("device", device, "cpu, cuda or auto");
    v("precision", precision, "fp32, bf16, or int8 on a CPU");
    v("prompt", prompt, between(1, 1 << 20), "tokens of the prompt");
    v("tokens", tokens, between(1, 1 << 20), "tokens to generate");
    v("batch_size", batch, {.range = between(1, 4096), .names = "--batch"}, "texts at a time");
    v("rounds", rounds, between(1, 1000), "rounds, of which the fastest counts");
    v("threads", threads, between(0, 1024), "compute threads, 0 = OMP_NUM_THREADS or all cores");
    v("json", json, "one JSON line");
  }
};

// LLaMAs with the published sizes of SmolLM-135M and TinyLlama.
models::LanguageConfig config_of(BenchSizes sizes) {
  models::LanguageConfig config{.vocabulary = 49152, .dim = 576, .depth = 30, .heads = 9, .kv_heads = 3};
  config.hidden = 1536, config.tied = true;
  if (sizes == BenchSizes::tinyllama_1b) {
    config = {.vocabulary = 32000, .dim = 2048, .depth = 22, .heads = 32, .kv_heads = 4};
    config.hidden = 5632;
  }
  return config;
}

std::shared_ptr<models::LanguageModel> model_of(const BenchDecodeOptions& options, BenchDtype dtype,
                                                torch::Device device) {
  const torch::ScalarType type = dtype == BenchDtype::fp32 ? torch::kFloat32 : torch::kBFloat16;
  std::shared_ptr<models::LanguageModel> model;
  if (!options.weights.empty()) {
    model = train::open_decoder(options.weights, type).language;
  } else {
    model = std::make_shared<models::LanguageModel>(config_of(options.sizes));
    model->initialise(0);
  }
  model->to(device, type);
  model->eval();
  return model;
}

// Bytes that a step reads on average: every matrix by which a token is multiplied, and the keys and values of
// the prompt and of half the generated tokens.
double bytes_a_step(const models::LanguageModel& model, const BenchDecodeOptions& options, BenchDtype dtype) {
  const models::LanguageConfig& config = model.config();
  const double bytes = dtype == BenchDtype::fp32 ? 4 : dtype == BenchDtype::bf16 ? 2 : 1;
  const double cache = 2.0 *
                       static_cast<double>(config.depth * config.kv_heads * config.head_dim * options.batch) *
                       (static_cast<double>(options.prompt) + static_cast<double>(options.tokens) / 2);
  return static_cast<double>(model.macs(1)) * bytes + cache * (dtype == BenchDtype::fp32 ? 4 : 2);
}

// Seconds to move `bytes` once. A CPU reads them with all threads: searching for an absent byte runs at memory speed. A GPU copies
// half as many, which it reads and writes.
class MemoryReader {
 public:
  MemoryReader(double bytes, torch::Device device) : device_(device) {
    if (device.is_cpu())
      memory_.assign(static_cast<size_t>(bytes), 1);
    else
      from_ =
          torch::ones({static_cast<int64_t>(bytes / 2)}, torch::TensorOptions(torch::kUInt8).device(device)),
      to_ = torch::empty_like(from_);
  }
  double operator()() const {
    const double start = steady_seconds();
    waited_for([this] { read(); }, device_)();
    return steady_seconds() - start;
  }

 private:
  void read() const {
    if (from_.defined()) {
      to_.copy_(from_);
      return;
    }
    const auto pieces = static_cast<int64_t>(num_threads());
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      const size_t from = memory_.size() * static_cast<size_t>(begin) / static_cast<size_t>(pieces),
                   to = memory_.size() * static_cast<size_t>(end) / static_cast<size_t>(pieces);
      check(!std::memchr(memory_.data() + from, 2, to - from), "the memory that is read has changed");
    });
  }

  std::vector<unsigned char> memory_;
  torch::Tensor from_, to_;
  torch::Device device_;
};

constexpr int kReadings = 3;  // memory readings in a round: one may include another program's use

struct Round {
  double prefill, decode;  // seconds
};

Round run_once(models::LanguageModel& model, const torch::Tensor& prompt, int64_t tokens) {
  const models::NextTokenModel reader = models::next_token_model(model, {}, 1);
  torch::Tensor next = prompt;
  const auto read = [&] { next = reader.next(next).argmax(-1, true); };
  const double start = steady_seconds();
  waited_for(read, prompt.device())();
  const double prompt_read = steady_seconds();
  const auto read_all = [&] {
    for (int64_t i = 0; i < tokens; ++i) read();
  };
  waited_for(read_all, prompt.device())();
  return {prompt_read - start, steady_seconds() - prompt_read};
}

torch::Tensor random_prompt(const BenchDecodeOptions& options, int64_t vocabulary) {
  RandomStream random(0, "prompt");
  torch::Tensor prompt = torch::empty({options.batch, options.prompt}, torch::kInt64);
  for (int64_t i = 0; i < prompt.numel(); ++i)
    prompt.data_ptr<int64_t>()[i] = random.integer(0, vocabulary - 1);
  return prompt;
}

double fastest(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

// Seconds of every round: the prompt, a token, and a reading of the memory that a token needs.
struct Times {
  std::vector<double> prefill = {}, step = {}, reading = {};
};

nlohmann::ordered_json line_of(const BenchDecodeOptions& options, BenchDtype dtype, int threads, double bytes,
                               const Times& times) {
  const double rows = static_cast<double>(options.batch), step = fastest(times.step),
               reading = fastest(times.reading);
  return {{"bench", "decode"},
          {"device", options.device},
          {"precision", name_of(dtype)},
          {"batch", options.batch},
          {"prompt", options.prompt},
          {"tokens", options.tokens},
          {"threads", threads},
          {"rounds", options.rounds},
          {"prefill_tokens_per_second", rows * static_cast<double>(options.prompt) / fastest(times.prefill)},
          {"tokens_per_second", rows / step},
          {"ms_per_step", 1e3 * step},
          {"mb_per_step", 1e-6 * bytes},
          {"memory_gb_per_second", 1e-9 * bytes / reading},
          {"percent_of_memory_bound", 100 * reading / step}};
}

void decode(const BenchDecodeOptions& options) {
  const BenchDtype dtype = parse_bench_dtype(options.precision);
  const int threads = train::use_threads(options.threads);
  const torch::Device device = train::choose_device(options.device);
  if (dtype == BenchDtype::int8 && !device.is_cpu())
    fail_usage("--precision int8 is for a CPU: --device ", options.device, " takes fp32 or bf16");
  const torch::NoGradGuard no_grad;
  const ops::InferenceScope scope({.int8 = dtype == BenchDtype::int8});
  const auto model = model_of(options, dtype, device);
  const models::LanguageConfig& config = model->config();
  if (options.prompt + options.tokens > config.context)
    fail_usage("--prompt ", options.prompt, " and --tokens ", options.tokens, ": the model reads ",
               config.context, " tokens");
  const torch::Tensor prompt = random_prompt(options, config.vocabulary).to(device);
  run_once(*model, prompt, 4);  // packs the weights
  const double bytes = bytes_a_step(*model, options, dtype);
  const MemoryReader memory(bytes, device);
  Times times;
  for (int64_t round = 0; round < options.rounds; ++round) {
    const Round one = run_once(*model, prompt, options.tokens);
    times.prefill.push_back(one.prefill);
    times.step.push_back(one.decode / static_cast<double>(options.tokens));
    for (int i = 0; i < kReadings; ++i) times.reading.push_back(memory());
  }
  const nlohmann::ordered_json line = line_of(options, dtype, threads, bytes, times);
  if (options.json)
    std::cout << line.dump() << std::endl;
  else
    for (const auto& [key, value] : line.items())
      std::cout << std::left << std::setw(28) << key
                << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
}

}  // namespace

void add_bench_decode(Arguments& command, Action& action) {
  action = with_options<BenchDecodeOptions>(command, decode);
}

}  // namespace tessera::cli
