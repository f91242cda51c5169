// EmitTraining.cpp: the settings behind EmitTraining.h.
#include "compiler/transforms/EmitTraining.h"

#include "compiler/frontend/RunValues.h"

using namespace mlir;

namespace cinch {

DictionaryAttr parameterAttributes(Builder &builder, const Program &program, const Parameter &parameter) {
  MLIRContext *context = builder.getContext();
  SmallVector<NamedAttribute> attributes{
      builder.getNamedAttr(nn::kPathAttr, builder.getStringAttr(parameter.path)),
      builder.getNamedAttr(nn::kInitAttr,
                           nn::InitAttr::get(context, nn::InitKind(parameter.init.kind), APFloat(parameter.init.a)))};
  if (parameter.state) {
    attributes.push_back(builder.getNamedAttr(nn::kStateAttr, builder.getUnitAttr()));
    if (parameter.averageOf >= 0) {
      auto of = builder.getStringAttr(program.parameters[parameter.averageOf].path);
      auto rule = builder.getDictionaryAttr({builder.getNamedAttr("of", of),
                                             builder.getNamedAttr("decay", builder.getF64FloatAttr(program.train.ema))});
      attributes.push_back(builder.getNamedAttr(nn::kAverageAttr, rule));
    }
    return builder.getDictionaryAttr(attributes);
  }
  attributes.push_back(
      builder.getNamedAttr(nn::kOptimizerAttr, builder.getI64IntegerAttr(parameter.optimizer)));
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
    optimizers.push_back(nn::OptimizerAttr::get(context, o.rule->name, builder.getDenseF64ArrayAttr(o.values)));
  const Schedule &s = train.schedule;
  auto schedule = nn::ScheduleAttr::get(context, nn::ScheduleKind(s.kind), APFloat(s.warmup), APFloat(s.end),
                                        APFloat(s.power), APFloat(s.factor), APFloat(s.every), APFloat(s.decay), s.at);
  // The horizon is known when the run starts.
  return nn::TrainingAttr::get(context, optimizers, schedule, 0, APFloat(train.clipNorm),
                               APFloat(train.clipValue));
}

DenseI64ArrayAttr runValuesAttribute(Builder &builder, const Train &train) {
  RunValuePlaces places = runValuePlaces(train);
  SmallVector<int64_t> list(places.optimizers.begin(), places.optimizers.end());
  list.append({places.schedule, places.clipNorm, places.clipValue, places.ema});
  return builder.getDenseI64ArrayAttr(list);
}

} // namespace cinch
