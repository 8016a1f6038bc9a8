// `tessera doctor --cluster`: checks and times the exchanges between the processes of a launcher, and names slow
// processes.
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

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

int64_t count_machines(const parallel::World& world) {
  return std::ssize(std::set<std::string>(world.machines().begin(), world.machines().end()));
}

void print_processes(const parallel::World& world, const MeasuredCluster& measured,
                     const std::vector<std::string>& devices) {
  std::cout << world.size() << " processes on " << counted(count_machines(world), "machine")
            << ", started by " << (world.launcher().empty() ? "hand" : world.launcher()) << "\n";
  for (const MeasuredProcess& one : measured.processes)
    std::cout << "process " << one.rank << " on machine '" << one_line(one.machine)
              << "': " << devices.at(static_cast<size_t>(one.rank)) << "\n";
}

void print_exchanges(const MeasuredCluster& measured) {
  std::cout << std::left << std::setw(12) << "axis" << std::setw(11) << "exchange" << std::right
            << std::setw(10) << "size" << std::setw(13) << "time" << std::setw(13) << "rate"
            << "\n";
  for (const MeasuredExchange& one : measured.exchanges)
    std::cout << std::left << std::setw(12) << text(one.axis, " ", one.processes) << std::setw(11) << one.kind
              << std::right << std::setw(10) << size_text(one.bytes) << std::setw(10)
              << fixed(1e3 * one.seconds, 3) << " ms" << std::setw(13) << rate_text(one.bytes_per_second())
              << (one.right ? "" : "  WRONG RESULT") << "\n";
}

void print_slow(const MeasuredCluster& measured) {
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

void print_json(const parallel::World& world, const MeasuredCluster& measured,
                const std::vector<std::string>& devices) {
  nlohmann::ordered_json out = {{"launcher", world.launcher()},
                                {"machines", count_machines(world)},
                                {"processes", nlohmann::ordered_json::array()},
                                {"exchanges", nlohmann::ordered_json::array()}};
  for (const MeasuredProcess& one : measured.processes)
    out["processes"].push_back({{"rank", one.rank},
                                {"machine", one_line(one.machine)},
                                {"device", devices.at(static_cast<size_t>(one.rank))},
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

void print_measured(const parallel::World& world, const MeasuredCluster& measured,
                    const std::vector<std::string>& devices, bool json) {
  if (json) return print_json(world, measured, devices);
  print_processes(world, measured, devices);
  print_exchanges(measured);
  print_slow(measured);
}

// Returns the rate in bytes/s at which a process sends in gathers and scatters of 1 MB and more, which data parallelism
// consists of. It sends all rows but one process's own.
double link_rate(const MeasuredCluster& measured) {
  constexpr int64_t kLarge = int64_t{1} << 20;
  double sent = 0, seconds = 0;
  for (const MeasuredExchange& one : measured.exchanges) {
    const std::string kind = one.kind;
    if (one.bytes < kLarge || (kind != parallel::kGather && kind != parallel::kScatter)) continue;
    sent += static_cast<double>(one.bytes) * (one.processes - 1) / one.processes;
    seconds += one.seconds;
  }
  return sent / seconds;
}

// Returns the cluster with the measured rate as its link. A processor is divided among the machine's processes.
plan::Cluster cluster_of(const parallel::World& world, const MeasuredCluster& measured,
                         const plan::Chip& chip) {
  plan::Cluster cluster{chip, world.size(), world.local_size()};
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
    const plan::Chip& chip = plan::find_chip(options.chip);  // refused before minutes of measurement
    if (world.leader()) AtomicFile(options.output);          // the same for a file that cannot be written
    world.lay_out(layout_of(options.settings));
    const torch::Device device = device_of(options.device, world);
    const std::vector<std::string> devices = world.gather(device.str());
    const MeasuredCluster measured = parallel::measure_cluster(world, {.device = device});
    if (!world.leader()) return;
    print_measured(world, measured, devices, options.json);
    write_text_atomic(options.output, plan::cluster_toml(cluster_of(world, measured, chip)));
    if (!options.json) std::cout << "cluster  " << one_line(options.output) << "\n";
    for (const MeasuredExchange& one : measured.exchanges)
      if (!one.right)
        fail("axis '", one.axis, "': the ", one.kind, " of ", size_text(one.bytes), " was wrong");
  });
}

}  // namespace tessera::cli
