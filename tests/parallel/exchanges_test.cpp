// Exchanges between processes without a training: many at once, gradients, and processes that die.
#include <chrono>
#include <thread>

#include "core/random.h"
#include "tests/parallel/parallel_testing.h"

namespace tessera::parallel_testing {
namespace {

using std::chrono::milliseconds;

class Exchanges : public ParallelTest {
 protected:
  int exchange(int processes, const std::string& name, Words words, By by = By::script) const {
    words.insert(words.begin(), TESSERA_EXCHANGES);
    return exit_code(
        start_each(path(name), std::vector<Words>(static_cast<size_t>(processes), std::move(words)), by));
  }
};

TEST_F(Exchanges, ProcessesMeetUnderEveryLauncher) {
  EXPECT_EQ(exchange(3, "script", {"meet"}), 0) << log("script");
  EXPECT_EQ(exchange(3, "standard", {"meet"}, kLauncher), 0) << log("standard");
}

TEST_F(Exchanges, DifferentProgramsAreRefused) {
  fs::copy_file(TESSERA_EXCHANGES, path("another"));
  EXPECT_EQ(exit_code(start_each(path("both"), {{TESSERA_EXCHANGES, "meet"}, {path("another"), "meet"}},
                                 By::script)),
            1);
  EXPECT_NE(log("both").find("process 0 is exchanges "), std::string::npos) << log("both");
  EXPECT_NE(log("both").find(", process 1 is another "), std::string::npos) << log("both");
  EXPECT_NE(log("both").find(": start the same program everywhere"), std::string::npos) << log("both");
}

TEST_F(Exchanges, AutogradSendsEachGradientBack) {
  EXPECT_EQ(exchange(3, "gradients", {"gradients"}), 0) << log("gradients");
}

TEST_F(Exchanges, ShardsHoldMeansOfGradientsAndSendTheBytesOfTheFormula) {
  EXPECT_EQ(exchange(3, "one", {"shards", "1", "3"}), 0) << log("one");
  EXPECT_EQ(exchange(3, "two", {"shards", "2", "3"}), 0) << log("two");
  EXPECT_EQ(exchange(4, "copies", {"shards", "2", "2"}), 0) << log("copies");
  EXPECT_EQ(exchange(3, "three", {"shards", "3", "3"}), 0) << log("three");
}

TEST_F(Exchanges, ZeroSavesTheMemoryOfTheFormula) {
  for (const int processes : {2, 4}) {
    const std::string name = "memory" + std::to_string(processes);
    EXPECT_EQ(exchange(processes, name, {"memory"}), 0) << log(name);
  }
}

TEST_F(Exchanges, ManyAtOnceOnAMeshAreRightAndCounted) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(exchange(4, "mesh", {"mesh", "1", "2000"}), 0) << log("mesh");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
}

// --- tessera doctor --cluster

TEST_F(Exchanges, DoctorChecksEveryExchangeAndNamesTheSlowProcess) {
  const Words words = {TESSERA_PROGRAM,     "doctor", "--cluster", "--set",
                       "parallel.tensor=2", "--json", "--output",  path("cluster.toml")};
  const auto began = std::chrono::steady_clock::now();
  const pid_t job = start_each(path("doctor"), std::vector<Words>(4, words), By::script);
  std::vector<pid_t> processes;
  while (processes.size() < 4 && is_running(job)) processes = children_of(job);
  ASSERT_EQ(processes.size(), 4u) << log("doctor");
  while (is_running(job)) {  // stopped for half of the time
    ::kill(processes[2], SIGSTOP);
    std::this_thread::sleep_for(milliseconds(50));
    ::kill(processes[2], SIGCONT);
    std::this_thread::sleep_for(milliseconds(50));
  }
  ASSERT_EQ(exit_code(job), 0) << log("doctor");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  const Json found = Json::parse(read_text(path("doctor.out")));
  EXPECT_EQ(found.at("exchanges").size(), 2u * 6 * 5);  // axes, kinds, sizes
  for (const Json& one : found.at("exchanges")) {
    EXPECT_TRUE(one.at("right").get<bool>()) << one;
    EXPECT_GT(one.at("bytes_per_second").get<double>(), 0) << one;
  }
  for (const Json& one : found.at("processes"))
    EXPECT_EQ(one.at("slow").get<bool>(), one.at("rank") == 2) << found.at("processes");
  const Words plan = {TESSERA_PROGRAM, "plan", path("recipe.toml"), "--cluster", path("cluster.toml")};
  EXPECT_EQ(exit_code(start_words(path("plan"), plan)), 0) << log("plan");
}

// --- processes that die

// Three processes without a launcher that ends them.
struct Three {
  std::vector<pid_t> processes;
  std::string output;

  bool is_ready() const {
    return fs::exists(output + ".out") && read_text(output + ".out").find("ready") != std::string::npos;
  }
};

class Dying : public Exchanges {
 protected:
  void SetUp() override { ::setenv("TESSERA_WAIT_SECONDS", "5", 1); }
  void TearDown() override { ::unsetenv("TESSERA_WAIT_SECONDS"); }

  Three start_three(const std::string& name, const Words& words) const {
    Three job{{}, path(name)};
    const int port = free_port();
    for (int rank = 0; rank < 3; ++rank) {
      job.processes.push_back(::fork());
      if (job.processes.back() != 0) continue;
      ::dup2(::open((job.output + ".out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666), 1);
      ::dup2(::open((job.output + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666), 2);
      set_torchrun(rank, 3, port);
      run_words(words);
    }
    return job;
  }
  // Waits until a process has ended; -1 if it has not after `limit`, and then kills it.
  static int wait_for(pid_t process, std::chrono::steady_clock::time_point limit) {
    int status = 0;
    while (::waitpid(process, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > limit) {
        ::kill(process, SIGKILL);
        ::waitpid(process, &status, 0);
        return -1;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // The others end with 75 within the time that was set, and name the victim and the exchange.
  void expect_named(const Three& job, size_t victim, std::chrono::steady_clock::time_point since,
                    const std::string& fate) const {
    const auto limit = since + std::chrono::seconds(5) + milliseconds(500);  // the time to end and be seen
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(wait_for(job.processes[rank], limit), 75)
          << rank << " after " << victim << ": " << read_text(job.output + ".log");
    }
    const std::string said = read_text(job.output + ".log");
    EXPECT_NE(said.find(text(" s for process ", victim, ", which ", fate)), std::string::npos) << said;
    EXPECT_NE(said.find("exchange "), std::string::npos) << said;
    EXPECT_NE(said.find(" on axis 'all' (sum, "), std::string::npos) << said;
  }
  // Sends a signal to a drawn process at ten drawn moments. The jobs run next to each other, as they mostly
  // wait.
  void expect_named_after(int signal) const {
    RandomStream random(static_cast<uint64_t>(signal), "victims");
    std::vector<std::thread> threads;
    for (int i = 0; i < 10; ++i) {
      const size_t victim = i < 2 ? 0 : random.below(3);
      const auto pause = milliseconds(random.below(200));
      const Three job = start_three(text("job", i), {TESSERA_EXCHANGES, "endless"});
      const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!job.is_ready() && std::chrono::steady_clock::now() < last)
        std::this_thread::sleep_for(milliseconds(5));
      EXPECT_TRUE(job.is_ready()) << read_text(job.output + ".log");
      std::this_thread::sleep_for(pause);
      ::kill(job.processes[victim], signal);
      const auto since = std::chrono::steady_clock::now();
      threads.emplace_back([this, job, victim, since] {
        expect_named(job, victim, since, "is dead or stopped");
        ::kill(job.processes[victim], SIGKILL);
        wait_for(job.processes[victim], std::chrono::steady_clock::now() + std::chrono::seconds(5));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(Dying, AKilledProcessIsNamed) { expect_named_after(SIGKILL); }

TEST_F(Dying, AStoppedProcessIsNamed) { expect_named_after(SIGSTOP); }

TEST_F(Dying, AFailureIsNamed) {
  RandomStream random(1, "failures");
  for (int i = 0; i < 10; ++i) {
    const Three job =
        start_three(text("job", i), {TESSERA_EXCHANGES, "endless", std::to_string(5 + random.below(100))});
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    EXPECT_EQ(wait_for(job.processes[1], limit), 1);
    expect_named(job, 1, std::chrono::steady_clock::now(), "failed: this is the failure of the test");
  }
}

TEST_F(Dying, AStoreThatNobodyServesIsNamed) {
  ::setenv("TESSERA_WAIT_SECONDS", "2", 1);
  const int port = free_port();
  const pid_t lonely = ::fork();
  if (lonely == 0) {
    redirect(path("lonely"));
    set_torchrun(1, 2, port);
    run_words({TESSERA_EXCHANGES, "meet"});
  }
  EXPECT_EQ(exit_code(lonely), 1);
  EXPECT_NE(log("lonely").find(text("process 1 of 2 has waited 2 s for the store at 127.0.0.1 port ", port)),
            std::string::npos)
      << log("lonely");
}

TEST_F(Dying, AProcessThatDoesNotComeIsNamed) {
  ::setenv("TESSERA_WAIT_SECONDS", "2", 1);
  const int port = free_port();
  const pid_t waiting = ::fork();
  if (waiting == 0) {
    redirect(path("waiting"));
    set_torchrun(0, 2, port);
    run_words({TESSERA_EXCHANGES, "meet"});
  }
  EXPECT_EQ(exit_code(waiting), 75);
  const std::string line = text("process 0 of 2 has waited 2 s at 127.0.0.1 port ", port, " for process 1");
  EXPECT_NE(log("waiting").find(line), std::string::npos) << log("waiting");
}

TEST_F(Dying, APortInUseIsNamed) {
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {INADDR_ANY}, .sin_zero = {}};
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  ::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size);
  const int port = ntohs(address.sin_port);
  const pid_t first = ::fork();
  if (first == 0) {
    redirect(path("first"));
    set_torchrun(0, 2, port);
    run_words({TESSERA_EXCHANGES, "meet"});
  }
  EXPECT_EQ(exit_code(first), 1);
  ::close(taken);
  EXPECT_NE(log("first").find(text("port ", port, " of this machine is in use: set MASTER_PORT")),
            std::string::npos)
      << log("first");
}

}  // namespace
}  // namespace tessera::parallel_testing
