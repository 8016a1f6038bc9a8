// components/model_dino*, model_moco_v3*: objectives that compare views of an image with a momentum network. Each file
// holds several cases.

#include "core/error.h"
#include "models/base/family.h"
#include "optim/clip.h"
#include "optim/optimiser.h"
#include "optim/schedule.h"
#include "tasks/pretrain/dino.h"
#include "tasks/pretrain/moco_v3.h"
#include "tests/parity/model_case.h"
#include "tests/parity/published_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::view_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;
using RunCase = std::function<void(Comparison&, const std::string& name, torch::ScalarType)>;

CaseResult check_each(const Golden& golden, const RunCase& run) {
  Comparison comparison;
  for (const std::string& name : golden.parts())
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) run(comparison, name, dtype);
  return comparison.result();
}

// Our settings for the arguments in `names` (theirs to ours) that the config has.
Value settings_of(const Json& config, const std::vector<std::pair<const char*, const char*>>& names) {
  Value settings(Value::Table{});
  for (const auto& [theirs, ours] : names)
    if (config.contains(theirs) && !config[theirs].is_null()) settings.set(ours, to_value(config[theirs]));
  return settings;
}

const std::vector<std::pair<const char*, const char*>> kVit = {
    {"img_size", "image_size"},   {"global_crop", "image_size"},
    {"patch_size", "patch_size"}, {"embed_dim", "dim"},
    {"depth", "depth"},           {"num_heads", "heads"},
    {"mlp_ratio", "mlp_ratio"},   {"qkv_bias", "qkv_bias"},
    {"conv_stem", "conv_stem"}};

models::ModelSpec vit_of(const Json& config, Value more) {
  Value settings = settings_of(config, kVit);
  settings.set("classes", int64_t{0});
  merge(settings, more);
  return models::resolve_model("vit", settings);
}

// A task without data, in the precision of a case.
template <class T>
std::unique_ptr<T> task_of(const char* name, const Value& settings, const models::ModelSpec& spec,
                           torch::ScalarType dtype) {
  tasks::TaskSetup setup;
  setup.settings = tasks::find_task(name).resolve(settings);
  setup.model = spec;
  auto task = std::make_unique<T>(setup);
  tasks::move(task->parts(), torch::kCPU, dtype);
  tasks::set_training(task->parts(), true);
  return task;
}

// Tensors of one case by name, compared in both precisions as PublishedCase does.
class NamedCase {
 public:
  NamedCase(Comparison& comparison, const Golden& golden, std::string prefix, torch::ScalarType dtype)
      : comparison_(comparison), golden_(golden), prefix_(std::move(prefix)), dtype_(dtype) {
    for (const std::string& name : golden.names(prefix_ + "grad."))
      largest_ = std::max(largest_, tensor("grad." + name).abs().max().item<double>());
  }
  bool has(const std::string& name) const { return golden_.has(prefix_ + name); }
  Tensor tensor(const std::string& name) const { return golden_.tensor(prefix_ + name, dtype_); }
  std::vector<std::string> names(const std::string& start) const { return golden_.names(prefix_ + start); }
  void output(const std::string& name, const Tensor& got) const {
    const Json tolerance = golden_.meta["tolerance"];
    close("output." + name, got, tolerance.value("rtol", 1e-4), tolerance.value("atol", 1e-5), 1);
  }
  void gradient(const std::string& name, const Tensor& leaf) const {
    const Json tolerance = golden_.meta["tolerance"];
    const Tensor got = leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf);
    if (!has("grad." + name))
      return comparison_.holds(prefix_ + name, got.abs().max().item<double>() == 0,
                               "has a gradient, the published one has none");
    close("grad." + name, got, tolerance.value("grad_rtol", 1e-3), tolerance.value("grad_atol", 1e-4),
          1e-3 * largest_);
  }
  // Fills our tensors from those of `start`; `ours_of` gives our name of a published one.
  void fill(const NamedTensors& ours, const std::string& start,
            const std::function<std::string(const std::string&)>& ours_of) const {
    const torch::NoGradGuard no_grad;
    for (const std::string& name : names(start)) {
      const auto found =
          std::find_if(ours.begin(), ours.end(), [&](const auto& one) { return one.first == ours_of(name); });
      comparison_.holds(name, found != ours.end(), "the file has it, our task does not");
      if (found == ours.end()) continue;
      const Tensor given = tensor(start + name);
      if (name.ends_with("pos_embed"))
        if (!found->second.requires_grad() && start == "param." && fixed_positions)
          comparison_.close(prefix_ + name, found->second, given, 1e-5, 1e-6);
      Tensor(found->second).copy_(given);
    }
  }
  bool fixed_positions = false;

 private:
  void close(const std::string& what, const Tensor& got, double relative, double absolute,
             double least) const {
    const Tensor want = tensor(what).to(torch::kFloat64);
    const double largest = std::max(least, want.numel() ? want.abs().max().item<double>() : 0);
    const bool sharp = dtype_ == torch::kFloat64, gradient = what.starts_with("grad.");
    comparison_.close((sharp ? "float64 " : "float32 ") + prefix_ + what, got, want,
                      sharp ? (gradient ? 1e-5 : 1e-6) : relative,
                      (sharp ? (gradient ? 1e-6 : 1e-7) : absolute) * (gradient || sharp ? largest : 1));
  }

  Comparison& comparison_;
  const Golden& golden_;
  std::string prefix_;
  torch::ScalarType dtype_;
  double largest_ = 0;
};

std::map<std::string, Tensor> by_name(const NamedTensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

std::vector<train::TensorSource> same_names(const Golden& golden, const std::string& prefix) {
  std::vector<train::NamePlace> places;
  for (const auto& [name, shape] : shapes_of(golden, prefix)) places.push_back({name, name});
  return train::sources_of(places);
}

tasks::Inputs inputs_of(const std::vector<Tensor>& views) {
  const int64_t batch = views.at(0).size(0);
  tasks::StreamInputs stream{"train", batch, 0, batch, {}};
  for (size_t view = 0; view < views.size(); ++view)
    stream.fields.push_back({tasks::view_field(static_cast<int64_t>(view)), views[view]});
  tasks::Inputs inputs;
  inputs.streams.push_back(std::move(stream));
  return inputs;
}

// --- DINO

tasks::DinoConfig dino_config(const Json& config) {
  tasks::DinoConfig out;
  out.out_dim = config.value("out_dim", out.out_dim);
  out.head_layers = config.value("nlayers", out.head_layers);
  out.head_hidden = config.value("hidden_dim", out.head_hidden);
  out.head_bottleneck = config.value("bottleneck_dim", out.head_bottleneck);
  out.head_batch_norm = config.value("use_bn", false);
  out.norm_last_layer = config.value("norm_last_layer", true);
  out.student_temp = config.value("student_temp", out.student_temp);
  out.center_momentum = config.value("center_momentum", out.center_momentum);
  out.warmup_teacher_temp = config.value("warmup_teacher_temp", out.warmup_teacher_temp);
  out.teacher_temp = config.value("teacher_temp", out.teacher_temp);
  out.warmup_teacher_temp_epochs =
      config.value("warmup_teacher_temp_epochs", config.value("warmup_epochs", int64_t{0}));
  return out;
}

void check_dino_head(Comparison& comparison, const Golden& golden, const std::string& name,
                     torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  PublishedCase one(comparison, golden, dtype, name + "/");
  const auto head = std::make_shared<tasks::DinoHead>(config["in_dim"].get<int64_t>(), dino_config(config));
  one.load({{"", head}}, same_names(golden, name + "/"));
  NamedCase(comparison, golden, name + "/", dtype)
      .fill(named_state(*head), "buffer.", [](const std::string& buffer) { return buffer; });
  head->train(config.value("mode", "eval") == "train");
  const Tensor x = one.input("x");
  one.output("y", head->forward(x, x.size(0), tasks::Collective::alone()));
  one.gradients();
}

void check_dino_loss(Comparison& comparison, const Golden& golden, const std::string& name,
                     torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  const tasks::DinoConfig ours = dino_config(config);
  PublishedCase one(comparison, golden, dtype, name + "/");
  Tensor centre = torch::zeros({1, ours.out_dim}, dtype);
  const auto epochs = config["epochs_of_the_calls"].get<std::vector<int64_t>>();
  for (size_t call = 0; call < epochs.size(); ++call) {
    const std::string number = "." + std::to_string(call);
    const Tensor teacher = one.input("const_teacher" + number).detach();
    one.output("loss" + number,
               tasks::dino_losses(one.input("student" + number), teacher, centre, ours.student_temp,
                                  tasks::dino_temperature(ours, epochs[call]))
                   .mean()
                   .view({1}));
    centre = tasks::dino_centre(centre, teacher.sum(0), teacher.size(0), ours.center_momentum);
    one.output("center" + number, centre);
  }
  one.gradients();
  const Tensor want = golden.tensor(name + "/f64.teacher_temp_schedule");
  std::vector<double> got;
  for (int64_t epoch = 0; epoch < want.numel(); ++epoch) got.push_back(tasks::dino_temperature(ours, epoch));
  comparison.close(name + " temperatures", torch::tensor(got, torch::kFloat64), want, 1e-12, 0);
}

void check_dino_schedule(Comparison& comparison, const Golden& golden, const std::string& name) {
  const Json& config = golden.config()[name];
  const std::string what = name.substr(name.find('/') + 1);
  const double base = config["base_value"], last = config["final_value"];
  const train::ScheduleSpan span{
      .lr = base,
      .steps = config["epochs"].get<int64_t>() * config["niter_per_ep"].get<int64_t>(),
      .steps_per_epoch = config["niter_per_ep"]};
  Value settings(Value::Table{{"name", "dino_cosine"}});
  if (what == "weight_decay") settings.set("decay_factor", last / base);
  if (what == "lr") {
    settings.set("min_lr", last);
    settings.set("warmup_epochs", config["warmup_epochs"].get<double>());
    settings.set("warmup_lr", config["start_warmup_value"].get<double>());
  }
  const auto schedule = train::make_schedule(settings, span);
  std::vector<double> got;
  for (int64_t step = 0; step < span.steps; ++step)
    got.push_back(what == "momentum"       ? tasks::cosine_momentum(base, step, span.steps)
                  : what == "weight_decay" ? base * schedule->decay_factor(step)
                                           : schedule->rate(step));
  comparison.close(name, torch::tensor(got, torch::kFloat64), golden.tensor("schedule/f64." + what), 1e-12,
                   1e-15);
}

// The published names of the student or the teacher, as those of our task's parts.
std::string dino_name(const std::string& published, const std::string& part) {
  const bool of_head = published.starts_with("head.");
  return part + (of_head ? published : published.substr(std::string("backbone.").size()));
}

std::unique_ptr<tasks::Dino> dino_task(const Json& config, double momentum, torch::ScalarType dtype) {
  Json flat = config["head"];
  flat["out_dim"] = config["out_dim"];
  for (const auto& [key, value] : config["teacher_temp"].items()) flat[key] = value;
  const tasks::DinoConfig ours = dino_config(flat);
  Value settings = write_config(ours);
  settings.set("freeze_last_layer", to_value(config["freeze_last_layer_epochs"]));
  settings.set("momentum_teacher", momentum);
  settings.set("student_temp", to_value(config["student_temp"]));
  settings.set("center_momentum", to_value(config["center_momentum"]));
  settings.set("local_crops", to_value(config["local_crops"]));
  settings.set("local_size", to_value(config["local_crop"]));
  const Value more(Value::Table{{"resample", "offset"}});
  return task_of<tasks::Dino>("dino", settings, vit_of(config, more), dtype);
}

// Steps of student and teacher: gradients, clipping, the optimiser, centre and momentum.
void check_dino_steps(Comparison& comparison, const Golden& golden, const std::string& name,
                      torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  const NamedCase one(comparison, golden, name + "/", dtype);
  const auto row = [&](const char* what) { return golden.tensor(name + "/f64." + what); };
  const Tensor rates = row("lr"), decays = row("weight_decay");
  const auto task = dino_task(config, row("momentum")[0].item<double>(), dtype);
  const auto parts = task->parts();
  const auto student = [](const std::string& published) { return dino_name(published, ""); };
  one.fill(tasks::named_state(parts), "param.", student);
  const double first_decay = decays[0].item<double>();
  const NamedTensors parameters = tasks::named_parameters(parts);
  std::vector<Tensor> trained;
  for (const auto& [parameter_name, parameter] : parameters)
    if (parameter.requires_grad()) trained.push_back(parameter);
  const auto spec =
      train::resolve_optimiser(Value(Value::Table{{"name", "adamw"}, {"weight_decay", first_decay}}));
  const auto optimiser = train::make_optimiser(
      spec, train::without_frozen(train::make_parameter_groups(parameters, {.weight_decay = first_decay})));
  for (int64_t i = 0; one.has("output.step" + std::to_string(i) + ".loss"); ++i) {
    const std::string step = "step" + std::to_string(i) + ".";
    std::vector<Tensor> views;
    for (int64_t view = 0; view < 2 + config["local_crops"].get<int64_t>(); ++view)
      views.push_back(one.tensor(text("input.const_images.", i, ".", view)));
    const tasks::Inputs inputs = inputs_of(views);
    const models::TrainingStep at{i, rates.numel(), config["niter_per_epoch"]};
    task->before_step(at);
    const Tensor loss =
        task->loss(inputs, {}, tasks::Collective::alone()).sum / static_cast<double>(inputs.size());
    one.output(step + "loss", loss.view({1}));
    {
      const torch::NoGradGuard no_grad;
      const auto made = task->outputs(inputs.main(), std::ssize(views), {}, tasks::Collective::alone());
      one.output(step + "teacher_output", made.teacher);
      one.output(step + "student_output", made.student);
    }
    loss.backward();
    train::clip_gradients({.mode = "each", .value = config["clip_grad"]}, trained);
    for (const std::string& published : one.names("output." + step + "clipped_grad."))
      one.output(step + "clipped_grad." + published, by_name(parameters).at(student(published)).grad());
    optimiser->step(rates[i].item<double>(), 1, decays[i].item<double>() / first_decay);
    optimiser->zero_grad();
    task->after_step(at);
    one.output(step + "center", by_name(tasks::named_state(parts)).at("dino_loss.center"));
  }
  const auto after = by_name(tasks::named_state(parts));
  for (const std::string& published : one.names("output.student_after."))
    one.output("student_after." + published, after.at(student(published)));
  for (const std::string& published : one.names("output.teacher_after."))
    one.output("teacher_after." + published, after.at(dino_name(published, "teacher.")));
}

CaseResult check_dino(const Golden& golden) {
  return check_each(golden, [&](Comparison& comparison, const std::string& name, torch::ScalarType dtype) {
    if (name.starts_with("head/")) return check_dino_head(comparison, golden, name, dtype);
    if (name.starts_with("loss/")) return check_dino_loss(comparison, golden, name, dtype);
    if (name.starts_with("schedule/")) return check_dino_schedule(comparison, golden, name);
    check_dino_steps(comparison, golden, name, dtype);
  });
}

// --- MoCo v3

// "base_encoder.head.0.weight" is our "projector.0.weight".
std::string moco_name(std::string name) {
  for (const std::string encoder : {"base_encoder.", "momentum_encoder."}) {
    if (!name.starts_with(encoder)) continue;
    name = name.substr(encoder.size());
    if (name.starts_with("head.")) name = "projector." + name.substr(5);
    return encoder == "base_encoder." ? name : encoder + name;
  }
  return name;
}

void check_moco_step(Comparison& comparison, const Golden& golden, const std::string& name,
                     torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  NamedCase one(comparison, golden, name + "/", dtype);
  one.fixed_positions = true;
  Value settings = settings_of(config, {{"moco_dim", "dim"},
                                        {"moco_mlp_dim", "hidden"},
                                        {"moco_t", "temperature"},
                                        {"moco_m", "momentum"},
                                        {"stop_grad_conv1", "stop_grad_conv1"}});
  settings.set("momentum_cos", false);
  const auto task = task_of<tasks::Moco>(
      "moco_v3", settings, vit_of(config, Value(Value::Table{{"positions", "sincos_moco"}})), dtype);
  const auto parts = task->parts();
  const NamedTensors state = tasks::named_state(parts);
  one.fill(state, "param.", moco_name);
  one.fill(state, "buffer.", moco_name);
  const Tensor x1 = one.tensor("input.x1").requires_grad_(), x2 = one.tensor("input.x2").requires_grad_();
  const tasks::Inputs inputs = inputs_of({x1, x2});
  task->before_step({1, 2, 1});
  const Tensor loss =
      task->loss(inputs, {}, tasks::Collective::alone()).sum / static_cast<double>(inputs.size());
  one.output("loss", loss.view({1}));
  loss.backward();
  const auto ours = by_name(state);
  for (const std::string after : {"momentum_after.", "buffer_after."})
    for (const std::string& published : one.names("output." + after))
      one.output(
          after + published,
          ours.at(moco_name(after == "momentum_after." ? "momentum_encoder." + published : published)));
  for (const std::string& published : one.names("param."))
    if (!published.starts_with("momentum_encoder.")) one.gradient(published, ours.at(moco_name(published)));
  one.gradient("input.x1", x1);
  one.gradient("input.x2", x2);
  const auto made = task->outputs(inputs.main(), {}, tasks::Collective::alone());
  one.output("q1", made.q1), one.output("q2", made.q2), one.output("k1", made.k1), one.output("k2", made.k2);
}

void check_moco_loss(Comparison& comparison, const Golden& golden, const std::string& name,
                     torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  PublishedCase one(comparison, golden, dtype, name + "/");
  const Tensor q = one.input("q"), keys = one.input("const_k_all").detach();
  one.output("loss", tasks::moco_losses(q, keys, config["rank"].get<int64_t>() * q.size(0), config["moco_t"])
                         .mean()
                         .view({1}));
  one.gradients();
}

void check_moco_schedule(Comparison& comparison, const Golden& golden, const std::string& name) {
  const Json& config = golden.config()[name];
  const std::string which = name.substr(name.find('/') + 1);
  const int64_t epochs = config["epochs"], each = config["iters_per_epoch"];
  const auto schedule = train::make_schedule(
      Value(Value::Table{{"name", "mae_cosine"}, {"warmup_epochs", config["warmup_epochs"].get<double>()}}),
      {.lr = config["lr"], .steps = epochs * each, .steps_per_epoch = each});
  std::vector<double> momenta, rates;
  for (int64_t step = 0; step < epochs * each; ++step) {
    momenta.push_back(tasks::cosine_momentum(config["moco_m"], step, epochs * each));
    rates.push_back(schedule->rate(step));
  }
  const auto close = [&](const std::string& what, const std::vector<double>& got) {
    comparison.close(name + " " + what, torch::tensor(got, torch::kFloat64),
                     golden.tensor("schedule/f64." + what + "_" + which), 1e-12, 1e-15);
  };
  close("moco_m", momenta), close("lr", rates);
}

CaseResult check_moco(const Golden& golden) {
  return check_each(golden, [&](Comparison& comparison, const std::string& name, torch::ScalarType dtype) {
    if (name.starts_with("step/")) return check_moco_step(comparison, golden, name, dtype);
    if (name.starts_with("loss/")) return check_moco_loss(comparison, golden, name, dtype);
    check_moco_schedule(comparison, golden, name);
  });
}

const Registered registered({
    {"dino", check_dino, {"components/model_dino"}},
    {"moco_v3", check_moco, {"components/model_moco_v3"}},
});

}  // namespace
}  // namespace tessera::parity::view_cases
