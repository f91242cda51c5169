// EmitTraining.cpp: the tables behind EmitTraining.h.
#include "compiler/transforms/EmitTraining.h"

using namespace mlir;

namespace cinch {

nn::Comparison comparisonOf(CompareKind kind) {
  switch (kind) {
  case CompareKind::EQ: return nn::Comparison::EQ;
  case CompareKind::NE: return nn::Comparison::NE;
  case CompareKind::LT: return nn::Comparison::LT;
  case CompareKind::LE: return nn::Comparison::LE;
  case CompareKind::GT: return nn::Comparison::GT;
  case CompareKind::GE: break;
  }
  return nn::Comparison::GE;
}

nn::Reduction reductionOf(ReduceKind kind) {
  switch (kind) {
  case ReduceKind::Sum:
  case ReduceKind::Mean: return nn::Reduction::Sum;
  case ReduceKind::Max: return nn::Reduction::Max;
  case ReduceKind::Min: return nn::Reduction::Min;
  case ReduceKind::Prod: return nn::Reduction::Prod;
  case ReduceKind::Any: return nn::Reduction::Any;
  case ReduceKind::All: break;
  }
  return nn::Reduction::All;
}

nn::Draw drawOf(RandomKind kind) {
  switch (kind) {
  case RandomKind::Uniform: return nn::Draw::Uniform;
  case RandomKind::Normal: return nn::Draw::Normal;
  case RandomKind::Int: return nn::Draw::Int;
  case RandomKind::Bool: break;
  }
  return nn::Draw::Bool;
}

static nn::InitKind initOf(Init::Kind kind) {
  switch (kind) {
  case Init::Constant: return nn::InitKind::Constant;
  case Init::Normal: return nn::InitKind::Normal;
  case Init::TruncatedNormal: return nn::InitKind::Truncated_Normal;
  case Init::Uniform: return nn::InitKind::Uniform;
  case Init::Orthogonal: break;
  }
  return nn::InitKind::Orthogonal;
}

static nn::OptimizerKind optimizerOf(Optimizer::Kind kind) {
  switch (kind) {
  case Optimizer::SGD: return nn::OptimizerKind::SGD;
  case Optimizer::Adam: return nn::OptimizerKind::Adam;
  case Optimizer::AdamW: break;
  }
  return nn::OptimizerKind::AdamW;
}

static nn::ScheduleKind scheduleOf(Schedule::Kind kind) {
  switch (kind) {
  case Schedule::Constant: return nn::ScheduleKind::Constant;
  case Schedule::Linear: return nn::ScheduleKind::Linear;
  case Schedule::Cosine: return nn::ScheduleKind::Cosine;
  case Schedule::Polynomial: return nn::ScheduleKind::Polynomial;
  case Schedule::InverseSqrt: return nn::ScheduleKind::Inverse_Sqrt;
  case Schedule::Step: return nn::ScheduleKind::Step;
  case Schedule::Exponential: return nn::ScheduleKind::Exponential;
  case Schedule::WSD: break;
  }
  return nn::ScheduleKind::WSD;
}

DictionaryAttr parameterAttributes(Builder &builder, const Parameter &parameter) {
  MLIRContext *context = builder.getContext();
  SmallVector<NamedAttribute> attributes{
      builder.getNamedAttr(nn::kPathAttr, builder.getStringAttr(parameter.path)),
      builder.getNamedAttr(nn::kInitAttr,
                           nn::InitAttr::get(context, initOf(parameter.init.kind), APFloat(parameter.init.a))),
      builder.getNamedAttr(nn::kOptimizerAttr, builder.getI64IntegerAttr(parameter.optimizer))};
  if (parameter.decays)
    attributes.push_back(builder.getNamedAttr(nn::kDecaysAttr, builder.getUnitAttr()));
  if (parameter.frozen)
    attributes.push_back(builder.getNamedAttr(nn::kFrozenAttr, builder.getUnitAttr()));
  return builder.getDictionaryAttr(attributes);
}

nn::TrainingAttr trainingAttribute(Builder &builder, const Train &train) {
  MLIRContext *context = builder.getContext();
  SmallVector<nn::OptimizerAttr> optimizers;
  for (const Optimizer &o : train.optimizers)
    optimizers.push_back(nn::OptimizerAttr::get(context, optimizerOf(o.kind), APFloat(o.lr), APFloat(o.momentum),
                                                o.nesterov, APFloat(o.beta1), APFloat(o.beta2), APFloat(o.eps),
                                                APFloat(o.decay)));
  const Schedule &s = train.schedule;
  auto schedule = nn::ScheduleAttr::get(context, scheduleOf(s.kind), APFloat(s.warmup), APFloat(s.end),
                                        APFloat(s.power), APFloat(s.factor), APFloat(s.every), APFloat(s.decay), s.at);
  return nn::TrainingAttr::get(context, optimizers, schedule, train.steps, APFloat(train.clipNorm),
                               APFloat(train.clipValue));
}

} // namespace cinch
