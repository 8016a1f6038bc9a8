#include "core/random.h"

#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/recording.h"

namespace tessera {
namespace {

// SplitMix64's finaliser: spreads the key's bits.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

uint64_t hash_name(std::string_view name) {  // FNV-1a
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = 0xD2511F53ull * c[0], high = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(high >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(high),
         static_cast<uint32_t>(low >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(low)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

RandomStream::RandomStream(uint64_t seed, std::string_view purpose, uint64_t a, uint64_t b) {
  if (Recording::is_on()) fail("random numbers are drawn (", purpose, ")");
  const uint64_t key = mix(mix(seed) ^ hash_name(purpose));
  const uint64_t place = mix(mix(a) + 0x632BE59BD9B4E019ull * b);
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  counter_ = {0, 0, static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32)};
}

uint32_t RandomStream::next_u32() {
  if (used_ == 4) {
    block_ = philox4x32(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[static_cast<size_t>(used_++)];
}

uint64_t RandomStream::next_u64() {
  const uint64_t high = next_u32();
  return high << 32 | next_u32();
}

double RandomStream::uniform() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

double RandomStream::uniform(double low, double high) { return low + (high - low) * uniform(); }

double RandomStream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  const double angle = 2 * M_PI * uniform();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

uint64_t RandomStream::below(uint64_t bound) {
  const uint64_t limit = bound * (UINT64_MAX / bound);
  uint64_t draw = next_u64();
  while (draw >= limit) draw = next_u64();
  return draw % bound;
}

int64_t RandomStream::integer(int64_t low, int64_t high) {
  // Unsigned arithmetic wraps: the full range of int64_t has 2^64 values, so its count becomes 0.
  const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  const uint64_t draw = count == 0 ? next_u64() : below(count);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + draw);
}

double RandomStream::gamma(double shape) {
  if (shape < 1) {
    const double boost = std::pow(1 - uniform(), 1 / shape);
    return gamma(shape + 1) * boost;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal(), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double RandomStream::beta(double a, double b) {
  const double x = gamma(a), y = gamma(b);
  return x + y > 0 ? x / (x + y) : 0.5;
}

std::vector<int64_t> RandomStream::permutation(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(i)]);
  return order;
}

}  // namespace tessera
