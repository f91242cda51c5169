// RunValues.cpp: the list, and the places in it: the optimizers in turn, the schedule, clipping, averages.
#include "compiler/frontend/RunValues.h"

#include <algorithm>

namespace cinch {

static RunValue valueOf(const Hyperparameter &each, size_t i, double value) {
  if (each.kind == Hyperparameter::Flag)
    return {};
  bool pair = each.kind == Hyperparameter::Pair;
  std::string key = pair ? std::string(each.name, 4) + std::to_string(i + 1) : each.name; // betas: beta1, beta2
  bool decides = key == "decay" || key == "momentum";
  return {key, each.kind == Hyperparameter::AtLeast0 ? RunValue::AtLeast0 : RunValue::Below1, value, decides};
}

std::vector<RunValue> runValues(const Train &train) {
  std::vector<RunValue> list;
  for (const Optimizer &optimizer : train.optimizers) {
    size_t place = 0;
    for (const Hyperparameter &each : optimizer.rule->hyperparameters)
      for (size_t i = 0; i < each.size(); ++i)
        list.push_back(valueOf(each, i, optimizer.values[place++]));
  }
  const Schedule &s = train.schedule;
  auto among = [&](std::initializer_list<ScheduleKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), s.kind) != kinds.end();
  };
  auto add = [&](bool there, const char *key, RunValue::Kind kind, double value, bool zeroDecides = false) {
    list.push_back(there ? RunValue{key, kind, value, zeroDecides} : RunValue());
  };
  using K = ScheduleKind;
  add(true, "warmup", RunValue::Whole, s.warmup);
  add(among({K::Linear, K::Cosine, K::Polynomial, K::WSD}), "end", RunValue::AtLeast0, s.end);
  add(among({K::Polynomial}), "power", RunValue::Positive, s.power);
  add(among({K::Step, K::Exponential}), "factor", RunValue::AtLeast0, s.factor);
  add((among({K::Step, K::Exponential}) && s.at.empty()) || (among({K::Cosine}) && s.every > 0), "schedule.every", RunValue::Count, s.every);
  add(among({K::WSD}), "schedule.decay", RunValue::Count, s.decay);
  add(true, "clip", RunValue::Positive, train.clipNorm, true);
  add(true, "clip_value", RunValue::Positive, train.clipValue, true);
  add(train.hasEma, "ema", RunValue::Below1, train.ema);
  return list;
}

std::vector<double *> runValueFields(Train &train) {
  std::vector<double *> fields;
  for (Optimizer &optimizer : train.optimizers)
    for (double &value : optimizer.values)
      fields.push_back(&value);
  Schedule &s = train.schedule;
  fields.insert(fields.end(), {&s.warmup, &s.end, &s.power, &s.factor, &s.every, &s.decay, &train.clipNorm,
                               &train.clipValue, &train.ema});
  return fields;
}

RunValuePlaces runValuePlaces(const Train &train) {
  RunValuePlaces places;
  int64_t at = 0;
  for (const Optimizer &optimizer : train.optimizers) {
    places.optimizers.push_back(at);
    at += int64_t(optimizer.values.size());
  }
  places.schedule = at;
  places.clipNorm = at + 6;
  places.clipValue = at + 7;
  places.ema = at + 8;
  return places;
}

} // namespace cinch
