#include "compiler/tools/GptShape.h"

namespace cinch {

double parametersOf(const Program &program) {
  double count = 0;
  for (const Parameter &parameter : program.parameters) {
    double size = parameter.state || parameter.averageOf >= 0 ? 0 : 1;
    for (int64_t side : parameter.type.shape)
      size *= double(side);
    count += size;
  }
  return count;
}

std::string gptShape(const Program &program, solve::GptModel &model) {
  std::vector<int64_t> shape; // examples, heads, positions, width of a head
  int64_t layers = 0;
  for (const Op &op : program.step.ops)
    if (op.kind == OpKind::Attend) {
      if (op.type.batch != 0 || op.type.shape.size() != 4)
        return "an `attend` of its is not over examples, heads and positions";
      if (layers++ && op.type.shape != shape)
        return "its `attend` calls have several shapes";
      shape = op.type.shape;
    }
  if (layers == 0)
    return "it has no `attend`";
  if (program.modelResult < 0)
    return "its model does not return one tensor";
  const TensorType &scores = program.prediction.ops[size_t(program.results[size_t(program.modelResult)].op)].type;
  if (scores.batch != 0 || scores.shape.size() != 3 || scores.shape[1] != shape[2])
    return "its model does not return scores over a vocabulary at each position";
  if (program.train.f64)
    return "it computes in f64";
  model.layers = layers, model.heads = shape[1], model.sequence = shape[2], model.hidden = shape[1] * shape[3];
  model.vocabulary = scores.shape[2], model.batch = program.batch;
  model.precision = "f32";
  model.parameterBytes = model.gradientBytes = 4, model.stateBytes = 8;
  return "";
}

} // namespace cinch
