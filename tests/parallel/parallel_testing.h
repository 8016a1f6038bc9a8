// Training runs over processes of this machine, for the tests of them: started, waited for, compared.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/text.h"
#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "io/weights/weight_file.h"

namespace tessera::parallel_testing {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// 24 pictures a step: shares of 24, 12 and 8. The last evaluation batch is not a multiple of three.
inline constexpr const char* kMixing = "[task.mixup]\nmixup = 0.8\ncutmix = 1.0\n";
inline constexpr const char* kRecipe = R"(
[model]
name = "vit"
dim = 32
depth = 2
heads = 2
patch_size = 8
drop_path = 0.3
[data]
path = "shapes:train=240,val=50"
[preprocess]
size = 32
[augment]
crop = "padded"
[optimiser]
name = "adamw"
lr = 0.001
[schedule]
name = "cosine"
warmup_steps = 3
[train]
steps = 20
batch_size = 24
eval_batch_size = 16
device = "cpu"
threads = 1
clip_grad = 1.0
ema_decay = 0.9
log_every = 5
)";

// Children of a process.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, state;
    pid_t ppid = 0;
    if (stat >> pid >> name >> state >> ppid && ppid == parent) found.push_back(std::stoi(pid));
  }
  return found;
}

class ParallelTest : public TemporaryFolder {
 protected:
  void SetUp() override { use_task(kMixing); }
  void use_task(const std::string& task) const { write_text_atomic(path("recipe.toml"), kRecipe + task); }

  using Words = std::vector<std::string>;
  enum class By { mpirun, script };
#ifdef TESSERA_MPIRUN
  static constexpr By kLauncher = By::mpirun;
#else
  static constexpr By kLauncher = By::script;
#endif

  // Starts `processes` of the program; what they print goes to RUN.out and RUN.log.
  pid_t start(int processes, const std::string& run, const Words& settings, const Words& options = {},
              By by = kLauncher) const {
    const Words words = training(run, settings, options);
    if (processes == 1) return start_words(path(run), words);
    return start_each(path(run), std::vector<Words>(static_cast<size_t>(processes), words), by);
  }
  Words training(const std::string& run, const Words& settings, const Words& options = {}) const {
    Words words = {TESSERA_PROGRAM, "train", path("recipe.toml"), "--output", path(run)};
    words.insert(words.end(), options.begin(), options.end());
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return words;
  }
  // Starts one program for each rank.
  static pid_t start_each(const std::string& output, const std::vector<Words>& programs, By by = kLauncher) {
    if (by == By::mpirun) return start_words(output, mpirun(programs));
    const int port = free_port();
    const pid_t child = ::fork();
    if (child != 0) return child;
    redirect(output);
    supervise(programs, port);
  }
  static Words mpirun(const std::vector<Words>& programs) {
#ifdef TESSERA_MPIRUN
    Words words = {TESSERA_MPIRUN, "--oversubscribe", "--bind-to", "none"};
    for (size_t i = 0; i < programs.size(); ++i) {
      if (i > 0) words.emplace_back(":");
      words.insert(words.end(), {"-n", "1"});
      words.insert(words.end(), programs[i].begin(), programs[i].end());
    }
    return words;
#else
    return programs.at(0);
#endif
  }
  static int free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof(address);
    ::bind(socket, reinterpret_cast<sockaddr*>(&address), size);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    ::close(socket);
    return ntohs(address.sin_port);
  }
  static void set_torchrun(int rank, int size, int port) {
    const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
    set("RANK", std::to_string(rank)), set("WORLD_SIZE", std::to_string(size));
    set("LOCAL_RANK", std::to_string(rank)), set("LOCAL_WORLD_SIZE", std::to_string(size));
    set("MASTER_ADDR", "127.0.0.1"), set("MASTER_PORT", std::to_string(port));
  }
  // A launcher as torchrun: sets its variables, and ends with the first exit code that is not 0; a signal counts
  // only if all others end with 0. The others have ten seconds to end by themselves.
  [[noreturn]] static void supervise(const std::vector<Words>& programs, int port) {
    std::vector<pid_t> processes;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      processes.push_back(::fork());
      if (processes.back() != 0) continue;
      set_torchrun(static_cast<int>(rank), static_cast<int>(programs.size()), port);
      run_words(programs[rank]);
    }
    int first = 0, status = 0;
    auto limit = std::chrono::steady_clock::time_point::max();
    for (size_t left = processes.size(); left > 0;) {
      if (::waitpid(-1, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > limit)
          for (const pid_t process : processes) ::kill(process, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        continue;
      }
      --left;
      if (status == 0) continue;
      if (WIFEXITED(status) && (first == 0 || first > 128)) first = WEXITSTATUS(status);
      if (first == 0) first = 128 + WTERMSIG(status);
      limit = std::min(limit, std::chrono::steady_clock::now() + std::chrono::seconds(10));
    }
    ::_exit(first);
  }
  static void redirect(const std::string& output) {
    ::dup2(::open((output + ".out").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0666), 1);
    ::dup2(::open((output + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0666), 2);
  }
  [[noreturn]] static void run_words(Words words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  static pid_t start_words(const std::string& output, const Words& words) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    redirect(output);
    for (const char* variable : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"})
      ::setenv(variable, "1", 1);
    run_words(words);
  }
  static int exit_code(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(int processes, const std::string& name, const Words& settings = {}, const Words& options = {},
          By by = kLauncher) const {
    return exit_code(start(processes, name, settings, options, by));
  }
  std::string log(const std::string& run) const { return read_text(path(run + ".log")); }

  std::map<std::string, std::vector<double>> weights(const std::string& run,
                                                     const std::string& which = "weights") const {
    std::string name = path(run + "/checkpoints/latest/" + which + ".safetensors");
    if (fs::exists(name + ".index.json")) name += ".index.json";
    const WeightFile file(name);
    std::map<std::string, std::vector<double>> out;
    for (const TensorView& view : file.tensors()) {
      auto& numbers = out[view.name];
      const auto take = [&](auto element) {
        using Element = decltype(element);
        numbers.resize(view.bytes.size() / sizeof(Element));
        for (size_t i = 0; i < numbers.size(); ++i) {
          std::memcpy(&element, view.bytes.data() + i * sizeof(Element), sizeof(Element));
          numbers[i] = static_cast<double>(element);
        }
      };
      if (view.dtype == DType::f64)
        take(double{});
      else
        take(float{});
    }
    return out;
  }
  std::vector<Json> metrics(const std::string& run, const std::string& kind) const {
    std::vector<Json> lines;
    std::istringstream content(read_text(path(run + "/metrics.jsonl")));
    for (std::string line; std::getline(content, line);)
      if (const Json object = Json::parse(line); object.at("kind") == kind) lines.push_back(object);
    return lines;
  }
  // A key's bias adds the same to all scores of a query: its true gradient is zero, and what Adam makes of
  // rounding is held to the step that it can make. It is the middle third of its tensor.
  static bool is_key_bias(const std::string& name, size_t i, size_t count) {
    return name.ends_with(".attn.qkv.bias") && i >= count / 3 && i < 2 * count / 3;
  }
  // To 1e-9 of each tensor, of the weights, their moving average and the optimiser's moments. A moment of a bias that a
  // norm takes away again is rounding alone.
  void expect_close_weights(const std::string& run, const std::string& other) const {
    for (const char* which : {"weights", "ema", "optimiser"}) {
      const auto want = weights(run, which), got = weights(other, which);
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [name, numbers] : want) {
        double difference = 0, size = 0, of_keys = 0;
        for (size_t i = 0; i < numbers.size(); ++i) {
          const double square = std::pow(numbers[i] - got.at(name)[i], 2);
          (is_key_bias(name, i, numbers.size()) ? of_keys : difference) += square;
          size += numbers[i] * numbers[i];
        }
        const double rounding = which == std::string("optimiser") ? 1e-18 : 0;
        EXPECT_LE(std::sqrt(difference), 1e-9 * std::sqrt(size) + rounding)
            << other << " " << which << " " << name;
        EXPECT_LE(std::sqrt(of_keys), 1e-9 * std::max(std::sqrt(size), 1e-2))
            << other << " " << which << " " << name;
      }
    }
  }
  // The same weights and measurements in float64 whatever the number of processes. Even numbers start by mpirun
  // if there is one, odd ones by the script.
  void expect_same_runs(const std::vector<int>& processes, std::vector<std::string> settings) const {
    settings.emplace_back("train.precision=fp64");
    const auto name = [](int count) { return "run" + std::to_string(count); };
    for (const int count : processes) {
      fs::remove_all(path(name(count)));
      ASSERT_EQ(run(count, name(count), settings, {}, count % 2 == 0 ? kLauncher : By::script), 0)
          << log(name(count));
    }
    for (size_t i = 1; i < processes.size(); ++i) {
      expect_close_weights(name(processes[0]), name(processes[i]));
      expect_close_metrics(name(processes[0]), name(processes[i]), 1e-9);
    }
  }
  void expect_close_metrics(const std::string& run, const std::string& other, double relative) const {
    for (const char* kind : {"train", "eval"}) {
      const auto a = metrics(run, kind), b = metrics(other, kind);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i)
        for (const char* key : {"loss", "accuracy", "top1", "grad_norm", "samples"}) {
          if (!a[i].contains(key)) continue;
          const double want = a[i][key].get<double>(), got = b[i].at(key).get<double>();
          // Shares of right answers are means in float32.
          const double allowed = std::string(key) == "accuracy" ? std::max(relative, 1e-6) : relative;
          EXPECT_NEAR(want, got, allowed * std::max(1.0, std::abs(want)))
              << kind << " line " << i << " " << key;
        }
    }
  }
};

}  // namespace tessera::parallel_testing
