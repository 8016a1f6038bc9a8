#include "parallel/world.h"

#include <torch/torch.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "core/error.h"
#include "core/text.h"
#include "parallel/group.h"
#include "parallel/started.h"

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

// Prints a line if MPI does not connect the processes within some seconds.
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
                      " were started: all of them must be the same `tessera train`\n")
              << std::flush;
  }
  std::mutex mutex_;
  std::condition_variable ready_;
  bool joined_ = false;
  std::thread thread_;
};

Launched launch(const std::shared_ptr<CollectiveLog>& log) {
  const JoinNote note;
  return launch_mpi(log);
}

}  // namespace

World::World() = default;

std::unique_ptr<World> World::alone() { return std::unique_ptr<World>(new World()); }

std::string name_of_machine() {
  std::array<char, 256> name = {};
  check(::gethostname(name.data(), name.size() - 1) == 0, "this machine has no name");
  return name.data();
}

std::unique_ptr<World> World::join() {
  std::unique_ptr<World> world = alone();
  if (!launched()) return world;  // without a launcher MPI is never started
  auto log = std::make_shared<CollectiveLog>();
  Launched mpi = launch(log);
  refuse_lonely(mpi.size);
  world->rank_ = mpi.rank, world->size_ = mpi.size;
  world->local_rank_ = mpi.local_rank, world->local_size_ = mpi.local_size;
  auto processes = c10::make_intrusive<c10d::ProcessGroup>(mpi.rank, mpi.size);
  processes->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, mpi.gradients);
  processes->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  processes->setGroupName("tessera");
  world->group_ =
      std::make_unique<Group>(Group{std::move(processes), std::move(mpi.others), nullptr, std::move(log)});
  return world;
}

World::~World() {
  if (!group_) return;
  if (group_->nccl) group_->nccl->shutdown();
  group_.reset();
  leave_mpi();
}

void World::sum(const torch::Tensor& values) {
  if (!group_) return;
  std::vector<torch::Tensor> tensors = {values};
  group_->backend->allreduce(tensors, {})->wait();
}

bool World::any(bool mine) {
  if (!group_) return mine;
  const torch::Tensor count = torch::tensor(mine ? 1 : 0, torch::kInt64);
  sum(count);
  return count.item<int64_t>() > 0;
}

std::string World::broadcast(const std::string& bytes) {
  if (!group_) return bytes;
  torch::Tensor size = torch::tensor(static_cast<int64_t>(bytes.size()), torch::kInt64);
  std::vector<torch::Tensor> tensors = {size};
  group_->backend->broadcast(tensors, {})->wait();
  const auto count = size.item<int64_t>();
  tensors = {leader() ? tensor_of(bytes, count) : torch::zeros({count}, torch::kUInt8)};
  if (count > 0) group_->backend->broadcast(tensors, {})->wait();
  return bytes_of(tensors[0], count);
}

std::vector<std::string> World::gather(const std::string& bytes) {
  if (!group_) return {bytes};
  const torch::Tensor sizes = torch::zeros({size_}, torch::kInt64);
  sizes[rank_] = static_cast<int64_t>(bytes.size());
  sum(sizes);
  const auto largest = sizes.max().item<int64_t>();
  std::vector<torch::Tensor> mine = {tensor_of(bytes, largest)};
  std::vector<std::vector<torch::Tensor>> all(1);
  for (int rank = 0; rank < size_; ++rank) all[0].push_back(torch::empty({largest}, torch::kUInt8));
  if (largest > 0) group_->backend->allgather(all, mine, {})->wait();
  std::vector<std::string> out;
  for (int rank = 0; rank < size_; ++rank)
    out.push_back(bytes_of(all[0][static_cast<size_t>(rank)], sizes[rank].item<int64_t>()));
  return out;
}

std::function<void()> World::pass_on(const torch::Tensor& rows, const torch::Tensor& into) {
  check(group_ != nullptr, "a process that is alone has no next one");
  std::vector<int64_t> sent(static_cast<size_t>(size_)), received(static_cast<size_t>(size_));
  sent[static_cast<size_t>((rank_ + 1) % size_)] = rows.size(0);
  received[static_cast<size_t>((rank_ + size_ - 1) % size_)] = into.size(0);
  torch::Tensor from = rows, to = into;
  return [work = group_->backend->alltoall_base(to, from, received, sent, {})] { work->wait(); };
}

std::vector<Traffic> World::traffic() const {
  if (!group_) return {};
  if (group_->nccl) collect_nccl(*group_->nccl);
  return group_->log->traffic();
}

void World::start_recording() {
  if (!group_) return;
  if (group_->nccl) collect_nccl(*group_->nccl);  // excludes earlier collectives
  group_->log->start_recording();
}

std::vector<Collective> World::stop_recording() {
  if (!group_) return {};
  if (group_->nccl) collect_nccl(*group_->nccl);
  return group_->log->stop_recording();
}

void World::take_gpu(int index) {
  check(group_ != nullptr, "a process that is alone takes any GPU without the others");
  group_->nccl = make_nccl(meet(*this), rank_, size_, index, group_->log);
  group_->processes->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, group_->nccl);
}

void World::abort(int exit_code) {
  if (group_) abort_mpi(exit_code);
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
