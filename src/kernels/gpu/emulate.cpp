#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu/warp.h"

namespace tessera::kernels::gpu {
namespace {

constexpr size_t kStack = 256 << 10;  // bytes; sanitizers need most of it

struct Copy {
  void* to;
  const void* from;
  bool present;
};
void arrive(const Copy& copy) {
  if (copy.present)
    memcpy(copy.to, copy.from, 16);
  else
    memset(copy.to, 0, 16);
}

// A place where `count` threads wait for each other.
struct Meeting {
  int arrived = 0;
  int64_t round = 0;
  const char* operation = nullptr;
};
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  bool done = false;
  Meeting* at = nullptr;  // waits for its next round
  int64_t round = 0;
  unsigned collectives = 0;
  std::vector<std::vector<Copy>> groups;  // the last one is open
};
// The operands of a collective. Two sets alternate: lanes still read one while others fill the next.
struct Operands {
  float number[32];
  const bf16* row[32];
  uint32_t a[32][4], b[32][2], r[32][4];
  float d[32][4];
};
struct WarpState {
  Meeting meeting;
  Operands operands[2];
};

struct RunningBlock {
  std::vector<Fiber> fibers;
  std::vector<WarpState> warps;
  int threads = 0, current = 0;
  Meeting all;
  ucontext_t outside;
  std::function<void()> body;
  std::string fault;
};
thread_local RunningBlock running;
EmulatedOrder order = EmulatedOrder::late;

[[noreturn]] void stop(const std::string& fault) {
  running.fault = "thread " + std::to_string(running.current) + " " + fault;
  setcontext(&running.outside);
  abort();
}

bool can_run(const Fiber& fiber) { return !fiber.done && (!fiber.at || fiber.at->round != fiber.round); }

// Returns the thread that runs next: of the same warp if possible, so that it runs ahead; -1 if none can.
int next_thread() {
  const int from = running.current, first = from / 32 * 32;
  for (int i = 1; i <= 32; ++i)
    if (const int to = first + (from + i) % 32; can_run(running.fibers[to])) return to;
  for (int i = 0; i < running.threads; ++i) {
    const int to = order == EmulatedOrder::late ? i : running.threads - 1 - i;
    if (can_run(running.fibers[to])) return to;
  }
  return -1;
}

void yield() {
  const int from = running.current, to = next_thread();
  if (to == from) return;
  if (to < 0) stop("waits for threads that never come");
  running.current = to;
  swapcontext(&running.fibers[from].context, &running.fibers[to].context);
}

// Waits until `count` threads are here for the same operation; the last one does the work of all.
template <class Work>
void meet(Meeting& meeting, int count, const char* operation, const Work& work) {
  if (meeting.arrived > 0 && meeting.operation != operation)
    stop(std::string("is at ") + operation + " while others are at " + meeting.operation);
  meeting.operation = operation;
  Fiber& fiber = running.fibers[running.current];
  fiber.round = meeting.round;
  if (++meeting.arrived == count) {
    work();
    meeting.arrived = 0, ++meeting.round;
    return;
  }
  fiber.at = &meeting;
  while (meeting.round == fiber.round) yield();
  fiber.at = nullptr;
}

// A collective of a warp: fill(operands) by each lane, then work(operands) once. Returns the operands.
template <class Fill, class Work>
const Operands& together(const char* operation, const Fill& fill, const Work& work) {
  WarpState& state = running.warps[warp()];
  Operands& operands = state.operands[running.fibers[running.current].collectives++ % 2];
  fill(operands);
  meet(state.meeting, 32, operation, [&] { work(operands); });
  return operands;
}

void transpose_into(Operands& o, bool transposed) {
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) {
      const int g = l >> 2, t = 2 * (l & 3);
      const auto at = [&](int j) {
        return transposed ? o.row[8 * i + t + j][g].bits : o.row[8 * i + g][t + j].bits;
      };
      o.r[l][i] = at(0) | static_cast<uint32_t>(at(1)) << 16;
    }
}

void matrices(uint32_t (&r)[4], const bf16* row, bool transposed, const char* operation) {
  if (reinterpret_cast<uintptr_t>(row) % 16) stop("loads a matrix row off a 16-byte boundary");
  const Operands& o = together(
      operation, [&](Operands& mine) { mine.row[lane()] = row; },
      [&](Operands& all) { transpose_into(all, transposed); });
  std::copy_n(o.r[lane()], 4, r);
}

float half(uint32_t pair, int i) { return i ? high(pair) : low(pair); }

// d += a b from the fragments of all lanes.
void product(Operands& o) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 2; ++i) {
      const int g = l >> 2, t = 2 * (l & 3) + i;
      a[g][t] = half(o.a[l][0], i), a[g + 8][t] = half(o.a[l][1], i);
      a[g][t + 8] = half(o.a[l][2], i), a[g + 8][t + 8] = half(o.a[l][3], i);
      b[t][g] = half(o.b[l][0], i), b[t + 8][g] = half(o.b[l][1], i);
    }
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) {
      const int row = (l >> 2) + 8 * (i >> 1), column = 2 * (l & 3) + (i & 1);
      for (int k = 0; k < 16; ++k) o.d[l][i] += a[row][k] * b[k][column];
    }
}

void fiber_main() {
  running.body();
  running.fibers[running.current].done = true;
  const int to = next_thread();
  if (to < 0) {
    for (int i = 0; i < running.threads; ++i)
      if (!running.fibers[i].done) stop("ended while others wait for it");
    setcontext(&running.outside);
  }
  running.current = to;
  setcontext(&running.fibers[to].context);
}

void start(int threads) {
  if (running.fibers.size() < static_cast<size_t>(threads)) running.fibers.resize(threads);
  running.warps.assign(threads / 32, {});
  running.threads = threads;
  running.all = {};
  running.fault.clear();
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = running.fibers[i];
    fiber.done = false, fiber.at = nullptr, fiber.round = 0, fiber.collectives = 0;
    fiber.groups.assign(1, {});
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
  }
}

}  // namespace

void set_emulated_order(EmulatedOrder now) { order = now; }

void emulate(int threads, size_t shared_bytes, const std::function<void(char*)>& body) {
  if (threads < 32 || threads > 1024 || threads % 32)
    throw EmulatedFault("a block of whole warps, at most 32");
  // An allocation of its own for each block: the sanitizer finds the first byte outside.
  const std::unique_ptr<char, decltype(&free)> memory(
      static_cast<char*>(aligned_alloc(128, (shared_bytes + 127) / 128 * 128)), &free);
  char* shared = memory.get();
  memset(shared, 0xff, shared_bytes);
  start(threads);
  running.body = [&] { body(shared); };
  running.current = order == EmulatedOrder::late ? 0 : threads - 1;
  swapcontext(&running.outside, &running.fibers[running.current].context);
  running.body = nullptr;
  if (!running.fault.empty()) throw EmulatedFault(running.fault);
}

int thread() { return running.current; }

void barrier() {
  meet(running.all, running.threads, "a barrier", [] {});
}

float shuffle_xor(float x, int mask) {
  return together(
             "a shuffle", [&](Operands& o) { o.number[lane()] = x; }, [](Operands&) {})
      .number[lane() ^ mask];
}

float shuffle_up(float x, int distance) {
  const Operands& o = together(
      "a shuffle", [&](Operands& mine) { mine.number[lane()] = x; }, [](Operands&) {});
  return lane() >= distance ? o.number[lane() - distance] : x;
}

void load_matrices(uint32_t (&r)[4], const bf16* row) { matrices(r, row, false, "a load of matrices"); }
void load_matrices_transposed(uint32_t (&r)[4], const bf16* row) {
  matrices(r, row, true, "a transposed load of matrices");
}

void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const int l = lane();
  const Operands& o = together(
      "a product",
      [&](Operands& mine) {
        std::copy_n(a, 4, mine.a[l]), std::copy_n(d, 4, mine.d[l]);
        mine.b[l][0] = b0, mine.b[l][1] = b1;
      },
      product);
  std::copy_n(o.d[l], 4, d);
}

void copy16_async(void* to, const void* from, bool present) {
  if (reinterpret_cast<uintptr_t>(to) % 16 || (present && reinterpret_cast<uintptr_t>(from) % 16))
    stop("copies off a 16-byte boundary");
  const Copy copy{to, from, present};
  if (order == EmulatedOrder::early)
    arrive(copy);
  else
    running.fibers[running.current].groups.back().push_back(copy);
}

void commit_copies() { running.fibers[running.current].groups.emplace_back(); }

void wait_for_copies(int pending) {
  auto& groups = running.fibers[running.current].groups;
  while (static_cast<int>(groups.size()) > pending + 1) {
    for (const Copy& copy : groups.front()) arrive(copy);
    groups.erase(groups.begin());
  }
}

}  // namespace tessera::kernels::gpu
