#include "answer/predict.h"

#include "core/text.h"
#include "io/files/json.h"
#include "tasks/base/validation_pass.h"

namespace tessera::answer {
namespace {

// Throws if the task cannot predict; the task's own error would lack the name of the file.
[[noreturn]] void refuse_prediction(const train::ReadyTask& model, const Error& error) {
  const tasks::TaskKind &first = tasks::default_task(),
                        &own = tasks::find_task(tasks::task_name(model.info().task));
  if (&own == &first || error.kind != ErrorKind::usage)
    throw Error(error.kind, model.file() + ": " + error.what());
  fail_usage("'", model.file(), "' was trained for task ", own.name,
             "; `tessera predict` needs weights of task ", first.name,
             own.command ? text(", `tessera ", own.command, "` takes these") : "");
}

// Returns one value of every line of every image, as an array [images, lines].
Array column_of(const std::vector<tasks::Prediction>& predictions, size_t column) {
  const auto& [name, first] = predictions.at(0).at(0).values.at(column);
  Array out{.name = name, .shape = {std::ssize(predictions), std::ssize(predictions[0])}};
  out.type = first.is_string() ? Datatype::bytes : first.is_double() ? Datatype::fp64 : Datatype::int64;
  for (const tasks::Prediction& lines : predictions)
    for (const tasks::PredictionLine& line : lines) {
      const Value& value = line.values.at(column).second;
      if (value.is_string()) out.texts.push_back(value.as_string());
      const double number = value.is_double() ? value.as_double() : 0;
      const int64_t whole = value.is_int() ? value.as_int() : 0;
      if (value.is_double()) out.data.append(reinterpret_cast<const char*>(&number), sizeof number);
      if (value.is_int()) out.data.append(reinterpret_cast<const char*>(&whole), sizeof whole);
    }
  return out;
}

class Predictions final : public ImageRows {
 public:
  explicit Predictions(const AnswerSetup& setup) : ImageRows(setup) {
    description_.kind = "predict";
    description_.summary = "the most likely classes of images";
    description_.options = describe_options<PredictOptions>();
    rehearse(1);  // throws if the task cannot predict for single images
    for (const Array& one : example_.outputs)
      description_.outputs.push_back({one.name, one.type, {-1, -1}, "[images, best first]"});
    example_ = {};
  }

 protected:
  void check_options(const Value& options) const override { read_options<PredictOptions>(options).check(); }

  Reply rows(const torch::Tensor& images, const Value& options) override {
    const std::vector<tasks::Prediction> predictions =
        predictions_of(model(), images, read_options<PredictOptions>(options).top);
    Reply reply;
    for (const tasks::Prediction& one : predictions) {
      if (!tasks::gives_numbers(one)) require_finite(model(), torch::full({}, std::nan("")));
      reply.results.push_back({{"predictions", json_of(one)}});
    }
    reply.outputs = columns_of(predictions);
    if (description_.outputs.empty()) example_ = reply;
    return reply;
  }

 private:
  Reply example_;  // until the outputs are described
};

}  // namespace

void PredictOptions::check() const {
  if (top < 1) fail_usage("option 'top' is ", top, ", must be at least 1");
}

std::vector<tasks::Prediction> predictions_of(const train::ReadyTask& model, const torch::Tensor& images,
                                              int64_t most) {
  try {
    const tasks::AutocastScope autocast = model.autocast();
    return model.task().predict(model.moved(images), most);
  } catch (const Error& error) {
    refuse_prediction(model, error);
  }
}

std::vector<Array> columns_of(const std::vector<tasks::Prediction>& predictions) {
  std::vector<Array> out;
  for (size_t column = 0; column < predictions.at(0).at(0).values.size(); ++column)
    out.push_back(column_of(predictions, column));
  return out;
}

nlohmann::ordered_json json_of(const tasks::Prediction& prediction) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const tasks::PredictionLine& one : prediction) {
    nlohmann::ordered_json values;
    for (const auto& [name, value] : one.values)
      values[name] = nlohmann::ordered_json::parse(json_text(value));
    lines.push_back(values);
  }
  return lines;
}

std::shared_ptr<Answerer> open_predictions(const AnswerSetup& setup) {
  try {
    return std::make_shared<Predictions>(setup);
  } catch (const Error& error) {
    if (error.kind == ErrorKind::usage) return nullptr;
    const auto classifier = setup.model->task().classifier();
    if (!classifier) throw;
    return nullptr;  // a backbone without a head
  }
}

}  // namespace tessera::answer
