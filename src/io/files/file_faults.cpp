#include "io/files/file_faults.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tessera {
namespace file_faults_detail {
namespace {

constexpr int kKill = -2;
constexpr std::array<const char*, 7> kOperations = {"open",     "write",  "fsync", "rename",
                                                    "truncate", "remove", "mkdir"};
constexpr std::array<std::pair<const char*, int>, 10> kResults = {{{"ENOSPC", ENOSPC},
                                                                   {"EIO", EIO},
                                                                   {"EDQUOT", EDQUOT},
                                                                   {"EACCES", EACCES},
                                                                   {"EROFS", EROFS},
                                                                   {"EINTR", EINTR},
                                                                   {"EMFILE", EMFILE},
                                                                   {"EINVAL", EINVAL},
                                                                   {"KILL", kKill},
                                                                   {"SHORT", kShort}}};

struct Fault {
  std::optional<Operation> operation;  // none: any
  int64_t at = 0;                      // 1 is the first
  bool and_later = false;
  int result = 0;
};

struct Faults {
  std::mutex mutex;
  std::optional<Fault> fault;
  std::array<int64_t, kOperations.size()> counts{};
  int64_t total = 0;

  Faults() {
    if (const char* wanted = std::getenv("TESSERA_FAULT")) fault = parse(wanted);
  }

  static std::optional<Fault> parse(const std::string& line) {
    if (line.empty()) return std::nullopt;
    Fault out;
    auto parts = split(line, ':');
    bool good = parts.size() == 3;
    if (good) {
      good = parts[0] == "any";
      for (size_t i = 0; i < kOperations.size(); ++i)
        if (parts[0] == kOperations[i]) out.operation = static_cast<Operation>(i), good = true;
      out.and_later = parts[1].ends_with('+');
      if (out.and_later) parts[1].pop_back();
      out.at = parse_int(parts[1]).value_or(0);
      for (const auto& [name, result] : kResults)
        if (parts[2] == name) out.result = result;
    }
    if (!good || out.at < 1 || out.result == 0)
      fail_usage("TESSERA_FAULT is '", line, "', must be like write:7:ENOSPC (see io/files/file_faults.h)");
    return out;
  }
};

Faults& faults() {
  static Faults it;
  return it;
}

}  // namespace

int next(Operation operation) {
  Faults& it = faults();
  const std::lock_guard lock(it.mutex);
  ++it.total;
  const int64_t count = ++it.counts[static_cast<size_t>(operation)];
  if (!it.fault) return 0;
  const Fault& fault = *it.fault;
  if (fault.operation && *fault.operation != operation) return 0;
  const int64_t at = fault.operation ? count : it.total;
  if (at < fault.at || (at > fault.at && !fault.and_later)) return 0;
  if (fault.result == kKill) kill(getpid(), SIGKILL);
  if (fault.result == kShort && operation != Operation::write) return 0;
  return fault.result;
}

}  // namespace file_faults_detail

void FileFaults::set(const std::string& fault) {
  auto& it = file_faults_detail::faults();
  const std::lock_guard lock(it.mutex);
  it.fault = file_faults_detail::Faults::parse(fault);
  it.counts = {};
  it.total = 0;
}

int64_t FileFaults::count() {
  auto& it = file_faults_detail::faults();
  const std::lock_guard lock(it.mutex);
  return it.total;
}

}  // namespace tessera
