// Under mpirun: every process leaves its number in the store where all meet, and reads everyone's.
#include "parallel/group.h"

int main() {
  const auto world = tessera::parallel::World::join();
  const auto store = tessera::parallel::meet(*world);
  const auto number = [](int rank) { return std::vector<uint8_t>{static_cast<uint8_t>(rank)}; };
  store->set(std::to_string(world->rank()), number(world->rank()));
  bool wrong = world->size() < 2;
  for (int rank = 0; rank < world->size(); ++rank) wrong |= store->get(std::to_string(rank)) != number(rank);
  return world->any(wrong) ? 1 : 0;  // nobody goes before all have read
}
