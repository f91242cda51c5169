// LibraryHeader.cpp: see LibraryHeader.h.
#include "compiler/phases/LibraryHeader.h"
#include "compiler/solve/Units.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

namespace cinch {

std::string_view libraryFunctions(); // the text of runtime/library.h

// "float x[examples][3][4]"
static std::string declared(const Train &train, const std::string &name, const TensorType &type) {
  const char *element = type.dtype == DType::I32    ? "int32_t"
                        : type.dtype == DType::Bool ? "unsigned char"
                        : train.f64                 ? "double"
                                                    : "float";
  std::string text = std::string(element) + " " + name + (type.batch >= 0 ? "[examples]" : "");
  for (size_t axis = 0; axis < type.shape.size(); ++axis)
    if (int(axis) != type.batch)
      text += "[" + std::to_string(type.shape[axis]) + "]";
  return text;
}

// In a comment of C: what would end it, or looks like another one in it, is put apart.
static std::string inComment(const std::string &text) {
  std::string apart;
  for (char c : text) {
    const bool meets = !apart.empty() && ((apart.back() == '*' && c == '/') || (apart.back() == '/' && c == '*'));
    apart += meets ? std::string(" ") + c : std::string(1, c);
  }
  return apart;
}

std::string libraryHeader(const Program &program, const std::string &source, int64_t arenaBytes) {
  std::string text;
  llvm::raw_string_ostream out(text);
  const Train &train = program.train;
  out << "/* " << program.modelName << ", compiled by Cinch from " << inComment(source) << ": batch " << program.batch << ", " << arenaBytes
      << " bytes of memory.\n *\n * fields:\n";
  const Dataset &data = program.datasets[train.dataset];
  for (size_t i = 0; i < data.fields.size(); ++i) {
    const Field &field = data.fields[i];
    out << " *   " << i << "  " << declared(train, field.name, field.type);
    if (field.scale != 1)
      out << ", what the data has times " << solve::exactText(field.scale);
    if (field.normalize)
      out << ", minus " << data.nameOfNormal(field, "mean") << ", divided by " << data.nameOfNormal(field, "std");
    if (field.hasBelow)
      out << ", below " << field.below;
    if (field.hasExcept)
      out << ", or " << field.except;
    out << "\n";
  }
  out << " * metrics (double):\n";
  for (size_t i = 0; i < program.metrics.size(); ++i) {
    const NamedValue &metric = program.metrics[i];
    out << " *   " << i << "  " << metric.name;
    if (metric.op >= 0)
      for (int64_t size : program.evaluation.ops[metric.op].type.shape)
        out << "[" << size << "]";
    out << "\n";
  }
  out << " * results:\n";
  for (size_t i = 0; i < program.results.size(); ++i)
    out << " *   " << i << "  " << declared(train, program.results[i].name, program.prediction.ops[program.results[i].op].type) << "\n";
  out << " * parameters:\n";
  for (const Parameter &parameter : program.parameters)
    out << " *   " << declared(train, "\"" + parameter.path + "\"", parameter.type) << (parameter.state ? ", a state" : "") << "\n";
  for (const Field &field : data.fields)
    for (const char *part : {"mean", "std"}) {
      if (field.normalize)
        out << llvm::formatv(" *   double \"{0}\"[{1}], of field {2}: from a file, or written by whoever trains\n", data.nameOfNormal(field, part), data.valuesOfRow(field),
                             field.name);
    }
  out << " */\n" << llvm::StringRef(libraryFunctions());
  return text;
}

} // namespace cinch
