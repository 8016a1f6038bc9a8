// `tessera doctor`: capabilities of this machine and this build, for bug reports.
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <fstream>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/run/together.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/threads.h"
#include "io/files/file.h"
#include "kernels/linear/linear.h"
#include "open/device.h"

namespace tessera::cli {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// "model name" and "flags" of the first processor.
std::string cpu_field(const std::string& field) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field)) continue;
    const size_t colon = line.find(':');
    return colon == std::string::npos ? "" : std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return "unknown";
}

std::string instruction_sets() {
  const std::string flags = " " + cpu_field("flags") + " ";
  std::string out;
  for (const char* name : {"sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl",
                           "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8"})
    if (flags.find(text(" ", name, " ")) != std::string::npos)
      out += (out.empty() ? "" : " ") + std::string(name);
  return out.empty() ? "none known" : out;
}

// Returns the instruction set of the kernels, and the implementation of linear layers in each precision.
std::string kernels_in_use() {
  using kernels::Arithmetic;
  const auto linear = [](Arithmetic arithmetic) { return kernels::choose_linear(arithmetic).name; };
  return text("for ", kernels::name_of(kernels::active_isa()), " (TESSERA_ISA chooses another set",
              kernels::machine().tiles_refused ? "; the system does not grant AMX to this process" : "",
              "); linear fp32 ", linear(Arithmetic::f32), ", bf16 ", linear(Arithmetic::bf16), ", int8 ",
              linear(Arithmetic::int8));
}

std::string gpu() {
  if (!train::gpu_is_available()) return text("none (", train::why_no_gpu(), ")");
  return text(train::num_gpus(), " CUDA device(s)");
}

// "2", or "2 (the container's limit)" of a machine with more.
std::string limited(const std::string& amount, bool by_container) {
  return amount + (by_container ? " (the container's limit)" : "");
}

// "1.2 GB, 800 MB available" (to programs, with the file cache).
std::string memory() {
  std::ifstream file("/proc/meminfo");
  uint64_t total = 0, available = 0;
  for (std::string name, unit; file >> name;) {
    uint64_t kilobytes = 0;
    file >> kilobytes;
    std::getline(file, unit);
    if (name == "MemTotal:") total = kilobytes * 1024;
    if (name == "MemAvailable:") available = kilobytes * 1024;
  }
  const uint64_t limit = container_limits().memory.value_or(total);
  return text(limited(human_bytes(std::min(total, limit)), limit < total), ", ",
              human_bytes(std::min(available, limit)), " available");
}

Facts facts() {
  const int threads = train::use_threads(0);
  return {{"tessera", program_version()},
          {"compiler", text("GCC ", __VERSION__)},
          {"LibTorch", TORCH_VERSION},
          {"processor", cpu_field("model name")},
          {"instruction sets", instruction_sets()},
          {"kernels", kernels_in_use()},
          {"cores", limited(std::to_string(available_cores()), container_limits().cores.has_value())},
          {"threads", text(threads, " (LibTorch ", at::get_num_threads(), ")")},
          {"memory", memory()},
          {"disk here", human_bytes(free_disk_bytes(".")) + " free"},
          {"GPU", gpu()},
          {"GPU kernels", train::gpu_kernels()},
          {"GPU products", train::gpu_products()},
          {"GPU graphs", train::gpu_graphs()}};
}

constexpr const char* kCluster = "--cluster";

struct DoctorOptions {
  bool json = false, cluster = false;
  ClusterOptions measured{.device = "cpu", .output = "cluster.toml", .chip = "cpu"};

  template <class V>
  void visit(V& v) {
    v("cluster", cluster, "measure the exchanges between the processes of a launcher");
    v("set", measured.settings, {.only_for = kCluster},
      "with --cluster, their axes: --set parallel.tensor=2");
    v("device", measured.device, {.only_for = kCluster}, "with --cluster: cpu, cuda or auto");
    v("chip", measured.chip, {.only_for = kCluster},
      "with --cluster: the chip of a process, as in tessera plan");
    v("output", measured.output, {.names = "-o", .only_for = kCluster, .writes = Writes::together},
      "with --cluster: file for tessera plan --cluster");
    v("json", json, "one JSON object");
  }
};

void doctor(const DoctorOptions& options, const Given& given) {
  if (!options.cluster) given.refuse_others("", "give it as well");
  if (options.cluster) {
    ClusterOptions measured = options.measured;
    measured.json = options.json;
    return examine_cluster(measured);
  }
  nlohmann::ordered_json object;
  for (const auto& [name, value] : facts())
    if (options.json)
      object[name] = value;
    else
      std::cout << std::left << std::setw(18) << name << value << "\n";
  if (options.json) std::cout << object.dump(2) << "\n";
}

}  // namespace

void add_doctor(Arguments& command, Action& action) { action = with_options<DoctorOptions>(command, doctor); }

}  // namespace tessera::cli
