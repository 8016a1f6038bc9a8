// Private to this folder: the engines and channels of a World.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/channel.h"
#include "parallel/meeting_place.h"
#include "parallel/world.h"

namespace tessera::parallel {

// The channels of an axis.
struct Channels {
  c10::intrusive_ptr<Channel> cpu, gpu;  // gpu is null before World::take_gpu()

  Channel& of(const at::Tensor& tensor) const;
};

struct World::Group {
  // The engines of a set of processes, shared by all axes with this set.
  struct Engines {
    c10::intrusive_ptr<c10d::Backend> cpu, gpu;
  };

  explicit Group(MeetingPlace where) : place(std::move(where)) {}

  MeetingPlace place;
  Shared shared;
  bool local = true;  // all processes are on one machine
  int gpu = -1;
  // The gradients of `samples` have engines of their own, since autograd starts their exchanges at other
  // moments than a task its sums.
  std::map<std::vector<int>, Engines> engines, gradient_engines;
  std::vector<std::shared_ptr<Channels>> channels;  // of all axes
  std::shared_ptr<Channels> gradients;
  c10::intrusive_ptr<c10d::ProcessGroup> processes;

  // Returns the engines of a set; makes missing ones, with `name` in the store.
  const Engines& find_engines(std::map<std::vector<int>, Engines>& known, const std::string& name,
                              const std::vector<int>& members, int rank);
  void make_gradients(const Axis& samples);
};

}  // namespace tessera::parallel
