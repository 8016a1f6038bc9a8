// Under mpirun: every process leaves its number in the store where all meet, and reads everyone's; and rows of all go round
// from process to process.
#include <torch/types.h>

#include "parallel/group.h"

namespace {

// Each process begins with one row more than its number, which all of them hold; the blocks of all others come by.
bool rows_go_round(tessera::parallel::World& world) {
  const int size = world.size();
  bool right = true;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kInt64}) {
    torch::Tensor block = torch::full({world.rank() + 1, 3}, world.rank(), type);
    for (int step = 1; step <= size; ++step) {
      const int from = (world.rank() + size * 2 - step) % size;
      const torch::Tensor into = torch::full({from + 1, 3}, -1, type);
      const auto wait = world.pass_on(block, into);
      wait();
      right = right && into.eq(from).all().item<bool>();
      block = into;
    }
  }
  // A process without rows hands on nothing.
  const bool gets_none = world.rank() == 1, gives_none = world.rank() == 0;
  const torch::Tensor none = torch::ones({gives_none ? 0 : 2, 3}),
                      some = torch::zeros({gets_none ? 0 : 2, 3});
  world.pass_on(none, some)();
  return right && some.eq(1).all().item<bool>();
}

}  // namespace

int main() {
  const auto world = tessera::parallel::World::join();
  const auto store = tessera::parallel::meet(*world);
  const auto number = [](int rank) { return std::vector<uint8_t>{static_cast<uint8_t>(rank)}; };
  store->set(std::to_string(world->rank()), number(world->rank()));
  bool wrong = world->size() < 2;
  for (int rank = 0; rank < world->size(); ++rank) wrong |= store->get(std::to_string(rank)) != number(rank);
  wrong |= !rows_go_round(*world);
  return world->any(wrong) ? 1 : 0;  // nobody goes before all have read
}
