#include "parallel/launcher.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>

#include "core/core_testing.h"

namespace tessera::parallel {
namespace {

using Variables = std::map<std::string, std::string>;

// Only these variables are set while it lives.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  static constexpr std::array kNames = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "TORCHELASTIC_RUN_ID",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "OMPI_MCA_orte_jobfam_session_dir",
                                        "OMPI_MCA_orte_hnp_uri",
                                        "OMPI_MCA_orte_precondition_transports",
                                        "PMIX_NAMESPACE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_JOB_ID"};
  Variables before_;
};

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"}};
const Variables kMpirun = {
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"OMPI_MCA_orte_jobfam_session_dir", "/tmp/session"},
    {"OMPI_MCA_orte_hnp_uri", "12.0;tcp://10.0.0.7,192.0.2.1:45671;tcp6://[::1]:47463"},
    {"PMIX_NAMESPACE", "12"}};
const Variables kSrun = {{"SLURM_PROCID", "2"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NODELIST", "gpu[007-009,12]"},
                         {"SLURM_JOB_ID", "77"},
                         {"SLURM_STEP_ID", "0"}};

Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

Start started(const Variables& variables) {
  const Environment environment(variables);
  return read_start().value();
}

std::string why_not(const Variables& variables) {
  const Environment environment(variables);
  return usage_error_of([] { read_start(); });
}

TEST(Launcher, WithoutOneAProcessIsAlone) {
  const Environment none({});
  EXPECT_FALSE(read_start().has_value());
  EXPECT_EQ(started_processes(), 1);
}

TEST(Launcher, TorchrunSetsEverything) {
  const Start start = started(kTorchrun);
  EXPECT_EQ(start.launcher, "torchrun");
  EXPECT_EQ(start.rank, 3);
  EXPECT_EQ(start.size, 4);
  EXPECT_EQ(start.local_rank, 1);
  EXPECT_EQ(start.local_size, 2);
  EXPECT_EQ(start.host, "node1");
  EXPECT_EQ(start.port, 29500);
  EXPECT_FALSE(start.served);
}

TEST(Launcher, TheStoreOfTorchrunsAgentIsJoinedUnderTheAttempt) {
  const Start start = started(
      with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_TRUE(start.served);
  EXPECT_EQ(start.prefix, "/worker/attempt_2");
}

TEST(Launcher, APyTorchJobHasNoLocalRanks) {
  Variables variables = kTorchrun;
  variables.erase("LOCAL_RANK"), variables.erase("LOCAL_WORLD_SIZE");
  EXPECT_EQ(started(variables).local_rank, -1);
  EXPECT_EQ(started(variables).local_size, -1);
}

TEST(Launcher, MpirunOnOneMachineMeetsInItsFolder) {
  const Start start = started(kMpirun);
  EXPECT_EQ(start.launcher, "mpirun");
  EXPECT_EQ(start.host, "127.0.0.1");
  EXPECT_EQ(start.port_file, "/tmp/session/tessera-port-12");
}

TEST(Launcher, MpirunOnSeveralMachinesMeetsAtMpirunOrAtMasterAddr) {
  const Variables several = with(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  const Start start = started(several);
  EXPECT_EQ(start.host, "10.0.0.7");
  EXPECT_EQ(start.port_file, "");
  EXPECT_GE(start.port, 12000);
  EXPECT_LT(start.port, 32000);
  const Start told = started(with(several, {{"MASTER_ADDR", "node9"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(told.host, "node9");
  EXPECT_EQ(told.port, 4000);
}

TEST(Launcher, SrunMeetsOnTheFirstMachine) {
  const Start start = started(kSrun);
  EXPECT_EQ(start.launcher, "srun");
  EXPECT_EQ(start.rank, 2);
  EXPECT_EQ(start.host, "gpu007");
  EXPECT_EQ(start.port, started(with(kSrun, {{"SLURM_PROCID", "0"}})).port);
  EXPECT_NE(start.port, started(with(kSrun, {{"SLURM_STEP_ID", "1"}})).port);
}

TEST(Launcher, FirstMachinesOfLists) {
  EXPECT_EQ(first_machine("node003"), "node003");
  EXPECT_EQ(first_machine("node003,node004"), "node003");
  EXPECT_EQ(first_machine("node[003-010,12],gpu1"), "node003");
  EXPECT_EQ(first_machine("node[3,7]"), "node3");
  EXPECT_EQ(first_machine(""), "");
}

TEST(Launcher, SrunStartsTorchrunAndMpirun) {
  EXPECT_EQ(started(with(with(kSrun, kTorchrun), {{"TORCHELASTIC_RUN_ID", "7"}})).launcher, "torchrun");
  EXPECT_EQ(started(with(kSrun, kMpirun)).launcher, "mpirun");
}

TEST(Launcher, WrongVariablesAreOneLine) {
  EXPECT_EQ(
      why_not(with(kTorchrun, kMpirun)),
      "the variables of two launchers are set, OMPI_COMM_WORLD_SIZE and RANK: unset those of the one that "
      "did not start this process");
  EXPECT_EQ(
      why_not(with(kTorchrun, kSrun)),
      "the variables of two launchers are set, RANK and SLURM_PROCID: unset those of the one that did not "
      "start this process");
  EXPECT_EQ(why_not(with(kTorchrun, {{"RANK", "4"}})),
            "the variable RANK is 4, must be below WORLD_SIZE = 4");
  EXPECT_EQ(why_not(with(kTorchrun, {{"RANK", "-1"}})), "the variable RANK is '-1', must be 0 to 1048576");
  EXPECT_EQ(why_not(with(kTorchrun, {{"WORLD_SIZE", "many"}})),
            "the variable WORLD_SIZE is 'many', must be 1 to 1048576");
  EXPECT_EQ(why_not({{"WORLD_SIZE", "2"}}), "the variable RANK is missing: the launcher must set it");
  EXPECT_EQ(why_not({{"RANK", "0"}}), "the variable WORLD_SIZE is missing: the launcher must set it");
  EXPECT_EQ(why_not(with(kTorchrun, {{"MASTER_PORT", "70000"}})),
            "the variable MASTER_PORT is '70000', must be 1 to 65535");
  EXPECT_EQ(why_not(with(kTorchrun, {{"LOCAL_RANK", "2"}})),
            "the variable LOCAL_RANK is 2, must be below LOCAL_WORLD_SIZE = 2");
  EXPECT_EQ(
      why_not({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
      "the variable MASTER_ADDR is missing: the launcher must set it to the machine of the first process");
  EXPECT_NE(why_not({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).find("a launcher of another MPI"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::parallel
