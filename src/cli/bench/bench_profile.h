// Time of a model by operation, without the time of nested operations.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace tessera::cli {

// Counts every operation of this thread between construction and stop().
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;
  void stop();

  struct Row {
    int64_t calls = 0;
    double seconds = 0;
  };
  const std::map<std::string, Row>& rows() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::cli
