// Replaces nccl.cpp in a build without NCCL.
#include "core/error.h"
#include "parallel/group.h"
#include "parallel/world.h"

namespace tessera::parallel {

bool has_nccl() { return false; }
std::string name_of_gpu(int) { return ""; }
c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store>, int, int, int,
                                            std::shared_ptr<CollectiveLog>) {
  fail("this build is without NCCL: several processes train on the CPU, with --device cpu");
}
void collect_nccl(c10d::Backend&) {}

}  // namespace tessera::parallel
