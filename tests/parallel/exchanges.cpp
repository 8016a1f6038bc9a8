// A program for tests, started several times: exchanges over axes, with results and counted bytes checked.
//
//   exchanges meet             all processes meet, names and rows go round
//   exchanges mesh SEED COUNT  many exchanges at once on a mesh of 2 x 2
//   exchanges gradients        what autograd sends back
//   exchanges memory           the peaks of ZeRO's stages
//   exchanges shards STAGE N   rows of weights and gradients, divided over N of the processes
//   exchanges endless [STEP]   sums until the end; with STEP, process 1 fails there. Prints "ready"
//
// Exits with 0 if all is right, with 1 if not, with 75 if another process was lost.
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <thread>

#include "core/random.h"
#include "core/text.h"
#include "parallel/collectives.h"
#include "parallel/world.h"
#include "tests/parallel/exchanges.h"

namespace tessera::parallel {
namespace {

using torch::Tensor;

bool same(const Tensor& got, const Tensor& want) { return torch::equal(got, want); }

// --- meet

bool rows_go_round(const Axis& axis) {
  bool right = true;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kInt64, torch::kBFloat16}) {
    Tensor block = torch::full({axis.rank() + 1, 3}, axis.rank(), type);
    for (int step = 1; step <= axis.size(); ++step) {
      const int from = (axis.rank() + axis.size() * 2 - step) % axis.size();
      const Tensor into = torch::full({from + 1, 3}, -1, type);
      axis.start_shift(block, into)();
      right = right && into.eq(from).all().item<bool>();
      block = into;
    }
  }
  // A process without rows hands on nothing.
  const Tensor none = torch::ones({axis.rank() == 0 ? 0 : 2, 3}),
               some = torch::zeros({axis.rank() == 1 ? 0 : 2, 3});
  axis.start_shift(none, some)();
  return right && some.eq(1).all().item<bool>();
}

bool meet(World& world) {
  const auto of_all = world.gather(std::string(static_cast<size_t>(world.rank()), 'x'));
  bool right = world.size() > 1 && static_cast<int>(of_all.size()) == world.size();
  for (int rank = 0; rank < world.size(); ++rank)
    right = right && of_all[static_cast<size_t>(rank)].size() == static_cast<size_t>(rank);
  right = right && world.broadcast(world.leader() ? "the leader's" : "mine") == "the leader's";
  right = right && world.any(world.rank() == 1) && !world.any(false);
  right = right && world.local_size() == world.size() && world.local_rank() == world.rank();
  return rows_go_round(world.all()) && right;
}

// --- mesh

// One exchange of a drawn kind, the same in all members of an axis. Numbers are small integers, so that sums are
// exact in every type.
struct Case {
  const Axis& axis;
  int kind;                     // 0 to 6
  int64_t width;                // bytes or elements of a row
  std::vector<int64_t> counts;  // rows by rank
  int64_t number;

  Tensor rows(int rank, int64_t count, c10::ScalarType type = torch::kUInt8) const {
    return torch::full({count, width}, (number * 7 + rank * 3) % 50, type);
  }
};

using Expected = std::map<std::pair<std::string, std::string>, int64_t>;  // bytes by axis and kind

// Starts a case; returns what waits for it and checks it, and adds its bytes.
std::function<bool()> start(const Case& c, Expected& bytes) {
  const Axis& axis = c.axis;
  const int n = axis.size(), rank = axis.rank();
  const int64_t own = c.counts[static_cast<size_t>(rank)];
  int64_t all = 0;
  for (const int64_t count : c.counts) all += count;
  const auto expect = [&](const char* kind, int64_t count) { bytes[{axis.name(), kind}] += count; };
  switch (c.kind) {
    case 0:
    case 1: {
      const auto type = c.kind == 0 ? torch::kFloat64 : torch::kBFloat16;
      const Tensor values = c.rows(rank, 1, type);
      Tensor want = torch::zeros_like(values);
      for (int r = 0; r < n; ++r) want += c.rows(r, 1, type);
      expect(kSum, static_cast<int64_t>(values.nbytes()));
      return [wait = axis.start_sum(values), values, want] { return wait(), same(values, want); };
    }
    case 2: {  // unequal counts in half of the cases
      std::vector<Tensor> parts;
      for (int r = 0; r < n; ++r) parts.push_back(c.rows(r, c.counts[static_cast<size_t>(r)]));
      const Tensor want = torch::cat(parts), into = torch::empty_like(want);
      expect(kGather, c.width * (all - own));
      return [wait = axis.start_gather(parts[static_cast<size_t>(rank)], into, c.counts), into, want] {
        return wait(), same(into, want);
      };
    }
    case 3: {
      Tensor want = torch::zeros({own, c.width}, torch::kFloat32);
      for (int r = 0; r < n; ++r) want += c.rows(r, own, torch::kFloat32);
      const Tensor into = torch::empty_like(want);
      expect(kScatter, 4 * c.width * (all - own));
      return [wait = axis.start_scatter_sum(c.rows(rank, all, torch::kFloat32), into, c.counts), into, want] {
        return wait(), same(into, want);
      };
    }
    case 4: {
      std::vector<Tensor> parts;
      for (int r = 0; r < n; ++r) parts.push_back(c.rows(r, own));
      const Tensor want = torch::cat(parts), into = torch::empty_like(want);
      const std::vector<int64_t> received(static_cast<size_t>(n), own);
      expect(kExchange, c.width * (all - own));
      return [wait = axis.start_exchange(c.rows(rank, all), c.counts, into, received), into, want] {
        return wait(), same(into, want);
      };
    }
    case 5: {
      const int from = (rank + n - 1) % n;
      const Tensor want = c.rows(from, c.counts[static_cast<size_t>(from)]), into = torch::empty_like(want);
      expect(kRing, c.width * own);
      return
          [wait = axis.start_shift(c.rows(rank, own), into), into, want] { return wait(), same(into, want); };
    }
    default: {
      const Tensor values = c.rows(rank, 1), want = c.rows(0, 1);
      expect(kBroadcast, c.width);
      return [wait = axis.start_broadcast(values), values, want] { return wait(), same(values, want); };
    }
  }
}

// Draws case `number`; the same in all processes.
Case draw(const std::vector<const Axis*>& axes, uint64_t seed, int64_t number) {
  RandomStream random(seed, "exchange", static_cast<uint64_t>(number));
  const Axis& axis = *axes[random.below(axes.size())];
  Case c{axis, static_cast<int>(random.below(7)), 0, {}, number};
  const double largest = 4 << 20;
  const auto size = static_cast<int64_t>(std::exp(random.uniform(0, std::log(largest))));
  const bool equal = random.below(2) == 0;
  const int64_t element = c.kind == 0 ? 8 : c.kind == 1 ? 2 : c.kind == 3 ? 4 : 1;
  int64_t rows = 0;
  for (int r = 0; r < axis.size(); ++r)
    rows += c.counts.emplace_back(equal ? 2 : static_cast<int64_t>(random.below(4)));
  const bool one_row = c.kind < 2 || c.kind == 6;
  c.width = std::max<int64_t>(1, size / element / (one_row ? 1 : std::max<int64_t>(1, rows)));
  return c;
}

// True if the traffic of each expected kind on each axis has exactly the expected bytes; prints the others.
bool counts_right(const World& world, const Expected& expected) {
  Expected found;
  for (const Traffic& kind : world.traffic()) found[{kind.axis, kind.kind}] += kind.bytes;
  bool right = true;
  for (const auto& [name, bytes] : expected) {
    const auto one = found.find(name);
    if (one != found.end() && one->second == bytes) continue;
    std::cerr << name.first << " " << name.second << ": "
              << (one == found.end() ? "no exchange" : text(one->second, " bytes")) << " counted, must be "
              << bytes << " bytes\n";
    right = false;
  }
  return right;
}

// In windows: each process starts a window in an order of its own, with the order on each axis kept, and then
// waits for the window before.
bool mesh(World& world, uint64_t seed, int64_t count) {
  world.lay_out({.replicate = 2, .shard = 1, .context = 1, .tensor = 2, .pipeline = 1});
  const std::vector<const Axis*> axes = {&world.all(), &world.axis(AxisName::replicate),
                                         &world.axis(AxisName::tensor)};
  constexpr int64_t kWindow = 100;
  RandomStream mine(seed, "mix", static_cast<uint64_t>(world.rank()));
  Expected bytes;
  std::vector<std::function<bool()>> before;
  bool right = true;
  const auto finish = [&] {
    for (const auto& check : before) right = check() && right;
    before.clear();
  };
  for (int64_t first = 0; first < count; first += kWindow) {
    std::map<const Axis*, std::vector<Case>> queues;
    int64_t left = std::min(kWindow, count - first);
    for (int64_t i = 0; i < left; ++i) {
      Case c = draw(axes, seed, first + i);
      queues[&c.axis].push_back(std::move(c));
    }
    std::vector<std::function<bool()>> now;
    std::map<const Axis*, size_t> next;
    while (left > 0) {
      const Axis* axis = axes[mine.below(axes.size())];
      if (next[axis] == queues[axis].size()) continue;
      now.push_back(start(queues[axis][next[axis]++], bytes));
      --left;
    }
    finish();
    before = std::move(now);
  }
  finish();
  constexpr size_t kDrawn = 3 * 6;  // axes and kinds
  return counts_right(world, bytes) && right && bytes.size() == kDrawn;
}

// --- gradients

Tensor drawn(int rank, const char* purpose, at::IntArrayRef shape) {
  RandomStream random(static_cast<uint64_t>(rank), purpose);
  const Tensor out = torch::empty(shape, torch::kFloat64);
  for (int64_t i = 0; i < out.numel(); ++i) out.view({-1})[i] = random.normal();
  return out;
}

bool near(const Tensor& got, const Tensor& want) { return torch::allclose(got, want, 1e-12, 1e-12); }

bool gradients(World& world) {
  const Axis& axis = world.all();
  const int n = axis.size(), rank = axis.rank();
  std::vector<int64_t> counts, begins;
  int64_t all = 0;
  for (int r = 0; r < n; ++r) begins.push_back(all), counts.push_back(r + 1), all += r + 1;
  const auto own = [&](const Tensor& whole, int r) {
    return whole.narrow(0, begins[static_cast<size_t>(r)], counts[static_cast<size_t>(r)]);
  };
  // The loss of each process is its result, weighted; all losses are added. Weights of an expanded tensor give a
  // gradient that is not contiguous.
  const auto weights = [&](int r, int64_t rows) { return drawn(r, "weights", {2, rows}).t(); };
  const auto back = [&](const Tensor& x, const Tensor& result) {
    (result * weights(rank, result.size(0))).sum().backward();
    return x.grad();
  };
  bool right = true;
  {
    const Tensor x = drawn(rank, "x", {4, 2}).requires_grad_();
    Tensor want = torch::zeros({4, 2}, torch::kFloat64);
    for (int r = 0; r < n; ++r) want += weights(r, 4);
    right = near(back(x, sum_over(x, axis)), want) && right;
  }
  {
    const Tensor x = drawn(rank, "x", {rank + 1, 2}).requires_grad_();
    Tensor want = torch::zeros({rank + 1, 2}, torch::kFloat64);
    for (int r = 0; r < n; ++r) want += own(weights(r, all), rank);
    right = near(back(x, gather_over(x, counts, axis)), want) && right;
  }
  {
    const Tensor x = drawn(rank, "x", {all, 2}).requires_grad_();
    std::vector<Tensor> want;
    for (int r = 0; r < n; ++r) want.push_back(weights(r, r + 1));
    right = near(back(x, scatter_sum_over(x, counts, axis)), torch::cat(want)) && right;
  }
  {
    const Tensor x = drawn(rank, "x", {2 * n, 2}).requires_grad_();
    std::vector<Tensor> want;
    for (int r = 0; r < n; ++r) want.push_back(weights(r, 2 * n).narrow(0, 2 * rank, 2));
    right = near(back(x, all_to_all_over(x, axis)), torch::cat(want)) && right;
  }
  {
    const int from = (rank + n - 1) % n, to = (rank + 1) % n;
    const Tensor x = drawn(rank, "x", {rank + 1, 2}).requires_grad_();
    right = near(back(x, shift_over(x, from + 1, 1, axis)), weights(to, rank + 1)) && right;
  }
  return right;
}

// --- endless

bool endless(World& world, int64_t failing) {
  for (int64_t step = 0;; ++step) {
    if (step == failing && world.rank() == 1) fail("this is the failure of the test");
    if (step == 10 && world.leader()) std::cout << "ready" << std::endl;
    world.sum(torch::ones({step % 5 == 0 ? 100000 : 10}));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool run(World& world, const std::vector<std::string>& words) {
  if (words.at(0) == "meet") return meet(world);
  if (words[0] == "mesh") return mesh(world, std::stoull(words.at(1)), std::stoll(words.at(2)));
  if (words[0] == "gradients") return gradients(world);
  if (words[0] == "memory") return check_memory(world);
  if (words[0] == "shards") return check_shards(world, std::stoll(words.at(1)), std::stoll(words.at(2)));
  return endless(world, words.size() > 1 ? std::stoll(words[1]) : -1);
}

}  // namespace
}  // namespace tessera::parallel

int main(int argc, char** argv) {
  using namespace tessera;
  at::set_num_threads(1);
  std::unique_ptr<parallel::World> world;
  const auto end = [&](const std::string& line, int code) {
    std::cerr << text("process ", world ? world->rank() : -1, ": ", line, "\n") << std::flush;
    parallel::World::end(code);
  };
  try {
    world = parallel::World::join();
    const bool right = parallel::run(*world, {argv + 1, argv + argc});
    return world->any(!right) ? 1 : 0;
  } catch (const parallel::Lost& error) {
    end(error.what(), parallel::kLostExitCode);
  } catch (const std::exception& error) {
    if (world) world->blame(error.what());
    end(error.what(), 1);
  }
}
