// Shared by the tests of device code on the emulator: memory of a "device", and both orders of a race.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "kernels/gpu/library.h"
#include "kernels/gpu/warp.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace tessera::kernels::gpu_testing {

using testing::normal;
using testing::uniform;

// Numbers on a boundary of a device's memory, of exactly their size, so that the sanitizer finds the next byte.
// Outputs start as NaN.
class DeviceArray {
 public:
  DeviceArray(Element element, int64_t count)
      : element_(element), count_(count), memory_(new (kBoundary) char[bytes()]) {
    std::memset(memory_.get(), 0xff, bytes());
  }
  DeviceArray(Element element, const std::vector<float>& values)
      : DeviceArray(element, static_cast<int64_t>(values.size())) {
    for (int64_t i = 0; i < count_; ++i) write_element(memory_.get(), element_, i, values[i]);
  }
  void* data() { return memory_.get(); }
  template <class T>
  T* as() {
    return static_cast<T*>(data());
  }
  Rows rows(int64_t width) { return {data(), element_, width}; }
  RowsOut rows_out(int64_t width) { return {data(), element_, width}; }
  double get(int64_t i) const { return read_element(memory_.get(), element_, i); }
  int64_t count() const { return count_; }
  Element element() const { return element_; }
  std::vector<double> values() const {
    std::vector<double> all;
    for (int64_t i = 0; i < count_; ++i) all.push_back(get(i));
    return all;
  }

 private:
  static constexpr std::align_val_t kBoundary{128};
  struct Free {
    void operator()(char* memory) const { ::operator delete[](memory, kBoundary); }
  };
  size_t bytes() const { return static_cast<size_t>(count_) * (element_ == Element::f32 ? 4 : 2); }
  Element element_;
  int64_t count_;
  std::unique_ptr<char[], Free> memory_;
};

// The error of one rounding, relative; for a result stored as `element`.
inline double rounding(Element element) { return element == Element::bf16 ? 0x1p-8 : 0x1p-23; }

// Fails at the first element that is off by more than `tolerance` and a rounding of the stored number.
inline void expect_rounded(const DeviceArray& got, const std::vector<double>& want, double tolerance,
                           const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(got.count()), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    const double allowed = tolerance + rounding(got.element()) * std::abs(want[i]);
    if (std::abs(got.get(static_cast<int64_t>(i)) - want[i]) <= allowed) continue;
    ADD_FAILURE() << what << ": element " << i << " is " << got.get(static_cast<int64_t>(i)) << ", want "
                  << want[i] << ", tolerance " << allowed;
    return;
  }
}

// Runs the best form of the emulator's table that takes the call, in both orders of the emulator. Fails if there
// is none, or if the bits of `out` differ between the orders.
template <class Call>
void run_emulated(gpu::Forms<Call> gpu::Table::*forms, const Call& call, std::vector<DeviceArray*> out) {
  const gpu::Form<Call>* form = gpu::choose_form(tessera_gpu_table()->*forms, 90, call);
  ASSERT_NE(form, nullptr) << "no form takes the call";
  std::vector<std::vector<double>> first;
  for (const auto order : {gpu::EmulatedOrder::late, gpu::EmulatedOrder::early}) {
    gpu::set_emulated_order(order);
    ASSERT_EQ(form->run(call, nullptr), 0);
    for (size_t i = 0; i < out.size(); ++i) {
      if (order == gpu::EmulatedOrder::late)
        first.push_back(out[i]->values());
      else
        EXPECT_EQ(first[i], out[i]->values()) << "a race: output " << i << " depends on the order";
    }
  }
}

}  // namespace tessera::kernels::gpu_testing
