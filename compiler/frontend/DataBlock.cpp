// DataBlock.cpp: `data name = source(..) -> (field: type ..)`.
#include "compiler/frontend/Elaborator.h"
#include "compiler/frontend/TrainKeys.h"

#include <algorithm>

namespace cinch {

using namespace ast;

static const std::vector<std::string> sourceNames = {"idx", "npy", "npz", "csv", "safetensors", "text", "tokens", "records"};

static std::vector<std::string> optionsOf(Dataset::Source source) {
  switch (source) {
  case Dataset::Csv:
    return {"shuffle", "header", "separator", "missing", "hold_out", "hold_seed", "held"};
  case Dataset::Text:
    return {"shuffle", "window", "stride"};
  case Dataset::Tokens:
    return {"shuffle", "window", "stride", "header"};
  case Dataset::Records:
    return {"shuffle", "header"};
  default:
    return {"shuffle"};
  }
}

// `names (..)` and `normalize` of a field of a table.
void Elaborator::readTableWord(const FieldModifier &modifier, const Dataset &data, cinch::Field &field, Frame &frame) {
  bool normalizes = modifier.kind == FieldModifier::Normalize;
  if (data.source != Dataset::Csv) {
    report(Code::E0601, modifier.span, std::string(normalizes ? "`normalize`" : "`names`") + " is for csv", frame)
        .help(normalizes ? "in other files: subtract the mean and divide by the deviation in the model" : "");
    return;
  }
  if (normalizes) {
    if (field.type.dtype != DType::F32)
      report(Code::E0601, modifier.span, "`normalize` is for f32 fields", frame);
    field.normalize = true;
    return;
  }
  if (field.type.dtype != DType::I32) {
    report(Code::E0601, modifier.span, "`names` is for i32 fields: the first name is 0, the next one 1, ..", frame);
    return;
  }
  std::set<std::string> seen;
  for (const Arg &arg : modifier.list) {
    if (arg.value->kind != ExprKind::String || arg.name)
      report(Code::E0601, arg.span, "`names` takes strings, but this is `" + textOf(arg.span) + "`", frame);
    else if (!seen.insert(arg.value->text).second)
      report(Code::E0603, arg.span, "the name \"" + arg.value->text + "\" is given twice", frame);
    else
      field.names.push_back(arg.value->text);
  }
  int64_t count = int64_t(field.names.size());
  if (field.hasBelow && field.below != count)
    report(Code::E0601, modifier.span,
           std::to_string(count) + " names are values below " + std::to_string(count) + ", but the field is declared below " +
               std::to_string(field.below),
           frame);
  field.hasBelow = true;
  field.below = count;
}

void Elaborator::checkData(const DataItem &item) {
  Frame &frame = fileFrame;
  Dataset data;
  data.name = item.name.text;
  data.span = item.span;
  auto source = std::find(sourceNames.begin(), sourceNames.end(), item.source.text);
  if (source == sourceNames.end()) {
    report(Code::E0602, item.source.span, "unknown data source `" + item.source.text + "`", frame)
        .help(didYouMean(item.source.text, sourceNames));
    return;
  }
  data.source = static_cast<Dataset::Source>(source - sourceNames.begin());
  bool windows = data.source == Dataset::Text || data.source == Dataset::Tokens;
  bool oneFileAField = data.source == Dataset::Idx || data.source == Dataset::Npy;
  std::vector<std::string> known = optionsOf(data.source);
  Number window;
  bool hasWindow = false, hasStride = false, hasBits = false;
  std::set<std::string> given;

  auto wholeOption = [&](const Arg &arg, int64_t least, Number &number) {
    std::optional<Number> value = evalConstantNumber(*arg.value, frame, arg.name.text.c_str());
    if (!value)
      return false;
    std::optional<int64_t> whole = value->integer();
    if (!whole || *whole < least || *whole > INT32_MAX) {
      report(Code::E0603, arg.value->span,
             "`" + arg.name.text + "` must be a whole number of at least " + std::to_string(least) + ", but this is " +
                 sizeText(*value),
             frame);
      return false;
    }
    number = *value;
    return true;
  };
  auto boolOption = [&](const Arg &arg, bool &flag) {
    Value value = evalWhole(*arg.value, frame);
    if (value.isBool())
      flag = value.flag;
    else if (!value.isError())
      report(Code::E0603, arg.value->span,
             "`" + arg.name.text + "` is true or false, but this is " + describe(value, dims), frame);
  };
  for (const Arg &arg : item.args) {
    const std::string &name = arg.name.text;
    if (name.empty()) {
      if (arg.value->kind == ExprKind::String) {
        data.files.push_back(arg.value->text);
      } else if (data.source == Dataset::Tokens && arg.value->kind == ExprKind::Name &&
                 (arg.value->text == "u16" || arg.value->text == "u32")) {
        data.tokenBits = arg.value->text == "u16" ? 16 : 32;
        hasBits = true;
      } else {
        report(Code::E0601, arg.span,
               data.source == Dataset::Tokens
                   ? "`tokens` takes a file and u16 or u32, but this is `" + textOf(arg.span) + "`"
                   : "a file is a string, but this is `" + textOf(arg.span) + "`",
               frame);
      }
      continue;
    }
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      report(Code::E0602, arg.name.span, "`" + item.source.text + "` has no option `" + name + "`", frame)
          .help(didYouMean(name, known));
      continue;
    }
    if (!given.insert(name).second) {
      report(Code::E0603, arg.name.span, "`" + name + "` is given twice", frame);
      continue;
    }
    Number number;
    if (name == "shuffle") {
      boolOption(arg, data.shuffle);
    } else if (name == "window" && wholeOption(arg, 2, number)) {
      window = number;
      hasWindow = true;
      data.window = *number.integer();
    } else if (name == "stride" && wholeOption(arg, 1, number)) {
      data.stride = *number.integer();
      hasStride = true;
    } else if (name == "header" && data.source != Dataset::Csv) {
      if (wholeOption(arg, 0, number))
        data.header = *number.integer();
    } else if (name == "header") {
      boolOption(arg, data.csvHeader);
    } else if (name == "missing") {
      if (std::optional<Number> value = settingNumber(*arg.value, "missing", Range{Range::Any}, frame)) {
        data.hasMissing = true;
        data.missing = value->real;
      }
    } else if (name == "hold_out") {
      if (std::optional<Number> value = settingNumber(*arg.value, "hold_out", Range{Range::Below1}, frame))
        data.holdOut = value->real;
    } else if (name == "hold_seed" && wholeOption(arg, 0, number)) {
      data.holdSeed = uint64_t(*number.integer());
    } else if (name == "held") {
      boolOption(arg, data.held);
    } else if (name == "separator") {
      if (arg.value->kind == ExprKind::String && arg.value->text.size() == 1)
        data.separator = arg.value->text;
      else
        report(Code::E0603, arg.value->span, "`separator` is a string of one character", frame);
    }
  }
  if (!given.count("hold_out"))
    for (const Arg &arg : item.args)
      if (arg.name && (arg.name.text == "hold_seed" || arg.name.text == "held"))
        report(Code::E0604, arg.name.span, "`" + arg.name.text + "` needs `hold_out = ..` beside it", frame)
            .help("hold_out = 0.1 on both data sets, and held = true on the one that takes the rows held out");
  size_t files = oneFileAField ? item.fields.size() : 1;
  if (data.source == Dataset::Records && data.files.empty())
    report(Code::E0601, item.source.span, "`records` takes one file or more", frame);
  if (data.source != Dataset::Records && data.files.size() != files)
    report(Code::E0601, item.source.span,
           "`" + item.source.text + "` takes " +
               (oneFileAField ? "one file for each of the " + std::to_string(files) + " fields"
                              : std::string("one file")) +
               ", but " + std::to_string(data.files.size()) + " are given",
           frame);
  if (windows && !hasWindow && !given.count("window"))
    report(Code::E0604, item.source.span, "`" + item.source.text + "` needs `window = n`", frame);
  if (data.source == Dataset::Tokens && !hasBits)
    report(Code::E0604, item.source.span, "`tokens` needs u16 or u32", frame)
        .help("write tokens(\"file\", u16, window = ..)");
  if (windows && !hasStride && hasWindow)
    data.stride = data.window - 1;
  if (windows && item.fields.size() != 1)
    report(Code::E0601, item.source.span,
           "`" + item.source.text + "` has one field, but " + std::to_string(item.fields.size()) + " are declared",
           frame);

  std::set<std::string> names;
  std::vector<std::vector<Number>> allAxes;
  for (const ast::Field &declared : item.fields) {
    cinch::Field field;
    field.name = declared.name.text;
    field.span = declared.span;
    if (!names.insert(field.name).second)
      report(Code::E0102, declared.name.span, "field `" + field.name + "` is defined twice", frame);
    std::optional<DType> dtype = typeDtype(declared.type, frame);
    std::optional<std::vector<Number>> axes = typeAxes(declared.type, frame);
    Interval range;
    typeBounds(declared.type, frame, range, field.hasExcept, field.except);
    field.hasBelow = range.known;
    field.below = range.known ? range.high + 1 : 0;
    if (!dtype || !axes)
      continue;
    if (axes->empty() || !isBatch((*axes)[0])) {
      report(Code::E0601, declared.type.span,
             "the first axis of a field is the batch dim, but `" + field.name + "` is " + typeText(*dtype, *axes, dims),
             frame)
          .help(batchDim >= 0 ? "write " + dims[batchDim].name + " first" : "declare it, `dim B = 128 batch`");
      continue;
    }
    if (windows && (*dtype != DType::I32 || axes->size() != 2 || (hasWindow && !sameSize((*axes)[1], window)))) {
      Diagnostic &d = report(Code::E0601, declared.type.span,
                             "the field of `" + item.source.text + "` is i32[" + dims[batchDim].name +
                                 ", window], but this is " + typeText(*dtype, *axes, dims),
                             frame);
      if (hasWindow)
        d.note("window = " + sizeText(window));
    }
    field.type.dtype = *dtype;
    field.type.batch = 0;
    double elements = 1;
    for (const Number &axis : *axes) {
      field.type.shape.push_back(*axis.integer());
      elements *= axis.real;
    }
    if (elements * 4 >= 70368744177664.0)
      report(Code::E0205, declared.type.span, "a tensor must be smaller than 2^46 bytes", frame);
    for (const FieldModifier &modifier : declared.modifiers) {
      if (modifier.kind == FieldModifier::Scale) {
        std::optional<Number> scale = evalConstantNumber(*modifier.scale, frame, "`scale`");
        if (*dtype != DType::F32)
          report(Code::E0601, modifier.span, "`scale` is for f32 fields", frame);
        if (scale)
          field.scale = scale->real;
        continue;
      }
      if (modifier.kind == FieldModifier::Names || modifier.kind == FieldModifier::Normalize) {
        readTableWord(modifier, data, field, frame);
        continue;
      }
      if (data.source != Dataset::Npz && data.source != Dataset::Csv && data.source != Dataset::Safetensors)
        report(Code::E0601, modifier.span,
               "`from` is for npz, csv and safetensors; files of `" + item.source.text + "` are taken in order", frame);
      for (const Arg &arg : modifier.list) {
        bool column = data.source == Dataset::Csv && !data.csvHeader && arg.value->kind == ExprKind::Number;
        if (arg.value->kind != ExprKind::String && !column)
          report(Code::E0601, arg.span,
                 "`from` takes strings" + std::string(data.source == Dataset::Csv ? ", or numbers of columns "
                                                                                    "without a header"
                                                                                  : ""),
                 frame);
        else
          field.from.push_back(arg.value->text);
      }
      if (field.from.size() > 1 && data.source != Dataset::Csv)
        report(Code::E0601, modifier.span, "one array a field", frame);
    }
    if (field.normalize && field.scale != 1)
      report(Code::E0601, declared.span, "`normalize` and `scale` exclude each other: normalized values have deviation 1", frame);
    if (data.source == Dataset::Csv) {
      if (field.from.empty() && data.csvHeader)
        field.from.push_back(field.name);
      double columns = elements / (*axes)[0].real;
      if (static_cast<double>(field.from.size()) != columns)
        report(Code::E0601, declared.span,
               "`" + field.name + "` takes " + countText(columns) + " columns, but " +
                   std::to_string(field.from.size()) + " are named",
               frame)
            .help("write from (\"a\", \"b\", ..)");
    } else if (field.from.empty() && (data.source == Dataset::Npz || data.source == Dataset::Safetensors)) {
      field.from.push_back(field.name);
    }
    data.fields.push_back(field);
    allAxes.push_back(*axes);
  }
  dataComplete.push_back(data.fields.size() == item.fields.size());
  datasetIndex[data.name] = static_cast<int>(program.datasets.size());
  program.datasets.push_back(std::move(data));
  fieldAxes.push_back(std::move(allAxes));
}

} // namespace cinch
