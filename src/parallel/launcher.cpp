#include "parallel/launcher.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/text.h"

namespace tessera::parallel {
namespace {

constexpr int64_t kMostProcesses = 1 << 20;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

std::optional<int64_t> number_if_set(const char* name) {
  if (!is_set(name)) return std::nullopt;
  return parse_int(variable(name));
}

// Returns the number in a variable; `otherwise` if it is not set. Throws a usage error outside `low` to
// `high`.
int64_t number_in(const char* name, int64_t low, int64_t high, std::optional<int64_t> otherwise = {}) {
  if (!is_set(name)) {
    if (otherwise) return *otherwise;
    fail_usage("the variable ", name, " is missing: the launcher must set it");
  }
  const auto value = parse_int(variable(name));
  if (!value || *value < low || *value > high)
    fail_usage("the variable ", name, " is '", printable(variable(name), 40), "', must be ", low, " to ",
               high);
  return *value;
}

// A port above the system services and below those that Linux gives to outgoing connections.
int64_t port_of(const std::string& job) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a: equal in all processes
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return 12000 + static_cast<int64_t>(hash % 20000);
}

void take_rank(Start& start, const char* rank, const char* size) {
  start.size = number_in(size, 1, kMostProcesses);
  start.rank = number_in(rank, 0, kMostProcesses);
  if (start.rank >= start.size)
    fail_usage("the variable ", rank, " is ", start.rank, ", must be below ", size, " = ", start.size);
}

// MASTER_ADDR and MASTER_PORT apply under every launcher.
void take_place(Start& start) {
  if (is_set("MASTER_ADDR")) start.host = variable("MASTER_ADDR");
  if (is_set("MASTER_PORT")) start.port = number_in("MASTER_PORT", 1, 65535), start.port_file.clear();
}

// --- the launchers

// "1146617856.0;tcp://192.0.2.2,10.0.0.1:45671": the first address of the machine with mpirun.
std::string address_of_mpirun() {
  const std::string uri = variable("OMPI_MCA_orte_hnp_uri");
  const size_t begin = uri.find("tcp://");
  if (begin == std::string::npos) return "";
  return uri.substr(begin + 6, uri.find_first_of(",:;", begin + 6) - begin - 6);
}

bool by_mpirun() { return is_set("OMPI_COMM_WORLD_SIZE"); }
Start read_mpirun() {
  Start start{.launcher = "mpirun"};
  take_rank(start, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  start.local_rank = number_in("OMPI_COMM_WORLD_LOCAL_RANK", 0, kMostProcesses, -1);
  start.local_size = number_in("OMPI_COMM_WORLD_LOCAL_SIZE", 1, kMostProcesses, -1);
  const std::string folder = variable("OMPI_MCA_orte_jobfam_session_dir");
  const std::string job = variable("PMIX_NAMESPACE") + variable("OMPI_MCA_orte_precondition_transports");
  const bool one_machine = start.local_size == start.size;
  start.host = one_machine ? "127.0.0.1" : address_of_mpirun();
  if (one_machine && !folder.empty())
    start.port_file = folder + "/tessera-port-" + variable("PMIX_NAMESPACE");
  else if (!job.empty())
    start.port = port_of(job);
  take_place(start);
  if (start.size > 1 && (start.host.empty() || (start.port == 0 && start.port_file.empty())))
    fail_usage(
        start.size,
        " processes were started, but they cannot find the first one: give mpirun -x MASTER_ADDR -x "
        "MASTER_PORT with its machine and a free port, or start them with OpenMPI's mpirun or with srun "
        "--kill-on-bad-exit=1");
  return start;
}

// Returns the number of processes that srun started; 1 outside Slurm, and in a batch script, which is a single
// process however many SLURM_NTASKS the job has.
int64_t slurm_tasks() {
  if (!is_set("SLURM_PROCID")) return 1;
  const bool step = is_set("SLURM_STEP_ID") || is_set("SLURM_STEPID");
  return number_if_set("SLURM_STEP_NUM_TASKS").value_or(step ? number_if_set("SLURM_NTASKS").value_or(1) : 1);
}

bool by_srun() { return slurm_tasks() > 1; }
Start read_srun() {
  Start start{.launcher = "srun"};
  take_rank(start, "SLURM_PROCID", is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  start.host = first_machine(variable("SLURM_STEP_NODELIST"));
  const std::string job = variable("SLURM_JOB_ID");
  if (!job.empty()) start.port = port_of(job + "." + variable("SLURM_STEP_ID"));
  take_place(start);
  if (start.host.empty() || start.port == 0)
    fail_usage(
        "srun started ", start.size,
        " processes that cannot find each other (no SLURM_STEP_NODELIST or no SLURM_JOB_ID): start them "
        "with srun --kill-on-bad-exit=1 in a job, or set MASTER_ADDR and MASTER_PORT");
  return start;
}

bool by_torchrun() {
  return is_set("RANK") || number_if_set("WORLD_SIZE").value_or(1) > 1 || is_set("TORCHELASTIC_RUN_ID");
}
Start read_torchrun() {
  Start start{.launcher = "torchrun"};
  take_rank(start, "RANK", "WORLD_SIZE");
  start.local_rank = number_in("LOCAL_RANK", 0, kMostProcesses, -1);
  start.local_size = number_in("LOCAL_WORLD_SIZE", 1, kMostProcesses, -1);
  if (start.local_rank >= 0 && start.local_size > 0 && start.local_rank >= start.local_size)
    fail_usage("the variable LOCAL_RANK is ", start.local_rank,
               ", must be below LOCAL_WORLD_SIZE = ", start.local_size);
  take_place(start);
  if (start.size > 1 && start.host.empty())
    fail_usage(
        "the variable MASTER_ADDR is missing: the launcher must set it to the machine of the first "
        "process");
  if (start.size > 1 && start.port == 0)
    fail_usage("the variable MASTER_PORT is missing: the launcher must set it to a free port of MASTER_ADDR");
  start.served = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (start.served)
    start.prefix =
        text("/worker/attempt_", number_in("TORCHELASTIC_RESTART_COUNT", 0, kMostProcesses, int64_t{0}));
  return start;
}

// srun starts mpirun's daemons and torchrun's agents, which pass Slurm's variables on: it is a row of its own
// only without them.
struct Launcher {
  const char* variable;  // names it in errors
  bool (*started)();
  Start (*read)();
  bool may_be_inside;  // srun may have started it
};
constexpr std::array kLaunchers = {
    Launcher{"OMPI_COMM_WORLD_SIZE", by_mpirun, read_mpirun, true},
    Launcher{"RANK", by_torchrun, read_torchrun, false},
    Launcher{"SLURM_PROCID", by_srun, read_srun, false},
};

bool inside_srun(const Launcher& launcher) { return launcher.may_be_inside || is_set("TORCHELASTIC_RUN_ID"); }

}  // namespace

std::string first_machine(const std::string& list) {
  const size_t end = list.find_first_of("[,");
  std::string name = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return name;
  return name + list.substr(end + 1, list.find_first_of(",-]", end + 1) - end - 1);
}

std::optional<Start> read_start() {
  const Launcher* found = nullptr;
  for (const Launcher& launcher : kLaunchers) {
    if (!launcher.started()) continue;
    const bool starter = found && launcher.read == read_srun && inside_srun(*found);
    if (found && !starter)
      fail_usage("the variables of two launchers are set, ", found->variable, " and ", launcher.variable,
                 ": unset those of the one that did not start this process");
    if (!found) found = &launcher;
  }
  if (!found) {
    const int64_t size = number_if_set("PMI_SIZE").value_or(1);
    if (is_set("PMI_RANK") && size > 1)
      fail_usage(
          "a launcher of another MPI started ", size,
          " processes (PMI_RANK): start them with OpenMPI's mpirun, srun --kill-on-bad-exit=1 or torchrun "
          "--no-python");
    return std::nullopt;
  }
  Start start = found->read();
  if (start.size == 1) return std::nullopt;
  return start;
}

int64_t started_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"})
    if (const auto size = number_if_set(name)) return std::max<int64_t>(1, *size);
  return std::max(slurm_tasks(), number_if_set("PMI_SIZE").value_or(1));
}

}  // namespace tessera::parallel
