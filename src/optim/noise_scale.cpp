#include "optim/noise_scale.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace tessera::train {

void NoiseScale::add(double piece_square, double piece, double whole_square, double whole) {
  if (!(piece < whole) || !std::isfinite(piece_square) || !std::isfinite(whole_square)) return;
  const double gradient = (whole * whole_square - piece * piece_square) / (whole - piece),
               noise = (piece_square - whole_square) / (1 / piece - 1 / whole);
  gradient_ = kDecay * gradient_ + (1 - kDecay) * gradient;
  noise_ = kDecay * noise_ + (1 - kDecay) * noise;
  weight_ = kDecay * weight_ + (1 - kDecay);
}

double NoiseScale::value() const {
  const bool known = weight_ > 0 && gradient_ > 0 && noise_ >= 0;
  return known ? noise_ / gradient_ : std::numeric_limits<double>::quiet_NaN();
}

Value NoiseScale::state() const {
  Value state;
  state.set("gradient", gradient_);
  state.set("noise", noise_);
  state.set("weight", weight_);
  return state;
}

void NoiseScale::load(const Value& state, const std::string& where) {
  const auto read = [&](double& field, const char* key) {
    const Value* value = state.find(key);
    if (!value) return;  // the run began without it
    if (!value->is_number()) fail(where, ": noise_scale.", key, " is ", value->type_name());
    field = value->as_double();
  };
  read(gradient_, "gradient"), read(noise_, "noise"), read(weight_, "weight");
}

}  // namespace tessera::train
