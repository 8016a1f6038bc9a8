// Replaces nccl.cpp in a build without NCCL.
#include "core/error.h"
#include "parallel/meeting_place.h"
#include "parallel/world.h"

namespace tessera::parallel {

#ifndef USE_C10D_NCCL
bool has_nccl() { return false; }
std::string name_of_gpu(int) { return ""; }
c10::intrusive_ptr<c10d::Backend> make_nccl(c10::intrusive_ptr<c10d::Store>, int, int, int) {
  fail("this build is without NCCL: several processes train on the CPU, with --device cpu");
}
#endif

}  // namespace tessera::parallel
