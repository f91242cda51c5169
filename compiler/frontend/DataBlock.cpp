// DataBlock.cpp: `data name = source(..) -> (field: type ..)`.
#include "compiler/frontend/Elaborator.h"
#include "compiler/frontend/TrainKeys.h"

#include <algorithm>
#include <utility>

namespace cinch {

using namespace ast;

static const std::vector<std::string> sourceNames = {"idx", "npy", "npz", "csv", "safetensors", "text", "tokens", "records"};

static std::vector<std::string> optionsOf(Dataset::Source source) {
  switch (source) {
  case Dataset::Csv:
    return {"shuffle", "header", "separator", "missing", "hold_out", "hold_seed", "held", "window", "stride"};
  case Dataset::Text:
    return {"shuffle", "window", "stride", "hold_out", "hold_seed", "held"};
  case Dataset::Tokens:
    return {"shuffle", "window", "stride", "header", "hold_out", "hold_seed", "held"};
  case Dataset::Records:
    return {"shuffle", "header", "hold_out", "hold_seed", "held"};
  default: // arrays
    return {"shuffle", "window", "stride", "hold_out", "hold_seed", "held"};
  }
}

// `names (..)` of a field of a table, `normalize` of an array or a table.
void Elaborator::readTableWord(const FieldModifier &modifier, const Dataset &data, cinch::Field &field, Frame &frame) {
  if (modifier.kind == FieldModifier::Normalize) {
    if (data.source == Dataset::Records) // fields of several files, a byte each
      report(Code::E0601, modifier.span, "`normalize` is for csv, npy, npz, safetensors and idx", frame)
          .help("for bytes write `scale 1/255`, or subtract the mean and divide by the deviation in the model");
    else if (field.type.dtype != DType::F32)
      report(Code::E0601, modifier.span, "`normalize` is for f32 fields", frame);
    field.normalize = true;
    return;
  }
  if (data.source != Dataset::Csv) {
    report(Code::E0601, modifier.span, "`names` is for csv", frame);
    return;
  }
  const bool isFlag = field.type.dtype == DType::Bool;
  if (field.type.dtype != DType::I32 && !isFlag) {
    report(Code::E0601, modifier.span, "`names` is for i32 fields, the first name is 0, the next one 1, .., and for bool fields, false and true", frame);
    return;
  }
  std::set<std::string> seen;
  for (const Arg &arg : modifier.list) {
    const bool isOther = arg.value->kind == ExprKind::Name && arg.value->text == "other" && !arg.name;
    if (isOther && isFlag)
      report(Code::E0601, arg.span, "`other` is for i32 fields: a bool field has two names, the first is false, the second true", frame);
    else if (isOther && (&arg != &modifier.list.back() || modifier.list.size() == 1))
      report(Code::E0601, arg.span, "`other` is what a cell counts as that is none of the names: it stands last, behind one at least", frame);
    else if (isOther)
      field.other = true;
    else if (arg.value->kind != ExprKind::String || arg.name)
      report(Code::E0601, arg.span, "`names` takes strings, but this is `" + textOf(arg.span) + "`", frame)
          .help(isFlag ? "" : "a cell that is none of them is the last class if the word `other` stands behind them");
    else if (arg.value->text.size() > 255) // the runtime keeps no more of a cell
      report(Code::E0603, arg.span, "a name has at most 255 bytes, but this one has " + std::to_string(arg.value->text.size()), frame);
    else if (!seen.insert(arg.value->text).second)
      report(Code::E0603, arg.span, "the name \"" + arg.value->text + "\" is given twice", frame);
    else
      field.names.push_back(arg.value->text);
  }
  if (isFlag) {
    if (modifier.list.size() != 2)
      report(Code::E0601, modifier.span, "a bool field has two names, the first is false, the second true, but here are " + std::to_string(modifier.list.size()), frame);
    return;
  }
  const int64_t count = int64_t(field.names.size()) + field.other;
  if (field.hasBelow && field.below != count)
    report(Code::E0601, modifier.span,
           std::to_string(field.names.size()) + " names" + (field.other ? " and `other`" : "") + " are values below " + std::to_string(count) + ", but the field is declared below " +
               std::to_string(field.below),
           frame);
  field.hasBelow = true;
  field.below = count;
}

// One data set: its source, the arguments of the source, then field by field.
class DataReader {
public:
  DataReader(Elaborator &e, const DataItem &item) : e(e), item(item), frame(e.fileFrame) {}

  void read() {
    data.name = item.name.text;
    data.span = item.span;
    auto source = std::find(sourceNames.begin(), sourceNames.end(), item.source.text);
    if (source == sourceNames.end()) {
      e.report(Code::E0602, item.source.span, "unknown data source `" + item.source.text + "`", frame)
          .help(meantOrAll(item.source.text, sourceNames));
      return;
    }
    data.source = static_cast<Dataset::Source>(source - sourceNames.begin());
    known = optionsOf(data.source);
    for (const Arg &arg : item.args) {
      e.refuseExcept(arg, Code::E0601, frame);
      arg.name.text.empty() ? readFile(arg) : readOption(arg);
    }
    checkSource();
    std::set<std::string> names;
    for (const ast::Field &declared : item.fields) {
      if (!names.insert(declared.name.text).second)
        e.report(Code::E0102, declared.name.span, "field `" + declared.name.text + "` is defined twice", frame);
      readField(declared);
    }
    checkMean();
    e.dataComplete.push_back(data.fields.size() == item.fields.size());
    e.datasetIndex[data.name] = static_cast<int>(e.program.datasets.size());
    e.program.datasets.push_back(std::move(data));
    e.fieldAxes.push_back(std::move(allAxes));
  }

private:
  bool isText() const { return data.source == Dataset::Text || data.source == Dataset::Tokens; } // always in windows
  bool hasRows() const { return !isText() && data.source != Dataset::Records; }
  bool inWindows() const { return hasRows() && given.count("window"); } // of rows
  bool byName() const { return data.source == Dataset::Npz || data.source == Dataset::Safetensors || data.source == Dataset::Csv; }
  Diagnostic &report(Code code, Span span, const std::string &text) { return e.report(code, span, text, frame); }
  std::string sourceText() const { return "`" + item.source.text + "`"; }

  // ---- Arguments of the source -----------------------------------------------------------------------------------------
  void readFile(const Arg &arg) {
    bool tokens = data.source == Dataset::Tokens;
    if (arg.value->kind == ExprKind::String) {
      data.files.push_back(arg.value->text);
    } else if (tokens && arg.value->kind == ExprKind::Name && (arg.value->text == "u16" || arg.value->text == "u32")) {
      if (hasBits)
        report(Code::E0603, arg.span, "`tokens` takes u16 or u32, once").help("leave one of them out");
      data.tokenBits = arg.value->text == "u16" ? 16 : 32;
      hasBits = true;
    } else {
      report(Code::E0601, arg.span,
             (tokens ? "`tokens` takes a file and u16 or u32, but this is `" : "a file is a string, but this is `") + e.textOf(arg.span) + "`");
    }
  }

  std::optional<int64_t> wholeOption(const Arg &arg, int64_t least) {
    std::optional<Number> value = e.evalConstantNumber(*arg.value, frame, arg.name.text.c_str());
    if (!value)
      return std::nullopt;
    std::optional<int64_t> whole = value->integer();
    if (!whole || *whole < least || *whole > INT32_MAX) {
      report(Code::E0603, arg.value->span,
             "`" + arg.name.text + "` must be a whole number of at least " + std::to_string(least) + ", but this is " + e.sizeText(*value));
      return std::nullopt;
    }
    number = *value;
    return whole;
  }
  void boolOption(const Arg &arg, bool &flag) {
    Value value = e.evalWhole(*arg.value, frame);
    if (value.isBool())
      flag = value.flag;
    else if (!value.isError())
      report(Code::E0603, arg.value->span, "`" + arg.name.text + "` is true or false, but this is " + describe(value, e.dims));
  }

  void readOption(const Arg &arg) {
    const std::string &name = arg.name.text;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      report(Code::E0602, arg.name.span, sourceText() + " has no option `" + name + "`").help(meantOrAll(name, known));
      return;
    }
    if (!given.insert(name).second) {
      report(Code::E0603, arg.name.span, "`" + name + "` is given twice");
      return;
    }
    takeOption(name, arg);
  }
  // `missing = "mean"`, and words that stand where it should. False: it is a number.
  bool readMean(const Arg &arg) {
    const Expr &value = *arg.value;
    const bool isWord = value.kind == ExprKind::Name && value.text == "nan" && !frame.names.count(value.text);
    if (value.kind != ExprKind::String && !isWord)
      return false;
    data.missingMean = value.kind == ExprKind::String && value.text == "mean";
    if (!data.missingMean)
      report(Code::E0207, value.span, "`missing` is a number or \"mean\", but this is `" + e.textOf(value.span) + "`")
          .help("missing = \"mean\": in normalized fields empty cells count as the mean of their column; `NA` and the like are empty cells without being named");
    return true;
  }
  void takeOption(const std::string &name, const Arg &arg) {
    auto whole = [&](int64_t least, auto &to) {
      std::optional<int64_t> value = wholeOption(arg, least);
      if (value)
        to = std::decay_t<decltype(to)>(*value);
      return value.has_value();
    };
    if (name == "shuffle")
      return boolOption(arg, data.shuffle);
    if (name == "held")
      return boolOption(arg, data.held);
    if (name == "header" && data.source == Dataset::Csv)
      return boolOption(arg, data.csvHeader);
    if (name == "header")
      return (void)whole(0, data.header);
    if (name == "hold_seed")
      return (void)whole(0, data.holdSeed);
    if (name == "stride")
      return (void)(hasStride = whole(1, data.stride));
    if (name == "window") {
      if ((hasWindow = whole(2, data.window)))
        window = number;
      return;
    }
    if (name == "missing" && readMean(arg))
      return;
    if (name == "missing" || name == "hold_out") {
      bool missing = name == "missing";
      std::optional<Number> value = e.settingNumber(*arg.value, name.c_str(), Range{missing ? Range::Any : Range::Below1}, frame);
      if (value && missing)
        data.hasMissing = true;
      if (value)
        (missing ? data.missing : data.holdOut) = value->real;
      return;
    }
    // separator
    if (arg.value->kind == ExprKind::String && arg.value->text.size() == 1)
      data.separator = arg.value->text;
    else
      report(Code::E0603, arg.value->span, "`separator` is a string of one character");
  }

  const Arg *argNamed(const char *name) const { // an option that the source has
    for (const Arg &arg : item.args)
      if (arg.name && arg.name.text == name && given.count(name))
        return &arg;
    return nullptr;
  }
  // Which examples are held out is drawn, but of windows the last are.
  void checkHeldOut() {
    for (const char *name : {"hold_seed", "held"})
      if (const Arg *arg = given.count("hold_out") ? nullptr : argNamed(name))
        report(Code::E0604, arg->name.span, "`" + arg->name.text + "` needs `hold_out = ..` beside it")
            .help("hold_out = 0.1 on both data sets, and held = true on the one that takes the rows held out");
    if (const Arg *seed = given.count("window") || isText() ? argNamed("hold_seed") : nullptr)
      report(Code::E0604, seed->name.span,
             std::string("`hold_seed` draws examples, but of windows ") + (isText() ? "the end of each file is" : "the last rows are") + " held out")
          .help("leave hold_seed out: no window of the training may reach into what comes later");
  }

  void checkMean() {
    bool any = !data.missingMean || data.fields.size() != item.fields.size();
    for (const cinch::Field &field : data.fields)
      any |= field.normalize;
    if (!any)
      report(Code::E0604, argNamed("missing")->span, "`missing = \"mean\"` is for fields with `normalize`, and no field of `" + data.name + "` has it")
          .help("write `normalize` behind the type of a field, or the number that empty cells count as");
  }

  // What the arguments are together.
  void checkSource() {
    checkHeldOut();
    bool oneFileAField = data.source == Dataset::Idx || data.source == Dataset::Npy;
    size_t files = oneFileAField ? item.fields.size() : 1;
    const bool severalFiles = !hasRows();
    if (severalFiles && data.files.empty())
      report(Code::E0601, item.source.span, sourceText() + " takes one file or more");
    if (!severalFiles && data.files.size() != files)
      report(Code::E0601, item.source.span,
             sourceText() + " takes " + (oneFileAField ? "one file for each of the " + std::to_string(files) + " fields" : std::string("one file")) +
                 ", but " + std::to_string(data.files.size()) + " are given")
          .help(byName() ? "each field is what has its name in the file; another name stands behind `from`: x: f32[B, D] from \"pixels\"" : "");
    if (const Arg *stride = hasRows() && !given.count("window") ? argNamed("stride") : nullptr)
      report(Code::E0604, stride->name.span, "`stride` needs `window = n` beside it: an example is then n rows that follow one another");
    if (isText() && !hasWindow && !given.count("window"))
      report(Code::E0604, item.source.span, sourceText() + " needs `window = n`");
    if (data.source == Dataset::Tokens && !hasBits)
      report(Code::E0604, item.source.span, "`tokens` needs u16 or u32").help("write tokens(\"file\", u16, window = ..)");
    if (!hasStride && hasWindow)
      data.stride = isText() ? data.window - 1 : 1;
    if (isText() && item.fields.size() != 1)
      report(Code::E0601, item.source.span,
             sourceText() + " has one field, but " + std::to_string(item.fields.size()) + " are declared");
  }

  // ---- Fields ----------------------------------------------------------------------------------------------------------
  void readField(const ast::Field &declared) {
    cinch::Field field;
    field.name = declared.name.text;
    field.span = declared.span;
    std::optional<std::vector<Number>> axes = readType(declared, field);
    if (!axes)
      return;
    double elements = 1;
    for (const Number &axis : *axes) {
      field.type.shape.push_back(*axis.integer());
      elements *= axis.real;
    }
    if (elements * 4 >= 70368744177664.0)
      report(Code::E0205, declared.type.span, "a tensor must be smaller than 2^46 bytes");
    for (const FieldModifier &modifier : declared.modifiers) {
      if (modifier.again)
        report(Code::E0603, modifier.span, "the field has two of these words; each stands once");
      readModifier(modifier, field);
    }
    if (field.normalize && field.scale != 1)
      report(Code::E0601, declared.span, "`normalize` and `scale` exclude each other: normalized values have deviation 1");
    if (inWindows())
      checkRows(declared, field);
    nameColumns(declared, elements / (*axes)[0].real / (inWindows() ? (*axes)[1].real : 1), field);
    data.fields.push_back(field);
    allAxes.push_back(*axes);
  }

  // The axes of the field, if it has a type that its source can give it.
  std::optional<std::vector<Number>> readType(const ast::Field &declared, cinch::Field &field) {
    std::optional<DType> dtype = e.typeDtype(declared.type, frame);
    std::optional<std::vector<Number>> axes = e.typeAxes(declared.type, frame);
    Interval range;
    e.typeBounds(declared.type, frame, range, field.hasExcept, field.except);
    field.hasBelow = range.known;
    field.below = range.known ? range.high + 1 : 0;
    if (!dtype || !axes)
      return std::nullopt;
    if (axes->empty() || !e.isBatch((*axes)[0])) {
      report(Code::E0601, declared.type.span,
             "the first axis of a field is the batch dim, but `" + field.name + "` is " + typeText(*dtype, *axes, e.dims))
          .help(e.batchDim >= 0 ? "write " + e.dims[e.batchDim].name + " first" : "declare it, `dim B = 128 batch`");
      return std::nullopt;
    }
    if (inWindows() && axes->size() < 2) {
      report(Code::E0601, declared.type.span,
             "an example is a window of rows, and the axis behind the batch counts them, but `" + field.name + "` is " + typeText(*dtype, *axes, e.dims))
          .help("one row of the window is " + e.dims[e.batchDim].name + ", 1; the row it begins with stands behind `at`: y: f32[" +
                e.dims[e.batchDim].name + ", 1] at 5");
      return std::nullopt;
    }
    if (isText() && (*dtype != DType::I32 || axes->size() != 2 || (hasWindow && !e.sameSize((*axes)[1], window)))) {
      Diagnostic &d = report(Code::E0601, declared.type.span,
                             "the field of " + sourceText() + " is i32[" + e.dims[e.batchDim].name + ", window], but this is " +
                                 typeText(*dtype, *axes, e.dims));
      if (hasWindow)
        d.note("window = " + e.sizeText(window));
    }
    field.type.dtype = *dtype;
    field.type.batch = 0;
    return axes;
  }

  void readModifier(const FieldModifier &modifier, cinch::Field &field) {
    if (modifier.kind == FieldModifier::Below) // readType has it
      return;
    for (const Arg &arg : modifier.list)
      e.refuseExcept(arg, Code::E0601, frame);
    if (modifier.kind == FieldModifier::Scale) {
      std::optional<Number> scale = e.evalConstantNumber(*modifier.number, frame, "`scale`");
      if (field.type.dtype != DType::F32)
        report(Code::E0601, modifier.span, "`scale` is for f32 fields");
      if (scale)
        field.scale = scale->real;
      return;
    }
    if (modifier.kind == FieldModifier::Names || modifier.kind == FieldModifier::Normalize)
      return e.readTableWord(modifier, data, field, frame);
    if (modifier.kind == FieldModifier::At)
      return readAt(modifier, field);
    if (data.source != Dataset::Npz && data.source != Dataset::Csv && data.source != Dataset::Safetensors)
      report(Code::E0601, modifier.span,
             "`from` is for npz, csv and safetensors; files of " + sourceText() + " are taken in order");
    for (const Arg &arg : modifier.list) {
      bool column = data.source == Dataset::Csv && !data.csvHeader && arg.value->kind == ExprKind::Number;
      if ((arg.value->kind != ExprKind::String && !column) || arg.name) {
        Diagnostic &d = report(Code::E0601, arg.span,
                               std::string("`from` takes strings") + (data.source == Dataset::Csv ? ", or numbers of columns without a header" : ""));
        if (arg.value->kind == ExprKind::Name && !arg.name)
          d.help("write \"" + arg.value->text + "\"");
        hasWrongName = true;
        return;
      }
      field.from.push_back(arg.value->text);
    }
    if (field.from.size() > 1 && data.source != Dataset::Csv)
      report(Code::E0601, modifier.span, "one array a field");
  }

  void readAt(const FieldModifier &modifier, cinch::Field &field) {
    std::optional<Number> at = e.evalConstantNumber(*modifier.number, frame, "`at`");
    if (!inWindows())
      report(Code::E0601, modifier.span, "`at` is for windows of rows: it says with which row of a window the field begins")
          .help(hasRows() ? "write `window = n` behind the file" : "");
    else if (at && (!at->integer() || *at->integer() < 0 || *at->integer() > INT32_MAX))
      report(Code::E0603, modifier.span, "`at` is the number of a row, from 0 to " + std::to_string(INT32_MAX) + ", but this is " + e.sizeText(*at));
    else if (at)
      field.at = *at->integer();
  }
  void checkRows(const ast::Field &declared, const cinch::Field &field) {
    const int64_t rows = field.type.shape[1];
    if (hasWindow && (field.at > data.window || rows > data.window - field.at))
      report(Code::E0601, declared.span,
             "`" + field.name + "` has the rows " + std::to_string(field.at) + " to " + std::to_string(field.at + rows - 1) + ", but a window has " +
                 std::to_string(data.window))
          .help(field.at + rows <= INT32_MAX ? "write window = " + std::to_string(field.at + rows) : "");
  }

  // What a field takes of its file if it does not say so: what has its name.
  void nameColumns(const ast::Field &declared, double columns, cinch::Field &field) {
    if (std::exchange(hasWrongName, false)) // which was said
      return;
    if (data.source == Dataset::Csv) {
      bool named = !field.from.empty();
      if (!named && data.csvHeader)
        field.from.push_back(field.name);
      std::string found = named ? std::to_string(field.from.size()) + (field.from.size() == 1 ? " is named" : " are named") : "none is named";
      if (static_cast<double>(field.from.size()) != columns)
        report(Code::E0601, declared.span, "`" + field.name + "` takes " + countText(columns) + " columns, but " + found)
            .help("write from (\"a\", \"b\", ..)");
    } else if (field.from.empty() && (data.source == Dataset::Npz || data.source == Dataset::Safetensors)) {
      field.from.push_back(field.name);
    }
  }

  Elaborator &e;
  const DataItem &item;
  Frame &frame;
  Dataset data;
  std::vector<std::string> known;             // options of the source
  std::set<std::string> given;                // those that are written
  Number window, number;                      // number: of the last whole option
  bool hasWindow = false, hasStride = false, hasBits = false;
  bool hasWrongName = false;                  // the field that is read: a name of a column is none
  std::vector<std::vector<Number>> allAxes;   // of the fields
};

void Elaborator::checkData(const DataItem &item) { DataReader(*this, item).read(); }

} // namespace cinch
