// `tessera doctor --cluster`: whether the processes of a launcher exchange what they should, how fast, and which
// of them is slow.
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/common.h"
#include "cli/run/together.h"
#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "open/device.h"
#include "parallel/measure.h"
#include "plan/cluster.h"
#include "recipe/recipe_files.h"

namespace tessera::cli {
namespace {

using parallel::MeasuredCluster;
using parallel::MeasuredExchange;
using parallel::MeasuredProcess;

parallel::ParallelConfig layout_of(const std::vector<std::string>& settings) {
  Value asked;
  for (const std::string& setting : settings) train::apply_overrides(asked, train::parse_setting(setting));
  for (const auto& [section, value] : asked.as_table())
    if (section != "parallel") fail_usage("--set ", section, ": only keys of [parallel] matter here");
  const Value* section = asked.find("parallel");
  return section ? read_config<parallel::ParallelConfig>(*section, "parallel") : parallel::ParallelConfig{};
}

std::string size_text(int64_t bytes) { return human_bytes(static_cast<uint64_t>(bytes)); }

std::string rate_text(double bytes_per_second) {
  return human_bytes(static_cast<uint64_t>(bytes_per_second)) + "/s";
}

void print_table(const parallel::World& world, const MeasuredCluster& measured) {
  std::cout << world.size() << " processes on " << world.size() / std::max(1, world.local_size())
            << " machine(s), started by " << (world.launcher().empty() ? "hand" : world.launcher()) << "\n";
  std::cout << std::left << std::setw(12) << "axis" << std::setw(11) << "exchange" << std::right
            << std::setw(10) << "size" << std::setw(13) << "time" << std::setw(13) << "rate"
            << "\n";
  for (const MeasuredExchange& one : measured.exchanges)
    std::cout << std::left << std::setw(12) << text(one.axis, " ", one.processes) << std::setw(11) << one.kind
              << std::right << std::setw(10) << size_text(one.bytes) << std::setw(10)
              << fixed(1e3 * one.seconds, 3) << " ms" << std::setw(13) << rate_text(one.bytes_per_second())
              << (one.right ? "" : "  WRONG RESULT") << "\n";
  bool all_well = true;
  for (const MeasuredProcess& one : measured.processes) {
    if (!one.slow) continue;
    all_well = false;
    std::cout << "slow: process " << one.rank << " on machine '" << one_line(one.machine)
              << "' was stopped for " << fixed(100 * one.still, 0) << " % of the time and needed "
              << fixed(1e3 * one.work_seconds, 1) << " ms for a fixed piece of arithmetic\n";
  }
  if (all_well) std::cout << "no process is slow\n";
}

void print_json(const parallel::World& world, const MeasuredCluster& measured) {
  nlohmann::ordered_json out = {{"launcher", world.launcher()},
                                {"processes", nlohmann::ordered_json::array()},
                                {"exchanges", nlohmann::ordered_json::array()}};
  for (const MeasuredProcess& one : measured.processes)
    out["processes"].push_back({{"rank", one.rank},
                                {"machine", one_line(one.machine)},
                                {"still", one.still},
                                {"work_seconds", one.work_seconds},
                                {"slow", one.slow}});
  for (const MeasuredExchange& one : measured.exchanges)
    out["exchanges"].push_back({{"axis", one.axis},
                                {"processes", one.processes},
                                {"kind", one.kind},
                                {"bytes", one.bytes},
                                {"seconds", one.seconds},
                                {"bytes_per_second", one.bytes_per_second()},
                                {"right", one.right}});
  std::cout << out.dump(2) << "\n";
}

// The best rate of a large ring exchange: a process sends and receives its bytes once.
double link_rate(const MeasuredCluster& measured) {
  double best = 0;
  for (const MeasuredExchange& one : measured.exchanges)
    if (std::string(one.kind) == parallel::kRing) best = std::max(best, one.bytes_per_second());
  return best;
}

// A process's share of its machine, with the measured rate as its link.
plan::Cluster cluster_of(const parallel::World& world, const MeasuredCluster& measured,
                         const std::string& chip) {
  plan::Cluster cluster{plan::find_chip(chip), world.size(), world.local_size()};
  if (cluster.chip.generation == plan::Generation::cpu) {
    const double share = 1.0 / world.local_size();
    cluster.chip.flops *= share, cluster.chip.memory_bytes *= share, cluster.chip.memory_bytes_per_s *= share;
  }
  const double rate = link_rate(measured);
  if (world.local_size() < world.size())
    cluster.chip.network_bytes_per_s = rate;
  else
    cluster.chip.link_bytes_per_s = rate;
  return cluster;
}

torch::Device device_of(const std::string& name, parallel::World& world) {
  std::vector<std::string> notes;
  return train::choose_device(name, world, notes);
}

}  // namespace

void examine_cluster(const ClusterOptions& options) {
  run_together(parallel::World::join(), [&](parallel::World& world) {
    if (world.size() == 1)
      fail_usage(
          "tessera doctor --cluster measures several processes: start it with mpirun, srun or torchrun "
          "--no-python");
    world.lay_out(layout_of(options.settings));
    const MeasuredCluster measured =
        parallel::measure_cluster(world, {.device = device_of(options.device, world)});
    if (!world.leader()) return;
    options.json ? print_json(world, measured) : print_table(world, measured);
    write_text_atomic(options.output, plan::cluster_toml(cluster_of(world, measured, options.chip)));
    if (!options.json) std::cout << "cluster  " << one_line(options.output) << "\n";
    for (const MeasuredExchange& one : measured.exchanges)
      if (!one.right)
        fail("axis '", one.axis, "': the ", one.kind, " of ", size_text(one.bytes), " was wrong");
  });
}

}  // namespace tessera::cli
