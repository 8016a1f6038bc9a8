// `tessera bench memory`: operations that are bound by memory, next to a copy of as many bytes in the same run.
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/bench/bench_limit.h"
#include "kernels/bench.h"
#include "open/device.h"
#include "ops/inference.h"
#include "ops/linear.h"
#include "optim/optimiser.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct MemoryOptions {
  int64_t rows = 25216, width = 384, weights = 22'000'000, threads = 0;
  std::string device = "cpu";
  double seconds = 3;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("rows", rows, between(1, 1 << 24), "rows of norm, GELU and residual: images times tokens");
    v("width", width, between(8, 1 << 16), "channels of a row; GELU has four times as many");
    v("weights", weights, between(1, int64_t{1} << 32), "weights of the optimiser");
    v("device", device, "cpu, cuda or auto");
    v("threads", threads, between(0, 1024), "compute threads, 0 = OMP_NUM_THREADS or all cores");
    v("seconds", seconds, between(0, 3600), "seconds of measurement");
    v("json", json, "one JSON line");
  }
};

// An operation with the bytes that it must read and write.
struct Operation {
  std::string name;
  double bytes;
  std::function<void()> run;
};

// What a layer computes between its products, on rows in bfloat16 and a sum of branches in float.
std::vector<Operation> row_operations(const MemoryOptions& o, torch::Device device) {
  const auto floats = torch::TensorOptions(device), half = floats.dtype(torch::kBFloat16);
  const double numbers = static_cast<double>(o.rows * o.width);
  const torch::Tensor x = torch::randn({o.rows, o.width}, half),
                      sum = torch::randn({o.rows, o.width}, floats),
                      hidden = torch::randn({o.rows, 4 * o.width}, half);
  const ops::NormParameters norm{torch::ones({o.width}, floats), torch::zeros({o.width}, floats)};
  const torch::Tensor scale = torch::ones({o.width}, floats);
  return {{"norm", 4 * numbers, [=] { ops::norm(x, norm); }},
          {"gelu", 16 * numbers, [=] { ops::activation(ops::ActivationKind::gelu, hidden); }},
          {"residual", 10 * numbers, [=] { ops::add_scaled(sum, x, scale); }}};
}

// A step of an optimiser over weights in pieces of a model's size.
Operation step_of(const char* name, double bytes_a_weight, int64_t count, torch::Device device) {
  constexpr int64_t kPiece = 1024;  // columns of a weight
  const int64_t rows = (count + kPiece - 1) / kPiece, half = (rows + 1) / 2;
  train::ParameterGroup group;
  group.weight_decay = 0.05;
  for (const int64_t each : {half, rows - half}) {
    if (each == 0) continue;
    torch::Tensor weight = torch::randn({each, kPiece}, device).requires_grad_();
    weight.mutable_grad() = torch::randn({each, kPiece}, device);
    group.parameters.emplace_back(std::to_string(group.parameters.size()), weight);
  }
  const std::shared_ptr<train::Optimiser> optimiser = train::make_optimiser(
      train::resolve_optimiser(Value(Value::Table{{"name", std::string(name)}})), {group});
  const torch::Tensor factor = torch::ones({}, device);
  return {name, bytes_a_weight * static_cast<double>(rows * kPiece), [=] {
            if (optimiser->updates_there())
              optimiser->step_there(1e-6, factor, 1);
            else
              optimiser->step(1e-6);
          }};
}

void memory(const MemoryOptions& o) {
  const int threads = train::use_threads(o.threads);
  const torch::Device device = train::choose_device(o.device);
  const torch::NoGradGuard no_grad;
  std::vector<Operation> all;
  constexpr int64_t kCopied = 1 << 26;  // floats: 256 MiB, beyond any cache
  const torch::Tensor from = torch::ones({kCopied}, device), to = torch::empty_like(from);
  all.push_back({"copy", 8.0 * kCopied, [=] { to.copy_(from); }});
  for (Operation& operation : row_operations(o, device)) all.push_back(std::move(operation));
  all.push_back(step_of("adamw", 28, o.weights, device));
  all.push_back(step_of("lamb", 44, o.weights, device));
  all.push_back(step_of("sgd", 20, o.weights, device));
  std::vector<kernels::bench::Candidate> candidates;
  for (const Operation& operation : all)
    candidates.push_back({operation.name, waited_for(operation.run, device)});
  const auto timings = kernels::bench::measure(candidates, o.seconds);
  const double copied = all[0].bytes / timings[0].median;
  Json line = {{"bench", "memory"}, {"device", device.str()}, {"rows", o.rows},
               {"width", o.width},  {"weights", o.weights},   {"threads", threads}};
  for (size_t i = 0; i < all.size(); ++i) {
    const double rate = all[i].bytes / timings[i].median;
    line["operations"][all[i].name] = {{"ms", 1e3 * timings[i].median},
                                       {"gb_per_second", 1e-9 * rate},
                                       {"percent_of_copy", 100 * rate / copied}};
  }
  std::cout << (o.json ? line.dump() : line.dump(2)) << "\n";
}

}  // namespace

void add_bench_memory(Arguments& command, Action& action) {
  action = with_options<MemoryOptions>(command, memory);
}

}  // namespace tessera::cli
