#include "parallel/world.h"

#include <c10/util/Logging.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/text.h"
#include "parallel/engines.h"
#include "parallel/launcher.h"

namespace tessera::parallel {
namespace {

torch::Tensor tensor_of(const std::string& bytes, int64_t size) {
  torch::Tensor out = torch::zeros({size}, torch::kUInt8);
  if (!bytes.empty()) std::memcpy(out.mutable_data_ptr(), bytes.data(), bytes.size());
  return out;
}

std::string bytes_of(const torch::Tensor& tensor, int64_t size) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<size_t>(size)};
}

// Prints a line if the processes do not meet within some seconds.
class JoinNote {
 public:
  JoinNote() : thread_([this] { run(); }) {}
  ~JoinNote() {
    {
      const std::lock_guard lock(mutex_);
      joined_ = true;
    }
    ready_.notify_all();
    thread_.join();
  }
  JoinNote(const JoinNote&) = delete;

 private:
  void run() {
    constexpr std::chrono::seconds kPatience(10);
    std::unique_lock lock(mutex_);
    if (ready_.wait_for(lock, kPatience, [this] { return joined_; })) return;
    std::cerr << text("tessera: waits for the other processes, ", started_processes(),
                      " were started: all of them must be the same tessera\n")
              << std::flush;
  }
  std::mutex mutex_;
  std::condition_variable ready_;
  bool joined_ = false;
  std::thread thread_;
};

// Equal in processes that can work together.
std::string name_of_program() {
  std::error_code none;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", none).filename().string();
  return text(program, " ", TESSERA_VERSION, " with LibTorch ", TORCH_VERSION);
}

void check_programs(const std::vector<std::string>& programs) {
  for (size_t rank = 1; rank < programs.size(); ++rank)
    if (programs[rank] != programs[0])
      fail_usage("process 0 is ", printable(programs[0]), ", process ", rank, " is ",
                 printable(programs[rank]), ": start the same program everywhere");
}

// Returns the line for a process that cannot connect to the others of a group.
std::string why_no_connection(const std::vector<int>& members, int rank, const std::string& cause) {
  std::vector<std::string> others;
  for (size_t i = 0; i < members.size(); ++i)
    if (static_cast<int>(i) != rank) others.push_back(std::to_string(members[i]));
  return text("process ", members.at(static_cast<size_t>(rank)), " has no connection to ",
              others.size() == 1 ? "process " : "processes ", some_of(others, 10), ": ",
              printable(cause.substr(0, cause.find('\n'))));
}

}  // namespace

std::string name_of_machine() {
  std::array<char, 256> name = {};
  check(::gethostname(name.data(), name.size() - 1) == 0, "this machine has no name");
  return name.data();
}

World::World() : machines_{name_of_machine()} {
  for (size_t i = 0; i < kAxes; ++i) axes_.emplace_back(name_of(static_cast<AxisName>(i)));
}

std::unique_ptr<World> World::alone() { return std::unique_ptr<World>(new World()); }

std::unique_ptr<World> World::join() {
  std::unique_ptr<World> world = alone();
  const std::optional<Start> start = read_start();
  if (!start) return world;
  FLAGS_caffe2_log_level = 3;  // errors of the store and of Gloo become our own lines
  ::signal(SIGPIPE, SIG_IGN);  // so does a message to a process that has died
  const JoinNote note;
  auto group = std::make_unique<Group>(MeetingPlace(*start));
  check_programs(group->place.exchange("program", name_of_program()));
  world->machines_ = group->place.exchange("machine", name_of_machine());
  world->launcher_ = start->launcher;
  world->rank_ = static_cast<int>(start->rank), world->size_ = static_cast<int>(start->size);
  world->name_machines();
  if (start->local_rank >= 0 && start->local_size > 0) {
    world->local_rank_ = static_cast<int>(start->local_rank);
    world->local_size_ = static_cast<int>(start->local_size);
  }
  group->local = world->local_size_ == world->size_;
  group->shared.log = std::make_shared<ExchangeLog>();
  const MeetingPlace& place = group->place;
  group->shared.watch = std::make_shared<Watch>([&place] { return place.connect(); }, world->rank_,
                                                world->size_, start->served);
  world->group_ = std::move(group);
  world->mesh_ = Mesh(world->size_);
  world->make_axes();
  return world;
}

void World::name_machines() {
  const std::string& mine = machines_[static_cast<size_t>(rank_)];
  local_size_ = static_cast<int>(std::count(machines_.begin(), machines_.end(), mine));
  local_rank_ = static_cast<int>(std::count(machines_.begin(), machines_.begin() + rank_, mine));
}

World::~World() {
  if (!group_) return;
  group_->shared.watch->stop();
  group_->place.leave();
  for (const auto* known : {&group_->engines, &group_->gradient_engines})
    for (const auto& [members, engines] : *known)
      if (engines.gpu) engines.gpu->shutdown();
}

// --- axes

const World::Group::Engines& World::Group::find_engines(std::map<std::vector<int>, Engines>& known,
                                                        const std::string& name,
                                                        const std::vector<int>& members, int rank) {
  Engines& found = known[members];
  std::string key = name;
  for (const int member : members) key += "." + std::to_string(member);
  const auto size = static_cast<int>(members.size());
  try {
    if (!found.cpu) found.cpu = make_gloo(place.part("gloo/" + key), rank, size, local);
    if (gpu >= 0 && !found.gpu) found.gpu = make_nccl(place.part("nccl/" + key), rank, size, gpu);
  } catch (const Error&) {
    throw;  // not of a connection
  } catch (const std::exception& error) {
    throw Lost(why_no_connection(members, rank, error.what()));
  }
  return found;
}

Axis World::make_axis(const std::string& name, const std::vector<int>& members, bool own_engines) {
  if (members.size() == 1) return Axis(name);
  const auto rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  const Group::Engines& engines =
      own_engines ? group_->find_engines(group_->gradient_engines, "gradients", members, rank)
                  : group_->find_engines(group_->engines, "tensors", members, rank);
  const auto channel = [&](const c10::intrusive_ptr<c10d::Backend>& engine) {
    return engine ? c10::make_intrusive<Channel>(name, kSum, members, engine, group_->shared) : nullptr;
  };
  auto channels = std::make_shared<Channels>(Channels{channel(engines.cpu), channel(engines.gpu)});
  group_->channels.push_back(channels);
  return {name, members, rank, std::move(channels)};
}

void World::make_axes() {
  std::vector<int> everyone(static_cast<size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) everyone[static_cast<size_t>(rank)] = rank;
  group_->channels.clear();
  all_ = make_axis("all", everyone);
  for (size_t i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<AxisName>(i);
    axes_[i] = make_axis(tessera::name_of(axis), mesh_.group_of(rank_, {axis}));
  }
  samples_ = make_product("samples", {AxisName::replicate, AxisName::shard});
  holders_ = make_product("holders", {AxisName::pipeline, AxisName::shard, AxisName::tensor});
  // In the order of the pairs, so that each waits for the one before it.
  const std::vector<int>& stages = axis(AxisName::pipeline).members();
  const auto place = static_cast<size_t>(axis(AxisName::pipeline).rank());
  if (place > 0) previous_ = make_pair({stages[place - 1], stages[place]});
  if (place + 1 < stages.size()) next_ = make_pair({stages[place], stages[place + 1]});
  // Processes with the same samples have gradients of the same loss, whose mean is the same.
  group_->make_gradients(mesh_.degree(AxisName::tensor) == 1 ? samples_ : all_);
}

Axis World::make_product(const std::string& name, const std::vector<AxisName>& names) {
  std::vector<AxisName> divided;
  std::ranges::copy_if(names, std::back_inserter(divided),
                       [&](AxisName one) { return mesh_.degree(one) > 1; });
  if (divided.size() <= 1) return axis(divided.empty() ? names[0] : divided[0]);
  return make_axis(name, mesh_.group_of(rank_, names));
}

World::Pair World::make_pair(const std::vector<int>& members) {
  Axis forwards = make_axis("pipeline forwards", members);
  return {std::move(forwards), make_axis("pipeline backwards", members, /*own_engines=*/true)};
}

void World::Group::make_gradients(const Axis& samples) {
  if (samples.size() == 1) {
    gradients = nullptr, processes = nullptr;
    return;
  }
  const Engines& found = find_engines(gradient_engines, "gradients", samples.members(), samples.rank());
  const auto channel = [&](const c10::intrusive_ptr<c10d::Backend>& engine) {
    return c10::make_intrusive<Channel>(samples.name(), kGradients, samples.members(), engine, shared);
  };
  gradients = std::make_shared<Channels>();
  processes = c10::make_intrusive<c10d::ProcessGroup>(samples.rank(), samples.size());
  const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
  gradients->cpu = channel(found.cpu);
  processes->setBackend(c10::DeviceType::CPU, custom, gradients->cpu);
  if (found.gpu) {
    gradients->gpu = channel(found.gpu);
    processes->setBackend(c10::DeviceType::CUDA, custom, gradients->gpu);
  }
  processes->setDefaultBackend(custom);
  processes->setGroupName("tessera");
}

void World::lay_out(const ParallelConfig& config) {
  Mesh mesh(config, size_);
  if (!group_) return;
  bool same = true;
  for (size_t i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<AxisName>(i);
    same = same && mesh.degree(axis) == mesh_.degree(axis);
  }
  mesh_ = mesh;
  if (!same) make_axes();
}

// --- exchanges

bool World::any(bool mine) {
  if (!group_) return mine;
  const torch::Tensor count = torch::tensor(mine ? 1 : 0, torch::kInt64);
  sum(count);
  return count.item<int64_t>() > 0;
}

std::string World::broadcast(const std::string& bytes) {
  if (!group_) return bytes;
  torch::Tensor size = torch::tensor(static_cast<int64_t>(bytes.size()), torch::kInt64);
  all_.start_broadcast(size)();
  const auto count = size.item<int64_t>();
  const torch::Tensor content = leader() ? tensor_of(bytes, count) : torch::zeros({count}, torch::kUInt8);
  if (count > 0) all_.start_broadcast(content)();
  return bytes_of(content, count);
}

std::vector<std::string> World::gather(const std::string& bytes) {
  if (!group_) return {bytes};
  const auto mine = static_cast<int64_t>(bytes.size());
  const torch::Tensor sizes = all_.gather_counts({mine});
  const std::vector<int64_t> counts(sizes.const_data_ptr<int64_t>(), sizes.const_data_ptr<int64_t>() + size_);
  const torch::Tensor whole = all_.gather(tensor_of(bytes, mine), counts);
  std::vector<std::string> out;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    out.push_back(bytes_of(whole.slice(0, begin, begin + count), count));
    begin += count;
  }
  return out;
}

std::vector<Traffic> World::traffic() const {
  if (!group_) return {};
  const auto collect = [](const std::shared_ptr<Channels>& channels) {
    if (channels && channels->gpu) channels->gpu->collect();
  };
  for (const auto& channels : group_->channels) collect(channels);
  collect(group_->gradients);
  return group_->shared.log->traffic();
}

void World::start_recording() {
  if (!group_) return;
  traffic();  // excludes earlier exchanges of GPUs
  group_->shared.log->start_recording();
}

std::vector<Collective> World::stop_recording() {
  if (!group_) return {};
  traffic();
  return group_->shared.log->stop_recording();
}

void World::take_gpu(int index) {
  check(group_ != nullptr, "a process that is alone takes any GPU without the others");
  group_->gpu = index;
  make_axes();
}

void World::blame(const std::string& line) {
  if (group_) group_->shared.watch->publish_failure(line);
}

void World::end(int exit_code) {
  std::cout.flush();
  std::_Exit(exit_code);
}

int gpu_of(int local_rank, int local_size, int gpus) {
  if (gpus >= local_size) return local_rank;
  return gpus == 1 ? 0 : -1;
}

std::string why_no_gpu_each(std::span<const std::string> names) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < names.size(); ++rank) {
    if (names[rank].empty()) return text("process ", rank, " of ", names.size(), " has no GPU to itself");
    const auto [owner, fresh] = owners.emplace(names[rank], rank);
    if (!fresh)
      return text("processes ", owner->second, " and ", rank, " of ", names.size(), " have the same GPU");
  }
  return "";
}

}  // namespace tessera::parallel
