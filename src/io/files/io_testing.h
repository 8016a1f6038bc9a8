// For the tests of io: a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/core_testing.h"

namespace tessera {

// True if a child process is still running; leaves an ended one to be waited for.
inline bool is_running(pid_t child) {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder");
    folder_ = name;
  }
  ~TemporaryFolder() override { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }

 private:
  std::string folder_;
};

}  // namespace tessera
